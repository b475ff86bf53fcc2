package bench

import (
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/quick"
	"time"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
)

func TestMessageHeaderRoundTrip(t *testing.T) {
	t.Parallel()
	if err := quick.Check(func(run uint64, sender uint32, counter uint64, sent int64) bool {
		body := make([]byte, headerBytes)
		want := messageHeader{run, sender, counter, sent}
		want.put(body)
		got, ok := readHeader(body)
		return ok && got == want
	}, nil); err != nil {
		t.Error(err)
	}
	for _, body := range []string{"", "PLB1", "PLB2" + string(make([]byte, headerBytes))} {
		if _, ok := readHeader([]byte(body)); ok {
			t.Errorf("%q is no stamp", body)
		}
	}
}

// Several goroutines set the same counters, and exactly one of them is the first for each.
func TestBitmapHoldsEveryCounter(t *testing.T) {
	t.Parallel()
	var b bitmap
	counters := []uint64{0, 63, 64, chunkBits - 1, chunkBits, 3*chunkBits + 5, countersMax - 1}
	var first [4]int
	var all sync.WaitGroup
	for g := range first {
		all.Go(func() {
			for _, i := range rand.Perm(len(counters)) {
				if !b.set(counters[i]) {
					first[g]++
				}
			}
		})
	}
	all.Wait()
	if sum := first[0] + first[1] + first[2] + first[3]; sum != len(counters) {
		t.Errorf("%d were first, want %d", sum, len(counters))
	}
	for _, c := range counters {
		if !b.has(c) {
			t.Errorf("%d is not there", c)
		}
	}
	if b.has(1) || b.has(2*chunkBits) {
		t.Error("something is there that was not set")
	}
}

// The ledger finds each planted fault, and reports nothing that is allowed.
func TestLedgerDetectsLossAndDuplication(t *testing.T) {
	t.Parallel()
	const run = 77
	sent := func(l *deliveryLedger, counters ...uint64) {
		for _, c := range counters {
			l.tracks[0].attempted.Store(max(l.tracks[0].attempted.Load(), c+1))
			l.tracks[0].confirmed.set(c)
		}
	}
	at := func(counter uint64) messageHeader { return messageHeader{run: run, counter: counter} }
	for name, c := range map[string]struct {
		record func(l *deliveryLedger) verdict
		want   verdict
		lost   uint64
	}{
		"all well": {func(l *deliveryLedger) verdict {
			sent(l, 0, 1)
			l.recordDelivery(at(0), 0, false)
			v, _ := l.recordDelivery(at(1), 0, false)
			return v
		}, firstDelivery, 0},
		"one lost": {func(l *deliveryLedger) verdict {
			sent(l, 0, 1, 70_000)
			l.recordDelivery(at(0), 0, false)
			v, _ := l.recordDelivery(at(70_000), 0, false)
			return v
		}, firstDelivery, 1},
		"the unconfirmed may be lost": {func(l *deliveryLedger) verdict {
			l.tracks[0].attempted.Store(9)
			sent(l, 3)
			v, _ := l.recordDelivery(at(3), 0, false)
			return v
		}, firstDelivery, 0},
		"again before completion": {func(l *deliveryLedger) verdict {
			sent(l, 0)
			l.recordDelivery(at(0), 0, false)
			v, _ := l.recordDelivery(at(0), 0, false)
			return v
		}, redelivered, 0},
		"again after completion": {func(l *deliveryLedger) verdict {
			sent(l, 0)
			_, track := l.recordDelivery(at(0), 0, false)
			track.settled.set(0)
			v, _ := l.recordDelivery(at(0), 0, false)
			return v
		}, duplicated, 0},
		"taken twice": {func(l *deliveryLedger) verdict {
			sent(l, 0)
			l.recordDelivery(at(0), 0, true)
			v, _ := l.recordDelivery(at(0), 0, true)
			return v
		}, duplicated, 0},
		"never sent": {func(l *deliveryLedger) verdict {
			sent(l, 0)
			l.recordDelivery(at(0), 0, false)
			v, _ := l.recordDelivery(at(1), 0, false)
			return v
		}, unexpected, 0},
		"refused when sent": {func(l *deliveryLedger) verdict {
			l.tracks[0].attempted.Store(1)
			l.tracks[0].refused.set(0)
			v, _ := l.recordDelivery(at(0), 0, false)
			return v
		}, unexpected, 0},
		"no such sender": {func(l *deliveryLedger) verdict {
			v, _ := l.recordDelivery(messageHeader{run: run, sender: 1}, 0, false)
			return v
		}, unexpected, 0},
		"no such counter": {func(l *deliveryLedger) verdict { v, _ := l.recordDelivery(at(countersMax), 0, false); return v }, unexpected, 0},
		"another run":     {func(l *deliveryLedger) verdict { v, _ := l.recordDelivery(messageHeader{run: 1}, 0, false); return v }, foreign, 0},
	} {
		l := newDeliveryLedger(run, 1, 1, false)
		if got := c.record(l); got != c.want {
			t.Errorf("%s: verdict %d, want %d", name, got, c.want)
		}
		if got := l.lost(); got != c.lost {
			t.Errorf("%s: %d lost, want %d", name, got, c.lost)
		}
	}
}

// A receiving run follows what earlier runs have sent, up to a limit.
func TestLedgerFollowsOtherRuns(t *testing.T) {
	t.Parallel()
	l := newDeliveryLedger(0, 0, 1, true)
	for run := range uint64(othersMax) {
		if v, _ := l.recordDelivery(messageHeader{run: run + 1}, 0, true); v != firstDelivery {
			t.Fatalf("run %d: verdict %d", run, v)
		}
	}
	if v, _ := l.recordDelivery(messageHeader{run: 5}, 0, true); v != duplicated {
		t.Errorf("taken twice: verdict %d", v)
	}
	if v, _ := l.recordDelivery(messageHeader{run: othersMax + 1}, 0, true); v != foreign || len(l.others) != othersMax {
		t.Errorf("verdict %d with %d runs followed", v, len(l.others))
	}
}

func TestSendersKeepTheRate(t *testing.T) {
	t.Parallel()
	s := &sender{load: &load{stop: make(chan struct{})}, interval: 10 * time.Millisecond, timer: time.NewTimer(time.Hour)}
	// Due long ago: the message was delayed, so its latency counts from that time.
	s.due = time.Now().Add(-time.Second)
	due := s.due
	if start, more := s.waitUntilDue(); !more || start != due || s.due != due.Add(s.interval) {
		t.Errorf("start %s, want %s", start, due)
	}
	// Due soon: it is not sent before its time.
	s.due = time.Now().Add(20 * time.Millisecond)
	due = s.due
	if start, more := s.waitUntilDue(); !more || start.Before(due) {
		t.Errorf("started %s early", due.Sub(start))
	}
	close(s.load.stop)
	s.due = time.Now().Add(time.Hour)
	if _, more := s.waitUntilDue(); more {
		t.Error("went on after the stop")
	}
}

func TestCPUTimeOfAProcessIsMeasured(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("no /proc here")
	}
	before := cpuOfSelf()
	for end := time.Now().Add(time.Minute); cpuOfSelf().used <= before.used && time.Now().Before(end); {
		_ = before // uses processor time, which the system counts in ticks of 10 ms
	}
	if after := cpuOf(os.Getpid()); !before.known || !after.known || after.used <= before.used || after.resident == 0 {
		t.Errorf("before %+v, after %+v", before, after)
	}
	if c := cpuOf(os.Getpid(), -1); c.known {
		t.Error("a process that does not exist is known")
	}
}

// BenchmarkBookkeeping measures everything that the bench adds to each message on top of go-amqp. It must stay far
// below the 15 us per send and the 30 us per cycle of the client.
func BenchmarkBookkeeping(b *testing.B) {
	o := &benchOptions{mode: modeBoth, senders: 1, receivers: 1, queues: 1, size: 1024, window: 100, credit: 100, settlers: 1}
	l := newLoad(&client.Client{}, o, []string{"x"})
	l.measuring.Store(true)
	s, r := l.senders[0], l.receivers[0]
	b.ReportAllocs()
	for b.Loop() {
		start, _ := s.waitUntilDue()
		t := l.ledger.tracks[0]
		counter := s.next
		s.next++
		t.attempted.Store(s.next)
		messageHeader{run: l.ledger.run, counter: counter, sent: start.UnixNano()}.put(s.body)
		t.confirmed.set(counter)
		s.confirms.add(int64(time.Since(start)))
		track, n := r.countArrival(s.message)
		_ = r.countSettlement(nil, track, n)
	}
}
