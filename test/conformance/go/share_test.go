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

// served counts what each receiver got, second by second.
type served struct {
	sync.Mutex
	begun     time.Time
	perSecond []map[int]int
}

func (v *served) add(receiver int) {
	v.Lock()
	defer v.Unlock()
	second := int(time.Since(v.begun) / time.Second)
	for len(v.perSecond) <= second {
		v.perSecond = append(v.perSecond, map[int]int{})
	}
	v.perSecond[second][receiver]++
}

// consume starts receivers with these credits, in turn at the members, each of which
// accepts n messages in all or stops with the case.
func (s suite) consume(v *served, all *sync.WaitGroup, credits []int32) {
	s.Helper()
	for i, credit := range credits {
		r := s.amqpReceiver(i%3+1, &amqp.ReceiverOptions{Credit: credit, SettlementMode: amqp.ReceiverSettleModeFirst.Ptr()})
		go func() {
			for {
				m, err := r.Receive(s.ctx, nil)
				if err != nil {
					return // the case is over
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

// judge looks at whole seconds in which there was much for everybody: no receiver that
// waits gets nothing while another one gets more than its share (C.1).
func (v *served) judge(s suite, receivers int) {
	s.Helper()
	v.Lock()
	defer v.Unlock()
	judged := 0
	for second, got := range v.perSecond[:max(0, len(v.perSecond)-1)] {
		total := 0
		for _, n := range got {
			total += n
		}
		if total < 10*receivers {
			continue
		}
		judged++
		for i := range receivers {
			if got[i] == 0 {
				s.Errorf("receiver %d got nothing in second %d, in which all got %v", i, second, got)
			}
		}
	}
	if judged == 0 {
		s.Fatalf("no second was busy enough to judge: %v", v.perSecond)
	}
	s.Logf("received by second: %v", v.perSecond)
}

// Receivers with credit 1 and with credit 500 wait at one queue; a steady stream of
// messages is shared among them.
func fairShare(s suite) {
	const messages, every = 1200, 3 * time.Millisecond
	credits := []int32{500, 1, 500, 1, 1, 1}
	var all sync.WaitGroup
	all.Add(messages)
	v := &served{}
	v.Lock() // nobody counts before the first send
	s.consume(v, &all, credits)
	sender := s.amqpSender(1, nil)
	v.begun = time.Now()
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

// From a backlog a receiver with much credit takes much at once, but the one that asks
// for a single message gets it each time.
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
	v := &served{begun: time.Now()}
	s.consume(v, &all, credits)
	all.Wait()
	v.Lock()
	defer v.Unlock()
	total := map[int]int{}
	for _, got := range v.perSecond {
		for i, n := range got {
			total[i] += n
		}
	}
	for i := range credits {
		if total[i] < 10 {
			s.Errorf("receiver %d got %d of %d messages", i, total[i], messages)
		}
	}
	s.Logf("of the backlog they got %v", total)
}
