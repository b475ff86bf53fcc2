package receiver

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/amqp/work"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/evaluate"
)

// slowBroker counts the peeks at a time, each of which takes a second.
type slowBroker struct{ now, most atomic.Int64 }

func (b *slowBroker) Peek(ctx context.Context, _ fsm.EntityRef, _ fsm.SequenceNumber, _, _ int) ([]fsm.Delivery, error) {
	b.most.Store(max(b.most.Load(), b.now.Add(1)))
	defer b.now.Add(-1)
	sleep(ctx, time.Second)
	return nil, nil
}

func (*slowBroker) FetchReady(fsm.EntityRef, []fsm.LockID, bool, func(fsm.Code, []fsm.Delivery)) {}

// TestSelectorsPayBeforeTheyPeek: of very many links with selectors, only those hold messages whose peeks are paid for.
func TestSelectorsPayBeforeTheyPeek(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const perSecond, burst, links = 1000, 100, 500
		limiter := work.NewLimiter(perSecond, burst)
		paying := NewWork()
		account := limiter.Open(work.Owner{}, perSecond, burst)
		paying.Open(account)
		broker := &slowBroker{}
		var consumers []*Consumer
		for range links {
			c := NewConsumer(Source{Broker: broker, Selector: &evaluate.Selector{}, PeekMessagesMax: 1, PeekBytesMax: 1, Work: &paying, Recovered: func(context.Context) {}}, false)
			c.Lock(1, 1, time.Hour, func(fsm.Code, []fsm.Delivery) {})
			consumers = append(consumers, c)
		}
		<-time.After(10 * time.Second)
		if got, want := broker.most.Load(), int64((perSecond+2*burst)/PeekCost+2); got > want || got == 0 {
			t.Errorf("%d links peek at a time, want at most %d", got, want)
		}
		for _, c := range consumers {
			c.Close()
		}
		synctest.Wait()
		account.Close()
	})
}

// fullBroker answers each peek at once with a page of messages, and keeps the most units that pages have cost above those that
// could be paid.
type fullBroker struct {
	begun time.Time

	mu             sync.Mutex
	peeks, mostDue int
}

const (
	pageMessages = 100
	pageCost     = PeekCost + pageMessages/MessagesPerUnit + pageMessages*len(pagePayload)/unitBytes
	pagePayload  = "\x00\x53\x75\xa0\x01x" // a section of data

	paidPerSecond, paidBurst = 1000, 100
)

func (b *fullBroker) Peek(_ context.Context, _ fsm.EntityRef, from fsm.SequenceNumber, _, _ int) (page []fsm.Delivery, err error) {
	b.mu.Lock()
	b.peeks++
	b.mostDue = max(b.mostDue, b.peeks*pageCost-paidBurst-int(paidPerSecond*time.Since(b.begun).Seconds()))
	b.mu.Unlock()
	for i := range fsm.SequenceNumber(pageMessages) {
		page = append(page, fsm.Delivery{Lock: fsm.LockID{Sequence: from + i}, Payload: []byte(pagePayload)})
	}
	return page, nil
}

func (*fullBroker) FetchReady(fsm.EntityRef, []fsm.LockID, bool, func(fsm.Code, []fsm.Delivery)) {}

// TestSelectorsPayTheWholePageBefore: links whose selectors look at whole pages pay what a page costs before it is read, so that
// pages do not pile up that are read and not yet paid for.
func TestSelectorsPayTheWholePageBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const links = 50
		paying := NewWork()
		account := work.NewLimiter(paidPerSecond, paidBurst).Open(work.Owner{}, paidPerSecond, paidBurst)
		paying.Open(account)
		selector, err := evaluate.NewSelector("a = 1")
		if err != nil {
			t.Fatal(err)
		}
		broker := &fullBroker{begun: time.Now()}
		var consumers []*Consumer
		for range links {
			c := NewConsumer(Source{Broker: broker, Selector: selector, PeekMessagesMax: pageMessages, PeekBytesMax: 1 << 20, Work: &paying, Recovered: func(context.Context) {}}, false)
			c.Lock(1, 1, time.Hour, func(fsm.Code, []fsm.Delivery) {})
			consumers = append(consumers, c)
		}
		<-time.After(time.Minute)
		broker.mu.Lock()
		peeks, mostDue := broker.peeks, broker.mostDue
		broker.mu.Unlock()
		for _, c := range consumers {
			c.Close()
		}
		synctest.Wait()
		if mostDue > 2*pageCost {
			t.Errorf("pages cost up to %d units more than were paid, want at most %d", mostDue, 2*pageCost)
		}
		if least := paidPerSecond * 60 / pageCost * 9 / 10; peeks < least {
			t.Errorf("%d pages were read, want at least %d", peeks, least)
		}
		account.Close()
	})
}
