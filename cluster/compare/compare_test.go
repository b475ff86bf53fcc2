package compare

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/topology"
)

const tested fsm.PartitionID = 1

// digests returns checkpoints with these digests, at 4096, 8192 and so on.
func digests(sums ...uint64) (list []partition.Checkpoint) {
	for i, sum := range sums {
		list = append(list, partition.Checkpoint{Index: uint64(i+1) * 4096, Term: 1, Digest: sum, Version: 1})
	}
	return list
}

// fakeReplica is a replica of the tested partition; each member has one, which is named after it.
type fakeReplica struct {
	checkpoints []partition.Checkpoint
	away        bool
	unable      bool // to halt
	renamed     bool // its member has another replica by now
	halted      bool
	asked, told int // requests without and with a majority
}

func (r *fakeReplica) Checkpoints() []partition.Checkpoint { return slices.Clone(r.checkpoints) }

func (r *fakeReplica) HaltDiverged(majority partition.Checkpoint) error {
	r.told++
	if r.unable || slices.Contains(r.checkpoints, majority) {
		return errors.New("not halted")
	}
	r.halted = true
	return nil
}

// fakeMembers are the replicas of all members, of which "a" leads and compares.
type fakeMembers struct {
	replicas map[fsm.MemberID]*fakeReplica
	order    []fsm.MemberID // in which members were told that they differ
}

func (f *fakeMembers) IsAlive(id fsm.MemberID) bool { return !f.replicas[id].away }

func (f *fakeMembers) Status(_ context.Context, id fsm.MemberID, _ fsm.PartitionID) (raftgroup.Status, error) {
	return raftgroup.Status{Replica: f.name(id), Halted: f.replicas[id].halted}, nil
}

func (f *fakeMembers) Checkpoints(_ context.Context, id fsm.MemberID, q CheckpointsRequest) (Checkpoints, error) {
	r := f.replicas[id]
	if q.Majority == nil {
		r.asked++
	} else {
		f.order = append(f.order, id)
		if err := r.HaltDiverged(*q.Majority); err != nil {
			return Checkpoints{}, err
		}
	}
	return Checkpoints{Replica: f.name(id), Checkpoints: checkpointsAfter(r.Checkpoints(), q.After)}, nil
}

func (*fakeMembers) Digest(context.Context, fsm.MemberID, DigestRequest) (uint64, error) {
	return 0, errors.New("not used")
}

func (f *fakeMembers) name(id fsm.MemberID) string {
	if f.replicas[id].renamed {
		return raftgroup.ReplicaID(id, 2)
	}
	return raftgroup.ReplicaID(id, 1)
}

func (f *fakeMembers) halted() (ids []fsm.MemberID) {
	for id, r := range f.replicas {
		if r.halted {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// comparison is a Comparer at member "a", with voters and nonvoters.
type comparison struct {
	*Comparer
	members *fakeMembers
	status  partition.Status
	state   groupState
}

func newComparison(voters, nonvoters map[fsm.MemberID]*fakeReplica) *comparison {
	c := &comparison{members: &fakeMembers{replicas: map[fsm.MemberID]*fakeReplica{}}}
	add := func(of map[fsm.MemberID]*fakeReplica) (list []partition.Voter) {
		for id, r := range of {
			c.members.replicas[id] = r
			list = append(list, partition.Voter{Replica: raftgroup.ReplicaID(id, 1), Member: id})
		}
		slices.SortFunc(list, func(a, b partition.Voter) int { return int(a.Member[0]) - int(b.Member[0]) })
		return list
	}
	c.status.Voters, c.status.Nonvoters = add(voters), add(nonvoters)
	c.Comparer = New(Config{Self: "a", Interval: time.Hour, Members: c.members, Logger: slog.New(slog.DiscardHandler)})
	return c
}

// run compares once.
func (c *comparison) run(t *testing.T) {
	c.compare(t.Context(), tested, c.members.replicas["a"], &c.status, &c.state)
}

type replicas = map[fsm.MemberID]*fakeReplica

func with(sums ...uint64) *fakeReplica { return &fakeReplica{checkpoints: digests(sums...)} }

func TestOnlyOutliersOfAMajorityOfAllVotersAreHalted(t *testing.T) {
	t.Parallel()
	away := func(sums ...uint64) *fakeReplica { r := with(sums...); r.away = true; return r }
	renamed := func(sums ...uint64) *fakeReplica { r := with(sums...); r.renamed = true; return r }
	otherVersion := with(9)
	otherVersion.checkpoints[0].Version = 2
	for name, x := range map[string]struct {
		voters, nonvoters replicas
		halted            []fsm.MemberID
		undecided         bool
	}{
		"all are equal":                           {voters: replicas{"a": with(1), "b": with(1), "c": with(1)}},
		"one is behind":                           {voters: replicas{"a": with(1, 2), "b": with(1), "c": with(1, 2)}},
		"a follower differs":                      {voters: replicas{"a": with(1, 2), "b": with(1, 3), "c": with(1, 2)}, halted: []fsm.MemberID{"b"}},
		"the leader differs":                      {voters: replicas{"a": with(3), "b": with(1), "c": with(1)}, halted: []fsm.MemberID{"a"}},
		"two of five differ":                      {voters: replicas{"a": with(3), "b": with(1), "c": with(1), "d": with(4), "e": with(1)}, halted: []fsm.MemberID{"a", "d"}},
		"two differ from each other, one is away": {voters: replicas{"a": with(1), "b": with(2), "c": away(1)}, undecided: true},
		"all three differ":                        {voters: replicas{"a": with(1), "b": with(2), "c": with(3)}, undecided: true},
		"two against two":                         {voters: replicas{"a": with(1), "b": with(1), "c": with(2), "d": with(2)}, undecided: true},
		"two of five agree and two are away":      {voters: replicas{"a": with(1), "b": with(1), "c": with(2), "d": away(1), "e": away(1)}, undecided: true},
		"the answer of a later replica":           {voters: replicas{"a": with(1), "b": with(1), "c": renamed(2)}},
		"digests of another version":              {voters: replicas{"a": with(1), "b": with(1), "c": otherVersion}},
		"a nonvoter differs":                      {voters: replicas{"a": with(1), "b": with(1), "c": with(1)}, nonvoters: replicas{"d": with(2)}, halted: []fsm.MemberID{"d"}},
		"a nonvoter differs without a majority":   {voters: replicas{"a": with(1), "b": away(), "c": away()}, nonvoters: replicas{"d": with(2)}},
		"a nonvoter gives no majority":            {voters: replicas{"a": with(1), "b": with(2), "c": away()}, nonvoters: replicas{"d": with(1)}, undecided: true},
		"nothing to compare":                      {voters: replicas{"a": with(), "b": with(1), "c": with(2)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newComparison(x.voters, x.nonvoters)
			c.run(t)
			if got := c.members.halted(); !slices.Equal(got, x.halted) {
				t.Errorf("halted %v, want %v", got, x.halted)
			}
			if got := c.IsUndecided(tested); got != x.undecided {
				t.Errorf("undecided %v, want %v", got, x.undecided)
			}
			for id, r := range c.members.replicas {
				if r.away && r.asked > 0 {
					t.Errorf("member %s, which is not alive, was asked", id)
				}
			}
		})
	}
}

func TestLeaderThatDiffersHaltsItselfLast(t *testing.T) {
	t.Parallel()
	c := newComparison(replicas{"a": with(3), "b": with(1), "c": with(1), "d": with(4), "e": with(1)}, nil)
	c.members.replicas["d"].unable = true
	c.run(t)
	if !slices.Equal(c.members.order, []fsm.MemberID{"d"}) || !c.members.replicas["a"].halted {
		t.Errorf("told %v, halted %v: the leader tells the others, and stops even if they do not", c.members.order, c.members.halted())
	}
}

func TestReplicaIsToldUntilItHasStoppedAndNotAfter(t *testing.T) {
	t.Parallel()
	c := newComparison(replicas{"a": with(1), "b": with(2), "c": with(1)}, nil)
	odd := c.members.replicas["b"]
	odd.unable = true
	c.run(t)
	odd.unable = false
	c.run(t)
	c.run(t)
	if odd.told != 2 || !odd.halted {
		t.Errorf("told %d times, halted %v: want 2 times", odd.told, odd.halted)
	}
}

func TestUndecidedEndsWhenAMajorityAnswers(t *testing.T) {
	t.Parallel()
	c := newComparison(replicas{"a": with(1), "b": with(2), "c": with(1)}, nil)
	c.members.replicas["c"].away = true
	c.run(t)
	if !c.IsUndecided(tested) {
		t.Fatal("two replicas that differ are no majority")
	}
	c.members.replicas["c"].away = false
	c.run(t)
	if c.IsUndecided(tested) || !slices.Equal(c.members.halted(), []fsm.MemberID{"b"}) {
		t.Errorf("undecided %v, halted %v", c.IsUndecided(tested), c.members.halted())
	}
}

func TestWhatAllAgreedOnIsNotComparedAgain(t *testing.T) {
	t.Parallel()
	c := newComparison(replicas{"a": with(1), "b": with(1), "c": with(1)}, nil)
	c.run(t)
	c.run(t)
	if got := c.members.replicas["b"].asked; got != 1 {
		t.Errorf("asked %d times, want once", got)
	}
	c.members.replicas["a"].checkpoints = digests(1, 2)
	c.run(t)
	c.run(t) // b has not answered with the second one yet
	if got := c.members.replicas["b"].asked; got != 3 {
		t.Errorf("asked %d times, want 3 times", got)
	}
}

func TestRequestsForPartitionsThatAreNotOpenAreRefused(t *testing.T) {
	t.Parallel()
	c := New(Config{Groups: func() map[fsm.PartitionID]*partition.Group { return nil }})
	if _, err := c.AnswerCheckpoints(t.Context(), CheckpointsRequest{Partition: tested}); !errors.Is(err, fsm.EntityNotFound) {
		t.Errorf("checkpoints: %v, want EntityNotFound", err)
	}
	if _, err := c.AnswerDigest(t.Context(), DigestRequest{Partition: tested}); !errors.Is(err, fsm.EntityNotFound) {
		t.Errorf("digest: %v, want EntityNotFound", err)
	}
	if _, err := c.Verify(t.Context(), VerifyRequest{Partition: tested}); !errors.Is(err, partition.ErrNotLeader) {
		t.Errorf("verify: %v, want ErrNotLeader", err)
	}
}

func TestVerificationIsEqualOnlyIfAllReplicasAnswerAlike(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		replicas []topology.VerifiedReplica
		want     bool
	}{
		"no replica":      {nil, false},
		"one":             {[]topology.VerifiedReplica{{Digest: "1"}}, true},
		"two alike":       {[]topology.VerifiedReplica{{Digest: "1"}, {Digest: "1"}}, true},
		"two differ":      {[]topology.VerifiedReplica{{Digest: "1"}, {Digest: "2"}}, false},
		"one is missing":  {[]topology.VerifiedReplica{{Digest: "1"}, {Digest: "1", Error: "no answer"}}, false},
		"all are missing": {[]topology.VerifiedReplica{{Error: "no answer"}, {Error: "no answer"}}, false},
	} {
		if got := areEqual(x.replicas); got != x.want {
			t.Errorf("%s: equal %v, want %v", name, got, x.want)
		}
	}
}
