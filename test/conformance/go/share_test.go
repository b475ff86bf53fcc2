package conformance

import (
	"sync"
	"time"

	"github.com/Azure/go-amqp"
)

func shareChecks() []check {
	return []check{
		{name: "fair share", run: fairShare},
		{name: "fair share of a backlog", run: fairShareOfBacklog},
	}
}

// served counts what each receiver got in each window. A window is a second, or longer when a
// slow machine needs more time for enough messages to give some to every receiver.
type served struct {
	sync.Mutex
	begun   time.Time
	least   int // messages in a window
	window  map[int]int
	windows []map[int]int // that have ended
}

// begin starts the first window for so many receivers.
func (v *served) begin(receivers int) {
	v.begun, v.least, v.window = time.Now(), 20*receivers, map[int]int{}
}

func (v *served) add(receiver int) {
	v.Lock()
	defer v.Unlock()
	v.window[receiver]++
	if total(v.window) >= v.least && time.Since(v.begun) >= time.Second {
		v.windows = append(v.windows, v.window)
		v.begun, v.window = time.Now(), map[int]int{}
	}
}

func total(got map[int]int) (n int) {
	for _, of := range got {
		n += of
	}
	return n
}

// consume starts receivers with these credits, in turn at the members. Each of them
// accepts n messages in total or stops with the case.
func (s suite) consume(v *served, all *sync.WaitGroup, credits []int32) {
	s.Helper()
	receivers := make([]*amqp.Receiver, len(credits))
	for i, credit := range credits {
		receivers[i] = s.amqpReceiver(i%3+1, &amqp.ReceiverOptions{Credit: credit, SettlementMode: amqp.ReceiverSettleModeFirst.Ptr()})
	}
	for i, r := range receivers {
		go func() {
			for {
				m, err := r.Receive(s.ctx, nil)
				if err != nil {
					return // the case has ended
				}
				v.add(i)
				if err := r.AcceptMessage(s.ctx, m); err != nil && s.ctx.Err() == nil {
					s.Errorf("accept: %v", err)
				}
				all.Done()
			}
		}()
	}
}

// judge evaluates the windows with many messages per receiver: no waiting receiver may get
// nothing while another one gets more than its share (docs/requirements.md#c1).
func (v *served) judge(s suite, receivers int) {
	s.Helper()
	v.Lock()
	defer v.Unlock()
	for at, got := range v.windows {
		for i := range receivers {
			if got[i] == 0 {
				s.Errorf("receiver %d got nothing in window %d, in which all got %v", i, at, got)
			}
		}
	}
	if len(v.windows) == 0 {
		s.Fatalf("nothing to judge: %v", v.window)
	}
	s.Logf("received by window: %v, and %v", v.windows, v.window)
}

// Receivers with credit 1 and with credit 500 wait at one queue; a steady stream of
// messages is shared among them.
func fairShare(s suite) {
	const messages, every = 1200, 3 * time.Millisecond
	credits := []int32{500, 1, 500, 1, 1, 1}
	var all sync.WaitGroup
	all.Add(messages)
	v := &served{}
	v.Lock() // no receiver counts before the first send
	s.consume(v, &all, credits)
	sender := s.amqpSender(1, nil)
	v.begin(len(credits))
	v.Unlock()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i := range messages {
		<-tick.C
		s.must("send", sender.Send(s.ctx, text("%d", i), nil))
	}
	all.Wait()
	v.judge(s, len(credits))
}

// From a backlog, a receiver with much credit takes many messages at once, but the receiver that asks
// for a single message gets one each time.
func fairShareOfBacklog(s suite) {
	const messages = 6000
	sender := s.amqpSender(1, nil)
	for from := 0; from < messages; from += 1000 {
		batch := &amqp.Message{Format: batchFormat}
		for i := range 1000 {
			one, err := text("%d", from+i).MarshalBinary()
			s.must("encode", err)
			batch.Data = append(batch.Data, one)
		}
		s.must("send", sender.Send(s.ctx, batch, nil))
	}
	credits := []int32{500, 1, 1}
	var all sync.WaitGroup
	all.Add(messages)
	v := &served{}
	v.begin(len(credits))
	s.consume(v, &all, credits)
	all.Wait()
	v.Lock()
	defer v.Unlock()
	sum := v.window
	for _, got := range v.windows {
		for i, n := range got {
			sum[i] += n
		}
	}
	for i := range credits {
		if sum[i] < 10 {
			s.Errorf("receiver %d got %d of %d messages", i, sum[i], messages)
		}
	}
	s.Logf("of the backlog they got %v", sum)
}
