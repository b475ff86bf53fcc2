package partition

import (
	"cmp"
	"context"
	"errors"
	"hash/crc32"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
	"golang.org/x/sync/singleflight"

	"github.com/peeklock/peeklock/fsm"
)

const (
	probeTries     = 10 // the port of a dead process may still accept a connection and drop it, for a moment
	probeInterval  = 10 * time.Millisecond
	probeTimeout   = time.Second            // for all tries
	aliveTimeout   = 100 * time.Millisecond // for the known leader to show that it is alive
	answerTimeout  = 250 * time.Millisecond
	answerRestWait = 30 * time.Millisecond // for the other answers when a quorum has answered
	askTries       = 2                     // the first connection may be dead
)

// Liveness tells all groups of one member which processes of other members are alive. Groups that want to know it at the
// same time share one probe. nil knows no other member.
type Liveness struct {
	probe  func(context.Context, fsm.MemberID) error
	ask    func(context.Context, fsm.MemberID, Question) (Verdict, error)
	probes singleflight.Group // in progress, by member
}

// NewLiveness returns the Liveness of one member. probe reports without an error that the process of a member is alive;
// an error that wraps ECONNREFUSED means that it has ended, others prove nothing. ask sends a question to the group at
// a member (Group.Answer); an error that wraps NotImplemented means that the member does not know questions.
func NewLiveness(probe func(context.Context, fsm.MemberID) error, ask func(context.Context, fsm.MemberID, Question) (Verdict, error)) *Liveness {
	return &Liveness{probe: probe, ask: ask}
}

// reach reports like probe whether the process of a member is alive. Callers that arrive during a probe of that member get
// its result. No result is kept: a process that has ended may be started again and lead at any time.
func (l *Liveness) reach(ctx context.Context, member fsm.MemberID) error {
	if l == nil {
		return errors.ErrUnsupported
	}
	result := l.probes.DoChan(string(member), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout) // others may still wait when this caller does not
		defer cancel()
		var err error
		for range probeTries {
			if err = l.probe(ctx, member); err == nil || errors.Is(err, syscall.ECONNREFUSED) {
				break
			}
			pause(ctx, probeInterval)
		}
		return nil, err
	})
	select {
	case r := <-result:
		return r.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Question is what a replica asks the other voters of its group before it campaigns: is the leader lost, and may the
// replica campaign?
type Question struct {
	Partition fsm.PartitionID `json:"Partition"`
	Replica   string          `json:"Replica"` // that is asked
	Gone      bool            `json:"Gone"`    // the leader's process has ended, or there is none; else the leader is silent
	Rank      Rank            `json:"Rank"`    // of the replica that asks
}

// Rank orders the replicas of a group as successors of the leader: by the end of the log, as raft grants votes, and for
// equal logs by a lot, which orders the replicas differently in each group. A reluctant replica has the lowest lot.
type Rank struct {
	Term  uint64 `json:"Term"` // of the last entry
	Index uint64 `json:"Index"`
	Lot   uint32 `json:"Lot"`
}

func (r Rank) compare(other Rank) int {
	return cmp.Or(cmp.Compare(r.Term, other.Term), cmp.Compare(r.Index, other.Index), cmp.Compare(r.Lot, other.Lot))
}

// Verdict is the answer to a Question. The zero value is the answer of a member that cannot tell.
type Verdict uint8

const (
	verdictNone      Verdict = iota // there is a leader, or the replica cannot tell
	verdictAgree                    // there is no leader, and the replica that asks may campaign
	verdictBetter                   // there is no leader, and the replica that answers is the better successor
	verdictHasLeader                // the leader is another one than the process that has ended, and alive
)

func (c *candidacy) rank(r *raft.Raft) Rank {
	term, index, err := lastEntry(r)
	if err != nil {
		return Rank{}
	}
	rank := Rank{Term: term, Index: index}
	if !c.isReluctant() {
		rank.Lot = crc32.ChecksumIEEE(strconv.AppendUint([]byte(c.cfg.Replica+" "), uint64(c.cfg.ID), 10))
	}
	return rank
}

// lastEntry returns term and index of the end of the log, or of the snapshot that replaces it.
func lastEntry(r *raft.Raft) (term, index uint64, err error) {
	var read [4]uint64
	stats := r.Stats()
	for i, name := range []string{"last_log_term", "last_log_index", "last_snapshot_term", "last_snapshot_index"} {
		if read[i], err = strconv.ParseUint(stats[name], 10, 64); err != nil {
			return 0, 0, err
		}
	}
	if read[3] > read[1] {
		return read[2], read[3], nil
	}
	return read[0], read[1], nil
}

// pollVoters asks the other voters whether this replica may campaign, and returns the verdict of a quorum, this replica included. If a
// quorum hears no leader, the leader has confirmed nothing for longer than its lease, so an election deposes no leader
// that works.
func (c *candidacy) pollVoters(ctx context.Context, e *election) Verdict {
	var others []raft.Server
	voters, votes := 0, false
	for _, s := range e.raft.GetConfiguration().Configuration().Servers {
		switch {
		case s.Suffrage != raft.Voter:
			continue
		case s.ID == raft.ServerID(c.cfg.Replica):
			votes = true
		case s.ID != e.leader:
			others = append(others, s)
		}
		voters++
	}
	if !votes {
		return verdictHasLeader
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	verdicts, rank := make(chan Verdict, len(others)), c.rank(e.raft)
	for _, s := range others {
		q := Question{Partition: c.cfg.ID, Replica: string(s.ID), Gone: e.why != leaderSilent, Rank: rank}
		asking.Go(func() { verdicts <- c.cfg.Liveness.askVoter(ctx, fsm.MemberID(s.Address), q) })
	}
	quorum, missing := verdictAgree, voters/2 // the answers that a quorum needs besides this replica
	for range others {
		switch verdict := <-verdicts; verdict {
		case verdictNone:
		case verdictHasLeader:
			return verdict
		case verdictAgree, verdictBetter:
			quorum = max(quorum, verdict)
			if missing--; missing == 0 {
				time.AfterFunc(answerRestWait, cancel) // one of the others may have a better log
			}
		}
	}
	if missing > 0 {
		return verdictNone
	}
	return quorum
}

// askVoter asks another voter, over another connection if the first one turns out to be dead. A member of an earlier
// release does not know questions: it counts as the better successor of a leader that is gone, and does not confirm a silence.
func (l *Liveness) askVoter(ctx context.Context, member fsm.MemberID, q Question) Verdict {
	if l == nil {
		return verdictNone
	}
	for range askTries {
		verdict, err := l.ask(ctx, member, q)
		switch {
		case err == nil && verdict <= verdictHasLeader:
			return verdict
		case errors.Is(err, fsm.NotImplemented) && q.Gone:
			return verdictBetter
		case err == nil, errors.Is(err, fsm.NotImplemented), errors.Is(err, syscall.ECONNREFUSED):
			return verdictNone
		}
	}
	return verdictNone
}

// answer answers a question of another replica of the group. If this replica is the better successor, it checks at once
// whether its leader is lost.
func (c *candidacy) answer(ctx context.Context, q Question) Verdict {
	r, lost := c.instance.Load().raft, c.leaderSilent
	if q.Gone { // the replica that asks is certain about the leader that it knew, but this one may know a later one
		lost = c.streamBroken
		if c.hasLeader(ctx, r) {
			return verdictHasLeader
		}
	} else if !c.isLeaderSilent(ctx) {
		return verdictNone
	}
	if c.rank(r).compare(q.Rank) <= 0 {
		return verdictAgree
	}
	notify(lost)
	return verdictBetter
}

// hasLeader reports whether this replica leads, or follows a leader whose process is alive. If a probe proves nothing in
// time, the leader counts as alive as long as this replica hears it.
func (c *candidacy) hasLeader(ctx context.Context, r *raft.Raft) bool {
	member, leader := r.LeaderWithID()
	switch leader {
	case raft.ServerID(c.cfg.Replica):
		return true
	case "":
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, aliveTimeout)
	defer cancel()
	err := c.cfg.Liveness.reach(ctx, fsm.MemberID(member))
	return err == nil || !errors.Is(err, syscall.ECONNREFUSED) && !c.hearsNoLeader(r)
}
