package amqp

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/amqp/account"
	"github.com/peeklock/peeklock/amqp/address"
	"github.com/peeklock/peeklock/amqp/budget"
	messages "github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/amqp/work"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// generousBroker answers every request with as much as it may, and every settlement with one code.
type generousBroker struct {
	*fakeBroker
	code       fsm.Code
	deliveries []fsm.Delivery // what a Lock finds; nil: nothing
}

func (b *generousBroker) Settle(_ fsm.EntityRef, s []fsm.Settlement, done func([]fsm.Code)) {
	codes := make([]fsm.Code, len(s))
	for i := range codes {
		codes[i] = b.code
	}
	done(codes)
}

func (*generousBroker) Send(_ fsm.EntityRef, _ []fsm.Message, done func(fsm.Code)) { done(fsm.OK) }

func (b *generousBroker) Receiver(fsm.EntityRef, bool) Receiver {
	return &generousReceiver{found: b.deliveries}
}

// generousReceiver finds the same messages again and again.
type generousReceiver struct {
	found []fsm.Delivery
	wait  func(fsm.Code, []fsm.Delivery)
}

func (r *generousReceiver) Lock(most, _ int, wait time.Duration, done func(fsm.Code, []fsm.Delivery)) {
	switch found := r.found[:min(most, len(r.found))]; {
	case len(found) > 0 || wait == 0:
		done(fsm.OK, found)
	default:
		r.wait = done
	}
}

func (r *generousReceiver) Cancel() {
	if done := r.wait; done != nil {
		r.wait = nil
		done(fsm.Timeout, nil)
	}
}
func (r *generousReceiver) Close() { r.Cancel() }

// many returns n times the encoded value, as a list in a frame of the largest size.
func many(value string) wire.Raw {
	n := (frameBytesMax - 2048) / len(value)
	b := append([]byte{0xd0}, 0, 0, 0, 0, 0, 0, 0, 0)
	binary.BigEndian.PutUint32(b[1:], uint32(4+n*len(value)))
	binary.BigEndian.PutUint32(b[5:], uint32(n))
	return append(b, strings.Repeat(value, n)...)
}

// Encoded values of which a decoder makes much more than they have bytes.
var expansive = map[string]string{
	"nulls": "\x40", "empty lists": "\x45", "short empty lists": "\xc0\x01\x00", "empty maps": "\xc1\x01\x00", "empty binaries": "\xa0\x00",
	"empty strings": "\xa1\x00", "described": "\x00\x40\x40", "states": "\x00\x53\x27\x45", "times": "\x83\x00\x00\x00\x00\x00\x00\x00\x00", "small numbers": "\x54\xff",
	"arrays of strings": "\xe0\x05\x03\xa1\x00\x00\x00",
}

// atLimits is a performative, or a few that a client repeats, with the largest fields.
type atLimits struct {
	of     kind
	setUp  func(p *peer, c *conn)
	round  func(n uint32) []byte // the frames of a round
	before func(c *conn)         // before each round
	// free is the units of a round for which its client needs credit, and which are therefore not charged: those of deliveries, and a
	// unit for each 4 KiB of a message that is stored.
	free  int
	code  fsm.Code       // of settlements
	found []fsm.Delivery // by receivers
}

// frames encodes frames of channel 0.
func frames(bodies ...wire.Performative) (b []byte) {
	for _, body := range bodies {
		b = wire.AppendFrame(b, wire.FrameAMQP, 0, body)
	}
	return b
}

// fill makes deliveries unsettled, every step-th id, as those of the link 0. It does not entitle their client to frames.
func fill(step uint32) func(*conn) {
	return func(c *conn) {
		c.mu.Lock()
		defer c.mu.Unlock()
		s := c.sessions[0]
		clear(s.unsettled)
		for id := uint32(0); len(s.unsettled) < unsettledMax-1; id += step {
			s.unsettled[id] = unsettled{link: s.links[0].(*outgoingLink), lock: fsm.LockID{Sequence: fsm.SequenceNumber(id + 1)}}
		}
		s.countUnsettled()
	}
}

// maximalFrames returns the largest requests of each row, by name. Rows without one fail the test.
func maximalFrames(t *testing.T) map[string]atLimits {
	t.Helper()
	long := strings.Repeat("x", frameBytesMax-4096)
	u := func(n uint32) *uint32 { return &n }
	receiver := func(p *peer, _ *conn) { p.receiver(0, "orders") }
	attach := func(change func(*wire.Attach)) func(uint32) []byte {
		return func(n uint32) []byte {
			a := &wire.Attach{Name: fmt.Sprint(n), Role: wire.RoleReceiver, Source: &wire.Source{Address: "orders"}, Target: &wire.Target{Address: "here"}}
			change(a)
			return frames(a, &wire.Detach{Closed: true})
		}
	}
	abandon := func(properties int, value any) *wire.Modified {
		return &wire.Modified{MessageAnnotations: wire.Map{{Key: wire.Symbol("p"), Value: strings.Repeat("x", properties)}, {Key: wire.Symbol("q"), Value: value}}}
	}
	settle := func(last uint32, state any) func(uint32) []byte {
		return func(uint32) []byte { return frames(dispose(0, last, false, state)) }
	}
	message := encodedMessage(t, make([]byte, 255<<10))
	batch := make([]byte, 0, 256<<10)
	for range 4000 {
		batch = append(batch, encodedMessage(t, encodedMessage(t, []byte("x")))...)
	}
	send := func(payload []byte, format uint32) func(uint32) []byte {
		return func(n uint32) (b []byte) {
			for rest := payload; len(rest) > 0; {
				piece := rest[:min(len(rest), 60<<10)]
				rest = rest[len(piece):]
				b = wire.AppendTransfer(b, 0, &wire.Transfer{DeliveryID: &n, DeliveryTag: []byte{1}, MessageFormat: &format, More: len(rest) > 0}, piece)
			}
			return b
		}
	}
	cbs := func(p *peer, _ *conn) { p.requestLinks(0, address.CBS) }
	put := func(arguments wire.Map, body any) func(uint32) []byte {
		return func(n uint32) []byte {
			request := requestMessage(wire.Properties{MessageID: uint64(n)}, append(wire.Map{{Key: "operation", Value: putTokenOperation}, {Key: "type", Value: "jwt"}, {Key: "name", Value: "sb://h/orders"}}, arguments...), body)
			if len(request) > tokenBytesMax {
				t.Fatalf("a request of %d bytes", len(request))
			}
			return send(request, 0)(n)
		}
	}
	token := "SharedAccessSignature sr=x&sig=y&se=1&skn=" + ruleName
	var buffer []byte
	stored, err := messages.ParseWithID(&buffer, encodedMessage(t, make([]byte, lockBytesMax/lockBatchMax)))
	if err != nil {
		t.Fatal(err)
	}
	found := make([]fsm.Delivery, lockBatchMax)
	for i := range found {
		found[i] = fsm.Delivery{Lock: fsm.LockID{Sequence: fsm.SequenceNumber(i + 1)}, Payload: stored.Payload}
	}

	all := map[string]atLimits{
		"empty frame": {of: heartbeatKind, round: func(uint32) []byte { return frames(nil) }},
		"begin and end": {of: beginKind, round: func(uint32) (b []byte) {
			b = wire.AppendFrame(b, wire.FrameAMQP, 7, &wire.Begin{})
			return wire.AppendFrame(b, wire.FrameAMQP, 7, &wire.End{Error: &wire.Error{Description: long}})
		}},
		"attach with long names":   {of: attachKind, round: attach(func(a *wire.Attach) { a.Name, a.Target.Address = long[:linkNameBytesMax], long[:56<<10] })},
		"attach, too long a name":  {of: attachKind, round: attach(func(a *wire.Attach) { a.Name = long })},
		"attach to nothing":        {of: attachKind, round: attach(func(a *wire.Attach) { a.Source.Address = long })},
		"attach with capabilities": {of: attachKind, round: attach(func(a *wire.Attach) { a.Source.Capabilities = make([]wire.Symbol, 50_000) })},
		"attach with a selector": {of: attachKind, round: attach(func(a *wire.Attach) {
			a.Source.Filter = wire.Map{{Key: wire.Symbol("s"), Value: wire.Described{Descriptor: selectorDescriptor, Value: "a IN ('1'" + strings.Repeat(",'x'", 200) + ")"}}}
		})},
		"attach with a long selector": {of: attachKind, round: attach(func(a *wire.Attach) {
			a.Source.Filter = wire.Map{{Key: wire.Symbol("s"), Value: wire.Described{Descriptor: selectorDescriptor, Value: "a IN ('1'" + strings.Repeat(",'x'", 14_000) + ")"}}}
		})},
		"detach": {of: detachKind, round: func(uint32) []byte { return frames(&wire.Detach{Handle: 3, Error: &wire.Error{Description: long}}) }},
		"end of nothing": {of: endKind, round: func(uint32) (b []byte) {
			b = wire.AppendFrame(b, wire.FrameAMQP, 7, &wire.Begin{})
			return wire.AppendFrame(b, wire.FrameAMQP, 7, &wire.End{})
		}},
		"flow that asks for an answer": {of: flowKind, setUp: receiver, round: func(uint32) []byte {
			return frames(&wire.Flow{IncomingWindow: 5000, Handle: u(0), DeliveryCount: u(0), LinkCredit: u(0), Echo: true})
		}},
		"flow that drains nothing": {of: flowKind, setUp: receiver, round: func(n uint32) []byte {
			return frames(&wire.Flow{IncomingWindow: 5000, Handle: u(0), DeliveryCount: u(n), LinkCredit: u(1), Drain: true})
		}},
		"flow that takes credit back": {of: flowKind, setUp: receiver, found: found, round: func(n uint32) []byte {
			return frames(
				&wire.Flow{NextIncomingID: u(n), IncomingWindow: 1, Handle: u(0), DeliveryCount: u(n), LinkCredit: u(lockBatchMax)},
				&wire.Flow{NextIncomingID: u(n + 1), IncomingWindow: 0, Handle: u(0), DeliveryCount: u(n + 1), LinkCredit: u(0)},
				&wire.Disposition{Role: wire.RoleReceiver, First: n, Settled: true, State: &wire.Accepted{}},
			)
		}, free: framesPerDelivery},
		"flow that opens the window": {of: flowKind, setUp: func(p *peer, _ *conn) {
			for handle := range uint32(2000) {
				p.receiver(handle, "orders")
			}
		}, round: func(uint32) []byte { return frames(&wire.Flow{IncomingWindow: 0}, &wire.Flow{IncomingWindow: 5000}) }},
		"transfer of the largest message": {of: transferKind, setUp: func(p *peer, _ *conn) { p.sender(0, "orders") }, round: send(message, 0), free: framesPerDelivery + 1 + len(message)/transactedUnitBytes},
		"transfer of the largest batch":   {of: transferKind, setUp: func(p *peer, _ *conn) { p.sender(0, "orders") }, round: send(batch, batchFormat), free: 4000},
		"transfer of nothing": {of: transferKind, setUp: func(p *peer, _ *conn) { p.sender(0, "orders") }, round: func(n uint32) (b []byte) {
			for range 1000 {
				b = wire.AppendTransfer(b, 0, &wire.Transfer{DeliveryID: u(0), MessageFormat: u(0), More: true}, nil)
			}
			return b
		}},
		"transfer without a link": {of: transferKind, round: func(n uint32) []byte {
			return wire.AppendTransfer(frames(&wire.End{}, &wire.Begin{}), 0, &wire.Transfer{Handle: 9, DeliveryID: &n}, nil)
		}, setUp: func(p *peer, _ *conn) { p.transfer(9, 0, nil) }},
		"disposition of a range":                      {of: dispositionKind, setUp: receiver, before: fill(1), round: settle(unsettledMax, &wire.Accepted{})},
		"disposition of a range with properties":      {of: dispositionKind, setUp: receiver, before: fill(1), round: settle(unsettledMax, abandon(30<<10, nil))},
		"disposition of a range, refused for now":     {of: dispositionKind, setUp: receiver, before: fill(1), code: fsm.ServerBusy, round: settle(unsettledMax, &wire.Accepted{})},
		"disposition of a range with gaps, refused":   {of: dispositionKind, setUp: receiver, before: fill(2), code: fsm.MessageLockLost, round: settle(4*unsettledMax, &wire.Accepted{})},
		"disposition of a range, malformed":           {of: dispositionKind, setUp: receiver, before: fill(1), round: settle(unsettledMax, abandon(1, many("\x40")))},
		"disposition of a range with gaps, malformed": {of: dispositionKind, setUp: receiver, before: fill(2), round: settle(4*unsettledMax, &wire.Modified{MessageAnnotations: wire.Map{{Key: wire.Symbol(strings.Repeat("p", 40<<10)), Value: "v"}}})},
		"disposition of one":                          {of: dispositionKind, setUp: receiver, before: fill(unsettledMax / 2), round: settle(0, abandon(30<<10, strings.Repeat("y", 30<<10)))},
		"disposition of nothing": {of: dispositionKind, setUp: receiver, round: func(uint32) []byte {
			return frames(&wire.Disposition{Role: wire.RoleReceiver, First: 1 << 30, State: &wire.Accepted{}})
		}},
		"put-token":          {of: putTokenKind, setUp: cbs, round: put(nil, token+strings.Repeat("x", tokenBytesMax-1024)), free: framesPerDelivery},
		"put-token of a JWT": {of: putTokenKind, setUp: cbs, round: put(nil, "eyJ."+strings.Repeat("x", tokenBytesMax-1024)+".y"), free: framesPerDelivery},
		"put-token, refused": {of: putTokenKind, setUp: cbs, round: put(nil, strings.Repeat("x", tokenBytesMax-1024)), free: framesPerDelivery},
	}
	for name, value := range expansive {
		junk := many(value)
		all["attach with "+name] = atLimits{of: attachKind, round: attach(func(a *wire.Attach) { a.Properties = wire.Map{{Key: wire.Symbol("p"), Value: junk}} })}
		all["flow with "+name] = atLimits{of: flowKind, round: func(uint32) []byte {
			return frames(&wire.Flow{Properties: wire.Map{{Key: wire.Symbol("p"), Value: junk}}})
		}}
		all["transfer with "+name] = atLimits{of: transferKind, setUp: func(p *peer, _ *conn) { p.sender(0, "orders") }, round: func(uint32) []byte {
			return wire.AppendTransfer(nil, 0, &wire.Transfer{DeliveryID: u(0), More: true, State: junk}, nil)
		}}
		all["disposition with "+name] = atLimits{of: dispositionKind, setUp: receiver, before: fill(unsettledMax / 2), round: settle(0, abandon(1, junk))}
		all["put-token with "+name] = atLimits{of: putTokenKind, setUp: cbs, round: put(wire.Map{{Key: "junk", Value: junk[:0:0]}}, token), free: framesPerDelivery}
		all["put-token with arguments of "+name] = atLimits{of: putTokenKind, setUp: cbs, round: put(wire.Map{{Key: "junk", Value: junk}}, token), free: framesPerDelivery}
	}
	return all
}

// Every performative at its limits allocates no more than it is charged for, answers with no more than its bound or what it is
// charged for, and leaves nothing behind. A row without a maximal request fails.
//
//nolint:paralleltest // it measures what the process allocates
func TestPerformativesAtTheirLimits(t *testing.T) {
	covered := [kinds]bool{closeKind: true} // the connection ends
	for name, c := range maximalFrames(t) {
		covered[c.of] = true
		t.Run(name, func(t *testing.T) { synctest.Test(t, c.measure) })
	}
	for k, ok := range covered {
		if row := &performatives[k]; !ok || row.name == "" || row.right == "" {
			t.Errorf("performative %d (%s) has no maximal request, or no name or right: add one", k, row.name)
		}
	}
}

func (a atLimits) measure(t *testing.T) {
	s, p := piped(t, &generousBroker{newFakeBroker("orders"), a.code, a.found}, manyProcessors)
	p.login()
	c := onlyConn(t, s)
	if a.setUp != nil {
		a.setUp(p, c)
	}
	rounds := 2
	if kit.RaceDetector {
		rounds = 1 // it takes ten times as long
	}
	all := make([][]byte, rounds+1)
	for n := range all {
		all[n] = a.round(uint32(n))
	}
	var answered atomic.Int64
	_ = p.net.SetDeadline(time.Time{})
	go func() {
		var buffer [64 << 10]byte
		for {
			n, err := p.net.Read(buffer[:])
			if answered.Add(int64(n)); err != nil {
				return
			}
		}
	}()
	synctest.Wait()
	c.work = s.work.Open(work.Owner{Key: t.Name()}, workPerSecond, 0)
	start, handled, next := time.Now(), frames(&wire.Flow{IncomingWindow: 5000}), 0
	if a.of == flowKind || a.found != nil {
		handled = frames(&wire.Detach{Handle: 8888}) // which has no effect
	}
	perform := func() {
		if a.before != nil {
			a.before(c)
		}
		for _, b := range [][]byte{all[next], handled} { // the second is read when the first is done and paid
			if _, err := p.net.Write(b); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		next++
	}
	charged := func() float64 {
		c.work.Wait(context.Background(), nil, 0)
		return time.Since(start).Seconds()*workPerSecond + float64(c.costs.frameUnits+c.costs.due) + float64(c.costs.bytes)/responseUnitBytes
	}
	before := charged()
	each, retained := kit.Allocation(rounds, perform)
	units := max(1, int((charged()-before)/float64(rounds+1))+a.free)
	sent, got := len(all[1]), int(answered.Load())/(rounds+1)
	t.Logf("%6d units, %9d bytes allocated, %7d a unit, %9d bytes sent, %9d bytes answered", units, each, each/units, sent, got)
	most := units * kit.UnitBytesMax
	if kit.RaceDetector {
		most *= 2 // pools drop buffers at random
	}
	if each > most {
		t.Errorf("%d bytes are allocated for %d units: %d for each", each, units, each/units)
	}
	if retained > kit.RetainedBytesMax {
		t.Errorf("%d bytes are left behind", retained)
	}
	if most := performatives[a.of].answerBytes + sent + units*responseUnitBytes; got > most {
		t.Errorf("%d bytes are answered, want at most %d", got, most)
	}
	if c.phase != phaseOpen {
		t.Errorf("the connection is in phase %d", c.phase)
	}
}

// Links hold no more than is counted for them, however long what their clients name is, while they are attached and while they
// wait for a session.
//
//nolint:paralleltest // it measures what the process holds
func TestLinksHoldWhatIsCounted(t *testing.T) {
	for name, change := range map[string]func(*wire.Attach){
		"long addresses": func(a *wire.Attach) {
			a.Source.Address, a.Target.Address = "orders/$management", strings.Repeat("x", 56<<10)
		},
		"waits for a session, with capabilities": func(a *wire.Attach) {
			a.Source.Capabilities, a.Source.Outcomes = make([]wire.Symbol, 30_000), make([]wire.Symbol, 30_000)
			a.Source.Filter = wire.Map{{Key: wire.Symbol("com.microsoft:session-filter"), Value: nil}}
		},
		"waits for a session, with long words": func(a *wire.Attach) {
			word := wire.Symbol(strings.Repeat("x", 20<<10))
			a.Source.ExpiryPolicy, a.Source.DistributionMode, a.Target.ExpiryPolicy = &word, &word, &word
			a.Source.Filter = wire.Map{{Key: wire.Symbol("com.microsoft:session-filter"), Value: nil}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, p := piped(t, newFakeBrokerOf(fsm.EntitySettings{LockDuration: 30_000, MaxDeliveryCount: 10, MaxMessageBytes: 256 << 10, RequiresSession: true}, "orders"), manyProcessors)
				p.login()
				c := onlyConn(t, s)
				go func() {
					for buffer := make([]byte, 64<<10); ; {
						if _, err := p.net.Read(buffer); err != nil {
							return
						}
					}
				}()
				const links = 50
				attach := func(handle uint32) {
					a := &wire.Attach{Name: fmt.Sprint(handle), Handle: handle, Role: wire.RoleReceiver, Source: &wire.Source{Address: "orders"}, Target: &wire.Target{Address: "here"}}
					change(a)
					p.send(a)
				}
				attach(0)
				held := func() (live, counted int64) {
					p.send(&wire.Flow{IncomingWindow: 5000}) // the frame before it is handled
					synctest.Wait()
					c.mu.Lock()
					counted = c.heldBytes()
					links := c.links.open
					c.mu.Unlock()
					if links == 0 {
						t.Fatal("the link was refused")
					}
					return kit.LiveBytes(), counted
				}
				live, counted := held()
				for handle := range uint32(links) {
					attach(1 + handle)
				}
				more, moreCounted := held()
				if held, most := (more-live)/links, (moreCounted-counted)/links+4<<10; held > most {
					t.Errorf("a link holds %d bytes, counted with %d", held, most)
				}
			})
		})
	}
}

// accounted returns a connection with an account, and what a send of 1 KiB does in it: when it comes, and when it is stored.
func accounted(tb testing.TB) (c *conn, send func()) {
	tb.Helper()
	config := DefaultConfig()
	ours, theirs := net.Pipe()
	tb.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
	c = newConn(&config, theirs)
	c.memory.account = budget.New(1 << 30).Open(func(budget.Level) {})
	c.account = account.New(account.For(1 << 30)).Open(account.Owner{Namespace: 1, Key: "key"})
	return c, func() {
		for _, bytes := range []int{1024, -1024} {
			c.mu.Lock()
			c.inFlightBytes += bytes
			c.unlock()
		}
	}
}

// A send costs no allocation in the accounts of its connection and its owner.
//
//nolint:paralleltest // it counts allocations
func TestAccountOfASendNeedsNoMemory(t *testing.T) {
	c, send := accounted(t)
	if n := testing.AllocsPerRun(1000, send); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
	if c.account.Held(account.AnswerBytes) != 0 || c.heldBytes() != 0 {
		t.Errorf("%d and %d bytes are held", c.account.Held(account.AnswerBytes), c.heldBytes())
	}
}

// BenchmarkAccountOfSend is what a send costs in the accounts, with the mutex of its connection, which it takes anyhow.
func BenchmarkAccountOfSend(b *testing.B) {
	_, send := accounted(b)
	b.ReportAllocs()
	for b.Loop() {
		send()
	}
}
