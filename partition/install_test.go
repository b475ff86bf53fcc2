package partition

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// voteWithin is the time within which a replica answers a vote, whatever else it does: long, for a machine that runs other
// tests too, and less than the ten seconds after which a stalled reception of a snapshot ends.
const voteWithin = 8 * time.Second

// votesInTime asks a replica for a vote in an old term and checks that it answers in time.
func votesInTime(t *testing.T, candidate, voter *member) {
	t.Helper()
	begun := time.Now()
	var vote raft.RequestVoteResponse
	err := candidate.group(1).instance.Load().transport.RequestVote(raft.ServerID(voter.config(1).Replica), raft.ServerAddress(voter.id),
		&raft.RequestVoteRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}, Term: 1}, &vote)
	if took := time.Since(begun); err != nil || took > voteWithin {
		t.Errorf("the vote was answered after %v: %v", took, err)
	}
}

// stalledSnapshot gives the beginning of the stream of a snapshot, and then nothing until released.
type stalledSnapshot struct {
	begin    *bytes.Reader
	released chan struct{}
}

func (s *stalledSnapshot) Read(b []byte) (int, error) {
	if n, err := s.begin.Read(b); err == nil {
		return n, nil
	}
	<-s.released
	return 0, errors.New("the sender is gone")
}

// TestFollowerVotesWhileASnapshotStalls: a follower that gets a snapshot from a leader that falls silent in the middle
// answers votes, so that the group gets another leader.
func TestFollowerVotesWhileASnapshotStalls(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms, a := threeReplicas(t, nil)
		for range 3 { // more than a sender gathers
			mustEventually(t, ms, a.next(), send(1, make([]byte, 512<<10)))
		}
		lm, lg := leader(t, ms, 1)
		others := slices.DeleteFunc(slices.Clone(ms), func(m *member) bool { return m == lm })
		follower, candidate := others[0], others[1]
		kit.OK(t, lg.Snapshot(t.Context()))
		metas := kit.Must(lg.snapshots.List())(t)
		meta, whole, err := lg.snapshots.Open(metas[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		sentBytes := make([]byte, meta.Size-1)
		kit.Must(io.ReadFull(whole, sentBytes))(t)
		kit.OK(t, whole.Close())
		stall := &stalledSnapshot{begin: bytes.NewReader(sentBytes), released: make(chan struct{})}
		status := lg.Status()
		sent := make(chan error, 1)
		go func() {
			sent <- lg.instance.Load().transport.InstallSnapshot(raft.ServerID(follower.config(1).Replica), raft.ServerAddress(follower.id), &raft.InstallSnapshotRequest{
				RPCHeader:       raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(lg.cfg.Replica), Addr: []byte(lm.id)},
				SnapshotVersion: raft.SnapshotVersionMax, Term: status.Term, LastLogIndex: 1000, LastLogTerm: status.Term,
				Size: meta.Size, Configuration: raft.EncodeConfiguration(lg.cfg.firstConfiguration()), ConfigurationIndex: 1,
			}, new(raft.InstallSnapshotResponse), stall)
		}()
		kit.Eventually(t, "the follower receives", func() bool {
			images, err := filepath.Glob(filepath.Join(replicaDir(follower), "snap", "tmp-*", "image"))
			return err == nil && len(images) > 0
		})
		votesInTime(t, candidate, follower)
		close(stall.released)
		if err := <-sent; err == nil {
			t.Error("half a snapshot was installed")
		}
		mustEventually(t, ms, a.next(), send(1, body(2)))
		waitCaughtUp(t, ms, follower)
		sameEverywhere(t, ms)
	})
}

// TestReplicaDoesNotAnswerForItsPredecessor: raft addresses a replica by its member. A member that has lost its replica
// and got another one, which is empty, must not confirm to an earlier leader what the lost one would have.
func TestReplicaDoesNotAnswerForItsPredecessor(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms, a := threeReplicas(t, nil)
		mustEventually(t, ms, a.next(), send(1, body(1)))
		lm, _ := leader(t, ms, 1)
		gone := ms[(slices.Index(ms, lm)+1)%len(ms)]
		former := gone.config(1).Replica
		rest := slices.DeleteFunc(slices.Clone(ms), func(m *member) bool { return m == gone })
		kit.OK(t, atLeader(t, ms, func(_ *member, g *Group) error { return g.RemoveReplica(t.Context(), former) }))
		kit.OK(t, gone.group(1).Destroy(t.Context()))
		gone.stop()
		gone.voters, gone.tune = nil, func(c *Config) { c.Replica = string(c.Member) + ".2" }
		gone.start(1)

		_, g := leader(t, rest, 1)
		asker := g.instance.Load().transport
		header := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(g.cfg.Replica), Addr: []byte(g.cfg.Member)}
		id, at, term := raft.ServerID(former), raft.ServerAddress(gone.id), g.Status().Term
		entry := &raft.Log{Index: 1, Term: term, Type: raft.LogNoop}
		for name, request := range map[string]func() error{
			"entries": func() error {
				return asker.AppendEntries(id, at, &raft.AppendEntriesRequest{RPCHeader: header, Term: term, Entries: []*raft.Log{entry}}, new(raft.AppendEntriesResponse))
			},
			"a heartbeat": func() error {
				return asker.AppendEntries(id, at, &raft.AppendEntriesRequest{RPCHeader: header, Term: term}, new(raft.AppendEntriesResponse))
			},
			"a pre-vote": func() error {
				return asker.RequestPreVote(id, at, &raft.RequestPreVoteRequest{RPCHeader: header, Term: term}, new(raft.RequestPreVoteResponse))
			},
			"a vote": func() error {
				return asker.RequestVote(id, at, &raft.RequestVoteRequest{RPCHeader: header, Term: term}, new(raft.RequestVoteResponse))
			},
			"a transfer": func() error {
				return asker.TimeoutNow(id, at, &raft.TimeoutNowRequest{RPCHeader: header}, new(raft.TimeoutNowResponse))
			},
			"a snapshot": func() error {
				return asker.InstallSnapshot(id, at, &raft.InstallSnapshotRequest{RPCHeader: header, Term: term, Size: 1}, new(raft.InstallSnapshotResponse), strings.NewReader("s"))
			},
			"a pipeline": func() error {
				p, err := asker.AppendEntriesPipeline(id, at) // maybe over a stream to the former replica, which has ended
				if err != nil {
					return err
				}
				defer p.Close()
				request := &raft.AppendEntriesRequest{RPCHeader: header, Term: term, Entries: []*raft.Log{entry}}
				sent, err := p.AppendEntries(request, new(raft.AppendEntriesResponse))
				if err != nil {
					return err
				}
				return sent.Error()
			},
		} {
			if err := request(); err == nil {
				t.Errorf("the new replica took %s for the former one", name)
			}
		}
		if s := gone.group(1).Status(); s.LastIndex != 0 || s.Term != 0 {
			t.Errorf("the new replica has the log up to %d and the term %d of requests to the former one", s.LastIndex, s.Term)
		}
		kit.OK(t, atLeader(t, rest, func(_ *member, g *Group) error {
			return g.AddNonvoter(t.Context(), string(gone.id)+".2", gone.id)
		}))
		waitCaughtUp(t, rest, gone)
		sameEverywhere(t, []*member{rest[0], rest[1], gone})
	})
}

// TestLargeEntriesOfALaggingFollower: a follower that returns gets entries of more bytes than fit into one request, and
// then its log is the leader's.
func TestLargeEntriesOfALaggingFollower(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms, a := threeReplicas(t, nil)
		lm, _ := leader(t, ms, 1)
		lagging := ms[(slices.Index(ms, lm)+1)%len(ms)]
		rest := slices.DeleteFunc(slices.Clone(ms), func(m *member) bool { return m == lagging })
		lagging.stop()
		for i := range 12 {
			mustEventually(t, rest, a.next(), send(1, bytes.Repeat(body(i), 120000)))
		}
		lagging.start(1)
		waitCaughtUp(t, ms, lagging)
		sameEverywhere(t, ms)
		g, f := currentLeader(t, ms), lagging.group(1)
		s := f.Status()
		for index := max(s.LogFirst, g.Status().LogFirst); index <= s.Applied; index++ {
			var ours, theirs raft.Log
			kit.OK(t, errors.Join(f.log.GetLog(index, &ours), g.log.GetLog(index, &theirs)))
			if ours.Term != theirs.Term || !bytes.Equal(ours.Data, theirs.Data) {
				t.Errorf("entry %d differs", index)
			}
		}
	})
}

// TestTrailingLogIsBoundedInBytes: large entries are not kept behind a snapshot because they are few, small ones are.
func TestTrailingLogIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ entries, bytes, least, most int }{
		{40, 600 << 10, trailingEntriesMin, trailingEntriesMin},
		{300, 100, trailingEntriesUnknown, trailingEntriesUnknown},
	} {
		t.Run(fmt.Sprintf("%d of %d bytes", c.entries, c.bytes), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				ms := newMembers(t, 1, func(c *Config) { c.Sizes.Trailing = 4 << 20 })
				ms[0].start(1)
				_, g := leader(t, ms, 1)
				a := &asker{origin: 1}
				must(t, g, a.next(), fsm.PutEntity{Entity: 1, Version: 1, Settings: settings()})
				for range c.entries {
					must(t, g, a.next(), send(1, make([]byte, c.bytes)))
				}
				kit.OK(t, g.Snapshot(t.Context()))
				s := g.Status()
				if kept := int(s.LogLast - s.LogFirst + 1); kept < c.least || kept > c.most {
					t.Errorf("%d entries are kept, want %d to %d", kept, c.least, c.most)
				}
			})
		})
	}
}
