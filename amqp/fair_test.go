package amqp

import (
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	goamqp "github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// Receivers whose credit differs by three powers of ten get the same number of messages when messages are
// scarce (docs/requirements.md#c1): no waiting receiver is skipped, regardless of the credit of others.
func TestReceiversShareFairly(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	_, address := gateway(t, h)
	ctx := within(t, 60*time.Second)
	credits := []int32{1, 1, 10, 10, 100, 100, 1000, 1000}
	const rounds = 50
	type taken struct {
		by      int
		message *goamqp.Message
	}
	came := make(chan taken)
	receivers := make([]*goamqp.Receiver, len(credits))
	var group sync.WaitGroup
	defer group.Wait()
	session := plain(t, address)
	for i, credit := range credits {
		if i == len(credits)/2 {
			session = plain(t, address) // half of them on another connection
		}
		receiver, err := session.NewReceiver(ctx, "orders", &goamqp.ReceiverOptions{Credit: credit, SettlementMode: goamqp.ReceiverSettleModeSecond.Ptr()})
		if err != nil {
			t.Fatal(err)
		}
		receivers[i] = receiver
		group.Go(func() {
			for {
				m, err := receiver.Receive(ctx, nil)
				if err != nil {
					return
				}
				select {
				case came <- taken{i, m}:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	h.waitForReceivers(t, len(credits))
	got := make([]int, len(credits))
	for range rounds * len(credits) {
		h.messages(t, "orders", 1)
		select {
		case one := <-came:
			got[one.by]++
			if err := receivers[one.by].AcceptMessage(ctx, one.message); err != nil {
				t.Fatal(err)
			}
		case <-ctx.Done():
			t.Fatal("a message did not come")
		}
		h.waitForReceivers(t, len(credits)) // its flow was received, or it had credit left
	}
	for i, n := range got {
		if n != rounds {
			t.Errorf("credit %d: %d of %d messages, its share is %d", credits[i], n, rounds*len(credits), rounds)
		}
	}
	for _, r := range receivers {
		if err := r.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}

// waitForReceivers waits until n receivers wait.
func (h *fakeBroker) waitForReceivers(t *testing.T, n int) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); ; <-tick.C {
		h.mu.Lock()
		waiting := len(h.waiters)
		h.mu.Unlock()
		if waiting == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d receivers wait, want %d", waiting, n)
		}
	}
}

// A burst is shared among the waiting receivers; none gets more than its credit.
func TestBurstIsSharedAmongReceivers(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	peers := make([]*peer, 4)
	s, first := piped(t, h)
	for i := range peers {
		peers[i] = first
		if i > 0 {
			peers[i] = connect(t, s)
			t.Cleanup(func() { _ = peers[i].net.Close() })
		}
		peers[i].login()
		peers[i].receiver(0, "orders")
	}
	for i, credit := range []uint32{2, 10, 100, 1000} {
		peers[i].credit(0, 0, credit)
	}
	h.waitForReceivers(t, len(peers))
	at, err := h.Resolve(t.Context(), fsm.DefaultNamespace, "orders")
	if err != nil {
		t.Fatal(err)
	}
	burst := make([]fsm.Message, 60)
	for i := range burst {
		if burst[i], err = message.Parse(encodedMessage(t, []byte{byte(i)})); err != nil {
			t.Fatal(err)
		}
	}
	go h.Send(at, burst, func(fsm.Code) {})
	var group sync.WaitGroup
	for i, least := range []int{2, 10, 15, 15} { // 15 is a quarter
		group.Go(func() { peers[i].deliveries(least) })
	}
	group.Wait()
}

// A message that a receiver releases before it is sent has no failed delivery, however it is released.
func TestReleaseIsNoFailedDelivery(t *testing.T) {
	t.Parallel()
	h := newFakeBrokerOf(fsm.EntitySettings{LockDuration: 30_000, MaxDeliveryCount: 1, MaxMessageBytes: 256 << 10}, "orders")
	h.messages(t, "orders", 1)
	p := loggedIn(t, h)
	p.receiver(0, "orders")
	for i := range uint32(20) {
		p.credit(0, i, 1)
		tr := expect[*wire.Transfer](p)
		if h := header(t, tr.Payload); h.DeliveryCount != 0 {
			t.Fatalf("attempt %d counted %d before", i, h.DeliveryCount)
		}
		p.send(dispose(i, i, false, &wire.Released{}))
		expect[*wire.Disposition](p)
	}
	if c := h.counts("orders"); c.DeadLetter != 0 || c.Active != 1 {
		t.Errorf("counts %+v", c)
	}
}

// header reads the header of an encoded message.
func header(t *testing.T, encoded []byte) *goamqp.MessageHeader {
	t.Helper()
	var m goamqp.Message
	if err := m.UnmarshalBinary(encoded); err != nil {
		t.Fatal(err)
	}
	return m.Header
}

func TestAttachAnnouncesMaximumSizes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ entity, message, batch, request uint64 }{
		{256 << 10, 256 << 10, 256 << 10, nodeMessageBytesMax},
		{1 << 20, 1 << 20, batchBytesMax, 1<<20 + requestOverhead},
		{4 << 20, 4 << 20, batchBytesMax, 4<<20 + requestOverhead},
		{100 << 20, message.BytesMax, batchBytesMax, message.BytesMax + requestOverhead},
	} {
		h := newFakeBrokerOf(fsm.EntitySettings{LockDuration: 30_000, MaxDeliveryCount: 1, MaxMessageBytes: uint32(c.entity)}, "orders")
		p := loggedIn(t, h)
		for handle, want := range map[uint32][2]uint64{0: {c.message, c.batch}, 1: {c.request, batchBytesMax}} {
			address := []string{"orders", "orders/$management"}[handle]
			p.send(&wire.Attach{Name: address, Handle: handle, Target: &wire.Target{Address: address}})
			a := expect[*wire.Attach](p)
			expect[*wire.Flow](p)
			if *a.MaxMessageSize != want[0] || a.Properties.Get(string(batchBytesKey)) != min(want[0], want[1]) {
				t.Errorf("%s of %d bytes: message %d, properties %v, want %d", address, c.entity, *a.MaxMessageSize, a.Properties, want)
			}
		}
	}
}

// If large messages are allowed, batches remain small and single messages may be large.
func TestSDKBatchLimit(t *testing.T) {
	t.Parallel()
	h := newFakeBrokerOf(fsm.EntitySettings{LockDuration: 30_000, MaxDeliveryCount: 1, MaxMessageBytes: 4 << 20}, "orders")
	p := sdkPairOf(t, h, nil)
	batch, err := p.sender.NewMessageBatch(p.ctx, nil)
	p.must(err)
	large := make([]byte, 2<<20)
	if err := batch.AddMessage(&azservicebus.Message{Body: large}, nil); err == nil {
		t.Error("a batch took more than was advertised")
	}
	p.must(p.sender.SendMessage(p.ctx, &azservicebus.Message{Body: large}, nil))
	if _, err := p.sender.ScheduleMessages(p.ctx, []*azservicebus.Message{{Body: large}}, time.Now().Add(time.Hour), nil); err != nil {
		t.Errorf("schedule a large message: %v", err)
	}
}
