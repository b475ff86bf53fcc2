package receiver

import (
	"context"
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
