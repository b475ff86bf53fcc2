package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	settlersPerQueue = 100 // settlements in flight, and credit
	pollInterval     = 10 * time.Millisecond
	flushTime        = 500 * time.Millisecond // in which a client sends settlements for whose answers nobody waits
	serialBytes      = 8                      // of a body: the number of the message
)

// engine runs the clients of one row. Per queue it has a connection that sends, to member i modulo the number of members,
// and in rows with receivers a connection to the next member that receives.
type engine struct {
	broker   broker
	row      row
	size     int
	duration time.Duration
	members  []int         // process ids
	confirm  bool          // settlements wait for their answer
	drainMax time.Duration // for which the end of a row waits

	queues []*queue
	stop   chan struct{} // closed when sending ends
	failed chan error    // the first error
}

// queue is what happened to one queue.
type queue struct {
	name      string
	sent      atomic.Uint64
	confirmed atomic.Uint64
	settled   atomic.Uint64
	repeated  atomic.Uint64 // received more than once

	mu        sync.Mutex
	seen      []bool          // by serial
	latencies []time.Duration // of sends within the measurement; used by one goroutine until it has ended
}

func (e *engine) fail(err error) {
	select {
	case e.failed <- err:
	default:
	}
}

// run measures the row. Everything that was sent is confirmed when it returns without an error, and in rows with
// receivers also received and settled.
func (e *engine) run(ctx context.Context) (result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var sending, receiving sync.WaitGroup
	var measuring atomic.Bool
	begin := make(chan struct{})
	for i := range e.row.queues {
		q := &queue{name: e.row.queueName(i)}
		e.queues = append(e.queues, q)
		s, closeSender, err := e.openSender(ctx, i, q)
		if err != nil {
			return result{}, err
		}
		defer closeSender()
		if e.row.cycle {
			r, closeReceiver, err := e.openReceiver(ctx, i, q)
			if err != nil {
				return result{}, err
			}
			defer closeReceiver()
			for range settlersPerQueue {
				receiving.Go(func() { e.receive(ctx, q, r) })
			}
		}
		sending.Go(func() {
			<-begin
			e.send(ctx, q, s, &measuring)
		})
	}
	close(begin)
	first, last, err := e.measure(&measuring)
	close(e.stop)
	sending.Wait()
	if err == nil {
		err = e.drain()
	}
	if e.row.cycle && !e.confirm {
		time.Sleep(flushTime)
	}
	cancel()
	receiving.Wait()
	if err != nil {
		return result{}, err
	}
	return e.result(first, last)
}

func (e *engine) openSender(ctx context.Context, i int, q *queue) (sender, func(), error) {
	c, err := e.broker.connect(ctx, i)
	if err != nil {
		return nil, nil, err
	}
	s, err := c.sender(ctx, q.name)
	if err != nil {
		c.close()
	}
	return s, c.close, err
}

func (e *engine) openReceiver(ctx context.Context, i int, q *queue) (receiver, func(), error) {
	c, err := e.broker.connect(ctx, i+1)
	if err != nil {
		return nil, nil, err
	}
	r, err := c.receiver(ctx, q.name, settlersPerQueue)
	if err != nil {
		c.close()
	}
	return r, c.close, err
}

// measure waits for the warm-up and for the measured time.
func (e *engine) measure(measuring *atomic.Bool) (first, last mark, err error) {
	wait := func(d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case err := <-e.failed:
			return err
		}
	}
	if err := wait(time.Duration(warmupSeconds * float64(time.Second))); err != nil {
		return first, last, err
	}
	if first, err = e.mark(); err != nil {
		return first, last, err
	}
	measuring.Store(true)
	if err := wait(e.duration); err != nil {
		return first, last, err
	}
	measuring.Store(false)
	last, err = e.mark()
	return first, last, err
}

// inFlight is a send that waits for its confirmation.
type inFlight struct {
	start    time.Time
	answer   answer
	measured bool
}

// send sends to one queue until the engine stops, and returns when everything is confirmed.
func (e *engine) send(ctx context.Context, q *queue, s sender, measuring *atomic.Bool) {
	body := make([]byte, e.size)
	if e.row.window == 1 {
		// No other goroutine: the switch to it would be a part of the latency.
		for !e.stopped() {
			f, ok := e.sendOne(ctx, q, s, body, measuring)
			if !ok || !e.awaitAnswer(ctx, q, f) {
				return
			}
		}
		return
	}
	// One send is being sent, one being awaited, the rest are in the channel: together the window.
	flights := make(chan inFlight, e.row.window-2)
	var confirming sync.WaitGroup
	confirming.Go(func() {
		for f := range flights {
			e.awaitAnswer(ctx, q, f)
		}
	})
	defer confirming.Wait()
	defer close(flights)
	due := time.Now()
	for !e.stopped() {
		if e.row.rate > 0 {
			time.Sleep(time.Until(due))
			due = due.Add(time.Duration(float64(time.Second) / e.row.rate))
		}
		f, ok := e.sendOne(ctx, q, s, body, measuring)
		if !ok {
			return
		}
		flights <- f
	}
}

func (e *engine) stopped() bool {
	select {
	case <-e.stop:
		return true
	default:
		return false
	}
}

func (e *engine) sendOne(ctx context.Context, q *queue, s sender, body []byte, measuring *atomic.Bool) (inFlight, bool) {
	binary.BigEndian.PutUint64(body, q.sent.Add(1)-1)
	f := inFlight{start: time.Now(), measured: measuring.Load()}
	var err error
	if f.answer, err = s.send(ctx, body); err != nil {
		e.fail(fmt.Errorf("send to %s: %w", q.name, err))
		return f, false
	}
	return f, true
}

func (e *engine) awaitAnswer(ctx context.Context, q *queue, f inFlight) bool {
	if err := f.answer(ctx); err != nil {
		e.fail(fmt.Errorf("await confirmation of %s: %w", q.name, err))
		return false
	}
	q.confirmed.Add(1)
	if f.measured {
		q.latencies = append(q.latencies, time.Since(f.start))
	}
	return true
}

// receive receives and settles until ctx ends.
func (e *engine) receive(ctx context.Context, q *queue, r receiver) {
	for {
		d, err := r.receive(ctx)
		if err == nil {
			if err = q.arrived(d.body()); err == nil {
				err = d.settle(ctx)
			}
		}
		if err != nil {
			if ctx.Err() == nil {
				e.fail(fmt.Errorf("receive from %s: %w", q.name, err))
			}
			return
		}
		q.settled.Add(1)
	}
}

// arrived counts a message.
func (q *queue) arrived(body []byte) error {
	if len(body) < serialBytes {
		return errors.New("a message came back shorter")
	}
	serial := binary.BigEndian.Uint64(body)
	if serial >= q.sent.Load() {
		return fmt.Errorf("message %d came back, and was not sent", serial)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for uint64(len(q.seen)) <= serial {
		q.seen = append(q.seen, false)
	}
	if q.seen[serial] {
		q.repeated.Add(1)
	}
	q.seen[serial] = true
	return nil
}

// drain waits until all that was sent is confirmed, and in rows with receivers received and settled. Senders have ended.
func (e *engine) drain() error {
	deadline := time.Now().Add(e.drainMax)
	for {
		err := e.check()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		select {
		case err := <-e.failed:
			return err
		case <-time.After(pollInterval):
		}
	}
}

// check returns an error unless all counts are equal.
func (e *engine) check() error {
	for _, q := range e.queues {
		if sent, confirmed := q.sent.Load(), q.confirmed.Load(); sent != confirmed {
			return fmt.Errorf("%s: %d messages were sent, %d confirmed", q.name, sent, confirmed)
		}
		if !e.row.cycle {
			continue
		}
		q.mu.Lock()
		distinct := uint64(0)
		for _, seen := range q.seen {
			if seen {
				distinct++
			}
		}
		q.mu.Unlock()
		if sent, settled := q.sent.Load(), q.settled.Load()-q.repeated.Load(); distinct != sent || settled != sent {
			return fmt.Errorf("%s: %d messages were sent, %d received, %d settled", q.name, sent, distinct, settled)
		}
	}
	return nil
}

// appendLedger writes how many messages the row has left in each of its queues.
func (e *engine) appendLedger(path string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open ledger: %w", err)
	}
	for _, q := range e.queues {
		left := q.confirmed.Load()
		if e.row.cycle {
			left = 0
		}
		if _, err := f.WriteString(q.name + " " + strconv.FormatUint(left, 10) + "\n"); err != nil {
			return errors.Join(fmt.Errorf("write ledger: %w", err), f.Close())
		}
	}
	return f.Close()
}
