package cluster

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
)

// TestPurgeOfASessionLeavesTheOthers checks that purging one session removes the unlocked messages of that session, whether or
// not it is locked, and nothing else; the holder keeps the session.
func TestPurgeOfASessionLeavesTheOthers(t *testing.T) {
	t.Parallel()
	for name, partitions := range map[string]func(*fsm.EntitySettings){
		"queue": withSessions, "partitioned queue": both(partitioned, withSessions),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, clock := newTimedCluster(t, 3, 4)
			c.startAll()
			at := c.make(fsm.QueueEntity, "orders", partitions)
			near, far := c.nodes[0], c.nodes[1]
			for _, session := range []string{"red", "blue"} {
				mustSend(t, near, at, inSession(session, "1", "2", "3")...)
			}
			s := acceptNamed(t, near, at, "red")
			locked := lockMessages(s.Receiver, 1, time.Minute).deliveries
			if len(locked) != 1 {
				t.Fatalf("%d locked", len(locked))
			}
			border := clock.in(time.Second)
			c.pass(clock, 2*time.Second)
			mustSend(t, near, at, inSession("red", "late")...)
			purged := func(session string, before fsm.Instant, most, want int) {
				t.Helper()
				if n, err := far.Router().PurgeSession(t.Context(), at, session, before, most); n != want || err != nil {
					t.Errorf("purged %d of %s, %v, want %d", n, session, err, want)
				}
			}
			purged("red", border, 1, 1)
			purged("red", border, 1000, 1) // neither the locked message nor the late one
			purged("red", border, 1000, 0)
			purged("green", 0, 1000, 0)
			if code := settleMessage(t, near, at, locked[0].Lock, fsm.Complete); code != fsm.OK {
				t.Errorf("complete what was locked: %v", code)
			}
			left := lockMessages(s.Receiver, 10, time.Minute).deliveries
			if diff := cmp.Diff([]string{"late"}, payloads(left)); diff != "" || left[0].FailedDeliveries != 0 {
				t.Errorf("left in red %s, %d attempts", diff, left[0].FailedDeliveries)
			}
			purged("blue", 0, 2, 2) // a session that is not locked
			blue := acceptNamed(t, near, at, "blue")
			defer blue.Close()
			if diff := cmp.Diff([]string{"3"}, payloads(lockMessages(blue.Receiver, 10, time.Minute).deliveries)); diff != "" {
				t.Errorf("left in blue %s", diff)
			}
		})
	}
}

// TestPurgeSessionInBatches purges more messages than are locked at a time.
func TestPurgeSessionInBatches(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, 1, 1)
	c.startAll()
	at := c.create("orders", withSessions)
	var all []string
	for i := range 256 + 10 {
		all = append(all, fmt.Sprint(i))
	}
	sendAll(t, c.nodes[0], at, inSession("red", all...)...)
	if n, err := c.nodes[0].Router().PurgeSession(t.Context(), at, "red", 0, 256+5); n != 256+5 || err != nil {
		t.Errorf("purged %d, %v", n, err)
	}
	if n := countMessages(t, c.nodes[0], at).Active; n != 5 {
		t.Errorf("%d are left", n)
	}
}

func TestPurgeSessionRefuses(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, 1, 1)
	c.startAll()
	router := c.nodes[0].Router()
	plain, at := createQueue(t, c.nodes[0], "plain"), c.create("orders", withSessions)
	for name, c := range map[string]struct {
		at   fsm.EntityRef
		most int
		want fsm.Code
	}{
		"no sessions":  {plain, 1, fsm.NotAllowed},
		"dead letters": {fsm.EntityRef{Entity: at.Entity, Sub: fsm.DeadLetterQueue}, 1, fsm.NotAllowed},
		"none":         {at, 0, fsm.InvalidArgument},
	} {
		if n, err := router.PurgeSession(t.Context(), c.at, "red", 0, c.most); n != 0 || !errors.Is(err, c.want) {
			t.Errorf("%s: %d, %v, want %v", name, n, err, c.want)
		}
	}
}
