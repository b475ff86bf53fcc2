package amqp

import (
	"bytes"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// deliveries reads n whole deliveries and returns their ids; the frames of one delivery must not mix handles.
func (p *peer) deliveries(n int) (ids []uint32) {
	p.Helper()
	for len(ids) < n {
		t := expect[*wire.Transfer](p)
		if t.DeliveryID == nil || t.DeliveryTag == nil || t.MessageFormat == nil || *t.MessageFormat != 0 || t.Settled == nil {
			p.Fatalf("first frame of a delivery: %+v", t)
		}
		if n := len(t.DeliveryTag); n != 16 && (n != 0 || !*t.Settled) {
			p.Fatalf("a delivery-tag of %d bytes: %+v", n, t)
		}
		ids = append(ids, *t.DeliveryID)
		for t.More {
			t = expect[*wire.Transfer](p)
		}
	}
	return ids
}

// quiet checks that no frame is received except the answer to an echo.
func (p *peer) quiet() *wire.Flow {
	p.Helper()
	p.send(&wire.Flow{NextIncomingID: new(uint32), IncomingWindow: 5000, Echo: true})
	return expect[*wire.Flow](p)
}

func dispose(first, last uint32, settled bool, state any) *wire.Disposition {
	return &wire.Disposition{Role: wire.RoleReceiver, First: first, Last: &last, Settled: settled, State: state}
}

func TestCreditIsNeverExceeded(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	h.messages(t, "orders", 50)
	p := loggedIn(t, h)
	p.receiver(0, "orders")
	p.credit(0, 0, 3)
	ids := p.deliveries(3)
	p.quiet()
	p.credit(0, 1, 3) // it has counted only one of the three so far: one more is due
	ids = append(ids, p.deliveries(1)...)
	p.quiet()
	p.credit(0, 4, 2)
	ids = append(ids, p.deliveries(2)...)
	p.quiet()
	if !slices.Equal(ids, []uint32{0, 1, 2, 3, 4, 5}) {
		t.Errorf("delivery-ids %v", ids)
	}
	if c := h.counts("orders"); c.Locked != 6 {
		t.Errorf("%d locked: no more than what was sent may be", c.Locked)
	}
}

// Credit may be granted before our attach was sent, and without a delivery-count.
func TestCreditMayPrecedeTheAttach(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	h.messages(t, "orders", 2)
	p := loggedIn(t, h)
	p.send(&wire.Attach{Name: "r", Role: true, Source: &wire.Source{Address: "orders"}, Target: &wire.Target{}},
		&wire.Flow{IncomingWindow: 100, Handle: new(uint32), LinkCredit: ptr(uint32(2))})
	expect[*wire.Attach](p)
	p.deliveries(2)
}

// A range settles the unsettled deliveries in it; the cost depends on their number and not on its width.
func TestRangesSettleWhatIsThere(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders", "bills")
	h.messages(t, "orders", 4)
	h.messages(t, "bills", 2)
	p := loggedIn(t, h)
	p.receiver(0, "orders")
	p.receiver(1, "bills")
	p.credit(0, 0, 2)
	p.deliveries(2)
	p.credit(1, 0, 2)
	p.deliveries(2)
	p.credit(0, 2, 2)
	p.deliveries(2)
	p.send(dispose(1, 1, false, &wire.Accepted{}))
	if d := expect[*wire.Disposition](p); d.First != 1 || *d.Last != 1 || !d.Settled || d.Role != wire.RoleSender {
		t.Errorf("answer %+v", d)
	}
	p.send(dispose(0, math.MaxUint32, false, &wire.Accepted{}))
	answered := make(map[uint32]bool)
	for len(answered) < 5 {
		d := expect[*wire.Disposition](p)
		if _, ok := d.State.(*wire.Accepted); !ok {
			t.Fatalf("state %+v", d.State)
		}
		for id := d.First; id <= *d.Last; id++ {
			answered[id] = true
		}
	}
	if answered[1] {
		t.Error("1 was answered twice")
	}
	if a, b := h.counts("orders").Active, h.counts("bills").Active; a != 0 || b != 0 {
		t.Errorf("left: %d orders, %d bills", a, b)
	}
	p.send(dispose(0, 0, false, &wire.Accepted{}))
	p.refused(0, wire.RoleSender, wire.ConditionMessageLockLost)
}

// The answer contains the requested outcome, and never the client's own error.
func TestOutcomesAndTheirAnswers(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	info := wire.Map{{Key: wire.Symbol("DeadLetterReason"), Value: "r"}, {Key: "shelf", Value: int32(1)}}
	for name, c := range map[string]struct {
		state any
		check func(fsm.Counts) bool
	}{
		"complete":    {&wire.Accepted{}, func(c fsm.Counts) bool { return c.Active+c.Deferred+c.DeadLetter == 0 }},
		"release":     {&wire.Released{}, func(c fsm.Counts) bool { return c.Active == 1 && c.Locked == 0 }},
		"abandon":     {&wire.Modified{DeliveryFailed: &yes, UndeliverableHere: &no}, func(c fsm.Counts) bool { return c.Active == 1 && c.Locked == 0 }},
		"defer":       {&wire.Modified{UndeliverableHere: &yes, MessageAnnotations: wire.Map{{Key: "x", Value: "y"}}}, func(c fsm.Counts) bool { return c.Deferred == 1 }},
		"dead-letter": {&wire.Rejected{Error: &wire.Error{Condition: wire.ConditionDeadLetter, Info: info}}, func(c fsm.Counts) bool { return c.DeadLetter == 1 }},
		"reject bare": {&wire.Rejected{}, func(c fsm.Counts) bool { return c.DeadLetter == 1 }},
	} {
		for _, settled := range []bool{false, true} {
			h, p := receiving(t, 1)
			p.send(dispose(0, 0, settled, c.state))
			if !settled {
				d := expect[*wire.Disposition](p)
				if r, ok := d.State.(*wire.Rejected); ok && r.Error != nil {
					t.Errorf("%s: answer carries %+v", name, r.Error)
				}
				if a, b := typeName(d.State), typeName(c.state); a != b {
					t.Errorf("%s: answered %s, want %s", name, a, b)
				}
			}
			p.quiet()
			if got := h.counts("orders"); !c.check(got) {
				t.Errorf("%s: counts %+v", name, got)
			}
		}
	}
}

func typeName(v any) string {
	switch v.(type) {
	case *wire.Accepted:
		return "accepted"
	case *wire.Released:
		return "released"
	case *wire.Modified:
		return "modified"
	case *wire.Rejected:
		return "rejected"
	}
	return "other"
}

// If the broker could not be reached, the delivery remains, and the client may settle it again on the same
// link. The answer is not "busy", after which the Go client would report success.
func TestSettleAgainAfterServerBusy(t *testing.T) {
	t.Parallel()
	h, p := receiving(t, 1)
	h.mu.Lock()
	h.settle = fsm.ServerBusy
	h.mu.Unlock()
	p.send(dispose(0, 0, false, &wire.Accepted{}))
	p.refused(0, wire.RoleSender, wire.ConditionMessageLockLost)
	h.mu.Lock()
	h.settle = fsm.OK
	h.mu.Unlock()
	p.send(dispose(0, 0, false, &wire.Accepted{}))
	if d := expect[*wire.Disposition](p); typeName(d.State) != "accepted" {
		t.Errorf("second time: %+v", d.State)
	}
}

func TestNotTerminalStatesSettleNothing(t *testing.T) {
	t.Parallel()
	_, p := receiving(t, 1)
	p.send(dispose(0, 0, false, &wire.Received{}), dispose(0, 0, false, nil))
	p.send(dispose(0, 0, false, &wire.TransactionalState{TxnID: []byte{1}, Outcome: &wire.Accepted{}}))
	p.rejected(0, wire.RoleSender, wire.ConditionTransactionUnknownID, false)
	p.send(dispose(0, 0, false, &wire.Accepted{}))
	expect[*wire.Disposition](p)
}

func TestDrainIsAnswered(t *testing.T) {
	t.Parallel()
	drain := func(f *wire.Flow) { f.Drain = true }
	for name, c := range map[string]struct {
		there, credit int
		before        bool // credit is granted first, and a Lock waits
	}{
		"nothing there":         {0, 10, false},
		"some there":            {3, 10, false},
		"more than credit":      {20, 10, false},
		"while waiting":         {0, 10, true},
		"some, while waiting":   {4, 10, true},
		"without credit":        {5, 0, false},
		"more than one request": {300, 400, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newFakeBroker("orders")
			h.messages(t, "orders", c.there)
			p := loggedIn(t, h)
			p.receiver(0, "orders")
			want := min(c.there, c.credit)
			if c.before {
				p.credit(0, 0, uint32(c.credit))
				p.deliveries(want)
				p.credit(0, uint32(want), uint32(c.credit-want), drain)
			} else {
				p.credit(0, 0, uint32(c.credit), drain)
				p.deliveries(want)
			}
			f := expect[*wire.Flow](p)
			if !f.Drain || f.Echo || f.LinkCredit == nil || *f.LinkCredit != 0 || *f.DeliveryCount != uint32(c.credit) || f.NextIncomingID == nil || f.IncomingWindow == 0 {
				t.Errorf("answer %+v", f)
			}
			if c.before && want < c.credit && h.cancelled() == 0 {
				t.Error("the waiting Lock was not cancelled")
			}
			h.messages(t, "orders", 1) // a drained link gets nothing
			p.quiet()
			p.credit(0, uint32(c.credit), 1)
			p.deliveries(1)
		})
	}
}

func (h *fakeBroker) cancelled() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cancels
}

// Credit is revoked while a Lock waits: messages that arrive then are released, not sent.
func TestRevokedCreditReleasesMessages(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	p := loggedIn(t, h)
	p.receiver(0, "orders")
	p.credit(0, 0, 10)
	p.quiet()
	p.credit(0, 0, 0)
	p.quiet()
	h.messages(t, "orders", 3)
	p.quiet()
	if c := h.counts("orders"); c.Active != 3 || c.Locked != 0 {
		t.Errorf("counts %+v", c)
	}
	p.credit(0, 0, 3)
	p.deliveries(3)
}

// Received-and-deleted messages cannot be released: they wait for the next credit.
func TestReceivedAndDeletedMessagesWaitForCredit(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	p := loggedIn(t, h)
	p.receiver(0, "orders", func(a *wire.Attach) { a.SndSettleMode = ptr(uint8(settledMode)) })
	p.credit(0, 0, 10)
	p.quiet()
	p.credit(0, 0, 0)
	p.quiet()
	h.messages(t, "orders", 1)
	p.quiet()
	p.credit(0, 0, 5)
	if d := expect[*wire.Transfer](p); d.Settled == nil || !*d.Settled {
		t.Errorf("transfer %+v", d)
	}
}

// Deliveries stop at the peer's window, within a delivery if necessary, and continue there.
func TestDeliveriesStopAtTheWindow(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	at, err := h.Resolve(t.Context(), fsm.DefaultNamespace, "orders")
	if err != nil {
		t.Fatal(err)
	}
	body := bytes.Repeat([]byte("0123456789"), 300)
	for range 3 {
		m, err := message.Parse(encodedMessage(t, body))
		if err != nil {
			t.Fatal(err)
		}
		h.do(sendOne(at, m))
	}
	_, p := piped(t, h)
	p.login(func(o *wire.Open, b *wire.Begin) { o.MaxFrameSize, b.IncomingWindow = ptr(uint32(frameBytesMin)), 10 })
	p.receiver(0, "orders")
	p.credit(0, 0, 10, func(f *wire.Flow) { f.IncomingWindow = 10 })
	var joined []byte
	window, frames := uint32(10), uint32(0)
	for ends := 0; ends < 3; {
		if window == 0 {
			p.send(&wire.Flow{NextIncomingID: &frames, IncomingWindow: 1})
			window = 1
		}
		tr := expect[*wire.Transfer](p)
		joined = append(joined, tr.Payload...)
		window--
		frames++
		if !tr.More {
			ends++
		}
	}
	if n := bytes.Count(joined, body); n != 3 {
		t.Errorf("%d whole bodies in %d frames", n, frames)
	}
}

// Messages that were locked and not completely sent are released when the link ends; messages that were sent
// remain locked (docs/requirements.md#t14).
func TestDetachReleasesOnlyWhatWasNotSent(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	h.messages(t, "orders", 10)
	_, p := piped(t, h)
	p.login(func(_ *wire.Open, b *wire.Begin) { b.IncomingWindow = 4 })
	p.receiver(0, "orders")
	p.credit(0, 0, 10, func(f *wire.Flow) { f.IncomingWindow = 4 })
	p.deliveries(4)
	p.send(&wire.Detach{Handle: 0, Closed: true})
	if d := expect[*wire.Detach](p); !d.Closed {
		t.Errorf("detach %+v", d)
	}
	if c := h.counts("orders"); c.Locked != 4 || c.Active != 10 {
		t.Errorf("counts %+v", c)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed != 1 {
		t.Errorf("%d receivers closed", h.closed)
	}
}

func TestConnectionLossReleasesAndCloses(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	p := loggedIn(t, h)
	p.receiver(0, "orders")
	p.credit(0, 0, 10)
	p.quiet()
	_ = p.net.Close()
	<-p.ended
	h.messages(t, "orders", 1)
	if c := h.counts("orders"); c.Locked != 0 {
		t.Errorf("locked for a connection that is gone: %+v", c)
	}
}

// If the broker cannot be reached, the client attaches again; if an entity was deleted, the client gives up.
func TestFailedLockDetachesTheLink(t *testing.T) {
	t.Parallel()
	for code, want := range map[fsm.Code]wire.Symbol{fsm.ServerBusy: wire.ConditionDetachForced, fsm.EntityNotFound: wire.ConditionNotFound} {
		h := newFakeBroker("orders")
		h.lockCode = code
		p := loggedIn(t, h)
		p.receiver(0, "orders")
		p.credit(0, 0, 1)
		if d := expect[*wire.Detach](p); d.Error.Condition != want || !d.Closed {
			t.Errorf("%v: detach %+v", code, d.Error)
		}
	}
}

// A wait that ends without a message is repeated; the client does not notice.
func TestLockIsAskedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFakeBroker("orders")
		p := loggedIn(t, h)
		p.receiver(0, "orders")
		p.credit(0, 0, 1)
		go func() {
			time.Sleep(lockWait + lockWait/2) //nolint:forbidigo // of the bubble's clock
			h.messages(t, "orders", 1)
		}()
		p.deliveries(1)
	})
}

// A receiver that never settles gets at most unsettledMax deliveries, until the locks of the old ones expire.
func TestUnsettledDeliveriesAreBounded(t *testing.T) {
	t.Parallel()
	s := &session{unsettled: make(map[uint32]unsettled)}
	past, future := fsm.Instant(1), fsm.Instant(time.Now().Add(time.Hour).UnixMilli())
	for id := range uint32(unsettledMax) {
		s.unsettled[id] = unsettled{until: future}
	}
	if !s.unsettledFull() || !s.unsettledMaxReached {
		t.Fatal("not crowded")
	}
	for id := range uint32(10) {
		s.unsettled[id] = unsettled{until: past}
	}
	if !s.unsettledFull() {
		t.Error("looked through the whole map twice within a second")
	}
	s.lastSweep = time.Time{}
	if s.unsettledFull() || len(s.unsettled) != unsettledMax-10 {
		t.Errorf("%d left", len(s.unsettled))
	}
}

// Messages that are locked and cannot be sent are released above a limit.
func TestHeldBytesMax(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	c := newConn(ptr(DefaultConfig()), nopConn{})
	c.config.Broker = h
	s := &session{conn: c, unsettled: make(map[uint32]unsettled)}
	l := &outgoingLink{link: link{session: s, state: attached}, receiver: h.Receiver(fsm.EntityRef{}, false)}
	l.credit.left = 100
	c.queuedBytes = queuedBytesMax + 1
	l.queue = []queuedDelivery{{delivery: fsm.Delivery{Payload: make([]byte, 10)}}, {}}
	l.releaseExcess()
	if len(l.queue) != 0 || c.queuedBytes != queuedBytesMax-9 || len(c.brokerCalls) != 1 {
		t.Errorf("queue %d held %d calls %d", len(l.queue), c.queuedBytes, len(c.brokerCalls))
	}
}

func TestRangesOfDeliveriesAreTaken(t *testing.T) {
	t.Parallel()
	s := &session{unsettled: make(map[uint32]unsettled)}
	fill := func(ids ...uint32) {
		clear(s.unsettled)
		for _, id := range ids {
			s.unsettled[id] = unsettled{}
		}
	}
	ids := func(all []settledDelivery) (out []uint32) {
		for _, t := range all {
			out = append(out, t.id)
		}
		return out
	}
	m := uint32(math.MaxUint32)
	for _, c := range []struct {
		there       []uint32
		first, last uint32
		want        []uint32
	}{
		{[]uint32{1, 2, 3}, 2, 2, []uint32{2}},
		{[]uint32{1, 2, 3}, 4, 4, nil},
		{[]uint32{1, 2, 3, 9}, 2, 3, []uint32{2, 3}},
		{[]uint32{1, 2, 3, 9}, 2, 100, []uint32{2, 3, 9}},
		{[]uint32{m - 1, m, 0, 1}, m, 0, []uint32{m, 0}},
		{[]uint32{m - 1, m, 0, 1}, m, 50, []uint32{m, 0, 1}},
		{[]uint32{5, 1, 3}, 0, m, []uint32{1, 3, 5}},
		{nil, 0, m, nil},
	} {
		fill(c.there...)
		if got := ids(s.takeUnsettled(c.first, c.last)); !slices.Equal(got, c.want) {
			t.Errorf("%v from %d to %d: %v, want %v", c.there, c.first, c.last, got, c.want)
		}
		if len(s.unsettled) != len(c.there)-len(c.want) {
			t.Errorf("%d left of %d", len(s.unsettled), len(c.there))
		}
	}
}

// A message that is received and deleted has no lock, and an empty delivery-tag as from the service: JavaScript and Python
// show the tag of a delivery as its lock token.
func TestReceivedAndDeletedMessagesHaveAnEmptyTag(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	h.messages(t, "orders", 2)
	p := loggedIn(t, h)
	p.receiver(0, "orders", func(a *wire.Attach) { a.SndSettleMode = ptr(uint8(settledMode)) })
	p.credit(0, 0, 2)
	for range 2 {
		if tr := expect[*wire.Transfer](p); tr.DeliveryTag == nil || len(tr.DeliveryTag) != 0 || !*tr.Settled {
			t.Errorf("tag %x of %+v", tr.DeliveryTag, tr)
		}
	}
}
