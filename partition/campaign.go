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

// The timing of campaigns, which begin when the leader is certainly gone and not when raft's timers expire.
const (
	// campaignInterval is the time between the campaigns of two followers that could not ask each other which of
	// them goes first: enough for the first one to win, so that they do not split the votes.
	campaignInterval = 80 * time.Millisecond
	// campaignTimeout is the time after which the first campaign counts as lost. It doubles with each try.
	campaignTimeout       = 300 * time.Millisecond
	campaignRetryInterval = 30 * time.Millisecond // between two questions while a better successor is awaited
	campaignTries         = 4                     // after these, raft's own timers have expired
	campaignPollInterval  = 5 * time.Millisecond  // between two checks for a new leader
	abandonTimeout        = time.Second           // for raft to process one request
	// reluctantMax is how long a replica whose member should not lead leaves elections to others after its last
	// contact with a leader. Then it campaigns: its log may be the only one with all committed entries.
	reluctantMax = 3 * time.Second
)

// How often, and at which interval, the address of a leader is dialled.
const (
	processGoneTries    = 10
	processGoneInterval = 10 * time.Millisecond
)

// campaignLoop starts an election as soon as it is certain that the leader's process has ended, or a quorum
// reports that the leader is silent. Raft alone would wait until its timers expire.
//
//	a stream from a peer ends: is it the leader, and does nothing listen at its address?
//	    -> which voter goes first? -> TimeoutNow to this replica
//
//	this replica refused its vote to a candidate whose log is behind
//	    -> which voter goes first? -> TimeoutNow to this replica
//
//	the leader is silent
//	    -> do the other voters hear nothing either, and which goes first? -> TimeoutNow to this replica
//
// A refused connection proves that the machine runs and the process does not. Silence proves less: the cause may be
// a network partition, a pause, a dead machine, or a fault of this replica (silence.go).
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
		case <-g.leaderSilent: // another voter has asked, and this replica is the better successor
			g.replaceSilentLeader(ctx)
		case <-silence.C:
			g.replaceSilentLeader(ctx)
			silence.Reset(g.silenceCheckDelay())
		}
	}
}

// replaceGone campaigns if the leader's process has ended.
func (g *Group) replaceGone(ctx context.Context) {
	inst := g.instance.Load()
	address, _ := inst.raft.LeaderWithID()
	if address == "" || inst.raft.State() != raft.Follower || !g.isProcessGone(ctx, fsm.MemberID(address)) {
		return
	}
	g.campaignUntilLed(ctx, inst, "the leader's process is gone")
}

// replaceCandidate campaigns after this replica has refused its vote to a candidate whose log is behind: raft lets
// such a candidate wait long before its next campaign, which it would lose again.
func (g *Group) replaceCandidate(ctx context.Context) {
	inst := g.instance.Load()
	if leader, _ := inst.raft.LeaderWithID(); leader == "" && inst.raft.State() == raft.Follower {
		g.campaignUntilLed(ctx, inst, "the candidate is behind")
	}
}

// noteRefusedVote is called for every refused vote, and wakes campaignLoop if the log of the candidate is behind.
// Raft refuses votes for other reasons, too. Requests of an earlier term do not count, nor do those of a term in which
// another candidate has this replica's vote and may be about to win. It does not block.
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

// campaignUntilLed campaigns, repeatedly, until there is a new leader. The better successor goes first: any other
// candidate would lose, and raft would let it wait for a second or two. If the better successor has not won in time,
// this replica campaigns all the same; if it loses, the voter that refused its vote has the better log and campaigns.
func (g *Group) campaignUntilLed(ctx context.Context, inst *instance, why string) {
	r := inst.raft
	term := r.CurrentTerm()
	_, gone := r.LeaderWithID()
	position, isVoter := g.campaignOrder(r, gone)
	if !isVoter {
		return
	}
	if g.isReluctant() {
		g.awaitLeader(ctx, r, term, reluctantMax)
	}
	within := campaignTimeout
	for try := range campaignTries {
		switch g.mayCampaign(ctx, r, term, within) {
		case answerHasLeader:
			return // the other replicas have a leader, which will contact this one
		case answerHeard: // no quorum has answered; it may still vote, so campaign once
			if try > 0 {
				return
			}
			g.awaitLeader(ctx, r, term, time.Duration(position)*campaignInterval)
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

// isReluctant reports whether this replica leaves elections to others for now.
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

// mayCampaign asks the other voters which replica goes first, and waits up to within for a better successor. It asks
// repeatedly: while the leader's last entries are still being written, two replicas may each find the other's log
// longer; both would wait, and then campaign at the same time.
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

// hasNewLeader reports whether there is a leader of a later term.
func hasNewLeader(r *raft.Raft, term uint64) bool {
	leader, _ := r.LeaderWithID()
	return leader != "" && r.CurrentTerm() > term
}

// awaitLeader waits for a leader of a later term, at most within. If this replica votes meanwhile, the wait begins
// again, so that the candidate has the time of a campaign. The wait of a follower ends when it refuses its vote to a
// candidate whose log is behind.
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

// campaign makes this replica a candidate at once. If it has lost a campaign that still runs, it ends that one first.
func (g *Group) campaign(ctx context.Context, inst *instance, why string) {
	g.cfg.Logger.InfoContext(ctx, "started a campaign", "reason", why, "term", inst.raft.CurrentTerm())
	if inst.raft.State() == raft.Candidate {
		inst.abandonCampaign(ctx, g.cfg.Member)
	}
	if err := inst.campaign(g.cfg.Replica, g.cfg.Member); err != nil {
		g.cfg.Logger.WarnContext(ctx, "failed to start a campaign", "error", err)
	}
}

// campaignOrder returns the position of this replica in the order in which the remaining voters campaign when the
// leader is gone, 0 first; false if it has no vote or is the leader. The order begins at another member in each group.
func (g *Group) campaignOrder(r *raft.Raft, leader raft.ServerID) (position int, isVoter bool) {
	if leader == raft.ServerID(g.cfg.Replica) {
		return 0, false
	}
	var voters []raft.ServerID
	for _, s := range r.GetConfiguration().Configuration().Servers {
		if s.Suffrage == raft.Voter && s.ID != leader {
			voters = append(voters, s.ID)
		}
	}
	slices.Sort(voters)
	at := slices.Index(voters, raft.ServerID(g.cfg.Replica))
	if at < 0 {
		return 0, false
	}
	return (at + int(g.cfg.ID)) % len(voters), true
}

// isProcessGone reports whether it is certain that the process of a member has ended. The kernel closes the sockets of
// a dead process one after the other, so for a moment its port may still accept a connection and drop it.
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

// campaign makes this replica a candidate at once, by the request with which a leader transfers its leadership: the
// voters then vote although they know a leader.
func (i *instance) campaign(replica string, member fsm.MemberID) error {
	request := raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(replica), Addr: []byte(member),
	}}
	return i.transport.NetworkTransport.TimeoutNow(raft.ServerID(replica), raft.ServerAddress(member), &request, &raft.TimeoutNowResponse{})
}

// abandonCampaign makes a candidate a follower again. Raft has no call for that before the timer of the campaign
// expires; so raft receives a vote request of the next term, as if from a candidate with an empty log. It adopts the
// term, becomes a follower and refuses the vote.
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

// noteStreamEnd is called when a stream of a peer has ended.
func (g *Group) noteStreamEnd() { notify(g.streamBroken) }

// notify sends a signal to a channel with a buffer of one. Signals that were not received yet are merged.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
