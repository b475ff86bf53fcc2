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

// The pace of succession, where a leader is certainly gone.
const (
	// campaignApart is what lies between the campaigns of two followers that could not ask
	// each other who goes first: time for the one to win, so that they do not take each
	// other's votes.
	campaignInterval = 80 * time.Millisecond
	// campaignWithin is the time for a first campaign to be decided. It is doubled with each try.
	campaignTimeout       = 300 * time.Millisecond
	campaignRetryInterval = 30 * time.Millisecond // for who goes first to ask for our vote
	campaignTries         = 4                     // then raft's own timers have run out
	campaignPollInterval  = 5 * time.Millisecond  // between two looks whether somebody leads
	abandonTimeout        = time.Second           // for raft to take what is told to it
	// reluctantMax is how long a replica whose member should not lead leaves elections to others after it
	// heard a leader last. Then it stands: its log may be the only one with all committed entries.
	reluctantMax = 3 * time.Second
)

// How often, and how far apart, a leader's address is tried.
const (
	processGoneTries    = 10
	processGoneInterval = 10 * time.Millisecond
)

// campaignLoop starts an election as soon as it is certain that the leader's process is
// gone, or a quorum agrees that it is silent, instead of when raft's timers have run out:
//
//	a stream from a peer breaks -> is that peer the leader? -> does anything listen at its
//	address? no -> who goes first? -> TimeoutNow to ourselves
//
//	a candidate wants our vote, and we are the better successor -> who goes first?
//	-> TimeoutNow to ourselves
//
//	silence of the leader -> do the others hear nothing either, and who goes first?
//	-> TimeoutNow to ourselves
//
// A refused connection says what silence does not: the machine is there and the process is
// not. A cut, a pause, a machine that is gone are silence, which may be our own fault: see
// silence.go.
func (g *Group) campaignLoop(ctx context.Context) {
	silence := time.NewTimer(g.cfg.Timing.silenceMax())
	defer silence.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.streamBroken:
			g.replaceGone(ctx)
		case <-g.voteRefused:
			g.replaceCandidate(ctx)
		case <-g.leaderSilent: // another has asked, and we are to go first
			g.replaceSilentLeader(ctx)
		case <-silence.C:
			g.replaceSilentLeader(ctx)
			silence.Reset(g.silenceCheckDelay())
		}
	}
}

// replaceGone stands for election when the leader's process is gone.
func (g *Group) replaceGone(ctx context.Context) {
	inst := g.instance.Load()
	address, _ := inst.raft.LeaderWithID()
	if address == "" || inst.raft.State() != raft.Follower || !g.isProcessGone(ctx, fsm.MemberID(address)) {
		return
	}
	g.campaignUntilLed(ctx, inst, "the leader's process is gone")
}

// replaceCandidate stands for election when this replica has refused its vote to a candidate
// that is behind: who was elected by nobody waits long before it asks again, and would lose again.
func (g *Group) replaceCandidate(ctx context.Context) {
	inst := g.instance.Load()
	if leader, _ := inst.raft.LeaderWithID(); leader == "" && inst.raft.State() == raft.Follower {
		g.campaignUntilLed(ctx, inst, "the candidate is behind")
	}
}

// noteRefusedVote is told of a vote that was refused. Raft does that for more than one reason; it
// counts here that the candidate is behind. A request of a former term, or of a term in which
// another has our vote, tells nothing: that one may be about to win. It does not block.
func (g *Group) noteRefusedVote(vote *raft.RequestVoteRequest) {
	inst := g.instance.Load()
	if inst == nil || vote.Term < inst.raft.CurrentTerm() {
		return
	}
	if given, err := g.log.VoteTerm(); err == nil && given >= vote.Term {
		return
	}
	term, index, err := lastEntry(inst.raft)
	if err == nil && (term > vote.LastLogTerm || term == vote.LastLogTerm && index > vote.LastLogIndex) {
		notify(g.voteRefused)
	}
}

// campaignUntilLed stands for election, and again, until there is another leader. The better successor
// goes first: the other would lose, and raft lets who has lost wait for a second or two. If the
// better one has not won soon this one stands all the same, and if it loses, who has
// refused it its vote knows that it is to stand.
func (g *Group) campaignUntilLed(ctx context.Context, inst *instance, why string) {
	r := inst.raft
	term := r.CurrentTerm()
	_, gone := r.LeaderWithID()
	place, stands := g.campaignOrder(r, gone)
	if !stands {
		return
	}
	if g.isReluctant() {
		g.awaitLeader(ctx, r, term, reluctantMax)
	}
	within := campaignTimeout
	for try := range campaignTries {
		switch g.mayCampaign(ctx, r, term, within) {
		case answerHasLeader:
			return // others have another leader: we shall hear from it
		case answerHeard: // no quorum could say: it may be there for a vote, once
			if try > 0 {
				return
			}
			g.awaitLeader(ctx, r, term, time.Duration(place)*campaignInterval)
		}
		if ctx.Err() != nil || hasNewLeader(r, term) {
			return
		}
		g.campaign(ctx, inst, why)
		g.awaitLeader(ctx, r, term, within)
		if ctx.Err() != nil || hasNewLeader(r, term) {
			return
		}
		within *= 2
	}
}

// isReluctant says whether this replica leaves elections to others for now.
func (g *Group) isReluctant() bool {
	if g.cfg.IsReluctant == nil || !g.cfg.IsReluctant() {
		return false
	}
	heard := g.opened
	if inst := g.instance.Load(); inst != nil && inst.raft.LastContact().After(heard) {
		heard = inst.raft.LastContact()
	}
	return time.Since(heard) < reluctantMax
}

// mayCampaign asks who goes first, and lets the other go for a time. It asks again, for while
// what the leader has sent last is still being written each may find the other's log longer,
// and both would wait, and stand together.
func (g *Group) mayCampaign(ctx context.Context, r *raft.Raft, term uint64, within time.Duration) byte {
	begun := time.Now()
	for {
		answer := g.pollVoters(ctx, r, askGone)
		if answer != answerBetter || time.Since(begun) >= within {
			return answer
		}
		g.awaitLeader(ctx, r, term, campaignRetryInterval)
		if ctx.Err() != nil || hasNewLeader(r, term) {
			return answer
		}
	}
}

// hasNewLeader says whether there is a leader of a later term.
func hasNewLeader(r *raft.Raft, term uint64) bool {
	leader, _ := r.LeaderWithID()
	return leader != "" && r.CurrentTerm() > term
}

// awaitLeader waits for a leader of a later term, and gives up when nothing has come of
// anything for so long: whoever has our vote has the time of a campaign from then on. A
// follower that has refused somebody its vote waits no more.
func (g *Group) awaitLeader(ctx context.Context, r *raft.Raft, term uint64, within time.Duration) {
	since := time.Now()
	for ctx.Err() == nil && !hasNewLeader(r, term) {
		follows := r.State() == raft.Follower
		if voted := r.LastContact(); follows && r.CurrentTerm() > term && voted.After(since) {
			since, within = voted, max(within, campaignTimeout)
		}
		if time.Since(since) >= within {
			return
		}
		if follows {
			select {
			case <-g.voteRefused:
				return
			default:
			}
		}
		pause(ctx, campaignPollInterval)
	}
}

// campaign makes this replica a candidate at once. One that has lost begins anew.
func (g *Group) campaign(ctx context.Context, inst *instance, why string) {
	g.cfg.Logger.InfoContext(ctx, "started a campaign", "reason", why, "term", inst.raft.CurrentTerm())
	if inst.raft.State() == raft.Candidate {
		inst.abandonCampaign(ctx, g.cfg.Member)
	}
	if err := inst.campaign(g.cfg.Replica, g.cfg.Member); err != nil {
		g.cfg.Logger.WarnContext(ctx, "failed to start a campaign", "error", err)
	}
}

// campaignOrder is this replica's place in the line of those who may stand when the leader is
// gone, 0 first; false when it has no vote, or leads itself. Groups begin their lines with
// different members.
func (g *Group) campaignOrder(r *raft.Raft, leader raft.ServerID) (place int, stands bool) {
	if leader == raft.ServerID(g.cfg.Replica) {
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

// isProcessGone says whether it is certain that no process answers for a member. The kernel
// closes what a dead process had open one after the other: for a moment its port may still
// take a connection, and drop it.
func (g *Group) isProcessGone(ctx context.Context, member fsm.MemberID) bool {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.Timing.Heartbeat)
	defer cancel()
	for range processGoneTries {
		conn, err := g.cfg.Dial(ctx, member, g.cfg.ID, "")
		switch {
		case err == nil:
			_ = conn.Close()
			return false
		case errors.Is(err, syscall.ECONNREFUSED):
			return true
		}
		pause(ctx, processGoneInterval)
	}
	return false
}

// campaign makes this replica a candidate at once, by the request with which a leader hands
// over: those who are asked then vote although they know a leader.
func (i *instance) campaign(replica string, member fsm.MemberID) error {
	request := raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(replica), Addr: []byte(member),
	}}
	return i.transport.NetworkTransport.TimeoutNow(raft.ServerID(replica), raft.ServerAddress(member), &request, &raft.TimeoutNowResponse{})
}

// abandonCampaign makes a candidate a follower again, in the next term, as the request of one does
// whose log is empty: that is how raft leaves a campaign which nobody has won before its timer
// has run out. It gives no vote away.
func (i *instance) abandonCampaign(ctx context.Context, member fsm.MemberID) {
	ctx, cancel := context.WithTimeout(ctx, abandonTimeout)
	defer cancel()
	answer := make(chan raft.RPCResponse, 1)
	request := &raft.RequestVoteRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, Addr: []byte(member)},
		Term:      i.raft.CurrentTerm() + 1, LeadershipTransfer: true,
	}
	select {
	case i.transport.Requests() <- raft.RPC{Command: request, RespChan: answer}:
	case <-ctx.Done():
		return
	}
	select {
	case <-answer:
	case <-ctx.Done():
	}
}

// noteStreamEnd is told by the streams of a peer that ended.
func (g *Group) noteStreamEnd() { notify(g.streamBroken) }

// notify tells of something once, however often it happens until it is heard.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
