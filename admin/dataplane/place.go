package dataplane

import (
	"fmt"
	"net/http"
	"time"

	"github.com/peeklock/peeklock/amqp/account"
	"github.com/peeklock/peeklock/fsm"
)

const answerMax = 15 * time.Second // to write an answer after the wait

// place is the place of a request among those in flight, and the bytes that it holds. It belongs to the goroutine of its request.
type place struct {
	slots   chan struct{}
	account *account.Account
	of      account.Resource
	bytes   int64
	given   bool
}

// place takes a place for a request of an owner, which may wait for a message, and whose account it closes. Errors wrap fsm.ServerBusy.
func (s *Server) place(waits bool, of *account.Account) (*place, error) {
	p := &place{slots: s.requests, of: account.HTTPMessages, account: of}
	if waits {
		p.slots, p.of = s.polls, account.HTTPPolls
	}
	if !p.account.Take(p.of, 1) {
		defer p.account.Close()
		return nil, fmt.Errorf("%w: %s", fsm.ServerBusy, p.account.Refusal(p.of))
	}
	select {
	case p.slots <- struct{}{}:
		return p, nil
	default:
		p.account.Release(p.of, 1)
		p.account.Close()
		return nil, fmt.Errorf("%w: %d requests are in flight: try again", fsm.ServerBusy, cap(p.slots))
	}
}

// hold counts bytes that the request holds until it ends. Errors wrap fsm.ServerBusy.
func (p *place) hold(bytes int64) error {
	if !p.account.Take(account.HTTPBytes, bytes) {
		return fmt.Errorf("%w: %s", fsm.ServerBusy, p.account.Refusal(account.HTTPBytes))
	}
	p.bytes += bytes
	return nil
}

// give gives the place to the next request: what remains is to write the answer, for which the client has answerMax.
func (p *place) give(w http.ResponseWriter) {
	if p.given {
		return
	}
	p.given = true
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerMax))
	p.account.Release(p.of, 1)
	<-p.slots
}

// end ends the request.
func (p *place) end(w http.ResponseWriter) {
	p.give(w)
	p.account.Release(account.HTTPBytes, p.bytes)
	p.account.Close()
}
