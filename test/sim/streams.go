package sim

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/history"
)

// stream is a way of messages through entities of the cluster: from where they are sent to where they are received.
// Its log has everything that its clients have seen.
type stream struct {
	history.Log
	name  string
	to    fsm.EntityRef
	from  []source
	relay *source // messages are moved on from here by transactions; nil: none are
	next  atomic.Int64

	resends     bool // the sender sends messages again whose fate it does not know, and some that were accepted
	hasSessions bool
	sessions    sessionJudge

	mu       sync.Mutex
	entities []fsm.Entity                // all that hold messages
	deferred map[fsm.SequenceNumber]bool // messages that may be deferred
	due      map[string]time.Time        // by message: scheduled for
	early    []string                    // messages that came before they were due
}

// source is where a stream is received. Every message must arrive at each source with a different name.
type source struct {
	name string
	at   fsm.EntityRef
}

// sources returns the names for history.Check.
func (s *stream) sources() (names []string) {
	for _, from := range s.from {
		if from.name != "" {
			names = append(names, from.name)
		}
	}
	return names
}

const sessionsOfStream = 4

// build creates the entities of all streams.
func (l *load) build(ctx context.Context) error {
	b := &builder{ctx: ctx, process: l.world.members[0].running()}
	for i := range 2 {
		s := b.stream(fmt.Sprintf("queue-%d", i))
		s.to = b.queue(s, s.name, func(*fsm.EntitySettings) {})
		s.from = []source{{at: s.to}, {at: fsm.EntityRef{Entity: s.to.Entity, Sub: fsm.DeadLetterQueue}}}
	}
	s := b.stream("duplicates")
	s.resends = true
	s.to = b.queue(s, s.name, func(e *fsm.EntitySettings) { e.RequiresDuplicateDetection, e.MaxDeliveryCount = true, 2000 })
	s.from = []source{{at: s.to}}

	s = b.stream("sessions")
	s.hasSessions = true
	s.to = b.queue(s, s.name, func(e *fsm.EntitySettings) { e.RequiresSession, e.MaxDeliveryCount = true, 2000 })
	s.from = []source{{at: s.to}}

	s = b.stream("chain")
	s.from = []source{{at: b.queue(s, "chain-2", func(e *fsm.EntitySettings) { e.MaxDeliveryCount = 2000 })}}
	b.queue(s, "chain-1", func(e *fsm.EntitySettings) { e.ForwardTo = "chain-2" })
	s.to = b.queue(s, "chain-0", func(e *fsm.EntitySettings) { e.ForwardTo = "chain-1" })

	s = b.stream("topic")
	target := b.queue(s, "topic-target", func(e *fsm.EntitySettings) { e.MaxDeliveryCount = 2000 })
	s.to = b.entity(s, fsm.TopicEntity, "topic", func(*fsm.EntitySettings) {})
	one := b.entity(s, fsm.SubscriptionEntity, "topic/Subscriptions/one", func(e *fsm.EntitySettings) { e.MaxDeliveryCount = 2000 })
	b.entity(s, fsm.SubscriptionEntity, "topic/Subscriptions/two", func(e *fsm.EntitySettings) { e.ForwardTo = "topic-target" })
	s.from = []source{{"one", one}, {"target", target}}

	s = b.stream("relay")
	s.to = b.queue(s, "relay-in", func(e *fsm.EntitySettings) { e.MaxDeliveryCount = 2000 })
	s.relay = &source{at: s.to}
	s.from = []source{{at: b.queue(s, "relay-out", func(e *fsm.EntitySettings) { e.MaxDeliveryCount = 2000 })}}
	l.streams = b.streams
	return b.err
}

// builder creates entities until one fails.
type builder struct {
	ctx     context.Context //nolint:containedctx // of one function
	process *process
	streams []*stream
	err     error
}

func (b *builder) stream(name string) *stream {
	s := &stream{name: name, deferred: make(map[fsm.SequenceNumber]bool), due: make(map[string]time.Time)}
	s.sessions.holders = make(map[string]holder)
	b.streams = append(b.streams, s)
	return s
}

func (b *builder) queue(s *stream, name string, change func(*fsm.EntitySettings)) fsm.EntityRef {
	return b.entity(s, fsm.QueueEntity, name, change)
}

func (b *builder) entity(s *stream, kind fsm.EntityKind, name string, change func(*fsm.EntitySettings)) fsm.EntityRef {
	if b.err != nil {
		return fsm.EntityRef{}
	}
	settings := fsm.DefaultSettings()
	settings.LockDuration = fsm.Millis(lockDuration.Milliseconds())
	settings.MaxDeliveryCount = deliveriesMax
	change(&settings)
	entity, err := b.process.node.Router().In(fsm.DefaultNamespace).CreateEntity(b.ctx, kind, name, settings, nil, nil)
	if b.err = err; err == nil {
		s.entities = append(s.entities, entity)
	}
	return fsm.EntityRef{Entity: entity}
}
