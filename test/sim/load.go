package sim

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// The load on each stream: about four operations a second. Twice as many take twice as much of a processor.
const (
	sendEvery         = 850 * time.Millisecond // on average
	thinkMean         = 40 * time.Millisecond  // between a delivery and its settlement, on average
	lockWait          = 2 * time.Second        // of one request for messages
	deliveriesMax     = 5                      // that fail, before a message is dead-lettered
	scheduleMax       = 10 * time.Second
	batchMax          = 8
	receiversOfSource = 3
	bodyMax           = 4 << 10
	largeBody         = 100 << 10 // one in a hundred
	messageMax        = 128 << 10 // of the entities; larger messages are refused
)

// load is all clients of a simulation.
type load struct {
	world      *world
	seed       uint64
	streams    []*stream
	unused     []fsm.Entity // that delete themselves
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

// start starts the clients of all streams: a sender, receivers for each source, and what else a stream has.
func (l *load) start() {
	for _, s := range l.streams {
		if send := l.senderOf(s); send != nil {
			sender := l.client("sender")
			l.senders.Go(func() { send(sender, s) })
		}
		for _, work := range s.work {
			worker := l.client("worker")
			l.senders.Go(func() { work(worker) })
		}
		if s.redrives {
			operator := l.client("operator")
			l.receivers.Go(func() { l.redrive(operator, s) })
		}
		if s.relay != nil {
			relay := l.client("relay")
			if s.isAMQP {
				l.receivers.Go(func() { l.moveAMQP(relay, s) })
			} else {
				l.receivers.Go(func() { l.receive(relay, s, *s.relay) })
			}
		}
		l.startReceivers(s)
	}
}

// senderOf returns what the sender of a stream does; nil: it has none.
func (l *load) senderOf(s *stream) func(*client, *stream) {
	switch {
	case s.schedules, s.isBacklog:
		return nil
	case s.isAMQP:
		return l.sendAMQP
	}
	return l.send
}

// startReceivers starts the receivers of a stream. Sources with different names may be copies in one subscription.
func (l *load) startReceivers(s *stream) {
	received := make(map[fsm.Address]bool)
	for _, from := range s.From {
		if received[from.At.Address()] {
			continue
		}
		received[from.At.Address()] = true
		for range receiversOfSource {
			receiver, receive := l.client("receiver"), l.receive
			switch {
			case s.isAMQP:
				receive = l.receiveAMQP
			case s.Takes != nil:
				receive = l.take
			}
			l.receivers.Go(func() {
				if s.isBacklog {
					<-l.sending.Done()
				}
				receive(receiver, s, from)
			})
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
		entities = append(entities, s.Entities...)
	}
	counts, err := p.node.Router().Counts(ctx, entities)
	for _, c := range counts {
		n += c.Active + c.Deferred + c.Scheduled + c.DeadLetter + c.Transfer + c.TransferDeadLetter
	}
	return n, err
}
