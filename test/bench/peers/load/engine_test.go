package main

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// memoryBroker has one queue in memory. It loses the message with the number lose, confirmed, if that is not 0.
type memoryBroker struct {
	queued  chan []byte
	settled atomic.Uint64
	lose    uint64
}

func (b *memoryBroker) connect(context.Context, int) (connection, error) { return b, nil }

func (b *memoryBroker) close() {}

func (b *memoryBroker) sender(context.Context, string) (sender, error) { return b, nil }

func (b *memoryBroker) receiver(context.Context, string, int) (receiver, error) { return b, nil }

func (b *memoryBroker) send(ctx context.Context, body []byte) (answer, error) {
	if n := binary.BigEndian.Uint64(body); n == 0 || n != b.lose {
		select {
		case b.queued <- append([]byte(nil), body...):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return func(context.Context) error { return nil }, nil
}

type memoryDelivery struct {
	broker  *memoryBroker
	content []byte
}

func (b *memoryBroker) receive(ctx context.Context) (delivery, error) {
	select {
	case body := <-b.queued:
		return memoryDelivery{b, body}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (d memoryDelivery) body() []byte { return d.content }

func (d memoryDelivery) settle(context.Context) error {
	d.broker.settled.Add(1)
	return nil
}

func newTestEngine(b *memoryBroker) *engine {
	return &engine{
		broker: b, row: row{queues: 1, window: 100, cycle: true}, size: 100, duration: 300 * time.Millisecond, members: []int{os.Getpid()},
		confirm: true, stop: make(chan struct{}), failed: make(chan error, 1), drainMax: time.Second,
	}
}

// TestRowCountsEveryMessage: everything that was sent is received and settled when a row ends, and nothing stays.
func TestRowCountsEveryMessage(t *testing.T) {
	t.Parallel()
	b := &memoryBroker{queued: make(chan []byte, 1000)}
	e := newTestEngine(b)
	r, err := e.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if sent := e.queues[0].sent.Load(); sent == 0 || b.settled.Load() != sent || r.Messages == 0 || r.Messages > sent || r.PerSecond <= 0 {
		t.Errorf("%d sent, %d settled, %+v", sent, b.settled.Load(), r)
	}
	ledger := filepath.Join(t.TempDir(), "ledger")
	if err := e.appendLedger(ledger); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(ledger); err != nil || string(text) != e.queues[0].name+" 0\n" {
		t.Errorf("the ledger says %q, %v", text, err)
	}
}

// TestRowFailsWhenAMessageIsLost: a row gives no result if a confirmed message does not arrive.
func TestRowFailsWhenAMessageIsLost(t *testing.T) {
	t.Parallel()
	e := newTestEngine(&memoryBroker{queued: make(chan []byte, 1000), lose: 7})
	if r, err := e.run(t.Context()); err == nil || !strings.Contains(err.Error(), "received") {
		t.Errorf("a row with a lost message gave %+v, %v", r, err)
	}
}

// TestMedians: the median of an even number of rounds is the mean of the two in the middle.
func TestMedians(t *testing.T) {
	t.Parallel()
	rate := func(r result) float64 { return r.PerSecond }
	if m := median([]result{{PerSecond: 4}, {PerSecond: 1}, {PerSecond: 2}}, rate); m != 2 {
		t.Errorf("median of three: %v", m)
	}
	if m := median([]result{{PerSecond: 4}, {PerSecond: 2}}, rate); m != 3 {
		t.Errorf("median of two: %v", m)
	}
	if s := thousands(1234567); s != "1,234,567" {
		t.Errorf("a number as %s", s)
	}
}
