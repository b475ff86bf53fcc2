package amqp

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/amqp/transaction"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The frames of one empty transaction in the encoding of Java and .NET, and ours byte by byte. The id is the
// one in the answer.
func TestTransactionFramesKeepTheirBytes(t *testing.T) {
	t.Parallel()
	p := loggedIn(t, newTransactionLog())
	// attach: name "c", handle 0, sender, source without fields, target described 0x30 as list0; trailing
	// fields omitted.
	p.write(unhex(t, `00000020 02 00 0000 00 53 12 c0 13 0a a1 01 63 43 42 40 40 00 53 28 45 00 53 30 45 40 42 43`))
	raw := func() []byte {
		t.Helper()
		head := make([]byte, 8)
		p.read(head)
		body := make([]byte, int(head[2])<<8|int(head[3])-8)
		p.read(body)
		return slices.Concat(head, body)
	}
	equal := func(name, want string) {
		t.Helper()
		if got := raw(); !bytes.Equal(got, unhex(t, want)) {
			t.Fatalf("%s\n got %x\nwant %x", name, got, unhex(t, want))
		}
	}
	equal("attach", `0000008b 02 00 0000 00 53 12 c0 7e 0e a1 01 63 43 41 50 02 50 00
		00 53 28 c0 0c 0b 40 40 40 40 42 40 40 40 40 40 40
		00 53 30 c0 4d 01 e0 4a 03 a3 17 616d71703a6c6f63616c2d7472616e73616374696f6e73
		17 616d71703a6d756c74692d74786e732d7065722d73736e 17 616d71703a6d756c74692d73736e732d7065722d74786e
		40 42 40 80 0000000000001000 40 40 c1 01 00`)
	_ = raw() // flow
	// transfer: handle 0, delivery 0, tag 1 byte, unsettled; amqp-value declare as list0.
	p.write(unhex(t, `0000001d 02 00 0000 00 53 14 c0 09 06 43 43 a0 01 01 43 42 42 00 53 77 00 53 31 45`))
	declared := raw()
	const before = `0000002b 02 00 0000 00 53 15 c0 1e 06 41 43 43 41 00 53 33 c0 13 01 a0 10`
	if want := unhex(t, before); !bytes.HasPrefix(declared, want) || len(declared) != len(want)+17 {
		t.Fatalf("declared\n got %x\nwant %x and 16 bytes", declared, want)
	}
	id := declared[len(declared)-17 : len(declared)-1]
	// transfer: delivery 1; amqp-value discharge of the id, fail false.
	b := unhex(t, `00000033 02 00 0000 00 53 14 c0 0a 06 43 52 01 a0 01 02 43 42 42 00 53 77 00 53 32 c0 14 02 a0 10`)
	p.write(append(append(b, id...), 0x42))
	equal("accepted", `0000001b 02 00 0000 00 53 15 c0 0e 06 41 52 01 52 01 41 00 53 24 c0 01 00 42`)
}

// idle waits and fails on any frame other than a heartbeat.
func (p *peer) idle(d time.Duration) {
	p.Helper()
	_ = p.net.SetReadDeadline(time.Now().Add(d))
	for {
		f, err := p.reader.ReadFrame()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if err != nil || f.Body != nil {
			p.Fatalf("%+v, %v", f.Body, err)
		}
	}
}

// eventually polls for a condition without an event.
func eventually(t testing.TB, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(10 * time.Second); !done(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("it did not come to be")
		}
	}
}

// read consumes bytes in the order received.
func (p *peer) read(b []byte) {
	p.Helper()
	_ = p.net.SetDeadline(time.Now().Add(10 * time.Minute))
	for n := 0; n < len(b); {
		m, err := p.net.Read(b[n:])
		if err != nil {
			p.Fatal(err)
		}
		n += m
	}
}

func TestCoordinatorRefusesCommands(t *testing.T) {
	t.Parallel()
	p := transactionPeer(t, newTransactionLog("orders"))
	p.command(0, &wire.Declare{GlobalID: []byte{1}})
	p.refused(0, wire.RoleReceiver, wire.ConditionNotImplemented)
	p.command(1, "declare")
	p.refused(1, wire.RoleReceiver, wire.ConditionDecodeError)
	p.transfer(coordinatorHandle, 2, nil)
	p.refused(2, wire.RoleReceiver, wire.ConditionDecodeError)
	p.transfer(coordinatorHandle, 3, []byte{0, 0x53, 0x77, 0, 0x53, 0x32, 0xc0, 9})
	p.refused(3, wire.RoleReceiver, wire.ConditionDecodeError)
	p.command(4, &wire.Discharge{TxnID: []byte("short")})
	p.refused(4, wire.RoleReceiver, wire.ConditionTransactionUnknownID)
	p.command(5, &wire.Discharge{TxnID: make([]byte, 16), Fail: true})
	p.refused(5, wire.RoleReceiver, wire.ConditionTransactionUnknownID)
	p.transfer(coordinatorHandle, 6, section(nil, wire.SectionValue, make([]byte, coordinatorBytesMax)))
	p.refused(6, wire.RoleReceiver, wire.ConditionMessageSizeExceeded)
	txn := p.declare(7)
	p.transfer(coordinatorHandle, 8, section(nil, wire.SectionValue, &wire.Declare{}), in(txn))
	p.refused(8, wire.RoleReceiver, wire.ConditionNotAllowed)
	// Settled commands get no answer: a declare has no effect, a discharge takes effect.
	p.transfer(coordinatorHandle, 9, section(nil, wire.SectionValue, &wire.Declare{}), settled)
	txn = p.declare(10)
	p.transfer(coordinatorHandle, 11, section(nil, wire.SectionValue, &wire.Discharge{TxnID: txn}), settled)
	p.command(12, &wire.Discharge{TxnID: txn})
	p.refused(12, wire.RoleReceiver, wire.ConditionTransactionUnknownID)
}

// The credit of a coordinator is granted again, regardless of the number of transactions.
func TestCoordinatorCreditIsGrantedAgain(t *testing.T) {
	t.Parallel()
	p := transactionPeer(t, newTransactionLog())
	left := requestCreditMax
	for id := uint32(0); id < 5*requestCreditMax; id += 2 {
		var txn []byte
		for _, command := range []func(){
			func() { p.command(id, &wire.Declare{}) },
			func() { p.command(id+1, &wire.Discharge{TxnID: txn}) },
		} {
			if left == 0 {
				t.Fatal("no credit")
			}
			command()
			left--
			for heard := false; !heard; {
				switch f := p.next().Body.(type) {
				case *wire.Flow:
					left = int(*f.LinkCredit)
				case *wire.Disposition:
					if d, ok := f.State.(*wire.Declared); ok {
						txn = append([]byte{}, d.TxnID...)
					}
					heard = true
				}
			}
		}
	}
}

// Java has one coordinator link of the same name in each session.
func TestCoordinatorsOfOneName(t *testing.T) {
	t.Parallel()
	p := transactionPeer(t, newTransactionLog("orders"))
	txn := p.declare(0)
	p.sendOn(1, &wire.Begin{IncomingWindow: 5000, OutgoingWindow: 5000})
	expect[*wire.Begin](p)
	p.sendOn(1, &wire.Attach{Name: "coordinator", Role: wire.RoleSender, Source: &wire.Source{}, Coordinator: &wire.Coordinator{}, InitialDeliveryCount: new(uint32)})
	expect[*wire.Attach](p)
	expect[*wire.Flow](p)
	// A transaction belongs to the connection: work in it and its discharge may use any session.
	p.sendOn(1, &wire.Attach{Name: "s", Handle: 1, Role: wire.RoleSender, Source: &wire.Source{}, Target: &wire.Target{Address: "orders"}, InitialDeliveryCount: new(uint32)})
	expect[*wire.Attach](p)
	expect[*wire.Flow](p)
	transfer := wire.Transfer{Handle: 1, DeliveryID: ptr(uint32(0)), DeliveryTag: []byte{1}, State: &wire.TransactionalState{TxnID: txn}}
	p.write(wire.AppendTransfer(nil, 1, &transfer, encodedMessage(t, nil)))
	p.within(txn, wire.RoleReceiver, 0, 0, "accepted")
	transfer = wire.Transfer{DeliveryID: ptr(uint32(1)), DeliveryTag: []byte{2}}
	p.write(wire.AppendTransfer(nil, 1, &transfer, section(nil, wire.SectionValue, &wire.Discharge{TxnID: txn})))
	p.accepted()
}

// A client without a token may open a coordinator, but its connection is closed all the same.
func TestCoordinatorDoesNotAuthenticate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, p := piped(t, newTransactionLog("orders"))
		p.anonymous(&wire.Open{ContainerID: "test"}, &wire.Begin{IncomingWindow: 5000, OutgoingWindow: 5000})
		p.coordinator(coordinatorHandle)
		p.declare(0)
		before := time.Now()
		for {
			if c, ok := p.next().Body.(*wire.Close); ok {
				if d := time.Since(before); d < authenticateWithin-time.Second || d > authenticateWithin+time.Second || c.Error.Condition != wire.ConditionConnectionForced {
					t.Errorf("after %v: %+v", d, c.Error)
				}
				break
			}
		}
		p.send(&wire.Close{})
		<-p.ended
	})
}

// A transaction ends with its coordinator link, its session, or its connection.
func TestTransactionEndsWithItsCoordinator(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end   func(p *peer)
		again bool // the session still exists
	}{
		"link": {func(p *peer) {
			p.send(&wire.Detach{Handle: coordinatorHandle, Closed: true})
			expect[*wire.Detach](p)
		}, true},
		"fault": {func(p *peer) {
			p.transfer(coordinatorHandle, 0, nil, func(t *wire.Transfer) { t.DeliveryID = nil })
			expect[*wire.Detach](p)
			p.send(&wire.Detach{Handle: coordinatorHandle, Closed: true})
		}, true},
		"session": {func(p *peer) {
			p.send(&wire.End{})
			expect[*wire.End](p)
		}, false},
		"connection": {func(p *peer) {
			p.send(&wire.Close{})
			expect[*wire.Close](p)
			p.gone()
			<-p.ended
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTransactionLog("orders")
			s, p := piped(t, b)
			p.login()
			conn := onlyConn(t, s)
			p.coordinator(coordinatorHandle)
			p.sender(0, "orders")
			txn := p.declare(0)
			p.transfer(0, 1, encodedMessage(t, nil), in(txn))
			p.within(txn, wire.RoleReceiver, 1, 1, "accepted")
			c.end(p)
			if c.again {
				p.transfer(0, 2, encodedMessage(t, nil), in(txn))
				p.refused(2, wire.RoleReceiver, wire.ConditionTransactionUnknownID)
				p.coordinator(coordinatorHandle)
				p.command(3, &wire.Discharge{TxnID: txn})
				p.refused(3, wire.RoleReceiver, wire.ConditionTransactionUnknownID)
			}
			conn.nothingHeld(t)
			if b.counts("orders").Active != 0 || b.asked() != 0 {
				t.Error("it was committed")
			}
		})
	}
}

// nothingHeld checks that a connection without open transactions counts none.
func (c *conn) nothingHeld(t testing.TB) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.transactions.Len() != 0 || c.transactions.Bytes() != 0 {
		t.Errorf("%d transactions, %d bytes", c.transactions.Len(), c.transactions.Bytes())
	}
}

// If the connection ends while the broker works, there is no answer, and nothing fails.
func TestConnectionEndsDuringCommit(t *testing.T) {
	t.Parallel()
	b := newTransactionLog("orders")
	b.wait = make(chan struct{})
	s, p := piped(t, b)
	p.login()
	c := onlyConn(t, s)
	p.coordinator(coordinatorHandle)
	p.sender(0, "orders")
	txn := p.declare(0)
	p.transfer(0, 1, encodedMessage(t, nil), in(txn))
	p.within(txn, wire.RoleReceiver, 1, 1, "accepted")
	p.command(2, &wire.Discharge{TxnID: txn})
	p.command(3, &wire.Discharge{TxnID: txn})
	p.refused(3, wire.RoleReceiver, wire.ConditionTransactionUnknownID)
	_ = p.net.Close()
	<-p.ended
	close(b.wait)
	eventually(t, func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.transactions.Len() == 0 })
	c.nothingHeld(t)
	if b.counts("orders").Active != 1 {
		t.Error("the broker was asked, and has done it")
	}
}

// A transaction is rolled back two minutes after its declare, and its client gets the reason.
func TestTransactionIsRolledBackAfterItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newTransactionLog("orders")
		s, p := piped(t, b)
		p.login()
		p.coordinator(coordinatorHandle)
		p.sender(0, "orders")
		txn := p.declare(0)
		p.transfer(0, 1, encodedMessage(t, nil), in(txn))
		p.within(txn, wire.RoleReceiver, 1, 1, "accepted")
		p.idle(transaction.Within - time.Second)
		p.transfer(0, 2, encodedMessage(t, nil), in(txn))
		p.within(txn, wire.RoleReceiver, 2, 2, "accepted")
		p.idle(time.Second + time.Millisecond)
		p.transfer(0, 3, encodedMessage(t, nil), in(txn))
		if e := p.refused(3, wire.RoleReceiver, wire.ConditionTransactionTimeout); !strings.Contains(e.Description, "Declare another one") {
			t.Error(e.Description)
		}
		p.command(4, &wire.Discharge{TxnID: txn})
		p.refused(4, wire.RoleReceiver, wire.ConditionTransactionTimeout)
		onlyConn(t, s).nothingHeld(t)
		if b.counts("orders").Active != 0 {
			t.Error("it was committed")
		}
	})
}

// A link whose messages go through another entity needs both entities, and rights on both.
func TestSendThroughAnotherEntity(t *testing.T) {
	t.Parallel()
	b := newTransactionLog("via", "orders", "off")
	b.topic("topic", "sub")
	b.change("off", func(s *fsm.EntitySettings) { s.Status = fsm.SendDisabled })
	b.change("via", func(s *fsm.EntitySettings) { s.MaxMessageBytes = 1000 })
	p := transactionPeer(t, b)
	attach := func(handle uint32, via, to string) *wire.Attach {
		p.send(&wire.Attach{
			Name: "v" + via + to, Handle: handle, Role: wire.RoleSender, Source: &wire.Source{}, Target: &wire.Target{Address: via},
			InitialDeliveryCount: new(uint32), Properties: wire.Map{{Key: destinationKey, Value: to}},
		})
		return expect[*wire.Attach](p)
	}
	a := attach(0, "via", "amqps://host/Orders")
	expect[*wire.Flow](p)
	if address, _ := a.Target.Address.(string); address != "via" || *a.MaxMessageSize != 1000 {
		t.Errorf("target %v, %d bytes", a.Target.Address, *a.MaxMessageSize)
	}
	for i, c := range []struct {
		via, to string
		want    wire.Symbol
		text    string
	}{
		{"nowhere", "orders", wire.ConditionNotFound, "'nowhere'"},
		{"via", "nowhere", wire.ConditionNotFound, "'nowhere'"},
		{"off", "orders", wire.ConditionEntityDisabled, "'off'"},
		{"via", "off", wire.ConditionEntityDisabled, "'off'"},
		{"via", "topic/subscriptions/sub", wire.ConditionNotAllowed, ""},
		{"topic/subscriptions/sub", "orders", wire.ConditionNotAllowed, ""},
		{"via", "", wire.ConditionInvalidField, ""},
	} {
		attach(uint32(i)+1, c.via, c.to)
		if d := expect[*wire.Detach](p); d.Error.Condition != c.want || !strings.Contains(d.Error.Description, c.text) {
			t.Errorf("via %q to %q: %+v", c.via, c.to, d.Error)
		}
		p.send(&wire.Detach{Handle: uint32(i) + 1, Closed: true})
	}
	p.transfer(0, 0, encodedMessage(t, nil)) // outside of a transaction
	p.accepted()
	txn := p.declare(1)
	p.transfer(0, 2, encodedMessage(t, nil), in(txn))
	p.within(txn, wire.RoleReceiver, 2, 2, "accepted")
	p.commit(3, txn)
	if sends := b.all[0].Sends; len(sends) != 1 || sends[0].At.Name != "orders" || sends[0].Via == nil || sends[0].Via.Name != "via" {
		t.Errorf("%+v", sends)
	}
	if b.counts("orders").Active != 2 || b.counts("via").Active != 0 {
		t.Errorf("%+v, %+v", b.counts("orders"), b.counts("via"))
	}
}

func TestRightsOfSendVia(t *testing.T) {
	t.Parallel()
	_, p := piped(t, newTransactionLog("via", "orders"))
	p.anonymous(&wire.Open{ContainerID: "test"}, &wire.Begin{IncomingWindow: 5000, OutgoingWindow: 5000})
	attach := func(handle uint32) {
		p.send(&wire.Attach{
			Name: "v", Handle: handle, Role: wire.RoleSender, Source: &wire.Source{}, Target: &wire.Target{Address: "via"},
			InitialDeliveryCount: new(uint32), Properties: wire.Map{{Key: destinationKey, Value: "orders"}},
		})
		expect[*wire.Attach](p)
	}
	refusedFor := func(handle uint32, path string) {
		t.Helper()
		attach(handle)
		if d := expect[*wire.Detach](p); d.Error.Condition != wire.ConditionUnauthorizedAccess || !strings.Contains(d.Error.Description, "'"+path+"'") {
			t.Errorf("%+v", d.Error)
		}
	}
	refusedFor(0, "via")
	p.putToken("amqp://h/via", 202)
	refusedFor(10, "orders")
	p.putToken("amqp://h/orders", 202)
	attach(11)
	expect[*wire.Flow](p)
}
