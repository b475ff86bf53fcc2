package partition

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
)

// The timing of campaigns, which begin when the leader is certainly lost and not when raft's timers expire.
const (
	// campaignInterval is the time between the campaigns of followers that could not ask each other which of
	// them campaigns first: enough for the first one to win, so that they do not split the votes.
	campaignInterval = 80 * time.Millisecond
	// campaignTimeout is the time after which the first campaign counts as lost. It doubles with each try.
	campaignTimeout       = 300 * time.Millisecond
	campaignRetryInterval = 30 * time.Millisecond // between two questions while a better successor is awaited
	campaignTries         = 4                     // after these, raft's own timers have expired
	campaignPollInterval  = 5 * time.Millisecond  // between two checks for a new leader
	// reluctantMax is how long a replica whose member should not lead leaves elections to others after its last
	// contact with a leader. Then it campaigns: its log may be the only one with all committed entries.
	reluctantMax = 3 * time.Second

	busyTimeout      = 50 * time.Millisecond // for raft to show that it is not busy
	busyPollInterval = 20 * time.Millisecond // between two checks, in which raft processes what waited
	silenceValid     = 200 * time.Millisecond
)

// loss is the reason to replace a leader, as it is logged.
type loss string

const (
	leaderGone      loss = "the leader's process is gone"
	leaderSilent    loss = "a quorum hears nothing from the leader"
	candidateBehind loss = "the candidate is behind"
	groupIsNew      loss = "the group is new"
)

// candidacy decides when this replica campaigns for the leadership of its group. Its fields may be used concurrently; one
// goroutine runs campaignLoop.
type candidacy struct {
	cfg      *Config
	instance *atomic.Pointer[instance] // of the group
	opened   time.Time                 // when the group was opened

	silentAt     atomic.Int64  // time since opened at which the leader was last found silent
	streamBroken chan struct{} // a stream from a peer ended
	leaderSilent chan struct{} // a peer that hears no leader has asked, and this replica has the better log
	voteRefused  chan struct{} // this replica has refused its vote to a candidate with an older log
}

func (c *candidacy) init(cfg *Config, current *atomic.Pointer[instance]) {
	c.cfg, c.instance, c.opened = cfg, current, time.Now()
	c.streamBroken, c.leaderSilent, c.voteRefused = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
}

// campaignLoop starts an election as soon as the leader is lost. Raft alone would wait until its timers expire.
//
//	a stream of a peer ends          -> is it the leader, and has its process ended?
//	this replica refuses its vote to a candidate whose log is behind
//	the leader is silent             -> is it silent for a quorum?
//
//	    -> which voter has the most up-to-date log? -> TimeoutNow to this replica
//
// An ended process is certain (Liveness). Silence proves less: the cause may be a network partition, a pause, a dead
// machine, or a fault of this replica.
func (c *candidacy) campaignLoop(ctx context.Context) {
	silence := time.NewTimer(c.cfg.Timing.silenceMax())
	defer silence.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.streamBroken:
			c.replaceLeader(ctx, leaderGone)
		case <-c.voteRefused:
			c.replaceLeader(ctx, candidateBehind)
		case <-c.leaderSilent: // another voter has asked, and this replica is the better successor
			c.replaceLeader(ctx, leaderSilent)
		case <-silence.C:
			c.replaceLeader(ctx, leaderSilent)
			silence.Reset(c.silenceCheckDelay())
		}
	}
}

// election is the replacement of a leader that is lost.
type election struct {
	*instance

	leader raft.ServerID // that was lost; "" if none was known
	member fsm.MemberID  // of the leader
	term   uint64
	why    loss
}

func (c *candidacy) newElection(why loss) *election {
	inst := c.instance.Load()
	term := inst.raft.CurrentTerm()
	member, leader := inst.raft.LeaderWithID()
	return &election{inst, leader, fsm.MemberID(member), term, why}
}

// hasNewLeader reports whether this replica follows another leader, or the same one in a later term.
func (e *election) hasNewLeader() bool {
	_, leader := e.raft.LeaderWithID()
	return leader != "" && (leader != e.leader || e.raft.CurrentTerm() > e.term)
}

// replaceLeader elects another leader if the leader is lost for that reason.
func (c *candidacy) replaceLeader(ctx context.Context, why loss) {
	e := c.newElection(why)
	lost := e.raft.State() == raft.Follower
	switch why {
	case leaderGone:
		lost = lost && e.leader != "" && errors.Is(c.cfg.Liveness.reach(ctx, e.member), syscall.ECONNREFUSED)
	case leaderSilent:
		lost = c.isLeaderSilent(ctx)
	case candidateBehind, groupIsNew:
		lost = lost && e.leader == ""
	}
	if lost {
		c.elect(ctx, e)
	}
}

// elect campaigns, repeatedly, until there is a new leader. The better successor campaigns first: any other candidate would
// lose, and raft would let it wait for a second or two. If the better successor has not won in time, this replica
// campaigns all the same; if it loses, the voter that refused its vote has the better log and campaigns.
func (c *candidacy) elect(ctx context.Context, e *election) {
	if c.isReluctant() {
		c.awaitLeader(ctx, e, reluctantMax)
	}
	within := campaignTimeout
	for try := range campaignTries {
		switch c.mayCampaign(ctx, e, within) {
		case verdictHasLeader:
			return // the other replicas have a leader, which will contact this one
		case verdictNone:
			if try > 0 || e.why == leaderSilent {
				return
			}
			// No quorum has answered, but it may still vote, so campaign once.
			c.awaitLeader(ctx, e, time.Duration(c.campaignPosition(e))*campaignInterval)
		case verdictAgree, verdictBetter:
		}
		if ctx.Err() != nil || e.hasNewLeader() || e.why == leaderSilent && !c.hearsNoLeader(e.raft) {
			return
		}
		c.campaign(ctx, e)
		c.awaitLeader(ctx, e, within)
		if ctx.Err() != nil || e.hasNewLeader() {
			return
		}
		within *= 2
	}
}

// campaignPosition returns the position of this replica, from 0, in the order in which the remaining voters campaign if they
// cannot ask each other. The order begins at another voter in each group.
func (c *candidacy) campaignPosition(e *election) int {
	var voters []raft.ServerID
	for _, s := range e.raft.GetConfiguration().Configuration().Servers {
		if s.Suffrage == raft.Voter && s.ID != e.leader {
			voters = append(voters, s.ID)
		}
	}
	slices.Sort(voters)
	at := slices.Index(voters, raft.ServerID(c.cfg.Replica))
	return (at + int(c.cfg.ID)) % max(1, len(voters))
}

// silenceMax is how long a leader may be silent before its followers ask each other: long enough for a leader that
// reaches no quorum to have stepped down, and longer than three heartbeats, which are a tenth to a fifth of the timeout
// apart.
func (t Timing) silenceMax() time.Duration { return max(t.Lease, t.Heartbeat/2) + t.Heartbeat/10 }

// silenceCheckDelay returns the time until the next check for silence.
func (c *candidacy) silenceCheckDelay() time.Duration {
	again := c.cfg.Timing.Heartbeat / 10
	inst := c.instance.Load()
	if inst.raft.State() == raft.Leader {
		return c.cfg.Timing.silenceMax()
	}
	return max(again, c.cfg.Timing.silenceMax()-time.Since(inst.raft.LastContact()))
}

// hearsNoLeader reports whether this replica has heard a leader before, and none for silenceMax. Voting for a candidate
// counts as hearing a leader. A candidate that was not elected hears none either.
func (c *candidacy) hearsNoLeader(r *raft.Raft) bool {
	last, state := r.LastContact(), r.State()
	return (state == raft.Follower || state == raft.Candidate) &&
		!last.IsZero() && time.Since(last) > c.cfg.Timing.silenceMax()
}

// isLeaderSilent reports whether the leader is silent and raft on this replica is not the cause: a heartbeat that waits
// behind a slow write counts only when raft's main goroutine processes it. That was checked a moment ago when another
// replica asks.
func (c *candidacy) isLeaderSilent(ctx context.Context) bool {
	inst := c.instance.Load()
	r := inst.raft
	if silent := c.hearsNoLeader(r); !silent || time.Since(c.opened)-time.Duration(c.silentAt.Load()) < silenceValid {
		return silent
	}
	for range 2 {
		look, cancel := context.WithTimeout(ctx, busyTimeout)
		// A follower answers that it does not lead, which only its main goroutine can do.
		_ = inst.verify(look, inst.probing)
		late := look.Err() != nil
		cancel()
		if late {
			return false
		}
		pause(ctx, busyPollInterval)
	}
	silent := c.hearsNoLeader(r)
	if silent {
		c.silentAt.Store(int64(time.Since(c.opened)))
	}
	return silent
}

// noteRefusedVote is called for every refused vote, and wakes campaignLoop if the log of the candidate is behind.
// Raft refuses votes for other reasons, too. Requests of an earlier term do not count, nor do those of a term in which
// another candidate has this replica's vote and may be about to win. It does not block.
func (c *candidacy) noteRefusedVote(vote *raft.RequestVoteRequest) {
	inst := c.instance.Load()
	if inst == nil || vote.Term < inst.raft.CurrentTerm() {
		return
	}
	if given, err := inst.log.VoteTerm(); err == nil && given >= vote.Term {
		return
	}
	term, index, err := lastEntry(inst.raft)
	if err == nil && (term > vote.LastLogTerm || term == vote.LastLogTerm && index > vote.LastLogIndex) {
		notify(c.voteRefused)
	}
}

// isReluctant reports whether this replica leaves elections to others for now.
func (c *candidacy) isReluctant() bool {
	if c.cfg.IsReluctant == nil || !c.cfg.IsReluctant() {
		return false
	}
	heard := c.opened
	if inst := c.instance.Load(); inst != nil && inst.raft.LastContact().After(heard) {
		heard = inst.raft.LastContact()
	}
	return time.Since(heard) < reluctantMax
}

// mayCampaign asks the other voters which replica campaigns first, and waits up to within for a better successor. It asks
// repeatedly: while the leader's last entries are still being written, two replicas may each find the other's log
// longer; both would wait, and then campaign at the same time.
func (c *candidacy) mayCampaign(ctx context.Context, e *election, within time.Duration) Verdict {
	begun := time.Now()
	for {
		verdict := c.pollVoters(ctx, e)
		if verdict != verdictBetter || time.Since(begun) >= within {
			return verdict
		}
		c.awaitLeader(ctx, e, campaignRetryInterval)
		if ctx.Err() != nil || e.hasNewLeader() {
			return verdict
		}
	}
}

// awaitLeader waits for another leader, at most within. If this replica votes meanwhile, the wait begins
// again, so that the candidate has the time of a campaign. The wait of a follower ends when it refuses its vote to a
// candidate whose log is behind.
func (c *candidacy) awaitLeader(ctx context.Context, e *election, within time.Duration) {
	since := time.Now()
	for ctx.Err() == nil && !e.hasNewLeader() {
		follows := e.raft.State() == raft.Follower
		if voted := e.raft.LastContact(); follows && e.raft.CurrentTerm() > e.term && voted.After(since) {
			since, within = voted, max(within, campaignTimeout)
		}
		if time.Since(since) >= within {
			return
		}
		if follows {
			select {
			case <-c.voteRefused:
				return
			default:
			}
		}
		pause(ctx, campaignPollInterval)
	}
}

// campaign makes this replica a candidate at once. If it has lost a campaign that still runs, it ends that one first.
func (c *candidacy) campaign(ctx context.Context, e *election) {
	c.cfg.Logger.InfoContext(ctx, "started a campaign", "reason", string(e.why), "term", e.raft.CurrentTerm())
	if e.raft.State() == raft.Candidate {
		e.abandonCampaign(ctx, c.cfg.Member)
	}
	if err := e.campaign(ctx, c.cfg.Replica, c.cfg.Member); err != nil {
		c.cfg.Logger.WarnContext(ctx, "failed to start a campaign", "error", err)
	}
}

// noteStreamEnd is called when a stream of a peer has ended.
func (c *candidacy) noteStreamEnd() { notify(c.streamBroken) }

// notify sends a signal to a channel with a buffer of one. Signals that were not received yet are merged.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
