package amqp

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/amqp/management"
	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/transaction"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// manageIn is manage for a request that is part of a transaction.
func (p *peer) manageIn(txn []byte, id uint32, operation string, body wire.Map) (status, condition any, answer wire.Map) {
	p.Helper()
	p.transfer(0, id, requestMessage(wire.Properties{MessageID: uint64(id)}, wire.Map{{Key: "operation", Value: operation}}, body), settled, in(txn))
	r := p.response()
	answer, _ = r.body.(wire.Map)
	return r.properties.Get("statusCode"), r.properties.Get("errorCondition"), answer
}

// locked locks one message of a queue and returns its token.
func (l *transactionLog) locked(t *testing.T, queue string) wire.UUID {
	t.Helper()
	at, err := l.Resolve(t.Context(), fsm.DefaultNamespace, queue)
	if err != nil {
		t.Fatal(err)
	}
	r := l.do(fsm.LockMessages{Address: at.Address(), Max: 1, MaxBytes: 1 << 20})
	if len(r.Deliveries) != 1 {
		t.Fatalf("%+v", r)
	}
	return message.UUIDFromToken(l.LockToken(at, r.Deliveries[0].Lock))
}

func settlesBy(status string, tokens ...wire.UUID) wire.Map {
	return wire.Map{{Key: "disposition-status", Value: status}, {Key: "lock-tokens", Value: wire.Array{Values: tokens}}}
}

func TestManagementInTransactions(t *testing.T) {
	t.Parallel()
	b := newTransactionLog("orders")
	b.messages(t, "orders", 2)
	done, dead := b.locked(t, "orders"), b.locked(t, "orders")
	p := managementPeer(t, b, fsm.Manage)
	p.coordinator(coordinatorHandle)
	txn := p.declare(0)
	for i, c := range []struct {
		operation string
		body      wire.Map
		want      wire.Map
	}{
		{management.DispositionOperation, settlesBy("completed", done), wire.Map{}},
		{management.DispositionOperation, settlesBy("suspended", dead), wire.Map{}},
		{management.ScheduleOperation, entries(scheduled(time.Now().Add(time.Hour)), scheduled(time.Now().Add(time.Hour))), wire.Map{{Key: "sequence-numbers", Value: wire.Array{Values: []int64{3, 4}}}}},
	} {
		status, condition, body := p.manageIn(txn, uint32(i)+1, c.operation, c.body)
		if status != int32(200) || condition != nil {
			t.Fatalf("%s: %v %v", c.operation, status, condition)
		}
		if d := cmp.Diff(c.want, body); d != "" {
			t.Error(d)
		}
	}
	before := b.counts("orders")
	// Renewing and reading are performed at once.
	status, _, _ := p.manageIn(txn, 4, management.RenewOperation, wire.Map{{Key: "lock-tokens", Value: wire.Array{Values: []wire.UUID{done}}}})
	if status != int32(200) || before.Active != 2 || before.Scheduled != 0 || before.DeadLetter != 0 {
		t.Errorf("renewed with %v, counts %+v", status, before)
	}
	status, _, _ = p.manageIn(txn, 5, management.PeekOperation, wire.Map{{Key: "from-sequence-number", Value: int64(99)}, {Key: "message-count", Value: int32(1)}})
	if status != int32(204) {
		t.Errorf("peeked with %v", status)
	}
	p.commit(6, txn)
	if c := b.counts("orders"); c.Active != 0 || c.DeadLetter != 1 || c.Scheduled != 2 {
		t.Errorf("counts %+v", c)
	}
}

// A refused request that would change something makes its transaction rollback-only.
func TestRefusedManagementOperationMakesRollbackOnly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		operation string
		body      wire.Map
		status    int32
		want      wire.Symbol
	}{
		"delete":   {management.BatchDeleteOperation, wire.Map{{Key: "message-count", Value: int32(1)}}, 400, wire.ConditionNotAllowed},
		"state":    {management.SetStateOperation, nil, 400, wire.ConditionNotAllowed},
		"rule":     {management.AddRuleOperation, nil, 400, wire.ConditionNotAllowed},
		"taking":   {management.DeferredOperation, append(numbers(1), wire.Pair{Key: "receiver-settle-mode", Value: uint32(0)}), 400, wire.ConditionNotAllowed},
		"status":   {management.DispositionOperation, settlesBy("eaten", wire.UUID{}), 400, wire.ConditionArgumentError},
		"token":    {management.DispositionOperation, settlesBy("completed", wire.UUID{}), 410, wire.ConditionMessageLockLost},
		"schedule": {management.ScheduleOperation, nil, 400, wire.ConditionArgumentError},
		"many":     {management.ScheduleOperation, entries(manyScheduled(transaction.SendsMax + 1)...), 403, wire.ConditionResourceLimitExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := managementPeer(t, newTransactionLog("orders"), fsm.Manage)
			p.coordinator(coordinatorHandle)
			txn := p.declare(0)
			if status, condition, _ := p.manageIn(txn, 1, c.operation, c.body); status != c.status || condition != c.want {
				t.Errorf("%v %v", status, condition)
			}
			p.command(2, &wire.Discharge{TxnID: txn})
			p.refused(2, wire.RoleReceiver, wire.ConditionTransactionRollback)
		})
	}
}

func manyScheduled(n int) [][]byte {
	one := scheduled(time.Now().Add(time.Hour))
	all := make([][]byte, n)
	for i := range all {
		all[i] = one
	}
	return all
}

// Rights apply in transactions as outside of them; transaction ids are checked too.
func TestManagementInTransactionsRefused(t *testing.T) {
	t.Parallel()
	b := newTransactionLog("orders")
	b.messages(t, "orders", 1)
	token := b.locked(t, "orders")
	p := managementPeer(t, b, fsm.Send)
	p.coordinator(coordinatorHandle)
	txn := p.declare(0)
	if status, _, _ := p.manageIn(txn, 1, management.DispositionOperation, settlesBy("completed", token)); status != int32(401) {
		t.Error(status)
	}
	for id, txn := range map[uint32][]byte{2: make([]byte, 16), 3: nil} {
		p.transfer(0, id, requestMessage(wire.Properties{MessageID: uint64(id)}, wire.Map{{Key: "operation", Value: management.ScheduleOperation}}, entries(scheduled(time.Now()))), in(txn))
		if txn == nil {
			p.refused(id, wire.RoleReceiver, wire.ConditionTransactionUnknownID)
			continue
		}
		p.within(txn, wire.RoleReceiver, id, id, "accepted")
		if r := p.response(); r.properties.Get("errorCondition") != wire.ConditionTransactionUnknownID {
			t.Errorf("%+v", r)
		}
	}
	if c := b.counts("orders"); c.Active != 1 || c.Scheduled != 0 {
		t.Errorf("counts %+v", c)
	}
}

// Messages of a session are settled in a transaction, also when their link is detached before the commit.
func TestSessionsInTransactions(t *testing.T) {
	t.Parallel()
	for _, detaches := range []bool{false, true} {
		settings := fsm.EntitySettings{LockDuration: 30_000, MaxDeliveryCount: 10, MaxMessageBytes: 256 << 10, RequiresSession: true}
		b := &transactionLog{fakeBroker: newFakeBrokerOf(settings, "orders")}
		red := wire.AppendProperties(nil, &wire.Properties{GroupID: ptr("red")})
		red = section(red, wire.SectionData, []byte("x"))
		p := transactionPeer(t, b)
		p.sender(0, "orders")
		txn := p.declare(0)
		p.transfer(0, 1, red, in(txn))
		p.within(txn, wire.RoleReceiver, 1, 1, "accepted")
		p.commit(2, txn)
		p.receiver(1, "orders", func(a *wire.Attach) {
			a.Source.Filter = wire.Map{{Key: sessionFilterKey, Value: "red"}}
		})
		p.credit(1, 0, 1)
		p.deliveries(1)
		txn = p.declare(3)
		p.settleIn(txn, 0, 0, &wire.Accepted{})
		p.within(txn, wire.RoleSender, 0, 0, "accepted")
		if detaches {
			p.send(&wire.Detach{Handle: 1, Closed: true})
			expect[*wire.Detach](p)
		}
		p.commit(4, txn)
		if c := b.counts("orders"); c.Active != 0 {
			t.Errorf("detached %v: counts %+v", detaches, c)
		}
		// A message without session is refused at once, and not at the commit.
		txn = p.declare(5)
		p.transfer(0, 6, encodedMessage(t, nil), in(txn))
		p.refused(6, wire.RoleReceiver, wire.ConditionNotAllowed)
	}
}

// Rules see messages that are sent in a transaction.
func TestTopicsInTransactions(t *testing.T) {
	t.Parallel()
	b := newTransactionLog()
	b.topic("orders", "all")
	p := transactionPeer(t, b)
	p.sender(0, "orders")
	txn := p.declare(0)
	p.transfer(0, 1, encodedMessage(t, nil), in(txn))
	p.within(txn, wire.RoleReceiver, 1, 1, "accepted")
	p.commit(2, txn)
	if c := b.counts("orders/subscriptions/all"); c.Active != 1 || len(b.all[0].Sends[0].Messages[0].Properties) == 0 {
		t.Errorf("counts %+v, %+v", c, b.all[0].Sends)
	}
}
