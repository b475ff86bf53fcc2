package partition

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// anyLeader returns the current leader, nil when there is none.
func anyLeader(ms []*member) *Group {
	for _, m := range ms {
		if g := m.group(1); g != nil && g.Status().IsLeader {
			return g
		}
	}
	return nil
}

// router submits as the real one does: at the current leader, and again with the same header until the answer
// is Done.
func router(t testing.TB, ms []*member, h fsm.Header, do func(g *Group, done func(Answer))) fsm.Result {
	t.Helper()
	deadline := time.Now().Add(120 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for time.Now().Before(deadline) {
		g := anyLeader(ms)
		if g == nil {
			<-tick.C
			continue
		}
		got := make(chan Answer, 1)
		do(g, func(a Answer) { got <- a })
		select {
		case a := <-got:
			if a.Outcome == Done {
				return a.Result
			}
		case <-time.After(60 * time.Second):
			t.Errorf("no answer to %+v", h)
			return fsm.Result{Code: fsm.Internal}
		}
		<-tick.C
	}
	t.Errorf("never done: %+v", h)
	return fsm.Result{Code: fsm.Internal}
}

// Members are cut off, stopped and started, and transfer leadership, while senders send and a receiver
// completes. Every confirmed message exists once or was completed once, no message is delivered twice, and
// all replicas are equal at the end.
func TestNothingIsLostOrDuplicated(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms, _ := threeReplicas(t, func(c *Config) {
			c.Sizes = Sizes{Segment: 16 << 10, Snapshot: 64 << 10, Trailing: 0}
		})
		const senders = 4
		deeds := kit.Rounds(7, 15)
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		stop := make(chan struct{})
		go func() {
			defer close(stop)
			nemesis(ms, rand.New(rand.NewPCG(seed, 1)), deeds)
		}()

		var mu sync.Mutex
		sent := make(map[string]bool)
		var work sync.WaitGroup
		for s := range senders {
			work.Go(func() {
				ask := asker{origin: 100, receiver: uint64(s + 1)}
				pace := time.NewTicker(5 * time.Millisecond)
				defer pace.Stop()
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					case <-pace.C:
					}
					text := fmt.Sprintf("%d-%d-%0*d", s, i, 500, i)
					h := ask.next()
					c := fsm.AppendCommand(nil, h, send(1, []byte(text)))
					if r := router(t, ms, h, func(g *Group, done func(Answer)) { g.Submit(c, done) }); r.Code == fsm.OK {
						mu.Lock()
						sent[text] = true
						mu.Unlock()
					}
				}
			})
		}
		completed := make(map[string]bool)
		received := make(chan struct{})
		sending := make(chan struct{})
		go func() {
			defer close(received)
			receive(t, ms, completed, sending)
		}()
		work.Wait()
		close(sending)
		<-received

		left := make(map[string]bool)
		for _, text := range image(t, currentLeader(t, ms)) {
			if left[text] || completed[text] {
				t.Errorf("twice: %.20s", text)
			}
			left[text] = true
		}
		for text := range sent {
			if !left[text] && !completed[text] {
				t.Errorf("lost: %.20s", text)
			}
		}
		sameEverywhere(t, ms)
		t.Logf("%d sent, %d completed, %d left", len(sent), len(completed), len(left))
	})
}

// receive locks and completes one message after the other until sending has ended.
func receive(t *testing.T, ms []*member, completed map[string]bool, sending chan struct{}) {
	locks, settles := asker{origin: 100, receiver: 50}, asker{origin: 100, receiver: 51}
	for {
		select {
		case <-sending:
			return
		default:
		}
		h := locks.next()
		r := router(t, ms, h, func(g *Group, done func(Answer)) {
			g.Lock(LockRequest{Header: h, Lock: lockOf(1, 3), Until: time.Now().Add(50 * time.Millisecond), Done: done})
		})
		for _, d := range r.Deliveries {
			if completed[string(d.Payload)] {
				t.Errorf("delivered after it was completed: %.20s", d.Payload)
			}
			sh := settles.next()
			c := fsm.AppendCommand(nil, sh, fsm.SettleMessages{
				Address:     fsm.Address{Entity: 1},
				Settlements: []fsm.Settlement{{Lock: d.Lock, Verb: fsm.Complete}},
			})
			got := router(t, ms, sh, func(g *Group, done func(Answer)) { g.Submit(c, done) })
			if len(got.Codes) != 1 || got.Codes[0] != fsm.OK {
				t.Errorf("complete: %+v", got)
				continue
			}
			completed[string(d.Payload)] = true
		}
	}
}

// nemesis injects faults one after the other, and repairs everything at the end.
func nemesis(ms []*member, rng *rand.Rand, deeds int) {
	rest := func(atMost int) { <-time.After(time.Duration(rng.IntN(atMost)) * time.Millisecond) }
	for range deeds {
		rest(400)
		m := ms[rng.IntN(len(ms))]
		switch rng.IntN(4) {
		case 0:
			m.net.isolate(m.id, true)
			rest(800)
			m.net.isolate(m.id, false)
		case 1:
			m.stop()
			rest(800)
			m.start(1)
		case 2:
			if g := anyLeader(ms); g != nil {
				_ = g.Transfer(m.t.Context(), m.id)
			}
		case 3:
			if g := m.group(1); g != nil {
				g.requestReopen("a test")
			}
		}
	}
}
