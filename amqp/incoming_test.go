package amqp

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/amqp/address"
	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

func more(t *wire.Transfer)    { t.More = true }
func settled(t *wire.Transfer) { t.Settled = ptr(true) }
func aborted(t *wire.Transfer) { t.Aborted = true }

func TestAddressesInFourSpellings(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("Orders/in bulk")
	p := loggedIn(t, h)
	for i, address := range []string{"orders/in bulk", "/Orders/In Bulk", "amqps://host:5671/ORDERS/in%20bulk", "amqp://host/orders%2Fin%20bulk"} {
		p.sender(uint32(i), address)
		p.transfer(uint32(i), uint32(i), encodedMessage(t, nil))
		p.accepted()
	}
	if c := h.counts("orders/in bulk"); c.Active != 4 {
		t.Errorf("%d messages", c.Active)
	}
}

// A refused link is an attach without our terminus and a closing detach.
func TestRefusedLinkGetsAnAttachAndADetach(t *testing.T) {
	t.Parallel()
	filter := wire.Map{{Key: wire.Symbol("com.microsoft:session-filter"), Value: nil}}
	for name, c := range map[string]struct {
		attach wire.Attach
		want   wire.Symbol
		text   string
	}{
		"unknown entity":  {wire.Attach{Target: &wire.Target{Address: "amqps://h/nowhere"}}, wire.ConditionNotFound, "The messaging entity 'nowhere' could not be found."},
		"no address":      {wire.Attach{Target: &wire.Target{}}, wire.ConditionInvalidField, ""},
		"no terminus":     {wire.Attach{}, wire.ConditionInvalidField, ""},
		"coordinator":     {wire.Attach{Role: true, Coordinator: &wire.Coordinator{}}, wire.ConditionInvalidField, ""},
		"dynamic topic":   {wire.Attach{Role: true, Source: &wire.Source{Dynamic: true, Capabilities: []wire.Symbol{temporaryTopic}}}, wire.ConditionInvalidField, ""},
		"dynamic address": {wire.Attach{Role: true, Source: &wire.Source{Dynamic: true, Address: "orders"}}, wire.ConditionInvalidField, ""},
		"dead-letter":     {wire.Attach{Target: &wire.Target{Address: "orders/$deadletterqueue"}}, wire.ConditionNotAllowed, ""},
		"message session": {wire.Attach{Role: true, Source: &wire.Source{Address: "orders", Filter: filter}}, wire.ConditionNotAllowed, ""},
		"long name":       {wire.Attach{Name: strings.Repeat("x", linkNameBytesMax+1), Target: &wire.Target{Address: "orders"}}, wire.ConditionInvalidField, ""},
		"long address":    {wire.Attach{Target: &wire.Target{Address: strings.Repeat("x", address.BytesMax+1)}}, wire.ConditionInvalidField, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := loggedIn(t, newFakeBroker("orders"))
			p.send(&c.attach)
			a := expect[*wire.Attach](p)
			if a.Role == wire.RoleReceiver && a.Target != nil || a.Role == wire.RoleSender && a.Source != nil || a.Role == c.attach.Role {
				t.Errorf("attach %+v", a)
			}
			d := expect[*wire.Detach](p)
			if !d.Closed || d.Error == nil || d.Error.Condition != c.want || !strings.Contains(d.Error.Description, c.text) || !strings.Contains(d.Error.Description, "TrackingId:") {
				t.Errorf("detach %+v", d.Error)
			}
			p.send(&wire.Detach{Closed: true}) // the gateway accepts the client's answer silently
			p.sender(0, "orders")
		})
	}
}

func TestCatalogNotLoadedIsBusyNotMissing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // the gateway waits for attachBusyMax
		h := newFakeBroker("orders")
		h.busy = true
		p := loggedIn(t, h)
		p.send(&wire.Attach{Target: &wire.Target{Address: "orders"}})
		expect[*wire.Attach](p)
		if d := expect[*wire.Detach](p); d.Error.Condition != wire.ConditionServerBusy || !strings.Contains(d.Error.Description, "A retry may help.") {
			t.Errorf("detach %+v", d.Error)
		}
		_ = p.net.Close()
	})
}

// The reply repeats the values of the client, because SDKs compare them.
func TestAttachIsEchoed(t *testing.T) {
	t.Parallel()
	p := loggedIn(t, newFakeBroker("orders"))
	a := p.receiver(4, "amqps://host/orders", func(a *wire.Attach) {
		a.SndSettleMode, a.RcvSettleMode = ptr(uint8(0)), ptr(uint8(1))
		a.Source.Outcomes = []wire.Symbol{"amqp:accepted:list"}
		a.Properties = wire.Map{{Key: wire.Symbol("com.example:unknown"), Value: 1.5}}
	})
	if a.Source.Address != "amqps://host/orders" || a.Target.Address != "here" || *a.SndSettleMode != 0 || *a.RcvSettleMode != 1 ||
		a.InitialDeliveryCount == nil || a.Name != "r4" || a.Handle != 4 || len(a.Source.Outcomes) != 1 {
		t.Errorf("attach %+v source %+v", a, a.Source)
	}
}

func TestDeliveryInManyFrames(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	p := loggedIn(t, h)
	p.sender(0, "orders")
	whole := encodedMessage(t, bytes.Repeat([]byte("x"), 1000))
	p.transfer(0, 0, whole[:100], more)
	p.transfer(0, 0, whole[100:500], more, func(t *wire.Transfer) { t.DeliveryID = nil })
	p.transfer(0, 0, whole[500:], func(t *wire.Transfer) { t.DeliveryID, t.DeliveryTag, t.MessageFormat = nil, nil, nil })
	p.accepted()
	p.transfer(0, 1, whole[:100], more)
	p.transfer(0, 1, nil, aborted)
	p.transfer(0, 2, whole, settled) // sent settled: no answer (docs/requirements.md#t3)
	p.transfer(0, 3, whole)
	if first, _ := p.accepted(); first != 3 {
		t.Errorf("accepted %d", first)
	}
	if c := h.counts("orders"); c.Active != 3 {
		t.Errorf("%d messages", c.Active)
	}
	p.transfer(0, 4, whole[:100], more)
	p.transfer(0, 5, whole)
	if d := expect[*wire.Detach](p); d.Error.Condition != wire.ConditionNotAllowed {
		t.Errorf("interleaved deliveries: %+v", d.Error)
	}
}

func TestTooLargeIsRejectedAndTheLinkLives(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	p := loggedIn(t, h)
	p.sender(0, "orders")
	for range 5 {
		p.transfer(0, 0, make([]byte, 60<<10), more)
	}
	p.transfer(0, 0, nil)
	p.refused(0, wire.RoleReceiver, wire.ConditionMessageSizeExceeded)
	p.transfer(0, 1, encodedMessage(t, nil))
	p.accepted()
}

func TestBadMessagesAreRefused(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	p := loggedIn(t, h)
	p.sender(0, "orders")
	batch := func(t *wire.Transfer) { t.MessageFormat = ptr(uint32(batchFormat)) }
	good := encodedMessage(t, []byte("a"))
	data := func(b []byte) []byte {
		return wire.AppendBinary(wire.AppendSectionDescriptor(nil, wire.SectionData), b)
	}
	p.transfer(0, 0, []byte("not a message"))
	expect[*wire.Disposition](p)
	p.transfer(0, 1, append(data(good), data([]byte("bad"))...), batch)
	expect[*wire.Disposition](p)
	p.transfer(0, 2, good, func(t *wire.Transfer) { t.MessageFormat = ptr(uint32(77)) })
	p.refused(2, wire.RoleReceiver, wire.ConditionNotImplemented)
	p.transfer(0, 3, good, func(t *wire.Transfer) { t.State = &wire.TransactionalState{TxnID: []byte{1}} })
	p.refused(3, wire.RoleReceiver, wire.ConditionTransactionUnknownID)
	if c := h.counts("orders"); c.Active != 0 {
		t.Errorf("%d messages stored", c.Active)
	}
	p.transfer(0, 4, append(data(good), data(good)...), batch)
	p.accepted()
	if c := h.counts("orders"); c.Active != 2 {
		t.Errorf("%d messages of the batch stored", c.Active)
	}
}

// The client gets the condition of every code that a send can return.
func TestSendRefusedByBroker(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	p := loggedIn(t, h)
	p.sender(0, "orders")
	for i, code := range []fsm.Code{fsm.ServerBusy, fsm.QuotaExceeded, fsm.MessageTooLarge, fsm.Timeout} {
		h.mu.Lock()
		h.sendCode = code
		h.mu.Unlock()
		p.transfer(0, uint32(i), encodedMessage(t, nil))
		p.refused(uint32(i), wire.RoleReceiver, refusal.ReplyOf(code).Condition)
	}
}

// Sends that are stored together are answered by one frame.
func TestAcceptedNeighboursShareADisposition(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	h.hold = make(chan struct{})
	p := loggedIn(t, h)
	p.sender(0, "orders")
	start := uint32(math.MaxUint32 - 4) // delivery-ids wrap
	for i := range uint32(10) {
		p.transfer(0, start+i, encodedMessage(t, nil))
	}
	close(h.hold)
	seen := make(map[uint32]bool)
	for frames := 0; len(seen) < 10; frames++ {
		first, last := p.accepted()
		for id := first; ; id++ {
			if seen[id] {
				t.Fatalf("%d answered twice", id)
			}
			seen[id] = true
			if id == last {
				break
			}
		}
	}
	for i := range uint32(10) {
		if !seen[start+i] {
			t.Errorf("%d not answered", start+i)
		}
	}
}

func TestNeighbouringDispositionsBecomeRanges(t *testing.T) {
	t.Parallel()
	c := newConn(ptr(DefaultConfig()), nopConn{})
	s := &session{conn: c}
	for id := uint32(5); id < 105; id++ {
		s.queueDisposition(wire.RoleReceiver, accepted, id, id)
	}
	s.queueDisposition(wire.RoleSender, modified, 1, 2)
	if len(c.out) != 0 {
		t.Fatal("a frame before the flush")
	}
	c.flushDispositions()
	r := wire.NewReader(bytes.NewReader(c.out), 1<<16)
	var got string
	for {
		f, err := r.ReadFrame()
		if err != nil {
			break
		}
		if d, ok := f.Body.(*wire.Disposition); ok {
			got += fmt.Sprintf("%v %d-%d %T;", d.Role, d.First, *d.Last, d.State)
		}
	}
	if want := "false 1-2 *wire.Modified;true 5-104 *wire.Accepted;"; got != want {
		t.Errorf("frames %s, want %s", got, want)
	}
}

// Credit is granted again when sends are stored, not when they are received.
func TestCreditFollowsTheLog(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	h.hold = make(chan struct{})
	p := loggedIn(t, h)
	if f := p.sender(0, "orders"); *f.LinkCredit != linkCreditMax || f.DeliveryCount == nil || f.NextIncomingID == nil {
		t.Fatalf("first flow %+v", f)
	}
	message := encodedMessage(t, nil)
	for i := range uint32(linkCreditMax) {
		p.transfer(0, i, message)
	}
	p.send(&wire.Flow{Handle: new(uint32), Echo: true})
	if f := expect[*wire.Flow](p); *f.LinkCredit != 0 || *f.DeliveryCount != linkCreditMax {
		t.Fatalf("credit %d at %d while nothing is stored", *f.LinkCredit, *f.DeliveryCount)
	}
	close(h.hold)
	for credit := uint32(0); credit < linkCreditMax/2; {
		f := p.next()
		if flow, ok := f.Body.(*wire.Flow); ok && flow.LinkCredit != nil {
			credit = *flow.LinkCredit
		}
	}
}

// The delivery-count of a sender begins anywhere, and the credit that it computes from a flow is the credit that it has. A
// sender that advances its count without sending gets new credit.
func TestCreditFollowsTheCountOfTheSender(t *testing.T) {
	t.Parallel()
	message := encodedMessage(t, nil)
	for _, initial := range []uint32{math.MaxUint32 - 2, 0, 1 << 31} {
		t.Run(fmt.Sprint(initial), func(t *testing.T) {
			t.Parallel()
			h := newFakeBroker("orders")
			h.hold = make(chan struct{})
			p := loggedIn(t, h)
			count := initial
			credit := func(f *wire.Flow) uint32 { return *f.DeliveryCount + *f.LinkCredit - count } // 2.6.7
			if got := credit(p.sender(0, "orders", func(a *wire.Attach) { a.InitialDeliveryCount = &initial })); got != linkCreditMax {
				t.Fatalf("credit %d, want %d", got, linkCreditMax)
			}
			for i := range uint32(linkCreditMax) {
				p.transfer(0, i, message)
				count++
			}
			p.send(&wire.Flow{Handle: new(uint32), Echo: true})
			if f := expect[*wire.Flow](p); credit(f) != 0 || *f.DeliveryCount != count {
				t.Fatalf("credit %d at %d after all was used, want 0 at %d", credit(f), *f.DeliveryCount, count)
			}
			close(h.hold)
			for granted := false; !granted; {
				f, ok := p.next().Body.(*wire.Flow)
				granted = ok && f.LinkCredit != nil && credit(f) == linkCreditMax
			}
			count += linkCreditMax
			p.send(&wire.Flow{Handle: new(uint32), DeliveryCount: &count})
			for granted := false; !granted; {
				f, ok := p.next().Body.(*wire.Flow)
				granted = ok && f.LinkCredit != nil && *f.DeliveryCount == count && credit(f) == linkCreditMax
			}
			p.transfer(0, linkCreditMax, message)
			for answered := false; !answered; {
				d, ok := p.next().Body.(*wire.Disposition)
				answered = ok && *d.Last == linkCreditMax
			}
		})
	}
}

func TestSenderBeyondItsCreditIsDetached(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	h.hold = make(chan struct{})
	defer close(h.hold)
	p := loggedIn(t, h)
	p.sender(0, "orders")
	for i := range uint32(linkCreditMax + 1) {
		p.transfer(0, i, encodedMessage(t, nil))
	}
	if d := expect[*wire.Detach](p); d.Error.Condition != wire.ConditionTransferLimitExceeded {
		t.Errorf("detach %+v", d.Error)
	}
}

// writeUntilPaused sends the same message until the connection is not read any more, and returns how often.
func (p *peer) writeUntilPaused(format uint32, message []byte, most int) (sent int) {
	p.Helper()
	for ; sent <= most; sent++ { // the pipe has no buffer: a write blocks if nobody reads
		id := uint32(sent)
		_ = p.net.SetWriteDeadline(time.Now().Add(time.Second))
		if n, err := p.net.Write(wire.AppendTransfer(nil, 0, &wire.Transfer{DeliveryID: &id, DeliveryTag: []byte{1}, MessageFormat: &format}, message)); err != nil {
			if n != 0 {
				p.Fatal("stopped amid a frame")
			}
			return sent
		}
	}
	p.Fatalf("never stopped reading in %d messages", most)
	return 0
}

// Above the limit of bytes in flight, the connection is not read until some are stored. The messages of a batch count with what they
// take when they are decoded.
func TestInFlightBytesMax(t *testing.T) {
	t.Parallel()
	const limit, batched = 1 << 20, 1000
	large := encodedMessage(t, make([]byte, 60<<10))
	var batch []byte
	for range batched {
		batch = wire.AppendBinary(wire.AppendSectionDescriptor(batch, wire.SectionData), encodedMessage(t, []byte{1}))
	}
	for name, c := range map[string]struct {
		format  uint32
		message []byte
		counted int // bytes
	}{
		"large messages": {0, large, len(large)},
		"small messages": {batchFormat, batch, len(batch) + batched*inFlightOverhead},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newFakeBroker("orders")
				h.hold = make(chan struct{})
				p := loggedIn(t, h, func(c *Config) { c.InFlightBytesMax = limit })
				p.sender(0, "orders")
				sent := p.writeUntilPaused(c.format, c.message, 2*limit/c.counted)
				if got, least := sent*c.counted, limit-20*inFlightOverhead; got < least {
					t.Errorf("stopped after %d bytes, want %d at least", got, least)
				}
				close(h.hold)
				for done := false; !done; {
					d := expect[*wire.Disposition](p)
					done = int(*d.Last) >= sent-2 // the last one may still be in the pipe
				}
				p.transfer(0, 1000, large)
				p.accepted()
			})
		})
	}
}

// Unfinished deliveries of one connection share one limit.
func TestJoinedBytesMax(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	p := loggedIn(t, h)
	part := make([]byte, 60<<10)
	for handle := uint32(0); handle < 1+partialBytesMax/(240<<10); handle++ {
		p.send(&wire.Attach{Name: fmt.Sprint("s", handle), Handle: handle, Target: &wire.Target{Address: "orders"}})
		expect[*wire.Attach](p)
		expect[*wire.Flow](p)
		for range 4 {
			p.transfer(handle, handle, part, more)
		}
	}
	if d := expect[*wire.Detach](p); d.Error.Condition != wire.ConditionResourceLimitExceeded {
		t.Errorf("detach %+v", d.Error)
	}
}

// The incoming window is reopened long before it is used up.
func TestIncomingWindowIsReopened(t *testing.T) {
	t.Parallel()
	p := loggedIn(t, newFakeBroker("orders"))
	p.sender(0, "orders")
	for range windowFrames / 2 {
		p.transfer(0, 0, nil, more)
	}
	f := expect[*wire.Flow](p)
	if f.Handle != nil || f.IncomingWindow != windowFrames || *f.NextIncomingID != windowFrames/2 {
		t.Errorf("flow %+v", f)
	}
}

func TestLinksAreBounded(t *testing.T) {
	t.Parallel()
	p := loggedIn(t, newFakeBroker("orders"))
	p.sendOn(1, &wire.Begin{IncomingWindow: 10})
	expect[*wire.Begin](p)
	for i := range uint32(linksMax) {
		p.sendOn(uint16(i%2), &wire.Attach{Handle: i / 2, Role: true, Source: &wire.Source{Address: "$cbs"}, Target: &wire.Target{}})
		expect[*wire.Attach](p)
	}
	p.send(&wire.Attach{Handle: handleMax, Role: true, Source: &wire.Source{Address: "$cbs"}, Target: &wire.Target{}})
	expect[*wire.Attach](p)
	if d := expect[*wire.Detach](p); d.Error.Condition != wire.ConditionResourceLimitExceeded {
		t.Errorf("detach %+v", d.Error)
	}
	p.send(&wire.Detach{Handle: 0, Closed: true})
	expect[*wire.Detach](p)
	p.send(&wire.Attach{Handle: handleMax, Role: true, Source: &wire.Source{Address: "$cbs"}, Target: &wire.Target{}})
	if a := expect[*wire.Attach](p); a.Source == nil {
		t.Error("no link although one was detached")
	}
}

// A message may be as large as its queue allows as the client sent it: the id that it gets does not count.
func TestLargestMessageIsMeasuredAsSent(t *testing.T) {
	t.Parallel()
	const most = 1 << 10
	h := newFakeBrokerOf(fsm.EntitySettings{LockDuration: 30_000, MaxDeliveryCount: 10, MaxMessageBytes: most}, "orders")
	p := loggedIn(t, h)
	p.sender(0, "orders")
	overhead := len(encodedMessage(t, make([]byte, most))) - most
	message := encodedMessage(t, make([]byte, most-overhead))
	if len(message) != most {
		t.Fatalf("the message has %d bytes", len(message))
	}
	p.transfer(0, 0, message)
	if d := expect[*wire.Disposition](p); typeName(d.State) != "accepted" {
		t.Errorf("a message of %d bytes: %+v", most, d.State)
	}
	p.transfer(0, 1, append(message, 0))
	p.refused(1, wire.RoleReceiver, wire.ConditionMessageSizeExceeded)

	half := encodedMessage(t, make([]byte, most/2))
	rest := most + batchBytesMore - len(batch(half, half))
	largest := batch(half, encodedMessage(t, make([]byte, most/2+rest)))
	asBatch := func(t *wire.Transfer) { t.MessageFormat = ptr(uint32(batchFormat)) }
	p.transfer(0, 2, largest, asBatch)
	if d := expect[*wire.Disposition](p); typeName(d.State) != "accepted" || len(largest) != most+batchBytesMore {
		t.Errorf("a batch of %d bytes: %+v", len(largest), d.State)
	}
	p.transfer(0, 3, append(largest, 0), asBatch)
	p.refused(3, wire.RoleReceiver, wire.ConditionMessageSizeExceeded)
}
