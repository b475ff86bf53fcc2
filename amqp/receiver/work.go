package receiver

import (
	"context"

	"github.com/peeklock/peeklock/amqp/work"
)

// Work pays for the searches of all links of a connection that have selectors, one after the other. Its methods may be
// called from any goroutine, except that Open must not run at the same time as a search.
type Work struct {
	turn    chan struct{} // holds a value while a search pays: guards account
	account work.Account
}

// NewWork returns a Work that does not limit anything before Open.
func NewWork() Work { return Work{turn: make(chan struct{}, 1)} }

// Open sets the account that pays.
func (w *Work) Open(account work.Account) { w.account = account }

// pay waits until the connection may do work of cost units, or ctx ends. It reports whether they were charged.
func (w *Work) pay(ctx context.Context, cost int) (charged bool) {
	select {
	case w.turn <- struct{}{}:
		w.account.Wait(ctx, nil, cost)
		<-w.turn
		return true
	case <-ctx.Done():
		return false
	}
}
