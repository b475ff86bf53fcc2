package amqp

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/amqp/address"
	"github.com/peeklock/peeklock/amqp/budget"
	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// littleMemory is a budget that one connection can use up.
func littleMemory(c *Config) { c.MemoryBytesMax = budget.BytesMin }

// unfinished sends the frames of deliveries that never end, one on each of the handles, with
// perLink bytes each, until done says so after a frame or the gateway has closed the connection.
func (p *peer) unfinished(handles []uint32, perLink int, done func() bool) {
	p.Helper()
	const piece = 60 << 10
	payload := make([]byte, piece)
	for _, handle := range handles {
		id := handle << 16
		for sent := 0; sent+piece <= perLink; sent += piece {
			part := wire.Transfer{Handle: handle, DeliveryTag: []byte{0}, MessageFormat: new(uint32), More: true}
			if sent == 0 {
				part.DeliveryID = &id
			}
			_ = p.net.SetDeadline(time.Now().Add(10 * time.Minute))
			if _, err := p.net.Write(wire.AppendTransfer(nil, 0, &part, payload)); err != nil || done() {
				return
			}
		}
	}
}

// holders attaches n links for requests, which take deliveries of 1 MiB each.
func (p *peer) holders(first, n uint32) (handles []uint32) {
	p.Helper()
	for i := range n {
		p.sender(first+i, "orders/$management")
		handles = append(handles, first+i)
	}
	return handles
}

// level is what the connection of a server that came first has to bear.
func levelOf(c *conn) budget.Level { return c.memory.account.Level() }

// Credit goes first, then sends are refused with a condition that clients wait on, and then
// the connection ends, with a text that says why. All that time another connection,
// with the same key, sends and receives as ever.
func TestMemoryShortageRestrictsInOrder(t *testing.T) {
	t.Parallel()
	s, p := piped(t, newFakeBroker("orders"), littleMemory)
	p.login()
	c := onlyConn(t, s)
	honest := connect(t, s).login()
	honest.sender(0, "orders")
	honest.receiver(1, "orders")
	id := uint32(0)
	works := func(when string) {
		honest.transfer(0, id, encodedMessage(t, []byte(when)))
		honest.accepted()
		honest.credit(1, id, 1)
		got := honest.deliveries(1)
		honest.send(dispose(got[0], got[0], false, &wire.Accepted{}))
		if d := expect[*wire.Disposition](honest); d.First != got[0] {
			t.Fatalf("%s: disposition %+v", when, d)
		}
		id++
	}
	works("before")
	p.sender(0, "orders")
	handles := p.holders(10, 20)
	small := encodedMessage(t, []byte("a"))

	p.unfinished(handles, 960<<10, func() bool { return levelOf(c) == budget.NoCredit })
	works("without credit")
	if f := s.Stats().Memory; f.Unauthenticated != 0 || f.Restricted != 1 {
		t.Errorf("stats %+v", f)
	}
	const sent = linkCreditMax/2 + 10 // at half of the credit there would be more
	for i := range uint32(sent) {
		p.transfer(0, i, small)
	}
	for answered := uint32(0); answered < sent; {
		_, last := p.accepted()
		answered = last + 1
	}
	p.quiet() // no credit came

	p.unfinished(handles[10:], 960<<10, func() bool { return levelOf(c) == budget.Busy })
	works("while the other is refused")
	p.transfer(0, sent, small)
	e := p.refused(sent, wire.RoleReceiver, wire.ConditionServerBusy)
	if !strings.Contains(e.Description, "short of memory") || !strings.Contains(e.Description, refusal.RetryLater.Advice()) {
		t.Errorf("refused with %q", e.Description)
	}
	p.transfer(0, sent+1, small, func(f *wire.Transfer) { f.Settled = new(true) })

	go p.unfinished(handles[16:], 960<<10, func() bool { return levelOf(c) == budget.Evicted })
	if e := expect[*wire.Close](p).Error; e.Condition != wire.ConditionConnectionForced || !strings.Contains(e.Description, "out of memory") {
		t.Errorf("closed with %+v", e)
	}
	works("after the end of the other")
	comes(t, s, "its memory is given back", func(f Stats) bool { return f.Memory.Used < 4<<20 })
	c.mu.Lock()
	if c.phase != phaseClosing {
		t.Error("its memory is given back when the connection is gone, and not at once")
	}
	c.mu.Unlock()
	if f := s.Stats(); f.MemoryRefused < 2 || f.Memory.Evictions != 1 || f.Presettled != 1 {
		t.Errorf("stats %+v", f)
	}
	p.send(&wire.Close{})
	p.gone()
}

// namedInTurn are keys whose names come one after the other.
type namedInTurn struct {
	fakeAuthorizer
	names chan string
}

func (k namedInTurn) Password(context.Context, Client, string, string) (Grant, error) {
	return Grant{Rights: fsm.Manage, Name: <-k.names}, nil
}

// Connections of one key share the part of the key: two of them have not twice as much as
// another key's one.
func TestConnectionsOfOneKeyShareItsMemory(t *testing.T) {
	t.Parallel()
	names := make(chan string, 3)
	s, p := piped(t, newFakeBroker("orders"), littleMemory, func(c *Config) { c.Authorizer = namedInTurn{names: names} })
	var conns []*conn
	for i, name := range []string{"a", "a", "b"} {
		if i > 0 {
			p = connect(t, s)
		}
		names <- name
		p.login()
		s.mu.Lock()
		for c := range s.conns {
			if !slices.Contains(conns, c) {
				conns = append(conns, c)
			}
		}
		s.mu.Unlock()
		// Together they are above 70 percent. Of the 60 that are shared then, a third is less than what
		// each has, and a half is more.
		sent := 0
		p.unfinished(p.holders(10, 10), 960<<10, func() bool {
			sent += 60 << 10
			return sent*5/4 >= budget.BytesMin/4
		})
	}
	for i, want := range []budget.Level{budget.NoCredit, budget.NoCredit, budget.Unrestricted} {
		if got := levelOf(conns[i]); got != want {
			t.Errorf("connection %d: level %d, want %d", i, got, want)
		}
	}
}

// When memory is there again, the credit that was kept back comes, without anything that the
// sender does.
func TestWithheldCreditReturnsWithMemory(t *testing.T) {
	t.Parallel()
	s, p := piped(t, newFakeBroker("orders"), littleMemory)
	p.login()
	c := onlyConn(t, s)
	p.sender(0, "orders")
	handles := p.holders(10, 20)
	p.unfinished(handles, 960<<10, func() bool { return levelOf(c) == budget.NoCredit })
	if f := p.sender(1, "orders"); *f.LinkCredit != 0 {
		t.Errorf("a new link has credit %d", *f.LinkCredit)
	}
	p.transfer(0, 1, encodedMessage(t, []byte("a")))
	p.accepted()
	other := connect(t, s).login() // its part grows at the cost of the first
	other.sender(0, "orders")
	for _, handle := range handles {
		p.write(wire.AppendTransfer(nil, 0, &wire.Transfer{Handle: handle, Aborted: true}, nil))
		if levelOf(c) == budget.Unrestricted {
			break
		}
	}
	credit := map[uint32]uint32{}
	for range 2 {
		f := expect[*wire.Flow](p)
		credit[*f.Handle] = *f.LinkCredit
	}
	if credit[0] != linkCreditMax || credit[1] != linkCreditMax {
		t.Errorf("credit %v", credit)
	}
}

// A delivery that is refused for want of memory is not kept: its frames are thrown away as
// they come, and what was there is given back.
func TestPartialDeliveriesReleaseMemory(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	h.settings.MaxMessageBytes = message.BytesMax
	h.add("large")
	s, p := piped(t, h, littleMemory)
	p.login()
	c := onlyConn(t, s)
	var handles []uint32
	for i := range uint32(20) {
		p.sender(i, "large")
		handles = append(handles, i)
	}
	p.unfinished(handles, 3<<20, func() bool { return s.Stats().MemoryRefused > 0 })
	f := s.Stats()
	if f.Memory.Used > budget.BytesMin/100*budget.EvictPercent || f.Memory.Evictions != 0 || f.MemoryRefused == 0 {
		t.Errorf("stats %+v", f)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.partialBytes > budget.BytesMin*8/10 {
		t.Errorf("%d bytes are kept", c.partialBytes)
	}
}

// A restricted connection still receives, settles and commits: that frees memory.
func TestReceivingContinuesWhenMemoryIsShort(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	h.messages(t, "orders", 20)
	s, p := piped(t, h, littleMemory)
	p.login()
	c := onlyConn(t, s)
	p.coordinator(coordinatorHandle)
	p.receiver(2, "orders")
	txn := p.declare(0)
	p.sender(3, "orders")
	p.transfer(3, 1, encodedMessage(t, []byte("in")), in(txn))
	expect[*wire.Disposition](p)
	p.unfinished(p.holders(10, 20), 960<<10, func() bool { return levelOf(c) == budget.Busy })
	p.credit(2, 0, 20)
	for _, id := range p.deliveries(20) {
		p.send(dispose(id, id, false, &wire.Accepted{}))
		expect[*wire.Disposition](p)
	}
	p.commit(2, txn)
	if counts := h.counts("orders"); counts.Active != 1 || levelOf(c) != budget.Busy {
		t.Errorf("%+v on level %d", counts, levelOf(c))
	}
}

// Unauthenticated connections share a small part. The oldest of the large ones is ended, and no
// other is affected.
func TestUnauthenticatedConnectionsShareTheirOwnMemory(t *testing.T) {
	t.Parallel()
	s, honest := piped(t, newFakeBroker("orders"), littleMemory)
	honest.login()
	honest.sender(0, "orders")
	var unauthenticated []*peer
	for len(unauthenticated) < 32 {
		q := connect(t, s).unknown()
		q.sender(0, address.CBS)
		q.unfinished([]uint32{0}, tokenBytesMax, func() bool { return false })
		unauthenticated = append(unauthenticated, q)
	}
	if e := expect[*wire.Close](unauthenticated[0]).Error; e.Condition != wire.ConditionConnectionForced {
		t.Errorf("closed with %+v", e)
	}
	for _, last := range []*peer{unauthenticated[31], connect(t, s).unknown()} {
		last.send(nil) // it is there
	}
	latest := connect(t, s).login()
	latest.sender(0, "orders")
	for _, p := range []*peer{honest, latest} {
		p.transfer(0, 0, encodedMessage(t, []byte("a")))
		p.accepted()
	}
	comes(t, s, "unauthenticated connections keep to their part", func(f Stats) bool {
		return f.Memory.Unauthenticated <= budget.BytesMin/100*budget.UnauthenticatedPercent
	})
}

// What a connection holds is counted, whatever it is, and counted no more when it is gone.
func TestEveryKindOfMemoryIsCounted(t *testing.T) {
	t.Parallel()
	large := encodedMessage(t, make([]byte, 200<<10))
	for name, c := range map[string]struct {
		does  func(p *peer, h *fakeBroker)
		least int64
		undo  func(p *peer, h *fakeBroker)
	}{
		"unfinished": {
			func(p *peer, _ *fakeBroker) {
				p.sender(0, "orders")
				p.transfer(0, 0, large[:60<<10], func(f *wire.Transfer) { f.More = true })
			}, 60 << 10,
			func(p *peer, _ *fakeBroker) { p.write(wire.AppendTransfer(nil, 0, &wire.Transfer{Aborted: true}, nil)) },
		},
		"transaction": {
			func(p *peer, _ *fakeBroker) {
				p.coordinator(coordinatorHandle)
				p.sender(1, "orders")
				txn := p.declare(0)
				p.transfer(1, 1, large[:0], in(txn), func(f *wire.Transfer) { f.More = true })
				p.parts(1, large)
				expect[*wire.Disposition](p)
			}, 200 << 10,
			func(p *peer, _ *fakeBroker) {
				p.send(&wire.Detach{Handle: coordinatorHandle, Closed: true})
				expect[*wire.Detach](p)
			},
		},
		"waiting sends": {
			func(p *peer, h *fakeBroker) {
				h.hold = make(chan struct{})
				p.sender(1, "orders")
				p.transfer(1, 1, large[:0], func(f *wire.Transfer) { f.More = true })
				p.parts(1, large)
			}, 200 << 10,
			func(p *peer, h *fakeBroker) { close(h.hold); p.accepted() },
		},
		"half sent": {
			func(p *peer, h *fakeBroker) {
				h.store(p, large)
				p.receiver(0, "orders")
				p.credit(0, 0, 1, func(f *wire.Flow) { f.IncomingWindow = 1 })
				expect[*wire.Transfer](p)
			}, 130 << 10,
			func(p *peer, _ *fakeBroker) { p.send(&wire.Detach{Handle: 0, Closed: true}); expect[*wire.Detach](p) },
		},
		"unsettled": {
			func(p *peer, h *fakeBroker) {
				h.messages(p, "orders", 100)
				p.receiver(0, "orders")
				p.credit(0, 0, 100)
				p.deliveries(100)
			}, 100 * unsettledBytes,
			func(p *peer, _ *fakeBroker) {
				p.send(dispose(0, 99, false, &wire.Accepted{}))
				expect[*wire.Disposition](p)
			},
		},
		"links": {
			func(p *peer, _ *fakeBroker) {
				for i := range uint32(50) {
					p.sender(i, "orders")
				}
			}, 50 * linkBytes,
			func(p *peer, _ *fakeBroker) {
				for i := range uint32(50) {
					p.send(&wire.Detach{Handle: i, Closed: true})
					expect[*wire.Detach](p)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newFakeBroker("orders")
			s, p := piped(t, h)
			p.login()
			conn := onlyConn(t, s)
			holds := func() int64 {
				p.send(nil) // the frame before it is handled
				conn.mu.Lock()
				defer conn.mu.Unlock()
				return conn.heldBytes() - int64(cap(conn.out)+conn.memory.writeBufferBytes+cap(conn.scratch)+conn.memory.readerBufferBytes)
			}
			before := holds()
			c.does(p, h)
			if got := holds() - before; got < c.least || got > c.least*3/2+4096 {
				t.Errorf("%d bytes are counted for at least %d", got, c.least)
			}
			c.undo(p, h)
			// What remains may be a link; none of the above is as little.
			if got := holds() - before; got > 3*linkBytes {
				t.Errorf("%d bytes are counted afterwards", got)
			}
		})
	}
}

// parts sends a delivery that has begun, to its end.
func (p *peer) parts(handle uint32, rest []byte) {
	p.Helper()
	for len(rest) > 0 {
		piece := rest[:min(60<<10, len(rest))]
		rest = rest[len(piece):]
		p.write(wire.AppendTransfer(nil, 0, &wire.Transfer{Handle: handle, More: len(rest) > 0}, piece))
	}
}

// store puts a message into the queue "orders".
func (h *fakeBroker) store(t testing.TB, encoded []byte) {
	t.Helper()
	at, err := h.Resolve(t.Context(), fsm.DefaultNamespace, "orders")
	if err != nil {
		t.Fatal(err)
	}
	m, err := message.Parse(encoded)
	if err != nil {
		t.Fatal(err)
	}
	h.do(sendOne(at, m))
}

// Of many links whose deliveries are half sent no more are begun than a connection may hold.
func TestUnsentBytesMax(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	h.settings.MaxMessageBytes = message.BytesMax
	h.add("large")
	stored, err := message.Parse(encodedMessage(t, make([]byte, 8<<20)))
	if err != nil {
		t.Fatal(err)
	}
	s, p := piped(t, &noopBroker{payload: stored.Payload})
	p.login()
	const links = 10
	for i := range uint32(links) {
		p.receiver(i, "large")
	}
	one := func(f *wire.Flow) { f.IncomingWindow = 1 }
	got := uint32(0)
	for i := range uint32(2 * links) { // each twice: what has begun goes on before it is locked
		p.credit(i/2, 0, 1, one, func(f *wire.Flow) { f.NextIncomingID = &got })
		expect[*wire.Transfer](p)
		got++
	}
	c := onlyConn(t, s)
	c.mu.Lock()
	unsent := c.memory.partlySentBytes
	c.mu.Unlock()
	if unsent > queuedBytesMax+len(stored.Payload) {
		t.Errorf("%d bytes are begun and not sent", unsent)
	}
	// With a window every one of them arrives.
	p.credit(0, 0, 1, func(f *wire.Flow) { f.NextIncomingID, f.IncomingWindow = &got, 5000 })
	for ended := 0; ended < links; {
		if !expect[*wire.Transfer](p).More {
			ended++
		}
	}
}

// The parts of requests, and what they decode to, count as far as they are larger than their
// bytes.
func TestDecodedPartsOfRequestsCountAsMemory(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		value any
		want  int
	}{
		{nil, 0},
		{"text", 0},
		{[]byte("much"), 0},
		{[]any{nil, nil, []any{nil}}, 4 * decodedItemBytes},
		{wire.Map{{Key: "a", Value: []any{nil}}}, decodedPairBytes + decodedItemBytes},
		{wire.Described{Descriptor: "d", Value: wire.Map{{}}}, 2 * decodedPairBytes},
	} {
		if got := decodedBytes(c.value); got != c.want {
			t.Errorf("%v: %d, want %d", c.value, got, c.want)
		}
	}
}

// When the member knows why it is busy, the client gets the reason and advice.
func TestBusyAnswerHasTheReason(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	h.sendCode = fsm.ServerBusy
	p := loggedIn(t, h, func(c *Config) { c.BusyReason = func() string { return "Receive something." } })
	p.sender(0, "orders")
	p.transfer(0, 0, encodedMessage(t, []byte("a")))
	if e := p.refused(0, wire.RoleReceiver, wire.ConditionServerBusy); !strings.HasPrefix(e.Description, "Receive something. A retry may help.") {
		t.Errorf("refused with %q", e.Description)
	}
}
