package amqp

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/transaction"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// noopBroker is a Broker that answers at once, so that benchmarks measure the gateway.
type noopBroker struct {
	sent    atomic.Int64
	payload []byte
}

func (*noopBroker) Namespace(context.Context, string) (fsm.NamespaceID, error) {
	return fsm.DefaultNamespace, nil
}

func (*noopBroker) Changes() <-chan struct{}              { return nil }
func (*noopBroker) Deleted([]fsm.EntityID) []fsm.EntityID { return nil }

func (n *noopBroker) CreateEntity(ctx context.Context, in fsm.NamespaceID, _ fsm.EntityKind, name string, _ fsm.EntitySettings, _ *fsm.Rule) (fsm.EntityRef, error) {
	return n.Resolve(ctx, in, name)
}

func (*noopBroker) FindSubscriptions(context.Context, fsm.NamespaceID, string, string) ([]string, error) {
	return nil, nil
}

func (*noopBroker) DeleteEntity(context.Context, fsm.NamespaceID, fsm.EntityKind, string) error {
	return nil
}

func (n *noopBroker) Resolve(_ context.Context, _ fsm.NamespaceID, path string) (fsm.EntityRef, error) {
	return fsm.EntityRef{Entity: fsm.Entity{ID: 1, Name: path, Settings: fsm.EntitySettings{MaxMessageBytes: 1 << 20}}}, nil
}

func (n *noopBroker) Send(_ fsm.EntityRef, m []fsm.Message, done func(fsm.Code)) {
	n.sent.Add(int64(len(m)))
	done(fsm.OK)
}

func (n *noopBroker) Settle(_ fsm.EntityRef, s []fsm.Settlement, done func([]fsm.Code)) {
	done(make([]fsm.Code, len(s)))
}

func (n *noopBroker) Renew(fsm.EntityRef, []fsm.LockID, func([]fsm.Code, []fsm.Instant)) {}

func (n *noopBroker) Fetch(fsm.EntityRef, []fsm.SequenceNumber, bool, func(fsm.Code, []fsm.Delivery)) {
}

func (n *noopBroker) Schedule(fsm.EntityRef, []fsm.Message, func(fsm.Code, []fsm.SequenceNumber)) {}
func (n *noopBroker) CancelScheduled(fsm.EntityRef, []fsm.SequenceNumber, func(fsm.Code))         {}
func (n *noopBroker) Purge(fsm.EntityRef, fsm.Instant, int, func(fsm.Code, int))                  {}

func (n *noopBroker) FetchReady(fsm.EntityRef, []fsm.LockID, bool, func(fsm.Code, []fsm.Delivery)) {}

func (n *noopBroker) Peek(context.Context, fsm.EntityRef, fsm.SequenceNumber, int, int) ([]fsm.Delivery, error) {
	return nil, nil
}

func (n *noopBroker) LockToken(_ fsm.EntityRef, id fsm.LockID) (t fsm.LockToken) {
	t[0], t[1], t[2], t[3] = byte(id.Sequence), byte(id.Sequence>>8), byte(id.Sequence>>16), byte(id.Sequence>>24)
	return t
}

func (n *noopBroker) ParseLockToken(fsm.EntityRef, fsm.LockToken) (fsm.LockID, bool) {
	return fsm.LockID{}, false
}

func (n *noopBroker) Receiver(fsm.EntityRef, bool) Receiver {
	return &endlessReceiver{payload: n.payload}
}

// endlessReceiver always has as many messages as requested.
type endlessReceiver struct {
	payload []byte
	next    uint64
}

func (e *endlessReceiver) Lock(most, _ int, _ time.Duration, done func(fsm.Code, []fsm.Delivery)) {
	d := make([]fsm.Delivery, most)
	for i := range d {
		e.next++
		d[i] = fsm.Delivery{Lock: fsm.LockID{Sequence: fsm.SequenceNumber(e.next), Epoch: 1}, State: fsm.Locked, Enqueued: 1, LockedUntil: 1 << 50, Payload: e.payload}
	}
	done(fsm.OK, d)
}
func (e *endlessReceiver) Cancel() {}
func (e *endlessReceiver) Close()  {}

// plain connects with go-amqp and SASL PLAIN.
func plain(t testing.TB, address string) *goamqp.Session {
	t.Helper()
	conn, err := goamqp.Dial(t.Context(), "amqp://"+address, &goamqp.ConnOptions{SASLType: goamqp.SASLTypePlain(ruleName, ruleKey)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	session, err := conn.NewSession(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return session
}

// BenchmarkSendWindow100 measures one sender of 1 KiB messages with 100 in flight.
func BenchmarkSendWindow100(b *testing.B) {
	_, address := gateway(b, &noopBroker{})
	session := plain(b, address)
	sender, err := session.NewSender(b.Context(), "orders", nil)
	if err != nil {
		b.Fatal(err)
	}
	m := goamqp.NewMessage(make([]byte, 1024))
	b.ReportAllocs()
	b.ResetTimer()
	window := make(chan goamqp.SendReceipt, 100)
	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		for r := range window {
			if _, err := r.Wait(context.Background()); err != nil {
				failed <- err
				return
			}
		}
	}()
	for range b.N {
		r, err := sender.SendWithReceipt(b.Context(), m, nil)
		if err != nil {
			b.Fatal(err)
		}
		window <- r
	}
	close(window)
	if err := <-failed; err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}

// BenchmarkReceive measures one receiver of 1 KiB messages with a credit of 500 that completes each message.
func BenchmarkReceive(b *testing.B) {
	stored, err := message.Parse(encodedMessage(b, make([]byte, 1024)))
	if err != nil {
		b.Fatal(err)
	}
	_, address := gateway(b, &noopBroker{payload: stored.Payload})
	session := plain(b, address)
	receiver, err := session.NewReceiver(b.Context(), "orders", &goamqp.ReceiverOptions{Credit: 500, SettlementMode: goamqp.ReceiverSettleModeFirst.Ptr()})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		m, err := receiver.Receive(b.Context(), nil)
		if err != nil {
			b.Fatal(err)
		}
		if err := receiver.AcceptMessage(b.Context(), m); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}

// encodedMessage returns a message in the encoding of go-amqp.
func encodedMessage(t testing.TB, body []byte) []byte {
	t.Helper()
	encoded, err := goamqp.NewMessage(body).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

// raw connects a peer of bare frames over loopback: the client costs very little.
func raw(b *testing.B, n *noopBroker) *peer {
	b.Helper()
	_, address := gateway(b, n)
	return rawAt(b, address)
}

// rawAt connects such a peer to a gateway.
func rawAt(b *testing.B, address string) *peer {
	b.Helper()
	conn, err := new(net.Dialer).DialContext(b.Context(), "tcp", address)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	return (&peer{TB: b, net: conn, reader: wire.NewReader(conn, 1<<20)}).login()
}

// BenchmarkGatewaySend measures the cost of one 1 KiB message for the gateway: each write contains 100
// transfers, and the client awaits the answers.
func BenchmarkGatewaySend(b *testing.B) {
	p := raw(b, &noopBroker{})
	p.sender(0, "orders")
	message := encodedMessage(b, make([]byte, 1024))
	var frames []byte
	id := uint32(0)
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; done += 100 {
		frames = frames[:0]
		for range 100 {
			frames = wire.AppendTransfer(frames, 0, &wire.Transfer{DeliveryID: &id, DeliveryTag: []byte{1}, MessageFormat: new(uint32)}, message)
			id++
		}
		p.write(frames)
		for settled := uint32(0); settled < 100; {
			if d, ok := p.next().Body.(*wire.Disposition); ok {
				settled += *d.Last - d.First + 1
			}
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}

// BenchmarkGatewayReceive measures the cost of one 1 KiB message for the gateway: 200 credits at a time,
// settled by one disposition.
func BenchmarkGatewayReceive(b *testing.B) {
	stored, err := message.Parse(encodedMessage(b, make([]byte, 1024)))
	if err != nil {
		b.Fatal(err)
	}
	p := raw(b, &noopBroker{payload: stored.Payload})
	p.receiver(0, "orders")
	b.ReportAllocs()
	b.ResetTimer()
	count := uint32(0)
	for done := 0; done < b.N; done += 200 {
		p.credit(0, count, 200, func(f *wire.Flow) { f.NextIncomingID = &count })
		first := count
		for range 200 {
			if t := expect[*wire.Transfer](p); *t.DeliveryID != count {
				b.Fatalf("delivery %d, want %d", *t.DeliveryID, count)
			}
			count++
		}
		p.send(dispose(first, count-1, false, &wire.Accepted{}))
		expect[*wire.Disposition](p)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}

func (*noopBroker) AddRule(context.Context, fsm.EntityRef, fsm.Rule) error { return nil }

func (*noopBroker) RemoveRule(context.Context, fsm.EntityRef, string) error { return nil }

func (*noopBroker) ListRules(context.Context, fsm.EntityRef, int, int) ([]fsm.Rule, error) {
	return nil, nil
}

// BenchmarkGatewayTransaction measures declare, one send, one settlement and discharge as bare frames, with a
// broker that answers at once.
func BenchmarkGatewayTransaction(b *testing.B) {
	stored, err := message.Parse(encodedMessage(b, make([]byte, 1024)))
	if err != nil {
		b.Fatal(err)
	}
	_, p := piped(b, &noopBroker{payload: stored.Payload})
	p.login()
	p.coordinator(coordinatorHandle)
	p.sender(0, "orders")
	p.receiver(1, "bills")
	message := encodedMessage(b, make([]byte, 1024))
	b.ReportAllocs()
	for n := uint32(0); b.Loop(); n++ {
		id := 3 * n
		p.credit(1, n, 1, func(f *wire.Flow) { f.NextIncomingID = &n })
		p.deliveries(1)
		p.command(id, &wire.Declare{})
		txn := append([]byte{}, benchAnswer(p).(*wire.Declared).TxnID...)
		p.transfer(0, id+1, message, in(txn))
		benchAnswer(p)
		p.settleIn(txn, n, n, &wire.Accepted{})
		benchAnswer(p)
		p.command(id+2, &wire.Discharge{TxnID: txn})
		benchAnswer(p) // settles the delivery
		benchAnswer(p)
	}
}

// BenchmarkGatewaySettle measures a delivery and its settlement as bare frames while the connection has open transactions.
func BenchmarkGatewaySettle(b *testing.B) {
	stored, err := message.Parse(encodedMessage(b, make([]byte, 1024)))
	if err != nil {
		b.Fatal(err)
	}
	for _, open := range []uint32{1, transaction.OpenMax} {
		b.Run(fmt.Sprintf("open=%d", open), func(b *testing.B) {
			_, p := piped(b, &noopBroker{payload: stored.Payload})
			p.login()
			p.coordinator(coordinatorHandle)
			for id := range open {
				p.command(id, &wire.Declare{})
				if _, ok := benchAnswer(p).(*wire.Declared); !ok {
					b.Fatal("declare is refused")
				}
			}
			p.receiver(1, "bills")
			b.ReportAllocs()
			for n := uint32(0); b.Loop(); n++ {
				p.credit(1, n, 1, func(f *wire.Flow) { f.NextIncomingID = &n })
				p.deliveries(1)
				p.send(dispose(n, n, false, &wire.Accepted{}))
				benchAnswer(p)
			}
		})
	}
}

// benchAnswer reads the next disposition and skips flows that grant credit.
func benchAnswer(p *peer) any {
	p.Helper()
	for {
		if d, ok := p.next().Body.(*wire.Disposition); ok {
			return d.State
		}
	}
}
