package amqp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/peeklock/peeklock/fsm"
)

// sdk creates the official Go client, unmodified, from an emulator connection string.
func sdk(t *testing.T, address string) *azservicebus.Client {
	t.Helper()
	text := fmt.Sprintf("Endpoint=sb://%s;SharedAccessKeyName=%s;SharedAccessKey=%s;UseDevelopmentEmulator=true", address, ruleName, ruleKey)
	client, err := azservicebus.NewClientFromConnectionString(text, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		defer cancel()
		if err := client.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return client
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// sdkPair is a client with a sender and a receiver on queue "orders".
type sdkPair struct {
	*testing.T
	ctx      context.Context //nolint:containedctx // of the test
	broker   *fakeBroker
	address  string
	client   *azservicebus.Client
	sender   *azservicebus.Sender
	receiver *azservicebus.Receiver
}

func newSDKPair(t *testing.T, options *azservicebus.ReceiverOptions) sdkPair {
	t.Helper()
	return sdkPairOf(t, newFakeBroker("Orders"), options)
}

func sdkPairOf(t *testing.T, h *fakeBroker, options *azservicebus.ReceiverOptions) sdkPair {
	t.Helper()
	_, address := gateway(t, h)
	client := sdk(t, address)
	sender, err := client.NewSender("orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	receiver, err := client.NewReceiverForQueue("orders", options)
	if err != nil {
		t.Fatal(err)
	}
	return sdkPair{T: t, ctx: within(t, 60*time.Second), broker: h, address: address, client: client, sender: sender, receiver: receiver}
}

// byToken holds everything that another process needs to settle a message.
func byToken(m *azservicebus.ReceivedMessage) *azservicebus.ReceivedMessage {
	return &azservicebus.ReceivedMessage{LockToken: m.LockToken}
}

func (p sdkPair) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p sdkPair) send(bodies ...string) {
	p.Helper()
	for _, b := range bodies {
		id := "id-" + b
		p.must(p.sender.SendMessage(p.ctx, &azservicebus.Message{Body: []byte(b), MessageID: &id}, nil))
	}
}

// receive receives exactly n messages, with as many calls as necessary.
func (p sdkPair) receive(r *azservicebus.Receiver, n int) []*azservicebus.ReceivedMessage {
	p.Helper()
	var all []*azservicebus.ReceivedMessage
	for len(all) < n {
		some, err := r.ReceiveMessages(p.ctx, n-len(all), nil)
		p.must(err)
		all = append(all, some...)
	}
	// Between calls the SDK releases messages, so a later message may be delivered first.
	slices.SortFunc(all, func(a, b *azservicebus.ReceivedMessage) int {
		return cmp.Compare(*a.SequenceNumber, *b.SequenceNumber)
	})
	return all
}

func TestSDKSendsAndCompletes(t *testing.T) {
	t.Parallel()
	p := newSDKPair(t, nil)
	p.send("a", "b", "c")
	for i, m := range p.receive(p.receiver, 3) {
		if want := string("abc"[i]); string(m.Body) != want || m.MessageID != "id-"+want || m.DeliveryCount != 1 {
			t.Errorf("message %d: body %q id %q count %d", i, m.Body, m.MessageID, m.DeliveryCount)
		}
		if m.SequenceNumber == nil || *m.SequenceNumber != int64(i+1) || m.LockedUntil == nil {
			t.Errorf("message %d: sequence %v, locked until %v", i, m.SequenceNumber, m.LockedUntil)
		}
		p.must(p.receiver.CompleteMessage(p.ctx, m, nil))
	}
	if c := p.broker.counts("orders"); c != (fsm.Counts{}) {
		t.Errorf("after all completes: %+v", c)
	}
}

func TestSDKSendsBatch(t *testing.T) {
	t.Parallel()
	p := newSDKPair(t, nil)
	batch, err := p.sender.NewMessageBatch(p.ctx, nil)
	p.must(err)
	for i := range 100 {
		p.must(batch.AddMessage(&azservicebus.Message{Body: fmt.Append(nil, i)}, nil))
	}
	p.must(p.sender.SendMessageBatch(p.ctx, batch, nil))
	for i, m := range p.receive(p.receiver, 100) {
		if string(m.Body) != fmt.Sprint(i) {
			t.Fatalf("message %d has body %q", i, m.Body)
		}
	}
}

func TestSDKReceivesAndDeletes(t *testing.T) {
	t.Parallel()
	p := newSDKPair(t, &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
	p.send("a", "b")
	p.receive(p.receiver, 2)
	if c := p.broker.counts("orders"); c.Active != 0 {
		t.Errorf("active %d after receive-and-delete", c.Active)
	}
}

func TestSDKAbandonsWithProperties(t *testing.T) {
	t.Parallel()
	p := newSDKPair(t, nil)
	p.send("a")
	m := p.receive(p.receiver, 1)[0]
	p.must(p.receiver.AbandonMessage(p.ctx, m, &azservicebus.AbandonMessageOptions{PropertiesToModify: map[string]any{"tried": "yes"}}))
	m = p.receive(p.receiver, 1)[0]
	if m.DeliveryCount != 2 || m.ApplicationProperties["tried"] != "yes" {
		t.Errorf("count %d properties %v", m.DeliveryCount, m.ApplicationProperties)
	}
}

func TestSDKDefersAndFetches(t *testing.T) {
	t.Parallel()
	p := newSDKPair(t, nil)
	p.send("a")
	m := p.receive(p.receiver, 1)[0]
	p.must(p.receiver.DeferMessage(p.ctx, m, nil))
	_, err := p.receiver.ReceiveDeferredMessages(p.ctx, []int64{99}, nil)
	if err == nil {
		t.Error("a number that is not deferred was found")
	}
	found, err := p.receiver.ReceiveDeferredMessages(p.ctx, []int64{*m.SequenceNumber}, nil)
	p.must(err)
	if len(found) != 1 || string(found[0].Body) != "a" || found[0].LockToken == [16]byte{} {
		t.Fatalf("fetched %+v", found)
	}
	p.must(p.receiver.CompleteMessage(p.ctx, found[0], nil))
	if c := p.broker.counts("orders"); c.Deferred != 0 {
		t.Errorf("still %d deferred", c.Deferred)
	}
}

func TestSDKDeadLetters(t *testing.T) {
	t.Parallel()
	p := newSDKPair(t, nil)
	p.send("a")
	m := p.receive(p.receiver, 1)[0]
	reason, description := "spoiled", "smells odd"
	p.must(p.receiver.DeadLetterMessage(p.ctx, m, &azservicebus.DeadLetterOptions{
		Reason: &reason, ErrorDescription: &description, PropertiesToModify: map[string]any{"shelf": int64(7)},
	}))
	dead, err := p.client.NewReceiverForQueue("orders", &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
	p.must(err)
	m = p.receive(dead, 1)[0]
	if m.DeadLetterReason == nil || *m.DeadLetterReason != reason || m.DeadLetterErrorDescription == nil || *m.DeadLetterErrorDescription != description {
		t.Errorf("reason %v description %v", m.DeadLetterReason, m.DeadLetterErrorDescription)
	}
	if m.ApplicationProperties["shelf"] != int64(7) {
		t.Errorf("properties %v", m.ApplicationProperties)
	}
	p.must(dead.CompleteMessage(p.ctx, m, nil))
}

func TestSDKRenewsAndLosesLock(t *testing.T) {
	t.Parallel()
	p := newSDKPair(t, nil)
	p.send("a")
	m := p.receive(p.receiver, 1)[0]
	p.broker.advanceClock(20 * time.Second)
	before := *m.LockedUntil
	p.must(p.receiver.RenewMessageLock(p.ctx, m, nil))
	if !m.LockedUntil.After(before) {
		t.Errorf("lock end went from %v to %v", before, m.LockedUntil)
	}
	p.broker.advanceClock(31 * time.Second)
	for name, err := range map[string]error{
		"renew":    p.receiver.RenewMessageLock(p.ctx, m, nil),
		"complete": p.receiver.CompleteMessage(p.ctx, m, nil),
	} {
		var lost *azservicebus.Error
		if !errors.As(err, &lost) || lost.Code != azservicebus.CodeLockLost {
			t.Errorf("%s after the lock ran out: %v", name, err)
		}
	}
}

func TestSDKPeekDoesNotLock(t *testing.T) {
	t.Parallel()
	p := newSDKPair(t, nil)
	p.send("a", "b", "c")
	found, err := p.receiver.PeekMessages(p.ctx, 2, nil)
	p.must(err)
	if len(found) != 2 || string(found[1].Body) != "b" {
		t.Fatalf("peeked %d", len(found))
	}
	found, err = p.receiver.PeekMessages(p.ctx, 10, nil)
	p.must(err)
	if len(found) != 1 || string(found[0].Body) != "c" {
		t.Fatalf("then peeked %d", len(found))
	}
	found, err = p.receiver.PeekMessages(p.ctx, 10, nil)
	if err != nil || len(found) != 0 {
		t.Fatalf("at the end: %d, %v", len(found), err)
	}
}

// Locks outlive links: after the link has ended, the client settles by token (docs/requirements.md#t14).
func TestSDKSettlesAfterLinkIsGone(t *testing.T) {
	t.Parallel()
	p := newSDKPair(t, nil)
	p.send("a")
	m := p.receive(p.receiver, 1)[0]
	p.must(p.receiver.Close(p.ctx))
	other, err := p.client.NewReceiverForQueue("orders", nil)
	p.must(err)
	p.must(other.CompleteMessage(p.ctx, m, nil))
	if c := p.broker.counts("orders"); c.Active != 0 {
		t.Errorf("active %d", c.Active)
	}
}

func TestSDKIsToldWhatIsWrong(t *testing.T) {
	t.Parallel()
	p := newSDKPair(t, nil)
	nowhere, err := p.client.NewSender("nowhere", nil)
	p.must(err)
	err = nowhere.SendMessage(p.ctx, &azservicebus.Message{}, nil)
	var coded *azservicebus.Error
	if !errors.As(err, &coded) || coded.Code != azservicebus.CodeNotFound {
		t.Fatalf("unknown entity: %v", err)
	}
	if !strings.Contains(err.Error(), "The messaging entity 'sb://127.0.0.1:") || !strings.Contains(err.Error(), "/nowhere' could not be found.") || !strings.Contains(err.Error(), "TrackingId:") {
		t.Errorf("text: %v", err)
	}
	err = p.sender.SendMessage(p.ctx, &azservicebus.Message{Body: make([]byte, 300<<10)}, nil)
	if !errors.Is(err, azservicebus.ErrMessageTooLarge) {
		t.Errorf("large message: %v", err)
	}
	p.send("still works")
}

func TestSDKLargeMessages(t *testing.T) {
	t.Parallel()
	p := newSDKPair(t, nil)
	for i := range 5 {
		body := strings.Repeat(string(rune('a'+i)), 200_000+i)
		p.must(p.sender.SendMessage(p.ctx, &azservicebus.Message{Body: []byte(body)}, nil))
	}
	for i, m := range p.receive(p.receiver, 5) {
		if len(m.Body) != 200_000+i || m.Body[0] != byte('a'+i) || m.Body[len(m.Body)-1] != byte('a'+i) {
			t.Errorf("message %d has %d bytes", i, len(m.Body))
		}
		p.must(p.receiver.CompleteMessage(p.ctx, m, nil))
	}
}
