package load

import (
	"context"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/sim/judge"
)

const sessionsOfStream = 4

// manyDeliveries is a MaxDeliveryCount that no message reaches.
const manyDeliveries = 2000

// builder creates entities until one fails.
type builder struct {
	ctx     context.Context //nolint:containedctx // of one function
	load    *Load
	process *Process
	streams []*stream
	unused  []fsm.Entity
	err     error
}

func (b *builder) stream(name string) *stream {
	s := &stream{deferred: make(map[fsm.SequenceNumber]bool), Stream: judge.NewStream(name)}
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
	settings.LockDuration = fsm.Millis(judge.LockDuration.Milliseconds())
	settings.MaxDeliveryCount = manyDeliveries
	settings.MaxMessageBytes = messageMax
	if change != nil {
		change(&settings)
	}
	entity, err := b.process.Node.Router().In(fsm.DefaultNamespace).CreateEntity(b.ctx, kind, name, settings, nil, nil)
	if b.err = err; err == nil {
		s.Entities = append(s.Entities, entity)
	}
	return fsm.EntityRef{Entity: entity}
}

// deadLetters returns the dead-letter queue of an entity.
func deadLetters(at fsm.EntityRef) fsm.EntityRef {
	return fsm.EntityRef{Entity: at.Entity, Sub: fsm.DeadLetterQueue}
}
