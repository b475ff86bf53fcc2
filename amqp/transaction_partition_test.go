package amqp

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// shardedLog is a transactionLog whose queue has two shards for clients: even and odd sequence numbers.
type shardedLog struct{ *transactionLog }

// newShardedLog returns a broker with an odd and an even message in "orders", with sessions in "odd" and "even".
func newShardedLog(t *testing.T, sessions bool) shardedLog {
	t.Helper()
	settings := fsm.EntitySettings{LockDuration: fsm.Millis((5 * time.Minute).Milliseconds()), MaxDeliveryCount: 10, MaxMessageBytes: 256 << 10, RequiresSession: sessions}
	b := shardedLog{&transactionLog{fakeBroker: newFakeBrokerOf(settings, "orders")}}
	at, _ := b.Resolve(t.Context(), fsm.DefaultNamespace, "orders")
	for _, session := range []string{"odd", "even"} {
		m, err := message.Parse(encodedMessage(t, []byte("x")))
		if err != nil {
			t.Fatal(err)
		}
		if sessions {
			m.Session, m.HasSession = session, true
		}
		b.do(sendOne(at, m))
	}
	e := b.names["orders"]
	e.Shards = make([]fsm.Shard, 2)
	b.names["orders"] = e
	return b
}

const inShard fsm.SequenceNumber = 1<<fsm.ShardShift - 1

func toClients(done func(fsm.Code, []fsm.Delivery)) func(fsm.Code, []fsm.Delivery) {
	return func(code fsm.Code, deliveries []fsm.Delivery) {
		for i := range deliveries {
			n := &deliveries[i].Lock.Sequence
			*n |= *n % 2 << fsm.ShardShift
		}
		done(code, deliveries)
	}
}

func fromClients(settlements []fsm.Settlement) []fsm.Settlement {
	settlements = slices.Clone(settlements)
	for i := range settlements {
		settlements[i].Lock.Sequence &= inShard
	}
	return settlements
}

type shardedReceiver struct{ Receiver }

func (r shardedReceiver) Lock(most, mostBytes int, wait time.Duration, done func(fsm.Code, []fsm.Delivery)) {
	r.Receiver.Lock(most, mostBytes, wait, toClients(done))
}

type shardedSession struct{ Session }

func (s shardedSession) Lock(most, mostBytes int, wait time.Duration, done func(fsm.Code, []fsm.Delivery)) {
	s.Session.Lock(most, mostBytes, wait, toClients(done))
}

func (b shardedLog) Receiver(at fsm.EntityRef, receiveAndDelete bool) Receiver {
	return shardedReceiver{b.transactionLog.Receiver(at, receiveAndDelete)}
}

func (b shardedLog) AcceptSession(at fsm.EntityRef, wants fsm.AcceptSession, receiveAndDelete bool, wait time.Duration, done func(fsm.Code, Session)) func() {
	return b.transactionLog.AcceptSession(at, wants, receiveAndDelete, wait, func(code fsm.Code, s Session) { done(code, shardedSession{s}) })
}

func (b shardedLog) Settle(at fsm.EntityRef, settlements []fsm.Settlement, done func([]fsm.Code)) {
	b.transactionLog.Settle(at, fromClients(settlements), done)
}

func (b shardedLog) Check(at fsm.EntityRef, locks []fsm.LockID, done func([]fsm.Code)) {
	locks = slices.Clone(locks)
	for i := range locks {
		locks[i].Sequence &= inShard
	}
	b.transactionLog.Check(at, locks, done)
}

// failed returns how often the delivery of the message with an even number has failed, and whether it is locked.
func (b shardedLog) failed(t *testing.T) (failed uint32, locked bool) {
	t.Helper()
	at, _ := b.Resolve(t.Context(), fsm.DefaultNamespace, "orders")
	found, _ := b.Peek(t.Context(), at, 2, 1, 1<<20)
	if len(found) != 1 {
		t.Fatalf("%d messages", len(found))
	}
	return found[0].FailedDeliveries, found[0].LockedUntil != 0
}

// A message of a second partition whose settlement a transaction has refused is abandoned when the transaction ends, however
// that happens, and stays locked until then. A later settlement finds its lock lost.
func TestSettlementOfASecondPartitionAbandons(t *testing.T) {
	t.Parallel()
	for name, c := range transactionEnds {
		for kind, sessions := range map[string]bool{"queue": false, "sessions": true} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					b := newShardedLog(t, sessions)
					s, p := piped(t, b)
					p.login()
					p.coordinator(coordinatorHandle)
					if sessions {
						for handle, session := range []string{"odd", "even"} {
							p.receiver(uint32(handle), "orders", func(a *wire.Attach) {
								a.Source.Filter = wire.Map{{Key: sessionFilterKey, Value: session}}
							})
							p.credit(uint32(handle), 0, 1)
							p.deliveries(1)
						}
					} else {
						p.receiver(0, "orders")
						p.credit(0, 0, 2)
						p.deliveries(2)
					}
					txn := p.declare(0)
					p.settleIn(txn, 0, 0, &wire.Accepted{})
					p.within(txn, wire.RoleSender, 0, 0, "accepted")
					p.settleIn(txn, 1, 1, &wire.Accepted{})
					p.rejected(1, wire.RoleSender, wire.ConditionNotAllowed, false)
					p.idle(time.Second)
					if failed, locked := b.failed(t); failed != 0 || !locked {
						t.Errorf("before the end: %d failed deliveries, locked %v", failed, locked)
					}
					c.end(p, txn)
					switch {
					case c.committed:
						p.refused(1, wire.RoleReceiver, wire.ConditionTransactionRollback)
					case name == "rollback":
						p.discharged(1)
					case !c.lost:
						p.readAll()
					}
					if failed, locked := b.failed(t); failed != 1 || locked {
						t.Errorf("after the end: %d failed deliveries, locked %v", failed, locked)
					}
					if c.lost {
						return
					}
					onlyConn(t, s).nothingHeld(t)
					p.send(dispose(1, 1, false, &wire.Accepted{}))
					p.refused(1, wire.RoleSender, wire.ConditionMessageLockLost)
					p.send(dispose(0, 0, false, &wire.Accepted{}))
					if d := p.disposition(); typeName(d.State) != "accepted" || d.First != 0 {
						t.Errorf("message of the first partition: %+v, state %+v", d, d.State)
					}
				})
			})
		}
	}
}

// What a range that spans two partitions has in the first one is not abandoned.
func TestRangeOverTwoPartitionsAbandonsTheSecond(t *testing.T) {
	t.Parallel()
	b := newShardedLog(t, false)
	p := transactionPeer(t, b)
	p.receiver(0, "orders")
	p.credit(0, 0, 2)
	p.deliveries(2)
	txn := p.declare(0)
	p.settleIn(txn, 0, 1, &wire.Accepted{})
	p.rejected(0, wire.RoleSender, wire.ConditionNotAllowed, false)
	p.settleIn(txn, 1, 1, &wire.Accepted{})
	p.rejected(1, wire.RoleSender, wire.ConditionTransactionRollback, false)
	p.rollback(1, txn)
	if failed, locked := b.failed(t); failed != 1 || locked {
		t.Errorf("%d failed deliveries, locked %v", failed, locked)
	}
	if got := b.counts("orders"); got.Locked != 1 {
		t.Errorf("%+v", got)
	}
}
