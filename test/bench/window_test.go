package bench

import (
	"context"
	"sync/atomic"

	"github.com/Azure/go-amqp"
)

// window sends with a limited number of sends that are not confirmed. One goroutine uses it.
type window struct {
	most      int           // unconfirmed sends
	confirmed *atomic.Int64 // counts confirmations; may be nil
	receipts  []amqp.SendReceipt
}

// send waits until a further send may be outstanding, and sends.
func (w *window) send(ctx context.Context, link *amqp.Sender, m *amqp.Message) error {
	if err := w.await(ctx, w.most-1); err != nil {
		return err
	}
	receipt, err := link.SendWithReceipt(ctx, m, nil)
	if err == nil {
		w.receipts = append(w.receipts, receipt)
	}
	return err
}

// await waits until at most n sends are not confirmed.
func (w *window) await(ctx context.Context, n int) error {
	for len(w.receipts) > n {
		if _, err := w.receipts[0].Wait(ctx); err != nil {
			return err
		}
		w.receipts = append(w.receipts[:0], w.receipts[1:]...)
		if w.confirmed != nil {
			w.confirmed.Add(1)
		}
	}
	return nil
}
