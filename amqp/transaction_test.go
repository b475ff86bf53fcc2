package amqp

import (
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/amqp/settlement"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

func TestSendsOfATransactionAreStoredAtItsCommit(t *testing.T) {
	t.Parallel()
	b := newTransactionLog("orders", "bills")
	p := transactionPeer(t, b)
	p.sender(0, "orders")
	p.sender(1, "bills")
	txn := p.declare(0)
	p.transfer(0, 1, encodedMessage(t, []byte("a")), in(txn))
	p.within(txn, wire.RoleReceiver, 1, 1, "accepted")
	data := wire.AppendBinary(wire.AppendSectionDescriptor(nil, wire.SectionData), encodedMessage(t, nil))
	p.transfer(1, 2, append(data, data...), in(txn), func(t *wire.Transfer) { t.MessageFormat = ptr(uint32(batchFormat)) })
	p.within(txn, wire.RoleReceiver, 2, 2, "accepted")
	whole := encodedMessage(t, make([]byte, 1000))
	p.transfer(0, 3, whole[:500], in(txn), more)
	p.transfer(0, 3, whole[500:])
	p.within(txn, wire.RoleReceiver, 3, 3, "accepted")
	if b.counts("orders").Active != 0 || b.counts("bills").Active != 0 || b.asked() != 0 {
		t.Error("something was done before the commit")
	}
	p.commit(4, txn)
	if b.counts("orders").Active != 2 || b.counts("bills").Active != 2 || b.asked() != 1 {
		t.Errorf("%+v and %+v of %d", b.counts("orders"), b.counts("bills"), b.asked())
	}
	p.command(5, &wire.Discharge{TxnID: txn})
	p.refused(5, wire.RoleReceiver, wire.ConditionTransactionUnknownID)
}

func TestTransactionRolledBack(t *testing.T) {
	t.Parallel()
	b := newTransactionLog("orders")
	p := receivingPeer(t, b, 3)
	p.sender(0, "orders")
	txn := p.declare(0)
	p.transfer(0, 1, encodedMessage(t, nil), in(txn))
	p.within(txn, wire.RoleReceiver, 1, 1, "accepted")
	p.settleIn(txn, 0, 2, &wire.Accepted{})
	p.within(txn, wire.RoleSender, 0, 2, "accepted")
	p.rollback(2, txn)
	if c := b.counts("orders"); c.Active != 3 || b.asked() != 0 {
		t.Errorf("counts %+v", c)
	}
	// Deliveries that the transaction settled can be settled again, in another transaction or outside.
	txn = p.declare(3)
	p.settleIn(txn, 0, 0, &wire.Accepted{})
	p.within(txn, wire.RoleSender, 0, 0, "accepted")
	p.commit(4, txn)
	p.send(dispose(1, 2, false, &wire.Accepted{}))
	if d := expect[*wire.Disposition](p); typeName(d.State) != "accepted" || d.First != 1 || *d.Last != 2 {
		t.Errorf("disposition %+v", d)
	}
	if c := b.counts("orders"); c.Active != 0 {
		t.Errorf("counts %+v", c)
	}
}

// Every way to settle works in a transaction, and nothing happens before the commit.
func TestSettlementsOfATransactionHappenAtItsCommit(t *testing.T) {
	t.Parallel()
	yes := true
	annotated := wire.Map{{Key: wire.Symbol("k"), Value: "v"}}
	for name, c := range map[string]struct {
		outcome any
		want    string
		after   fsm.Counts
	}{
		"complete":    {&wire.Accepted{}, "accepted", fsm.Counts{}},
		"abandon":     {&wire.Modified{MessageAnnotations: annotated}, "modified", fsm.Counts{Active: 1}},
		"defer":       {&wire.Modified{UndeliverableHere: &yes}, "modified", fsm.Counts{Deferred: 1}},
		"dead-letter": {&wire.Rejected{Error: &wire.Error{Condition: wire.ConditionDeadLetter}}, "rejected", fsm.Counts{DeadLetter: 1}},
	} {
		b := newTransactionLog("orders")
		p := receivingPeer(t, b, 1)
		txn := p.declare(0)
		p.settleIn(txn, 0, 0, c.outcome)
		p.within(txn, wire.RoleSender, 0, 0, c.want)
		if got := b.counts("orders"); got.Active != 1 {
			t.Errorf("%s: counts %+v before the commit", name, got)
		}
		p.commit(1, txn)
		got := b.counts("orders")
		got.Bytes = 0
		if got != c.after {
			t.Errorf("%s: counts %+v, want %+v", name, got, c.after)
		}
		// The delivery is settled, so it is unknown.
		p.send(dispose(0, 0, false, &wire.Accepted{}))
		p.refused(0, wire.RoleSender, wire.ConditionMessageLockLost)
	}
}

// A range may contain deliveries of several links of one entity, have gaps, and is answered in ranges.
func TestRangeInATransactionMaySpanLinks(t *testing.T) {
	t.Parallel()
	b := newTransactionLog("orders")
	b.messages(t, "orders", 6)
	p := transactionPeer(t, b)
	p.receiver(0, "orders")
	p.credit(0, 0, 3)
	p.deliveries(3)
	p.receiver(1, "orders")
	p.credit(1, 0, 3)
	p.deliveries(3)
	p.send(dispose(1, 1, false, &wire.Accepted{}))
	expect[*wire.Disposition](p)
	txn := p.declare(0)
	p.settleIn(txn, 0, 5, &wire.Accepted{})
	p.within(txn, wire.RoleSender, 0, 0, "accepted")
	p.within(txn, wire.RoleSender, 2, 5, "accepted")
	p.commit(1, txn)
	if b.counts("orders").Active != 0 || len(b.all[0].Settles) != 1 {
		t.Errorf("%+v, %d places", b.counts("orders"), len(b.all[0].Settles))
	}
	p.send(dispose(0, 5, false, &wire.Accepted{}))
	txn = p.declare(2) // the range is empty, so there is no answer
	p.settleIn(txn, 0, 5, &wire.Accepted{})
	d := expect[*wire.Disposition](p)
	if r, ok := d.State.(*wire.Rejected); !ok || d.First != 0 || *d.Last != 5 || r.Error.Condition != wire.ConditionMessageLockLost {
		t.Errorf("%+v state %+v", d, d.State)
	}
}

// A transaction moves one message between queues: if either half fails, neither takes effect.
func TestTransactionIsWholeOrAbsent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		meddle func(b *transactionLog)
		text   string
		left   uint64
	}{
		"lock lost": {func(b *transactionLog) { b.advanceClock(time.Minute) }, "The lock supplied is invalid", 1},
		"deleted":   {func(b *transactionLog) { b.remove("bills") }, "could not be found", 1},
		"disabled":  {func(b *transactionLog) { b.change("bills", func(s *fsm.EntitySettings) { s.Status = fsm.Disabled }) }, "is disabled", 1},
		"too large": {func(b *transactionLog) { b.change("bills", func(s *fsm.EntitySettings) { s.MaxMessageBytes = 1 }) }, "larger than the entity allows", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTransactionLog("orders", "bills")
			p := receivingPeer(t, b, 1)
			p.sender(0, "bills")
			txn := p.declare(0)
			p.transfer(0, 1, encodedMessage(t, make([]byte, 300)), in(txn))
			p.within(txn, wire.RoleReceiver, 1, 1, "accepted")
			p.settleIn(txn, 0, 0, &wire.Accepted{})
			p.within(txn, wire.RoleSender, 0, 0, "accepted")
			c.meddle(b)
			p.command(2, &wire.Discharge{TxnID: txn})
			e := p.refused(2, wire.RoleReceiver, wire.ConditionTransactionRollback)
			if !strings.Contains(e.Description, "nothing of it was done") || !strings.Contains(e.Description, c.text) {
				t.Error(e.Description)
			}
			if got := b.counts("orders"); got.Active != c.left || b.counts("bills").Active != 0 {
				t.Errorf("counts %+v and %+v", got, b.counts("bills"))
			}
			if name == "lock lost" {
				return
			}
			p.send(dispose(0, 0, false, &wire.Accepted{})) // it still holds the lock
			if d := expect[*wire.Disposition](p); typeName(d.State) != "accepted" {
				t.Errorf("%+v", d.State)
			}
		})
	}
}

func TestTransactionRefusedByBroker(t *testing.T) {
	t.Parallel()
	b := newTransactionLog("orders")
	p := transactionPeer(t, b)
	p.sender(0, "orders")
	id := uint32(0)
	for _, c := range []struct {
		code fsm.Code
		want wire.Symbol
		text string
	}{
		{fsm.QuotaExceeded, wire.ConditionTransactionRollback, "The entity is full"},
		{fsm.NotAllowed, wire.ConditionTransactionRollback, "what one of its entities does not allow"},
		{fsm.InvalidArgument, wire.ConditionTransactionRollback, "Or more is sent"},
		{fsm.SessionLockLost, wire.ConditionTransactionRollback, "session lock"},
		{fsm.ServerBusy, wire.ConditionTransactionRollback, "A retry may help."},
		{fsm.Timeout, wire.ConditionTransactionTimeout, "all of it was done, or nothing"},
	} {
		b.mu.Lock()
		b.code = c.code
		b.mu.Unlock()
		txn := p.declare(id)
		p.transfer(0, id+1, encodedMessage(t, nil), in(txn))
		p.within(txn, wire.RoleReceiver, id+1, id+1, "accepted")
		p.command(id+2, &wire.Discharge{TxnID: txn})
		if e := p.refused(id+2, wire.RoleReceiver, c.want); !strings.Contains(e.Description, c.text) {
			t.Error(e.Description)
		}
		id += 3
	}
}

// After a refused operation a transaction can only be rolled back, because Java ignores the outcome of its
// sends.
func TestRefusedOperationMakesRollbackOnly(t *testing.T) {
	t.Parallel()
	yes := true
	for name, c := range map[string]struct {
		wrong func(p *peer, txn []byte)
		want  wire.Symbol // condition of the operation
	}{
		"message": {func(p *peer, txn []byte) { p.transfer(0, 3, []byte("not a message"), in(txn)) }, wire.ConditionDecodeError},
		"size":    {func(p *peer, txn []byte) { p.sendLarge(0, 3, 257<<10, in(txn)) }, wire.ConditionMessageSizeExceeded},
		"format": {func(p *peer, txn []byte) {
			p.transfer(0, 3, encodedMessage(p, nil), in(txn), func(t *wire.Transfer) { t.MessageFormat = ptr(uint32(5)) })
		}, wire.ConditionNotImplemented},
		"unknown delivery": {func(p *peer, txn []byte) { p.settleIn(txn, 3, 3, &wire.Accepted{}) }, wire.ConditionMessageLockLost},
		"twice": {func(p *peer, txn []byte) {
			p.settleIn(txn, 0, 0, &wire.Accepted{})
		}, wire.ConditionMessageLockLost},
		"release":    {func(p *peer, txn []byte) { p.settleIn(txn, 1, 1, &wire.Released{}) }, wire.ConditionNotAllowed},
		"no outcome": {func(p *peer, txn []byte) { p.settleIn(txn, 1, 1, nil) }, wire.ConditionInvalidField},
		"received":   {func(p *peer, txn []byte) { p.settleIn(txn, 1, 1, &wire.Received{}) }, wire.ConditionInvalidField},
		"nested": {func(p *peer, txn []byte) {
			p.settleIn(txn, 1, 1, &wire.TransactionalState{TxnID: txn, Outcome: &wire.Accepted{}})
		}, wire.ConditionInvalidField},
		"time": {func(p *peer, txn []byte) {
			p.settleIn(txn, 1, 1, &wire.Modified{UndeliverableHere: &yes, MessageAnnotations: wire.Map{{Key: wire.Symbol(settlement.DeliveryTimeKey), Value: time.Now()}}})
		}, wire.ConditionArgumentError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTransactionLog("orders")
			b.messages(t, "orders", 2)
			s, p := piped(t, b)
			p.login()
			p.coordinator(coordinatorHandle)
			p.sender(0, "orders")
			p.receiver(1, "orders")
			p.credit(1, 0, 2)
			p.deliveries(2)
			txn := p.declare(0)
			p.transfer(0, 1, encodedMessage(t, nil), in(txn))
			p.within(txn, wire.RoleReceiver, 1, 1, "accepted")
			p.settleIn(txn, 0, 0, &wire.Accepted{})
			p.within(txn, wire.RoleSender, 0, 0, "accepted")
			c.wrong(p, txn)
			d := expect[*wire.Disposition](p)
			if r, ok := d.State.(*wire.Rejected); !ok || r.Error.Condition != c.want || d.Settled != (d.Role == wire.RoleReceiver || name == "unknown delivery") {
				t.Fatalf("%+v state %+v", d, d.State)
			}
			conn := onlyConn(t, s)
			conn.mu.Lock()
			if conn.transactions.Bytes() != 0 {
				t.Errorf("it still holds %d bytes", conn.transactions.Bytes())
			}
			conn.mu.Unlock()
			p.transfer(0, 4, encodedMessage(t, nil), in(txn))
			p.refused(4, wire.RoleReceiver, wire.ConditionTransactionRollback)
			p.command(5, &wire.Discharge{TxnID: txn})
			p.refused(5, wire.RoleReceiver, wire.ConditionTransactionRollback)
			p.command(6, &wire.Discharge{TxnID: txn})
			p.refused(6, wire.RoleReceiver, wire.ConditionTransactionUnknownID)
			conn.nothingHeld(t)
			if got := b.counts("orders"); got.Active != 2 || b.asked() != 0 {
				t.Errorf("counts %+v", got)
			}
			p.send(dispose(0, 1, false, &wire.Accepted{}))
			if d := expect[*wire.Disposition](p); typeName(d.State) != "accepted" || *d.Last != 1 {
				t.Errorf("%+v", d.State)
			}
		})
	}
}

// sendLarge sends a message in several frames.
func (p *peer) sendLarge(handle, id uint32, size int, change ...func(*wire.Transfer)) {
	p.Helper()
	b := encodedMessage(p, make([]byte, size))
	const piece = 60 << 10
	for len(b) > piece {
		p.transfer(handle, id, b[:piece], append(change, more)...)
		b = b[piece:]
	}
	p.transfer(handle, id, b, change...)
}

// Work that is sent settled gets no answer, so the client gets the error of a rollback-only transaction at the
// discharge.
func TestSettledWorkInTransactions(t *testing.T) {
	t.Parallel()
	b := newTransactionLog("orders")
	p := receivingPeer(t, b, 1)
	p.sender(0, "orders")
	txn := p.declare(0)
	p.transfer(0, 1, encodedMessage(t, nil), in(txn), settled)
	p.send(dispose(0, 0, true, &wire.TransactionalState{TxnID: txn, Outcome: &wire.Accepted{}}))
	p.commit(2, txn)
	if got := b.counts("orders"); got.Active != 1 || len(b.all[0].Sends) != 1 || len(b.all[0].Settles) != 1 {
		t.Errorf("counts %+v, %+v", got, b.all)
	}
	txn = p.declare(3)
	p.transfer(0, 4, []byte("not a message"), in(txn), settled)
	p.command(5, &wire.Discharge{TxnID: txn})
	p.refused(5, wire.RoleReceiver, wire.ConditionTransactionRollback)
}

// A transaction belongs to one connection.
func TestTransactionOfAnotherConnection(t *testing.T) {
	t.Parallel()
	s, p := piped(t, newTransactionLog("orders"))
	p.login()
	p.coordinator(coordinatorHandle)
	txn := p.declare(0)
	other := connect(t, s)
	t.Cleanup(func() { _ = other.net.Close() })
	other.login()
	other.coordinator(coordinatorHandle)
	other.sender(0, "orders")
	other.transfer(0, 0, encodedMessage(t, nil), in(txn))
	other.refused(0, wire.RoleReceiver, wire.ConditionTransactionUnknownID)
	other.command(1, &wire.Discharge{TxnID: txn})
	other.refused(1, wire.RoleReceiver, wire.ConditionTransactionUnknownID)
	p.commit(1, txn)
}

// The queue settles by time, regardless of an open transaction: the lock continues to expire.
func TestDeliveriesOfOneTransactionElsewhere(t *testing.T) {
	t.Parallel()
	b := newTransactionLog("orders")
	p := receivingPeer(t, b, 1)
	one, other := p.declare(0), p.declare(1)
	p.settleIn(one, 0, 0, &wire.Accepted{})
	p.within(one, wire.RoleSender, 0, 0, "accepted")
	p.settleIn(other, 0, 0, &wire.Modified{})
	p.within(other, wire.RoleSender, 0, 0, "modified")
	p.commit(2, one) // the first discharge succeeds
	p.command(3, &wire.Discharge{TxnID: other})
	p.refused(3, wire.RoleReceiver, wire.ConditionTransactionRollback)
	if got := b.counts("orders"); got.Active != 0 {
		t.Errorf("counts %+v", got)
	}
}

// A processor with a hundred concurrent calls and a transaction in each is refused nothing: all are open together, and each
// settles a message and sends one.
func TestHundredConcurrentTransactions(t *testing.T) {
	t.Parallel()
	const calls = 100
	b := newTransactionLog("orders", "bills")
	p := receivingPeer(t, b, calls)
	p.sender(0, "bills")
	id := uint32(0)
	// each performs a step of every call; its answers may come in any order.
	each := func(step func(call uint32), isAnswer func(d *wire.Disposition) bool) {
		t.Helper()
		for call := range uint32(calls) {
			step(call)
			id++
		}
		for answered := 0; answered < calls; {
			d := p.disposition()
			if _, refused := d.State.(*wire.Rejected); refused {
				t.Fatalf("refused: %+v, state %+v", d, d.State)
			}
			if isAnswer(d) {
				answered += int(*d.Last-d.First) + 1
			}
		}
	}
	txns := make([][]byte, calls)
	each(func(uint32) { p.command(id, &wire.Declare{}) }, func(d *wire.Disposition) bool {
		state, ok := d.State.(*wire.Declared)
		if ok {
			txns[d.First] = append([]byte{}, state.TxnID...)
		}
		return ok
	})
	ofSender := func(d *wire.Disposition) bool { return d.Role == wire.RoleReceiver }
	each(func(call uint32) { p.settleIn(txns[call], call, call, &wire.Accepted{}) }, func(d *wire.Disposition) bool { return d.Role == wire.RoleSender })
	each(func(call uint32) { p.transfer(0, id, encodedMessage(t, nil), in(txns[call])) }, ofSender)
	each(func(call uint32) { p.command(id, &wire.Discharge{TxnID: txns[call]}) }, ofSender)
	if orders, bills := b.counts("orders"), b.counts("bills"); orders.Active != 0 || bills.Active != calls {
		t.Errorf("%d messages left, %d sent", orders.Active, bills.Active)
	}
}

// A disposition within a transaction settles nothing; the commit settles each delivery that is still open at
// the client. After a rollback a delivery can be settled again over its link.
func TestCommitSettlesTheOpenDeliveries(t *testing.T) {
	t.Parallel()
	b := newTransactionLog("orders")
	p := receivingPeer(t, b, 4)
	txn := p.declare(0)
	p.settleIn(txn, 0, 1, &wire.Accepted{})
	p.within(txn, wire.RoleSender, 0, 1, "accepted")
	p.settleIn(txn, 2, 2, &wire.Modified{})
	p.within(txn, wire.RoleSender, 2, 2, "modified")
	p.rollback(1, txn)
	txn = p.declare(2)
	p.settleIn(txn, 0, 1, &wire.Accepted{})
	p.within(txn, wire.RoleSender, 0, 1, "accepted")
	p.settleIn(txn, 3, 3, &wire.Modified{})
	p.within(txn, wire.RoleSender, 3, 3, "modified")
	p.command(3, &wire.Discharge{TxnID: txn})
	for _, want := range []struct {
		first, last uint32
		state       string
	}{{0, 1, "accepted"}, {3, 3, "modified"}} {
		if d := expect[*wire.Disposition](p); d.Role != wire.RoleSender || !d.Settled || d.First != want.first || *d.Last != want.last || inTransaction(d.State, txn) != want.state {
			t.Errorf("disposition %+v state %+v, want %+v", d, d.State, want)
		}
	}
	p.discharged(3)
	p.send(dispose(2, 2, false, &wire.Accepted{}))
	if d := expect[*wire.Disposition](p); d.First != 2 || !d.Settled || typeName(d.State) != "accepted" {
		t.Errorf("disposition %+v state %+v", d, d.State)
	}
}

// A client that settles a delivery once more, as Java does for each, changes nothing and gets no second answer,
// whether the disposition has the transaction or no state.
func TestSecondSettlementOfAnEnlistedDeliveryIsIgnored(t *testing.T) {
	t.Parallel()
	for name, state := range map[string]func(txn []byte) any{
		"transaction": func(txn []byte) any { return &wire.TransactionalState{TxnID: txn, Outcome: &wire.Accepted{}} },
		"no state":    func([]byte) any { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTransactionLog("orders")
			p := receivingPeer(t, b, 2)
			txn := p.declare(0)
			p.settleIn(txn, 0, 1, &wire.Accepted{})
			p.within(txn, wire.RoleSender, 0, 1, "accepted")
			p.send(dispose(0, 0, true, state(txn)))
			p.command(1, &wire.Discharge{TxnID: txn})
			if n := p.discharged(1); n != 1 {
				t.Errorf("%d deliveries were settled at the commit, want the one that was open", n)
			}
			if c := b.counts("orders"); c.Active != 0 {
				t.Errorf("counts %+v", c)
			}
		})
	}
}

// A client that settles a delivery while its transaction is being committed does not release the message.
func TestSettledDispositionDuringACommitReleasesNothing(t *testing.T) {
	t.Parallel()
	b := newTransactionLog("orders")
	b.wait = make(chan struct{})
	p := receivingPeer(t, b, 1)
	txn := p.declare(0)
	p.settleIn(txn, 0, 0, &wire.Accepted{})
	p.within(txn, wire.RoleSender, 0, 0, "accepted")
	p.command(1, &wire.Discharge{TxnID: txn})
	p.send(dispose(0, 0, true, nil))
	other := p.declare(2) // what was sent before is handled
	close(b.wait)
	if n := p.discharged(1); n != 0 {
		t.Errorf("%d deliveries were settled at the commit, want none: the client has settled it", n)
	}
	p.rollback(3, other)
	if c := b.counts("orders"); c.Active != 0 {
		t.Errorf("counts %+v", c)
	}
}

// Messages of a second entity are refused when they come, and the deliveries stay open.
func TestOneEntityInATransaction(t *testing.T) {
	t.Parallel()
	b := newTransactionLog("orders", "bills")
	b.messages(t, "orders", 1)
	b.messages(t, "bills", 1)
	p := transactionPeer(t, b)
	for handle, queue := range []string{"orders", "bills"} {
		p.receiver(uint32(handle), queue)
		p.credit(uint32(handle), 0, 1)
		p.deliveries(1)
	}
	txn := p.declare(0)
	p.settleIn(txn, 0, 0, &wire.Accepted{})
	p.within(txn, wire.RoleSender, 0, 0, "accepted")
	p.settleIn(txn, 1, 1, &wire.Accepted{})
	p.rejected(1, wire.RoleSender, wire.ConditionNotAllowed, false)
	p.rollback(1, txn)
	if got := b.counts("bills"); got.Locked != 1 { // unlike a message of a second partition
		t.Errorf("the message of the second entity: %+v", got)
	}
	p.send(dispose(0, 1, false, &wire.Accepted{}))
	for done := uint32(0); done < 2; {
		d := expect[*wire.Disposition](p)
		if typeName(d.State) != "accepted" || !d.Settled {
			t.Fatalf("disposition %+v state %+v", d, d.State)
		}
		done += *d.Last - d.First + 1
	}
}
