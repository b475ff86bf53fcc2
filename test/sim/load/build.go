package load

import (
	"context"
	"fmt"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/sim/judge"
)

// Build creates the entities of all streams, with that of the fault Backlog if the plan has it.
func (l *Load) Build(ctx context.Context, hasBacklog bool) error {
	b := &builder{ctx: ctx, load: l, process: l.cluster.Running(0)}
	for i := range 2 {
		b.plainQueue(fmt.Sprintf("queue-%d", i), func(e *fsm.EntitySettings) {
			e.EnablePartitioning = i == 1
			deletesItself(e)
		})
	}
	s := b.stream("duplicates")
	s.resends = true
	s.To = b.queue(s, s.Name, func(e *fsm.EntitySettings) { e.RequiresDuplicateDetection = true })
	s.From = []judge.Source{{At: s.To}}

	s = b.stream("sessions")
	s.HasSessions, s.immediate = true, true
	s.To = b.queue(s, s.Name, func(e *fsm.EntitySettings) { e.RequiresSession = true })
	s.From = []judge.Source{{At: s.To}}

	s = b.stream("chain")
	s.From = []judge.Source{{At: b.queue(s, "chain-2", nil)}}
	b.queue(s, "chain-1", func(e *fsm.EntitySettings) { e.ForwardTo = "chain-2" })
	s.To = b.queue(s, "chain-0", func(e *fsm.EntitySettings) { e.ForwardTo = "chain-1" })

	s = b.stream("topic")
	target := b.queue(s, "topic-target", nil)
	s.To = b.entity(s, fsm.TopicEntity, "topic", nil)
	one := b.entity(s, fsm.SubscriptionEntity, "topic/Subscriptions/one", nil)
	b.entity(s, fsm.SubscriptionEntity, "topic/Subscriptions/two", func(e *fsm.EntitySettings) { e.ForwardTo = "topic-target" })
	s.From = []judge.Source{{Name: "one", At: one}, {Name: "target", At: target}}

	s = b.stream("relay")
	s.immediate = true
	s.To = b.queue(s, "relay-in", nil)
	s.relay = &judge.Source{At: s.To}
	s.From = []judge.Source{{Name: "a", At: b.queue(s, "relay-a", nil)}, {Name: "b", At: b.queue(s, "relay-b", nil)}}

	b.viaGateway()
	b.movedByGateway()
	b.taken()
	b.buried()
	b.expiring()
	b.cancelled()
	b.planned()
	b.purged()
	b.redriven()
	b.ruled() //nolint:contextcheck // its requests run in a process, which outlives the boot
	if hasBacklog {
		b.backlogged()
	}
	b.idles()
	l.streams, l.unused = b.streams, b.unused
	return b.err
}

// plainQueue adds a queue whose dead letters are received too.
func (b *builder) plainQueue(name string, change func(*fsm.EntitySettings)) {
	s := b.stream(name)
	s.To = b.queue(s, name, func(e *fsm.EntitySettings) {
		e.MaxDeliveryCount = deliveriesMax
		change(e)
	})
	s.From = []judge.Source{{At: s.To}, {At: deadLetters(s.To)}}
	s.IsExact = len(s.To.Shards) > 0
	s.IsLinear = !s.IsExact
}

// buried adds a queue that forwards its dead letters. Every second message is dead-lettered by its receivers.
func (b *builder) buried() {
	s := b.stream("buried")
	s.IsExact = true
	grave := b.queue(s, "grave", nil)
	s.To = b.queue(s, s.Name, func(e *fsm.EntitySettings) { e.ForwardDeadLettersTo = "grave" })
	s.From = []judge.Source{{Name: "main", At: s.To}, {Name: "grave", At: grave}}
	s.buries = func(id string) bool { return numberOf(id)%2 == 1 }
	s.Expect = func(m *judge.Sent, source string) judge.Expectation {
		if source == "grave" && !s.buries(m.ID) {
			return judge.Never
		}
		return judge.Must
	}
}
