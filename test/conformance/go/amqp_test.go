package conformance

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/test/harness"
)

// batchFormat is the message format of a transfer that carries a batch.
const batchFormat = 0x80013700

func amqpChecks() []check {
	return []check{
		{name: "pre-settled", run: preSettled},
		{name: "pipelined", settings: harness.Settings{LockDuration: lockLong}, run: pipelined},
		{name: "raw batch", run: rawBatch},
		{name: "outcomes", run: eachOutcome},
		{name: "unsettled end", run: unsettledEnd},
		{name: "delivery", run: delivery},
		{name: "sasl", run: sasl},
	}
}

// session opens an AMQP session over its own connection to a member.
func (s suite) session(member int) *amqp.Session {
	s.Helper()
	conn := s.dial(member, &amqp.ConnOptions{SASLType: amqp.SASLTypePlain(harness.KeyName, harness.Key)})
	session, err := conn.NewSession(s.ctx, nil)
	s.must("new session", err)
	return session
}

// dial opens a connection to a member.
func (s suite) dial(member int, o *amqp.ConnOptions) *amqp.Conn {
	s.Helper()
	conn, err := amqp.Dial(s.ctx, "amqp://"+s.Members[member-1].AMQP, o)
	s.must("dial", err)
	s.Cleanup(func() { _ = conn.Close() })
	return conn
}

// amqpSender opens a sending link to the queue of the case.
func (s suite) amqpSender(member int, o *amqp.SenderOptions) *amqp.Sender {
	s.Helper()
	sender, err := s.session(member).NewSender(s.ctx, s.queue, o)
	s.must("new sender", err)
	return sender
}

// amqpReceiver opens a receiving link whose settlements wait for an answer.
func (s suite) amqpReceiver(member int, o *amqp.ReceiverOptions) *amqp.Receiver {
	s.Helper()
	if o == nil {
		o = &amqp.ReceiverOptions{}
	}
	if o.SettlementMode == nil {
		o.SettlementMode = amqp.ReceiverSettleModeSecond.Ptr()
	}
	r, err := s.session(member).NewReceiver(s.ctx, s.queue, o)
	s.must("new receiver", err)
	return r
}

// get receives one message.
func (s suite) get(r *amqp.Receiver) *amqp.Message {
	s.Helper()
	m, err := r.Receive(s.ctx, nil)
	s.must("receive", err)
	return m
}

// none asserts that a link gets no message for noMessageWait.
func (s suite) none(r *amqp.Receiver) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, noMessageWait)
	defer cancel()
	if m, err := r.Receive(ctx, nil); err == nil {
		s.Fatalf("message %q came, none may", m.GetData())
	} else if !errors.Is(err, context.DeadlineExceeded) {
		s.Fatalf("receive: %v", err)
	}
}

// text returns a message with a text body.
func text(format string, a ...any) *amqp.Message {
	return amqp.NewMessage(fmt.Appendf(nil, format, a...))
}

// wantCondition asserts the AMQP condition of an error.
func wantCondition(s suite, what string, err error, want amqp.ErrCond) {
	s.Helper()
	var remote *amqp.Error
	if !errors.As(err, &remote) || remote.Condition != want {
		s.Errorf("%s: %v, want condition %s", what, err, want)
	}
}

// Pre-settled transfers are stored like others, but not answered (docs/requirements.md#t3).
func preSettled(s suite) {
	const n = 50
	sender := s.amqpSender(1, &amqp.SenderOptions{SettlementMode: amqp.SenderSettleModeSettled.Ptr()})
	mixed := s.amqpSender(2, nil)
	for i := range n {
		s.must("send", sender.Send(s.ctx, text("settled %d", i), nil))
	}
	s.must("send settled on a mixed link", mixed.Send(s.ctx, text("mixed"), &amqp.SendOptions{Settled: true}))
	s.must("send unsettled on a mixed link", mixed.Send(s.ctx, text("mixed"), nil))
	s.counts(harness.Counts{Active: n + 2})
}

// A hundred concurrent sends on one link are confirmed as they are stored (docs/requirements.md#t2), and the
// queue has the messages in the order sent.
func pipelined(s suite) {
	const n, window = 1000, 100
	sender := s.amqpSender(2, nil)
	var receipts []amqp.SendReceipt
	confirm := func(r amqp.SendReceipt) {
		state, err := r.Wait(s.ctx)
		if _, ok := state.(*amqp.StateAccepted); err != nil || !ok {
			s.Errorf("send ended with %v, %v", state, err)
		}
	}
	for i := range n {
		receipt, err := sender.SendWithReceipt(s.ctx, text("%d", i), nil)
		s.must("send", err)
		if receipts = append(receipts, receipt); len(receipts) == window {
			confirm(receipts[0])
			receipts = receipts[1:]
		}
	}
	for _, r := range receipts {
		confirm(r)
	}
	r := s.amqpReceiver(3, &amqp.ReceiverOptions{Credit: 64})
	for i := range n {
		m := s.get(r)
		if got := string(m.GetData()); got != fmt.Sprint(i) {
			s.Fatalf("message %d is %q", i, got)
		}
		s.must("accept", r.AcceptMessage(s.ctx, m))
	}
	s.counts(harness.Counts{})
}

// rawBatch builds batches by hand: each data section is one whole message. The member refuses an empty or
// malformed batch and stores nothing.
func rawBatch(s suite) {
	one := func(body string) []byte {
		m := amqp.NewMessage([]byte(body))
		m.Properties = &amqp.MessageProperties{MessageID: "id of " + body}
		b, err := m.MarshalBinary()
		s.must("encode", err)
		return b
	}
	sender := s.amqpSender(1, nil)
	s.must("send", sender.Send(s.ctx, &amqp.Message{Format: batchFormat, Data: [][]byte{one("a"), one("b"), one("c")}}, nil))
	err := sender.Send(s.ctx, &amqp.Message{Format: batchFormat, Data: [][]byte{one("d"), []byte("no message")}}, nil)
	var remote *amqp.Error
	if !errors.As(err, &remote) {
		s.Errorf("a batch with a broken message ended with %v", err)
	}
	r := s.amqpReceiver(2, &amqp.ReceiverOptions{Credit: 5})
	for _, want := range []string{"a", "b", "c"} {
		m := s.get(r)
		if string(m.GetData()) != want || m.Format != 0 || m.Properties.MessageID != "id of "+want {
			s.Errorf("%q of format %x, id %v", m.GetData(), m.Format, m.Properties.MessageID)
		}
	}
	s.none(r)
}

// A released message does not count an attempt, a modified one does, whatever its delivery-failed
// field; undeliverable-here defers the message; rejected dead-letters it.
func eachOutcome(s suite) {
	sender := s.amqpSender(1, nil)
	s.must("send", sender.Send(s.ctx, text("x"), nil))
	r := s.amqpReceiver(2, nil)
	attempts := func(want uint32) *amqp.Message {
		m := s.get(r)
		if m.Header == nil || m.Header.DeliveryCount != want {
			s.Errorf("header %+v, want delivery-count %d", m.Header, want)
		}
		return m
	}
	s.must("release", r.ReleaseMessage(s.ctx, attempts(0)))
	s.must("modify, not failed", r.ModifyMessage(s.ctx, attempts(0), &amqp.ModifyMessageOptions{}))
	s.must("modify, failed", r.ModifyMessage(s.ctx, attempts(1), &amqp.ModifyMessageOptions{DeliveryFailed: true}))
	s.must("reject", r.RejectMessage(s.ctx, attempts(2), nil))
	s.counts(harness.Counts{DeadLetter: 1})
	s.must("send", sender.Send(s.ctx, text("y"), nil))
	s.must("set aside", r.ModifyMessage(s.ctx, s.get(r), &amqp.ModifyMessageOptions{UndeliverableHere: true}))
	s.counts(harness.Counts{Deferred: 1, DeadLetter: 1})
}

// The end of a link with an unsettled delivery leaves the lock unchanged (docs/requirements.md#t14).
func unsettledEnd(s suite) {
	s.must("send", s.amqpSender(1, nil).Send(s.ctx, text("x"), nil))
	r := s.amqpReceiver(2, nil)
	s.get(r)
	s.must("close", r.Close(s.ctx))
	s.counts(harness.Counts{Active: 1, Locked: 1})
	s.none(s.amqpReceiver(3, nil))
}

// The transfer of a peek-lock delivery has the fields that clients read by position or by type.
func delivery(s suite) {
	sent := text("x")
	sent.Header = &amqp.MessageHeader{FirstAcquirer: true}
	sent.DeliveryAnnotations = amqp.Annotations{"x-own": "of the sender", "x-opt-lock-token": "of another delivery"}
	s.must("send", s.amqpSender(1, nil).Send(s.ctx, sent, nil))
	m := s.get(s.amqpReceiver(2, nil))
	if len(m.DeliveryTag) != 16 {
		s.Errorf("delivery tag of %d bytes, the lock token has 16", len(m.DeliveryTag))
	}
	if m.Header == nil || m.Properties == nil || !m.Header.FirstAcquirer {
		s.Errorf("header %v and properties %v: both must be there, and this is the first delivery", m.Header, m.Properties)
	}
	if _, ok := m.DeliveryAnnotations["x-opt-lock-token"].(amqp.UUID); !ok || m.DeliveryAnnotations["x-own"] != "of the sender" {
		s.Errorf("delivery annotations are %v, want the lock token as a uuid and that of the sender", m.DeliveryAnnotations)
	}
	if len(m.Annotations) != 3 {
		s.Errorf("annotations are %v, want the three that always say something", m.Annotations)
	}
	for key, want := range map[string]string{
		"x-opt-sequence-number": "int64", "x-opt-enqueued-time": "time.Time", "x-opt-locked-until": "time.Time",
	} {
		if got := fmt.Sprintf("%T", m.Annotations[key]); got != want {
			s.Errorf("annotation %s is a %s, want %s", key, got, want)
		}
	}
}

// PLAIN with the right key opens a connection, with a wrong key it does not, and an unauthenticated
// client may not attach any link.
func sasl(s suite) {
	address := "amqp://" + s.Members[2].AMQP
	for name, o := range map[string]amqp.SASLType{
		"wrong key":  amqp.SASLTypePlain(harness.KeyName, "wrong"),
		"wrong name": amqp.SASLTypePlain("Nobody", harness.Key),
		"no key":     amqp.SASLTypePlain(harness.KeyName, ""),
	} {
		if conn, err := amqp.Dial(s.ctx, address, &amqp.ConnOptions{SASLType: o}); err == nil {
			_ = conn.Close()
			s.Errorf("%s: let in", name)
		}
	}
	for name, o := range map[string]*amqp.ConnOptions{
		"anonymous": {SASLType: amqp.SASLTypeAnonymous()},
		"no sasl":   {},
	} {
		session, err := s.dial(3, o).NewSession(s.ctx, nil)
		s.must("session", err)
		_, err = session.NewSender(s.ctx, s.queue, nil)
		wantCondition(s, name+", sender", err, amqp.ErrCondUnauthorizedAccess)
		_, err = session.NewReceiver(s.ctx, s.queue, nil)
		wantCondition(s, name+", receiver", err, amqp.ErrCondUnauthorizedAccess)
	}
}

func linkChecks() []check {
	return []check{
		{name: "drain", run: drain},
		{name: "credit", run: credit},
		{name: "two links share", run: twoLinksShare},
		{name: "link names", run: linkNames},
		{name: "many links", run: manyLinks},
		{name: "spelling/with slash", run: spellings},
		{name: "attach refused", run: attachRefused},
		{name: "unknown properties", run: unknownProperties},
		{name: "frames", run: frames},
	}
}

// drain: the member sends the available messages and takes back the rest of the credit; the link
// stays usable.
func drain(s suite) {
	sender := s.amqpSender(1, nil)
	r := s.amqpReceiver(2, &amqp.ReceiverOptions{Credit: -1})
	s.must("issue credit", r.IssueCredit(5))
	s.must("drain of an empty queue", r.DrainCredit(s.ctx, nil))
	for i := range 3 {
		s.must("send", sender.Send(s.ctx, text("%d", i), nil))
	}
	s.none(r) // no credit is left
	s.must("issue credit", r.IssueCredit(10))
	for i := range 3 {
		m := s.get(r)
		if string(m.GetData()) != fmt.Sprint(i) {
			s.Errorf("message %d is %q", i, m.GetData())
		}
		s.must("accept", r.AcceptMessage(s.ctx, m))
	}
	s.must("drain", r.DrainCredit(s.ctx, nil))
	s.must("send", sender.Send(s.ctx, text("late"), nil))
	s.none(r)
	s.must("issue credit", r.IssueCredit(1))
	if m := s.get(r); string(m.GetData()) != "late" {
		s.Errorf("after the drain came %q", m.GetData())
	}
}

// The member delivers no more messages than the link has credit for.
func credit(s suite) {
	sender := s.amqpSender(1, nil)
	for i := range 10 {
		s.must("send", sender.Send(s.ctx, text("%d", i), nil))
	}
	r := s.amqpReceiver(2, &amqp.ReceiverOptions{Credit: -1})
	s.none(r)
	s.must("issue credit", r.IssueCredit(3))
	for range 3 {
		s.get(r)
	}
	s.none(r)
	s.counts(harness.Counts{Active: 10, Locked: 3})
	s.must("issue more", r.IssueCredit(20))
	for range 7 {
		s.get(r)
	}
	s.none(r)
	s.counts(harness.Counts{Active: 10, Locked: 10})
}

// A link with much credit does not starve a link with little: both get some of the messages
// sent (docs/requirements.md#c1).
func twoLinksShare(s suite) {
	greedy := s.amqpReceiver(2, &amqp.ReceiverOptions{Credit: 1000})
	modest := s.amqpReceiver(3, &amqp.ReceiverOptions{Credit: 1})
	s.none(greedy) // now both wait
	s.none(modest)
	sender := s.amqpSender(1, nil)
	stop, got := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				if err := sender.Send(s.ctx, text("%d", i), nil); err != nil {
					s.Errorf("send: %v", err)
					return
				}
			}
		}
	})
	go func() {
		defer close(got)
		for range 5 {
			m, err := modest.Receive(s.ctx, nil)
			if err == nil {
				err = modest.AcceptMessage(s.ctx, m)
			}
			if err != nil {
				s.Errorf("the modest link: %v", err)
				return
			}
		}
	}()
	<-got
	close(stop)
	wg.Wait()
}

// A link name can be used again when its link has ended, and on every other connection at any time.
func linkNames(s suite) {
	session := s.session(1)
	o := &amqp.SenderOptions{Name: "the name"}
	// Close of go-amqp may return before its session has released the name.
	attach := func() (sender *amqp.Sender) {
		s.Helper()
		harness.Eventually(s.T, lateMax, "attach", func(context.Context) (err error) {
			sender, err = session.NewSender(s.ctx, s.queue, o)
			if err != nil && !strings.HasPrefix(err.Error(), "link with name") {
				s.Fatalf("attach: %v", err)
			}
			return err
		})
		return sender
	}
	for i := range 3 {
		sender := attach()
		elsewhere := s.amqpSender(1, o)
		if sender.LinkName() != "the name" || elsewhere.LinkName() != "the name" {
			s.Errorf("links are named %q and %q", sender.LinkName(), elsewhere.LinkName())
		}
		s.must("send", sender.Send(s.ctx, text("%d", i), nil))
		s.must("send elsewhere", elsewhere.Send(s.ctx, text("%d", i), nil))
		s.must("close", sender.Close(s.ctx))
	}
	// A sender and a receiver may have the same name at the same time.
	sender := attach()
	r, err := session.NewReceiver(s.ctx, s.queue, &amqp.ReceiverOptions{Name: "the name"})
	s.must("attach", err)
	s.must("send", sender.Send(s.ctx, text("x"), nil))
	s.get(r)
}

// One session carries many links at the same time.
func manyLinks(s suite) {
	const links = 60
	session := s.session(2)
	for i := range links {
		sender, err := session.NewSender(s.ctx, s.queue, nil)
		s.must("attach", err)
		s.must("send", sender.Send(s.ctx, text("%d", i), nil))
	}
	for range links {
		r, err := session.NewReceiver(s.ctx, s.queue, &amqp.ReceiverOptions{SettlementMode: amqp.ReceiverSettleModeSecond.Ptr()})
		s.must("attach", err)
		s.must("accept", r.AcceptMessage(s.ctx, s.get(r)))
		s.must("close", r.Close(s.ctx))
	}
}

// An address has four spellings and ignores case.
func spellings(s suite) {
	host := s.Members[0].AMQP
	r := s.amqpReceiver(3, &amqp.ReceiverOptions{Credit: 10})
	for _, address := range []string{
		s.queue, "/" + s.queue, "amqps://" + host + "/" + s.queue, "sb://" + host + "/" + s.queue,
		url.PathEscape(s.queue), "/" + url.PathEscape(s.queue), strings.ToUpper(s.queue),
	} {
		sender, err := s.session(1).NewSender(s.ctx, address, nil)
		s.must("attach to "+address, err)
		if sender.Address() != address {
			s.Errorf("the address %q came back as %q", address, sender.Address())
		}
		s.must("send to "+address, sender.Send(s.ctx, text("%s", address), nil))
		if m := s.get(r); string(m.GetData()) != address {
			s.Errorf("received %q", m.GetData())
		}
	}
	dlq, err := s.session(2).NewReceiver(s.ctx, "/"+url.PathEscape(s.queue)+"/$deadletterqueue", nil)
	s.must("attach to the dead-letter queue", err)
	s.none(dlq)
}

// A refused attach states the reason in the text that clients look for, and leaves the
// session usable.
func attachRefused(s suite) {
	session := s.session(1)
	_, err := session.NewSender(s.ctx, "nowhere", nil)
	wantCondition(s, "sender to nowhere", err, amqp.ErrCondNotFound)
	if want := "/nowhere' could not be found."; err == nil || !strings.Contains(err.Error(), "The messaging entity 'sb://") || !strings.Contains(err.Error(), want) {
		s.Errorf("the refusal does not say %q: %v", want, err)
	}
	_, err = session.NewReceiver(s.ctx, "nowhere", nil)
	wantCondition(s, "receiver from nowhere", err, amqp.ErrCondNotFound)
	_, err = session.NewSender(s.ctx, s.queue+"/$DeadLetterQueue", nil)
	wantCondition(s, "sender to a dead-letter queue", err, amqp.ErrCondNotAllowed)
	sender, err := session.NewSender(s.ctx, s.queue, nil)
	s.must("attach after the refusals", err)
	s.must("send", sender.Send(s.ctx, text("x"), nil))
}

// Unknown properties that a future client adds to open, attach or a message are ignored.
func unknownProperties(s suite) {
	conn := s.dial(1, &amqp.ConnOptions{
		SASLType:   amqp.SASLTypePlain(harness.KeyName, harness.Key),
		Properties: map[string]any{"com.example:new": "value", "number": int32(7)},
	})
	session, err := conn.NewSession(s.ctx, nil)
	s.must("session", err)
	sender, err := session.NewSender(s.ctx, s.queue, &amqp.SenderOptions{
		Properties:          map[string]any{"com.example:new": uint64(1), "com.microsoft:timeout": uint32(60000)},
		DesiredCapabilities: []string{"com.example:power"},
	})
	s.must("attach", err)
	m := text("x")
	m.Annotations = amqp.Annotations{"x-opt-example": uint32(5)}
	m.DeliveryAnnotations = amqp.Annotations{"x-opt-hop": "one"}
	m.Footer = amqp.Annotations{"x-opt-crc": uint32(9)}
	s.must("send", sender.Send(s.ctx, m, nil))
	got := s.get(s.amqpReceiver(2, &amqp.ReceiverOptions{Properties: map[string]any{"com.example:new": true}}))
	if got.Annotations["x-opt-example"] != uint32(5) || got.Footer["x-opt-crc"] != uint32(9) {
		s.Errorf("annotations %v, footer %v", got.Annotations, got.Footer)
	}
}

// A connection with the smallest allowed frames carries messages of any size in both
// directions, while the session has other links.
func frames(s suite) {
	conn := s.dial(1, &amqp.ConnOptions{SASLType: amqp.SASLTypePlain(harness.KeyName, harness.Key), MaxFrameSize: 512, IdleTimeout: 20 * time.Second})
	session, err := conn.NewSession(s.ctx, nil)
	s.must("session", err)
	sender, err := session.NewSender(s.ctx, s.queue, nil)
	s.must("attach", err)
	r, err := session.NewReceiver(s.ctx, s.queue, &amqp.ReceiverOptions{Credit: 3, SettlementMode: amqp.ReceiverSettleModeSecond.Ptr()})
	s.must("attach", err)
	for _, size := range []int{1, 400, 500, 512, 513, 5000, 100_000} {
		body := make([]byte, size)
		for i := 0; i+4 <= size; i += 4 {
			binary.BigEndian.PutUint32(body[i:], uint32(i))
		}
		s.must("send", sender.Send(s.ctx, amqp.NewMessage(body), nil))
		m := s.get(r)
		if diff := cmp.Diff(size, len(m.GetData())); diff != "" || !slices.Equal(body, m.GetData()) {
			s.Errorf("a body of %d bytes came back changed: %s", size, diff)
		}
		s.must("accept", r.AcceptMessage(s.ctx, m))
	}
}
