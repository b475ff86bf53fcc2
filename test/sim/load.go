package sim

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/cluster/router"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/history"
)

// The load on each queue: about fifteen operations a second.
const (
	queues       = 6
	sendEvery    = 200 * time.Millisecond // on average
	thinkMean    = 40 * time.Millisecond  // between a delivery and its settlement, on average
	lockDuration = 15 * time.Second
	lockWait     = 2 * time.Second // of one request for messages
	batchMax     = 8
	bodyMax      = 4 << 10
	largeBody    = 100 << 10 // one in a hundred
)

// queue is one queue of the load, with everything that its clients have seen.
type queue struct {
	history.Log
	name string
	at   fsm.EntityRef
	next atomic.Int64
}

// load is all clients of a simulation.
type load struct {
	world      *world
	seed       uint64
	queues     []*queue
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

// create creates the queues.
func (l *load) create(ctx context.Context) error {
	p := l.world.members[0].running()
	settings := fsm.DefaultSettings()
	settings.LockDuration = fsm.Millis(lockDuration.Milliseconds())
	settings.MaxDeliveryCount = 2000
	for i := range queues {
		q := &queue{name: fmt.Sprintf("queue-%d", i)}
		entity, err := p.node.Router().In(fsm.DefaultNamespace).CreateEntity(ctx, fsm.QueueEntity, q.name, settings, nil, nil)
		if err != nil {
			return fmt.Errorf("create %s: %w", q.name, err)
		}
		q.at = fsm.EntityRef{Entity: entity}
		l.queues = append(l.queues, q)
	}
	return nil
}

// start starts a sender and two receivers for each queue.
func (l *load) start() {
	for _, q := range l.queues {
		sender := l.client("sender")
		l.senders.Go(func() { l.send(sender, q) })
		for range 2 {
			receiver := l.client("receiver")
			l.receivers.Go(func() { l.receive(receiver, q) })
		}
	}
}

func (l *load) client(name string) *client {
	l.clients++
	return newClient(l.world, l.seed, l.clients, name)
}

// send sends batches until sending ends.
func (l *load) send(c *client, q *queue) {
	for c.think(l.sending, sendEvery) {
		if p := c.process(l.sending); p != nil {
			_ = l.sendOne(c, p, q, c.rand.IntN(10) == 0) // the history has the outcome
		}
	}
}

// sendOne sends one message, or some as one request, and records what came of it.
func (l *load) sendOne(c *client, p *process, q *queue, batch bool) fsm.Code {
	n := 1
	if batch {
		n += c.rand.IntN(4)
	}
	var messages []fsm.Message
	for range n {
		id := q.name + "/" + strconv.FormatInt(q.next.Add(1), 10)
		size := c.rand.IntN(bodyMax)
		if c.rand.IntN(100) == 0 {
			size = largeBody
		}
		messages = append(messages, fsm.Message{ID: id, Payload: []byte(id + "|" + strings.Repeat(".", size))})
		q.Add(history.Event{Kind: history.SendBegun, ID: id, Client: c.name})
	}
	code, heard := send(p, q.at, messages)
	kind := history.SendRefused
	switch {
	case !heard || isUnknown(code):
		kind = history.SendUnknown
	case code == fsm.OK:
		kind = history.SendAccepted
		l.operations.Add(int64(n))
	}
	for _, m := range messages {
		q.Add(history.Event{Kind: kind, ID: m.ID, Client: c.name, Note: note(p, code)})
	}
	return code
}

// note says where a request was made, and how it ended.
func note(p *process, code fsm.Code) string { return fmt.Sprintf("m%d: %v", p.member.number, code) }

// receive receives and settles until receiving ends.
func (l *load) receive(c *client, q *queue) {
	for {
		p := c.process(l.receiving)
		if p == nil {
			return
		}
		r := p.node.Router().Receiver(q.at, false)
		for l.receiving.Err() == nil && !p.hasEnded() && c.rand.IntN(50) != 0 {
			l.receiveSome(c, p, q, r)
		}
		r.Close()
	}
}

type locked struct {
	code       fsm.Code
	deliveries []fsm.Delivery
}

// receiveSome makes one request for messages and settles what comes.
func (l *load) receiveSome(c *client, p *process, q *queue, r *router.Receiver) {
	// The locks begin after the request and last longer than this, whatever the clocks of the members show.
	until := time.Now().Add(lockDuration)
	got, heard := ask(p, func(answer func(locked)) {
		r.Lock(1+c.rand.IntN(batchMax), 1<<20, lockWait, func(code fsm.Code, d []fsm.Delivery) { answer(locked{code, d}) })
	})
	if !heard || got.code != fsm.OK {
		sleep(reconnectAfter)
		return
	}
	if !time.Now().Before(until) {
		return // too late: the locks may have ended before the answer came
	}
	for _, d := range got.deliveries {
		l.operations.Add(1)
		q.Add(history.Event{
			Kind: history.Delivered, ID: idOf(d), Client: c.name, Sequence: int64(d.Lock.Sequence),
			FailedDeliveries: d.FailedDeliveries, LockedUntil: until, Note: fmt.Sprintf("m%d, epoch %d", p.member.number, d.Lock.Epoch),
		})
	}
	for _, d := range got.deliveries {
		if !c.think(context.Background(), thinkMean) || p.hasEnded() {
			return
		}
		l.settle(c, p, q, d)
	}
}

// idOf returns the id that sendOne has given to a message.
func idOf(d fsm.Delivery) string {
	id, _, _ := strings.Cut(string(d.Payload), "|")
	return id
}

// settle completes most deliveries, returns some, and leaves a few until their locks end.
func (l *load) settle(c *client, p *process, q *queue, d fsm.Delivery) {
	s := fsm.Settlement{Lock: d.Lock, Verb: fsm.Complete}
	switch n := c.rand.IntN(100); {
	case n < 6:
		s.Verb = fsm.Abandon
	case n < 9:
		s.Verb = fsm.Release
	case n < 10:
		return
	}
	id := idOf(d)
	q.Add(history.Event{Kind: history.SettleBegun, ID: id, Client: c.name})
	code, heard := settle(p, q.at, s)
	kind := history.SettleFailed
	if heard && code == fsm.OK {
		l.operations.Add(1)
		kind = history.Returned
		if s.Verb == fsm.Complete {
			kind = history.Completed
		}
	}
	q.Add(history.Event{Kind: kind, ID: id, Client: c.name, Note: note(p, code)})
}

// remaining returns how many messages the queues hold.
func (l *load) remaining(ctx context.Context, p *process) (n uint64, err error) {
	var entities []fsm.Entity
	for _, q := range l.queues {
		entities = append(entities, q.at.Entity)
	}
	counts, err := p.node.Router().Counts(ctx, entities)
	for _, c := range counts {
		n += c.Active + c.Deferred + c.Scheduled + c.DeadLetter + c.Transfer
	}
	return n, err
}

var errStuck = errors.New("not everything was served in time after the last fault")
