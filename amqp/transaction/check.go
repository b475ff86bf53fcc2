package transaction

import (
	"context"
	"slices"

	"github.com/peeklock/peeklock/fsm"
)

// An operation of a transaction is enlisted at once, and answered when the broker has said whether it can succeed: a
// lock that has ended, and an entity that does not exist, are refused when the operation comes, not at the commit.
// A transaction has one question to the broker at a time. Operations that come meanwhile share the next one, so a
// client that does not wait for answers pays no round trip for each. The commit decides: it performs a transaction
// whose questions nobody answered, and refuses one whose lock has ended since the answer.

// check is an enlisted operation that is not answered yet.
type check struct {
	at    fsm.EntityRef
	locks []fsm.LockID                                // those that it ends; none: it sends to the entity
	done  func(ctx context.Context, codes []fsm.Code) // gets one code per lock, or one. The mutex is not held
}

// pending holds the operations of a transaction that are not answered yet, and the discharge that waits for their
// answers. The mutex of the connection guards it.
type pending struct {
	conn      Connection
	broker    Broker
	unchecked []check // operations about which the broker was not asked yet
	checking  bool    // a question is with the broker, or the next one is due
	preparing int     // operations that are enlisted when the broker has answered
	resume    func()  // ends the transaction when all operations are answered; nil: no discharge waits. The mutex is held
}

// ask asks the broker about an operation, with the next question. The mutex is held.
func (p *pending) ask(ctx context.Context, operation check) {
	p.unchecked = append(p.unchecked, operation)
	if !p.checking {
		p.checking = true
		p.conn.Later(func() { p.askNext(ctx) })
	}
}

// askNext asks about the operations of the first entity that wait, or ends the check. The mutex is not held.
func (p *pending) askNext(ctx context.Context) {
	c := p.conn
	c.Lock()
	defer c.Unlock()
	if len(p.unchecked) == 0 {
		p.checking = false
		p.resumeDischarge()
		return
	}
	first := p.unchecked[0]
	same := func(o check) bool {
		return o.at.Address() == first.at.Address() && (len(o.locks) == 0) == (len(first.locks) == 0)
	}
	var asked []check
	var locks []fsm.LockID
	for _, o := range p.unchecked {
		if same(o) {
			asked, locks = append(asked, o), append(locks, o.locks...)
		}
	}
	p.unchecked = slices.DeleteFunc(p.unchecked, same)
	c.Later(func() {
		p.broker.Check(first.at, locks, func(codes []fsm.Code) { p.answered(ctx, asked, codes) })
	})
}

// answered is the done function of Broker.Check.
func (p *pending) answered(ctx context.Context, asked []check, codes []fsm.Code) {
	defer p.conn.Recovered(ctx)
	for _, o := range asked {
		mine := codes
		if n := len(o.locks); n > 0 {
			mine, codes = codes[:n], codes[n:]
		}
		o.done(ctx, mine)
	}
	p.askNext(ctx)
}

// any reports whether operations of the transaction are not answered yet. The mutex is held.
func (p *pending) any() bool { return p.checking || p.preparing > 0 }

// resumeDischarge ends the transaction if its discharge waits for nothing else. The mutex is held.
func (p *pending) resumeDischarge() {
	if resume := p.resume; resume != nil && !p.any() {
		p.resume = nil
		resume()
	}
}
