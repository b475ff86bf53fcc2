package cluster

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// TestTwoHostsShareSessions checks that two hosts with several workers each, which wait for the next session at different
// members, both work, although the newest waiter gets it, and that each message is delivered once: what a partitioned entity
// accepts in a second shard is released without a failed delivery.
func TestTwoHostsShareSessions(t *testing.T) { inBubble(t, twoHostsShareSessions) }

func twoHostsShareSessions(t *testing.T) {
	const hosts, workers, sessions = 2, 4, 300
	const work, pace = 20 * time.Millisecond, 5 * time.Millisecond // four workers of eight are busy
	c := newBubbleCluster(t, 3, 4)
	c.startAll()
	for name, change := range map[string]func(*fsm.EntitySettings){
		"plain":   withSessions,
		"sharded": func(s *fsm.EntitySettings) { withSessions(s); partitioned(s) },
	} {
		at := c.create(name, change)
		var mu sync.Mutex
		var done [hosts]int
		var working sync.WaitGroup
		left := make(chan struct{}) // closed when every session is done
		for host := range hosts {
			for range workers {
				working.Go(func() {
					for {
						accepted, cancel := accepting(c.nodes[host], at, nil, time.Minute)
						select {
						case <-left:
							cancel()
							if a := <-accepted; a.session != nil {
								a.session.Close()
							}
							return
						case a := <-accepted:
							if a.code != fsm.OK {
								t.Errorf("%s: accept: %v", name, a.code)
								return
							}
							var got lockedMessages
							for got.code == fsm.OK && len(got.deliveries) == 0 { // the end of the accepts in other shards cancels the first
								locked := make(chan lockedMessages, 1)
								a.session.Lock(1, 1<<20, time.Minute, func(c fsm.Code, d []fsm.Delivery) { locked <- lockedMessages{c, d} })
								got = <-locked
							}
							if len(got.deliveries) != 1 || got.deliveries[0].FailedDeliveries != 0 {
								t.Errorf("%s: session %s: %+v", name, a.session.Name(), got)
								return
							}
							<-time.After(work)
							if code := settleMessage(t, c.nodes[host], at, got.deliveries[0].Lock, fsm.Complete); code != fsm.OK {
								t.Errorf("%s: complete: %v", name, code)
							}
							a.session.Close()
							mu.Lock()
							if done[host]++; done[0]+done[1] == sessions {
								close(left)
							}
							mu.Unlock()
						}
					}
				})
			}
		}
		for i := range sessions {
			sendAll(t, c.nodes[2], at, inSession(fmt.Sprint("s", i), "x")...)
			<-time.After(pace)
		}
		working.Wait()
		t.Logf("%s: %d and %d sessions", name, done[0], done[1])
		if least := min(done[0], done[1]); least < sessions/30 {
			t.Errorf("%s: %d and %d sessions of %d", name, done[0], done[1], sessions)
		}
	}
}
