package partition

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
)

// campaignApart is what lies between the campaigns of two followers: time for the first to
// win, so that they do not take each other's votes.
const campaignApart = 80 * time.Millisecond

// How often, and how far apart, a leader's address is tried.
const (
	desertedTries = 10
	desertedApart = 10 * time.Millisecond
)

// campaignLoop starts an election as soon as it is certain that the leader's process is
// gone, or a quorum agrees that it is silent, instead of when raft's timers have run out:
//
//	a stream from a peer breaks -> is that peer the leader? -> does anything listen at its
//	address? no -> wait for those before us in line -> TimeoutNow to ourselves
//
//	silence of the leader -> do the others hear nothing either, and who goes first?
//	-> TimeoutNow to ourselves
//
// A refused connection says what silence does not: the machine is there and the process is
// not. A cut, a pause, a machine that is gone are silence, which may be our own fault: see
// silence.go. A campaign that nobody wins waits for raft's timers.
func (g *Group) campaignLoop(ctx context.Context) {
	silence := time.NewTimer(g.cfg.Timing.silenceAllowed())
	defer silence.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.broken:
			g.replaceGone(ctx)
		case <-g.hush: // another has asked, and we are to go first
			g.replaceSilent(ctx)
		case <-silence.C:
			g.replaceSilent(ctx)
			silence.Reset(g.untilQuiet())
		}
	}
}

// replaceGone stands for election when the leader's process is gone, after those before us
// in line.
func (g *Group) replaceGone(ctx context.Context) {
	inst := g.inst.Load()
	r := inst.raft
	address, id := r.LeaderWithID()
	place, stands := g.candidacy(r, id)
	if !stands || r.State() != raft.Follower || !g.deserted(ctx, fsm.MemberID(address)) {
		return
	}
	pause(ctx, time.Duration(place)*campaignApart)
	// Whoever stood before us may have lost for being behind: then there is no leader, in a
	// later term.
	if now, _ := r.LeaderWithID(); ctx.Err() != nil || r.State() != raft.Follower || now != "" && now != address {
		return // somebody was faster
	}
	g.stand(ctx, inst, "the leader's process is gone")
}

// stand makes this replica a candidate at once.
func (g *Group) stand(ctx context.Context, inst *instance, why string) {
	g.cfg.Logger.InfoContext(ctx, "stands for election", "reason", why, "term", inst.raft.CurrentTerm())
	if err := inst.campaign(g.cfg.Replica, g.cfg.Member); err != nil {
		g.cfg.Logger.WarnContext(ctx, "stand for election", "error", err)
	}
}

// candidacy is this replica's place in the line of those who stand when the leader is
// gone, 0 first; false when it has no vote, or there is no other leader to replace.
// Groups begin their lines with different members.
func (g *Group) candidacy(r *raft.Raft, leader raft.ServerID) (place int, stands bool) {
	if leader == "" || leader == raft.ServerID(g.cfg.Replica) {
		return 0, false
	}
	var line []raft.ServerID
	for _, s := range r.GetConfiguration().Configuration().Servers {
		if s.Suffrage == raft.Voter && s.ID != leader {
			line = append(line, s.ID)
		}
	}
	slices.Sort(line)
	at := slices.Index(line, raft.ServerID(g.cfg.Replica))
	if at < 0 {
		return 0, false
	}
	return (at + int(g.cfg.ID)) % len(line), true
}

// deserted says whether it is certain that no process answers for a member. The kernel
// closes what a dead process had open one after the other: for a moment its port may still
// take a connection, and drop it.
func (g *Group) deserted(ctx context.Context, member fsm.MemberID) bool {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.Timing.Heartbeat)
	defer cancel()
	for range desertedTries {
		conn, err := g.cfg.Dial(ctx, member, g.cfg.ID)
		switch {
		case err == nil:
			_ = conn.Close()
			return false
		case errors.Is(err, syscall.ECONNREFUSED):
			return true
		}
		pause(ctx, desertedApart)
	}
	return false
}

// campaign makes this replica a candidate at once, by the request with which a leader hands
// over: those who are asked then vote although they know a leader.
func (i *instance) campaign(replica string, member fsm.MemberID) error {
	request := raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(replica), Addr: []byte(member),
	}}
	return i.transport.TimeoutNow(raft.ServerID(replica), raft.ServerAddress(member), &request, &raft.TimeoutNowResponse{})
}

// streamBroke is told by the streams of a peer that ended.
func (g *Group) streamBroke() {
	select {
	case g.broken <- struct{}{}:
	default:
	}
}
