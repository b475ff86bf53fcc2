package sim

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// The load on each stream: ten to twenty operations a second.
const (
	sendEvery         = 200 * time.Millisecond // on average
	thinkMean         = 40 * time.Millisecond  // between a delivery and its settlement, on average
	lockDuration      = 15 * time.Second
	lockWait          = 2 * time.Second // of one request for messages
	deliveriesMax     = 5               // that fail, before a message is dead-lettered
	scheduleMax       = 10 * time.Second
	batchMax          = 8
	receiversOfSource = 3
	bodyMax           = 4 << 10
	largeBody         = 100 << 10 // one in a hundred
)

// load is all clients of a simulation.
type load struct {
	world      *world
	seed       uint64
	streams    []*stream
	clients    int
	operations atomic.Int64

	senders, receivers sync.WaitGroup
	sending, receiving context.Context
	stopSending        context.CancelFunc
	stopReceiving      context.CancelFunc
}

func newLoad(ctx context.Context, w *world, seed uint64) *load {
	l := &load{world: w, seed: seed}
	l.sending, l.stopSending = context.WithCancel(ctx)
	l.receiving, l.stopReceiving = context.WithCancel(ctx)
	return l
}

// start starts a sender for each stream, and receivers for each of its sources.
func (l *load) start() {
	for _, s := range l.streams {
		sender := l.client("sender")
		l.senders.Go(func() { l.send(sender, s) })
		if s.relay != nil {
			relay := l.client("relay")
			l.receivers.Go(func() { l.receive(relay, s, *s.relay) })
		}
		for _, from := range s.from {
			for range receiversOfSource {
				receiver := l.client("receiver")
				l.receivers.Go(func() { l.receive(receiver, s, from) })
			}
		}
	}
}

func (l *load) client(name string) *client {
	l.clients++
	return newClient(l.world, l.seed, l.clients, name)
}

// remaining returns how many messages the entities hold.
func (l *load) remaining(ctx context.Context, p *process) (n uint64, err error) {
	var entities []fsm.Entity
	for _, s := range l.streams {
		entities = append(entities, s.entities...)
	}
	counts, err := p.node.Router().Counts(ctx, entities)
	for _, c := range counts {
		n += c.Active + c.Deferred + c.Scheduled + c.DeadLetter + c.Transfer + c.TransferDeadLetter
	}
	return n, err
}
