package amqp

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/amqp/login"
	"github.com/peeklock/peeklock/amqp/management"
	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// onlyConn is the one connection of a Server.
func onlyConn(t *testing.T, s *Server) *conn {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		return c
	}
	t.Fatal("no connection")
	return nil
}

// For a receiver that does not read its socket, the gateway holds at most one batch above outBytesHigh. The
// receiver gets everything when it reads again.
func TestSlowReaderStopsTheLink(t *testing.T) {
	t.Parallel()
	stored, err := message.Parse(encodedMessage(t, make([]byte, 8<<10)))
	if err != nil {
		t.Fatal(err)
	}
	s, p := piped(t, &noopBroker{payload: stored.Payload})
	p.login()
	p.receiver(0, "orders")
	const credit = 4 * outBytesHigh / (8 << 10)
	p.credit(0, 0, credit)
	p.send(nil) // the previous frame was handled
	c := onlyConn(t, s)
	c.mu.Lock()
	waiting, stalled := len(c.out), len(c.waitingForOutput)
	c.mu.Unlock()
	if waiting > outBytesHigh+lockBytesMax || stalled != 1 {
		t.Errorf("%d bytes wait, %d links stalled", waiting, stalled)
	}
	p.deliveries(credit)
}

// The gateway stops reading from a peer that causes output and does not read it.
func TestOutBytesMax(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, p := piped(t, newFakeBroker("orders"))
		p.login()
		echo := wire.AppendFrame(nil, wire.FrameAMQP, 0, &wire.Flow{Echo: true})
		var many []byte
		for range 1000 {
			many = append(many, echo...)
		}
		for stopped := false; !stopped; {
			_ = p.net.SetWriteDeadline(time.Now().Add(time.Second)) // clock of the bubble: the deadline passes when all goroutines wait
			_, err := p.net.Write(many)
			stopped = err != nil
		}
		c := onlyConn(t, s)
		c.mu.Lock()
		n := len(c.out)
		c.mu.Unlock()
		if n < outBytesMax || n > outBytesMax+1024 {
			t.Errorf("%d bytes wait", n)
		}
	})
}

func TestPeerThatDoesNotReadIsDisconnected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := loggedIn(t, newFakeBroker("orders"))
		before := time.Now()
		p.send(&wire.Flow{Echo: true}) // the peer does not read the answer
		<-p.ended
		if d := time.Since(before); d < writeWithin || d > writeWithin+closeWithin+time.Second {
			t.Errorf("ended after %v", d)
		}
	})
}

func TestUnansweredCloseEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := loggedIn(t, newFakeBroker("orders"))
		p.send(&wire.Open{})
		expect[*wire.Close](p) // the peer does not answer it
		before := time.Now()
		<-p.ended
		if d := time.Since(before); d > closeWithin {
			t.Errorf("ended after %v", d)
		}
	})
}

// unansweringBroker is a broker whose management operations do not answer on their own.
type unansweringBroker struct{ *fakeBroker }

func (unansweringBroker) neverAnswers() {}

func (unansweringBroker) Renew(fsm.EntityRef, []fsm.LockID, func([]fsm.Code, []fsm.Instant)) {}

func (unansweringBroker) Peek(ctx context.Context, _ fsm.EntityRef, _ fsm.SequenceNumber, _, _ int) ([]fsm.Delivery, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func ask(p *peer, id uint32, operation string, body wire.Map) {
	p.Helper()
	askOn(p, 0, id, operation, body)
}

func askOn(p *peer, handle, id uint32, operation string, body wire.Map) {
	p.Helper()
	p.transfer(handle, id, requestMessage(wire.Properties{MessageID: uint64(id)}, wire.Map{{Key: "operation", Value: operation}}, body), settled)
}

// renewal is the body of a request to renew the lock of a message of "orders". The message need not exist.
func (h *fakeBroker) renewal(t *testing.T) wire.Map {
	t.Helper()
	at, err := h.Resolve(t.Context(), fsm.DefaultNamespace, "orders")
	if err != nil {
		t.Fatal(err)
	}
	token := message.UUIDFromToken(h.LockToken(at, fsm.LockID{Sequence: 1, Epoch: 1}))
	return wire.Map{{Key: "lock-tokens", Value: wire.Array{Values: []wire.UUID{token}}}}
}

func TestRequestsInProgressAreBounded(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	p := loggedIn(t, unansweringBroker{h})
	p.sender(0, "orders/$management")
	p.receiver(1, "orders/$management")
	p.sender(2, "orders/$management")
	p.credit(1, 0, 1000)
	renew := h.renewal(t)
	for i := range uint32(requestsMax + 1) {
		askOn(p, i/requestCreditMax*2, i, "com.microsoft:renew-lock", renew)
	}
	r := p.response()
	if r.properties.Get("statusCode") != int32(503) || r.properties.Get("errorCondition") != wire.ConditionServerBusy {
		t.Errorf("response %+v", r)
	}
}

// slowRenewBroker is a broker that renews only when a test allows it.
type slowRenewBroker struct {
	*fakeBroker
	renewals chan func([]fsm.Code, []fsm.Instant)
}

func (slowRenewBroker) neverAnswers() {}

func (s slowRenewBroker) Renew(_ fsm.EntityRef, _ []fsm.LockID, done func([]fsm.Code, []fsm.Instant)) {
	s.renewals <- done
}

// The credit of a link to a node covers requests that are not in progress yet. It is returned with the
// responses, so that one link never has so many requests in progress that some are refused.
func TestRequestCreditMax(t *testing.T) {
	t.Parallel()
	h := slowRenewBroker{newFakeBroker("orders"), make(chan func([]fsm.Code, []fsm.Instant), requestCreditMax)}
	p := loggedIn(t, h)
	if f := p.sender(0, "orders/$management"); *f.LinkCredit != requestCreditMax {
		t.Fatalf("credit %d at first", *f.LinkCredit)
	}
	p.receiver(1, "orders/$management")
	p.credit(1, 0, 1000)
	renew := h.renewal(t)
	for i := range uint32(requestCreditMax) {
		ask(p, i, "com.microsoft:renew-lock", renew)
	}
	const answered = requestCreditMax/2 + 1
	for range answered {
		(<-h.renewals)([]fsm.Code{fsm.OK}, []fsm.Instant{0})
		if r := p.response(); r.properties.Get("statusCode") != int32(200) {
			t.Fatalf("response %+v", r)
		}
	}
	if f := expect[*wire.Flow](p); *f.Handle != 0 || *f.LinkCredit != answered {
		t.Errorf("credit %d on link %d after %d responses, want %d", *f.LinkCredit, *f.Handle, answered, answered)
	}
}

// peekCounter counts the peeks in progress, which it never answers.
type peekCounter struct {
	*fakeBroker
	peeks atomic.Int32
}

func (b *peekCounter) Peek(ctx context.Context, _ fsm.EntityRef, _ fsm.SequenceNumber, _, _ int) ([]fsm.Delivery, error) {
	b.peeks.Add(1)
	defer b.peeks.Add(-1)
	<-ctx.Done()
	return nil, ctx.Err()
}

// Peeks count their answers in advance: a connection has only a few large peeks in progress at a time.
func TestPeeksInProgressAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const requests, most = 30, inFlightBytesDefault/(2*management.PeekBytesMax) + 1
		b := &peekCounter{fakeBroker: newFakeBroker("orders")}
		p := loggedIn(t, b)
		p.sender(0, "orders/$management")
		p.receiver(1, "orders/$management")
		p.credit(1, 0, 1000)
		go func() {
			for i := range uint32(requests) {
				ask(p, i, management.PeekOperation, wire.Map{{Key: "from-sequence-number", Value: int64(0)}, {Key: "message-count", Value: int32(management.PeekMessagesMax)}})
			}
		}()
		for answered := range requests {
			synctest.Wait()
			if n, left := b.peeks.Load(), requests-answered; n > most || int(n) > left {
				t.Fatalf("%d peeks in progress after %d answers, at most %d are allowed", n, answered, most)
			}
			if r := p.response(); r.properties.Get("statusCode") != int32(503) {
				t.Fatalf("%+v", r)
			}
		}
	})
}

func TestPeekWithoutAnswerEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := loggedIn(t, unansweringBroker{newFakeBroker("orders")})
		p.sender(0, "orders/$management")
		p.receiver(1, "orders/$management")
		p.credit(1, 0, 1000)
		before := time.Now()
		ask(p, 0, "com.microsoft:peek-message", wire.Map{{Key: "from-sequence-number", Value: int64(0)}, {Key: "message-count", Value: int32(1)}})
		if r := p.response(); r.properties.Get("statusCode") != int32(503) || time.Since(before) != management.PeekWithin {
			t.Errorf("after %v: %+v", time.Since(before), r)
		}
	})
}

// slowKeys is an Authorizer that blocks until its context ends.
type slowKeys struct{ fakeAuthorizer }

func (slowKeys) Token(ctx context.Context, _ Client, _, _, _ string) (Grant, error) {
	<-ctx.Done()
	return Grant{}, ctx.Err()
}

func TestPutTokenWithin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := loggedIn(t, newFakeBroker("orders"), func(c *Config) { c.Authorizer = slowKeys{fakeAuthorizer{Grant{Rights: fsm.Manage}}} })
		before := time.Now()
		p.putToken("sb://h/orders", 503) // the token was not verified
		if d := time.Since(before); d != login.PutTokenWithin {
			t.Errorf("after %v", d)
		}
	})
}

// An answer to receive-by-sequence-number stops at a size limit; the remaining messages stay deferred.
func TestFetchBytesMax(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	at, err := h.Resolve(t.Context(), fsm.DefaultNamespace, "orders")
	if err != nil {
		t.Fatal(err)
	}
	m, err := message.Parse(encodedMessage(t, make([]byte, 100<<10)))
	if err != nil {
		t.Fatal(err)
	}
	const all = 4 * management.FetchAtOnceMax
	numbers := make([]int64, all)
	for i := range numbers {
		numbers[i] = int64(i + 1)
		h.do(sendOne(at, m))
		r := h.do(fsm.LockMessages{Address: at.Address(), Max: 1, MaxBytes: 1 << 20})
		h.do(fsm.SettleMessages{Address: at.Address(), Settlements: []fsm.Settlement{{Lock: r.Deliveries[0].Lock, Verb: fsm.Defer}}})
	}
	p := loggedIn(t, h)
	p.sender(0, "orders/$management")
	p.receiver(1, "orders/$management")
	p.credit(1, 0, 1000)
	ask(p, 0, "com.microsoft:receive-by-sequence-number", wire.Map{
		{Key: "sequence-numbers", Value: wire.Array{Values: numbers}}, {Key: "receiver-settle-mode", Value: uint32(1)},
	})
	var joined []byte
	for frames, last := 1, false; !last; frames++ {
		tr := expect[*wire.Transfer](p)
		joined = append(joined, tr.Payload...)
		last = !tr.More
		if frames%1000 == 0 {
			p.send(&wire.Flow{NextIncomingID: ptr(uint32(frames)), IncomingWindow: 5000})
		}
	}
	r, err := parseRequest(nil, joined)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := r.Body.(wire.Map)
	messages, _ := body.Get("messages").([]any)
	atOnce := management.FetchedAtOnce(&at)
	want := (management.FetchBytesMax/(100<<10) + atOnce) / atOnce * atOnce
	if len(messages) != want || len(joined) > management.FetchBytesMax+atOnce*(101<<10) {
		t.Errorf("%d messages in %d bytes", len(messages), len(joined))
	}
	if c := h.counts("orders"); c.Deferred != uint64(all-want) {
		t.Errorf("counts %+v", c)
	}
}

// What is fetched at a time fits into the bytes of an answer, however large the messages of the entity may be.
func TestFetchedAtOnceFitsIntoAnAnswer(t *testing.T) {
	t.Parallel()
	for largest, want := range map[uint32]int{1 << 10: management.FetchAtOnceMax, 128 << 10: 64, 256 << 10: 32, 1 << 20: 8, 16 << 20: 1, 100 << 20: 1, 0: management.FetchAtOnceMax} {
		var at fsm.EntityRef
		at.Settings.MaxMessageBytes = largest
		if got := management.FetchedAtOnce(&at); got != want {
			t.Errorf("messages of %d bytes: %d at once, want %d", largest, got, want)
		}
	}
}

// A request under locks for a deferred message that is not there fails as a whole, as in the service: what it found stays
// locked until its lock ends. What was deleted is always returned.
func TestMissingDeferredMessageFailsTheRequest(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	at, err := h.Resolve(t.Context(), fsm.DefaultNamespace, "orders")
	if err != nil {
		t.Fatal(err)
	}
	m, err := message.Parse(encodedMessage(t, []byte("x")))
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		h.do(sendOne(at, m))
		r := h.do(fsm.LockMessages{Address: at.Address(), Max: 1, MaxBytes: 1 << 20})
		h.do(fsm.SettleMessages{Address: at.Address(), Settlements: []fsm.Settlement{{Lock: r.Deliveries[0].Lock, Verb: fsm.Defer}}})
	}
	p := loggedIn(t, h)
	p.sender(0, "orders/$management")
	p.receiver(1, "orders/$management")
	p.credit(1, 0, 100)
	for i, c := range []struct {
		numbers []int64
		mode    uint32
		status  int32
		found   int
	}{
		{[]int64{3, 9}, 1, 404, 0},
		{[]int64{1, 2, 3}, 1, 404, 0}, // 3 is locked
		{[]int64{4, 9}, 0, 200, 1},
		{[]int64{5, 5}, 1, 200, 1},
	} {
		ask(p, uint32(i), "com.microsoft:receive-by-sequence-number", wire.Map{
			{Key: "sequence-numbers", Value: wire.Array{Values: c.numbers}}, {Key: "receiver-settle-mode", Value: c.mode},
		})
		r := p.response()
		body, _ := r.body.(wire.Map)
		messages, _ := body.Get("messages").([]any)
		if got := r.properties.Get("statusCode"); got != c.status || len(messages) != c.found {
			t.Errorf("%v: status %v with %d messages, want %d with %d", c.numbers, got, len(messages), c.status, c.found)
		}
	}
}

// A key with only Send may attach to the management node, as the Go client does for every sender, but may not
// perform operations there that need Listen.
func TestSendRightAttachesToManagementOnly(t *testing.T) {
	t.Parallel()
	p := loggedIn(t, newFakeBroker("orders"), func(c *Config) { c.Authorizer = fakeAuthorizer{Grant{Rights: fsm.Send}} })
	p.sender(0, "orders/$management")
	p.receiver(1, "orders/$management")
	p.credit(1, 0, 10)
	ask(p, 0, "com.microsoft:peek-message", nil)
	if r := p.response(); r.properties.Get("statusCode") != int32(401) {
		t.Errorf("response %+v", r)
	}
	p.sender(2, "orders")
	p.send(&wire.Attach{Handle: 3, Role: wire.RoleReceiver, Source: &wire.Source{Address: "orders"}, Target: &wire.Target{}})
	expect[*wire.Attach](p)
	if d := expect[*wire.Detach](p); d.Error.Condition != wire.ConditionUnauthorizedAccess {
		t.Errorf("detach %+v", d.Error)
	}
}

// A drain is answered although received-and-deleted messages wait for credit.
func TestDrainWithReceivedAndDeletedMessagesQueued(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	p := loggedIn(t, h)
	p.receiver(0, "orders", func(a *wire.Attach) { a.SndSettleMode = ptr(uint8(settledMode)) })
	p.credit(0, 0, 10)
	p.quiet()
	p.credit(0, 0, 0)
	p.quiet() // the credit is gone
	h.messages(t, "orders", 2)
	p.quiet()
	p.credit(0, 0, 0, func(f *wire.Flow) { f.Drain = true })
	if f := expect[*wire.Flow](p); !f.Drain || *f.LinkCredit != 0 {
		t.Errorf("flow %+v", f)
	}
	p.credit(0, 0, 2)
	p.deliveries(2)
}
