package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

const sessionsOfStream = 4

// manyDeliveries is a MaxDeliveryCount that no message reaches.
const manyDeliveries = 2000

// build creates the entities of all streams.
func (l *load) build(ctx context.Context) error {
	b := &builder{ctx: ctx, process: l.world.members[0].running()}
	for i := range 2 {
		b.plainQueue(fmt.Sprintf("queue-%d", i), func(e *fsm.EntitySettings) {
			e.EnablePartitioning = i == 1
			deletesItself(e)
		})
	}
	s := b.stream("duplicates")
	s.resends = true
	s.to = b.queue(s, s.name, func(e *fsm.EntitySettings) { e.RequiresDuplicateDetection = true })
	s.from = []source{{at: s.to}}

	s = b.stream("sessions")
	s.hasSessions, s.immediate = true, true
	s.to = b.queue(s, s.name, func(e *fsm.EntitySettings) { e.RequiresSession = true })
	s.from = []source{{at: s.to}}

	s = b.stream("chain")
	s.from = []source{{at: b.queue(s, "chain-2", nil)}}
	b.queue(s, "chain-1", func(e *fsm.EntitySettings) { e.ForwardTo = "chain-2" })
	s.to = b.queue(s, "chain-0", func(e *fsm.EntitySettings) { e.ForwardTo = "chain-1" })

	s = b.stream("topic")
	target := b.queue(s, "topic-target", nil)
	s.to = b.entity(s, fsm.TopicEntity, "topic", nil)
	one := b.entity(s, fsm.SubscriptionEntity, "topic/Subscriptions/one", nil)
	b.entity(s, fsm.SubscriptionEntity, "topic/Subscriptions/two", func(e *fsm.EntitySettings) { e.ForwardTo = "topic-target" })
	s.from = []source{{name: "one", at: one}, {name: "target", at: target}}

	s = b.stream("relay")
	s.immediate = true
	s.to = b.queue(s, "relay-in", nil)
	s.relay = &source{at: s.to}
	s.from = []source{{name: "a", at: b.queue(s, "relay-a", nil)}, {name: "b", at: b.queue(s, "relay-b", nil)}}

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
	if l.world.hasBacklog {
		b.backlogged()
	}
	b.idles()
	l.streams, l.unused = b.streams, b.unused
	return b.err
}

// plainQueue adds a queue whose dead letters are received too.
func (b *builder) plainQueue(name string, change func(*fsm.EntitySettings)) {
	s := b.stream(name)
	s.to = b.queue(s, name, func(e *fsm.EntitySettings) {
		e.MaxDeliveryCount = deliveriesMax
		change(e)
	})
	s.from = []source{{at: s.to}, {at: deadLetters(s.to)}}
	s.isExact = len(s.to.Shards) > 0
}

// buried adds a queue that forwards its dead letters. Every second message is dead-lettered by its receivers.
func (b *builder) buried() {
	s := b.stream("buried")
	s.isExact = true
	grave := b.queue(s, "grave", nil)
	s.to = b.queue(s, s.name, func(e *fsm.EntitySettings) { e.ForwardDeadLettersTo = "grave" })
	s.from = []source{{name: "main", at: s.to}, {name: "grave", at: grave}}
	s.buries = func(id string) bool { return numberOf(id)%2 == 1 }
	s.expect = func(m *sentMessage, source string) expectation {
		if source == "grave" && !s.buries(m.id) {
			return never
		}
		return must
	}
}

// builder creates entities until one fails.
type builder struct {
	ctx     context.Context //nolint:containedctx // of one function
	process *process
	streams []*stream
	unused  []fsm.Entity
	err     error
}

func (b *builder) stream(name string) *stream {
	s := &stream{name: name, deferred: make(map[fsm.SequenceNumber]bool), due: make(map[string]time.Time), sessions: newSessionJudge()}
	b.streams = append(b.streams, s)
	return s
}

func (b *builder) queue(s *stream, name string, change func(*fsm.EntitySettings)) fsm.EntityRef {
	return b.entity(s, fsm.QueueEntity, name, change)
}

// entity creates an entity whose failed deliveries are not limited, unless change says so.
func (b *builder) entity(s *stream, kind fsm.EntityKind, name string, change func(*fsm.EntitySettings)) fsm.EntityRef {
	if b.err != nil {
		return fsm.EntityRef{}
	}
	settings := fsm.DefaultSettings()
	settings.LockDuration = fsm.Millis(lockDuration.Milliseconds())
	settings.MaxDeliveryCount = manyDeliveries
	settings.MaxMessageBytes = messageMax
	if change != nil {
		change(&settings)
	}
	entity, err := b.process.node.Router().In(fsm.DefaultNamespace).CreateEntity(b.ctx, kind, name, settings, nil, nil)
	if b.err = err; err == nil {
		s.entities = append(s.entities, entity)
	}
	return fsm.EntityRef{Entity: entity}
}

// deadLetters returns the dead-letter queue of an entity.
func deadLetters(at fsm.EntityRef) fsm.EntityRef {
	return fsm.EntityRef{Entity: at.Entity, Sub: fsm.DeadLetterQueue}
}
