package partition

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
	"github.com/peeklock/peeklock/fsm/queue"
	"github.com/peeklock/peeklock/test/kit"
)

// heavyMachine is a machine with a fixed number of steps per entry.
type heavyMachine struct {
	*queue.Machine
	steps uint64
}

func (m *heavyMachine) Steps() uint64    { return m.steps }
func (m *heavyMachine) Exceeded() uint64 { return 7 }

// TestApplyReleasesTheLockBetweenEntries verifies that only as many entries of a batch are applied under one
// lock as have few steps together, and that rules over their budget are counted.
func TestApplyReleasesTheLockBetweenEntries(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var machine *heavyMachine
		ms := newMembers(t, 1, func(c *Config) {
			c.Machine = func(b fsm.Bodies) Machine {
				machine = &heavyMachine{Machine: queue.New(b)}
				return machine
			}
		})
		ms[0].start(1)
		_, g := leader(t, ms, 1)
		batchOf := func(n int) (entries []*raft.Log) {
			pulse := fsm.AppendCommand(nil, fsm.Header{}, fsm.Pulse{})
			for i := range n {
				entries = append(entries, &raft.Log{
					Index: g.applied.Load() + uint64(i) + 1, Term: 1, Type: raft.LogCommand, Data: encodeEntry(fsm.Times{Wall: 1, Serving: 1}, 1, [][]byte{pulse}),
				})
			}
			return entries
		}
		for _, row := range []struct {
			steps uint64
			want  int
		}{{0, 10}, {lockStepsMax / 4, 4}, {lockStepsMax / 2, 2}, {lockStepsMax, 1}, {100 * lockStepsMax, 1}} {
			machine.steps = row.steps
			_, _, n, err := g.apply(batchOf(10))
			if err != nil || n != row.want {
				t.Errorf("%d steps an entry: %d entries under one lock, want %d (%v)", row.steps, n, row.want, err)
			}
			before := g.applied.Load()
			(*machineFSM)(g).ApplyBatch(batchOf(10))
			if now := g.applied.Load(); now != before+10 {
				t.Errorf("%d steps an entry: %d of 10 entries are applied", row.steps, now-before)
			}
		}
		if n := g.Stats().Exceeded; n != 7 {
			t.Errorf("%d rules over their budget are counted", n)
		}
	})
}

// TestPendingMessagesArePublished verifies that the leader proposes pulses until no message is pending at a
// topic.
func TestPendingMessagesArePublished(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms := newMembers(t, 1, nil)
		ms[0].start(1)
		_, g := leader(t, ms, 1)
		a := &asker{origin: 1}
		do := func(c fsm.Command) {
			t.Helper()
			if got := ask(t, g, a.next(), c); got.Outcome != Done || got.Result.Code != fsm.OK {
				t.Fatalf("%T: %+v", c, got)
			}
		}
		do(fsm.PutEntity{Entity: 1, Version: 1, Settings: fsm.DefaultSettings(), Kind: fsm.TopicEntity})
		do(fsm.PutEntity{Entity: 2, Version: 1, Settings: fsm.DefaultSettings(), Kind: fsm.SubscriptionEntity, Topic: 1})
		// Their properties alone take more steps than an entry has.
		large := fsm.AppendProperties(nil, []fsm.Property{{Value: filter.Text(strings.Repeat("a", 60_000))}})
		send := fsm.SendMessages{Entity: 1, Messages: make([]fsm.Message, 40)}
		for i := range send.Messages {
			send.Messages[i].Properties = large
		}
		do(send)
		kit.Eventually(t, "all messages are published", func() (all bool) {
			g.View(func(m Machine) { all = m.(*queue.Machine).Ready(fsm.Address{Entity: 2}) == 40 })
			return all
		})
		if n := g.Stats().Commands; n < 3+3 {
			t.Errorf("%d commands were applied: nothing had to wait", n)
		}
	})
}

// TestPanicBehindTheEntriesNamesNone: when the machine panics after all entries were applied, the replica stops, and no entry is named,
// because an operator would skip it.
func TestPanicBehindTheEntriesNamesNone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		broken := new(atomic.Bool)
		ms := newMembers(t, 1, func(c *Config) { c.Machine = func(b fsm.Bodies) Machine { return brokenMachine{queue.New(b), broken} } })
		ms[0].start(1)
		_, g := leader(t, ms, 1)
		pulse := fsm.AppendCommand(nil, fsm.Header{}, fsm.Pulse{})
		broken.Store(true)
		_, _, n, err := g.apply([]*raft.Log{{Index: g.applied.Load() + 1, Term: 1, Type: raft.LogCommand, Data: encodeEntry(fsm.Times{Wall: 1, Serving: 1}, 1, [][]byte{pulse})}})
		if err == nil || n != 1 || !strings.Contains(err.Error(), "was applied: planted") || strings.Contains(err.Error(), poisonHint) {
			t.Errorf("%d entries were applied, and the error is %v; want 1, and one that names no entry to skip", n, err)
		}
	})
}

// brokenMachine panics when it is asked for effects while it is broken.
type brokenMachine struct {
	*queue.Machine
	broken *atomic.Bool
}

func (m brokenMachine) Effects() []fsm.Effect {
	if m.broken.Load() {
		panic("planted")
	}
	return m.Machine.Effects()
}
