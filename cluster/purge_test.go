package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
)

func TestDeadLettersArePurgedAndRedriven(t *testing.T) {
	inBubble(t, deadLettersArePurgedAndRedriven)
}

func deadLettersArePurgedAndRedriven(t *testing.T) {
	c, clock := newTimedCluster(t, 3, 2)
	c.startAll()
	at := c.create("orders", func(*fsm.EntitySettings) {})
	dead := fsm.EntityRef{Entity: at.Entity, Sub: fsm.DeadLetterQueue}
	node := c.other(at.Partition)
	for i := range 6 {
		sendMessage(t, node, at, fmt.Sprint("m", i))
	}
	receiver := node.Router().Receiver(at, false)
	defer receiver.Close()
	for _, delivery := range lockMessages(receiver, 4, waitMax).deliveries {
		if code := settleMessage(t, node, at, delivery.Lock, fsm.DeadLetter); code != fsm.OK {
			t.Fatal(code)
		}
	}
	router := c.nodes[0].Router()
	if n, err := router.In(fsm.DefaultNamespace).RedriveEntity(t.Context(), "ORDERS", []fsm.SequenceNumber{1, 3, 5, 99}); n != 2 || err != nil {
		t.Fatalf("redrive: %d, %v", n, err)
	}
	if n, err := router.In(fsm.DefaultNamespace).RedriveEntity(t.Context(), "orders", []fsm.SequenceNumber{1, 3}); n != 0 || err != nil {
		t.Fatalf("redrive again: %d, %v", n, err)
	}
	if diff := cmp.Diff(fsm.Counts{Active: 4, DeadLetter: 2, Bytes: 12}, countMessages(t, node, at)); diff != "" {
		t.Fatal(diff)
	}
	back := lockMessages(receiver, 1, waitMax)
	if len(back.deliveries) != 1 || back.deliveries[0].Lock.Sequence != 1 || back.deliveries[0].FailedDeliveries != 0 {
		t.Fatalf("came back as %+v", back)
	}
	// The locked message stays, and so do those that were sent later.
	border := clock.now().Add(time.Second)
	clock.ahead.Add(int64(5 * time.Second))
	sendMessage(t, node, at, "late")
	if n, err := router.In(fsm.DefaultNamespace).PurgeEntity(t.Context(), "orders", fsm.MainQueue, border, 1); n != 1 || err != nil {
		t.Fatalf("purge one: %d, %v", n, err)
	}
	purged := make(chan int, 1)
	node.Router().Purge(at, fsm.Instant(border.UnixMilli()), 1_000_000, func(code fsm.Code, n int) {
		if code != fsm.OK {
			t.Errorf("purge: %v", code)
		}
		purged <- n
	})
	if n := <-purged; n != 2 {
		t.Fatalf("purged %d", n)
	}
	if n, err := router.In(fsm.DefaultNamespace).PurgeEntity(t.Context(), "orders", fsm.DeadLetterQueue, time.Time{}, 4000); n != 2 || err != nil {
		t.Fatalf("purge dead letters: %d, %v", n, err)
	}
	if code := settleMessage(t, node, at, back.deliveries[0].Lock, fsm.Complete); code != fsm.OK {
		t.Errorf("complete: %v", code)
	}
	if got := receive(t, node, at); len(got) != 1 || !strings.HasPrefix(got[0], "late#") {
		t.Errorf("left: %v", got)
	}
	if got := receive(t, node, dead); len(got) != 0 {
		t.Errorf("dead letters left: %v", got)
	}
}

func TestPurgeAndRedriveRefuseInvalidRequests(t *testing.T) {
	inBubble(t, purgeAndRedriveRefuseInvalidRequests)
}

func purgeAndRedriveRefuseInvalidRequests(t *testing.T) {
	c := newBubbleCluster(t, 1, 1)
	c.startAll()
	router, ctx := c.nodes[0].Router(), t.Context()
	at := createQueue(t, c.nodes[0], "orders")
	some := []fsm.SequenceNumber{1}
	for name, c := range map[string]struct {
		err  error
		want fsm.Code
	}{
		"redrive nowhere":  {second(router.In(fsm.DefaultNamespace).RedriveEntity(ctx, "none", some)), fsm.EntityNotFound},
		"redrive nothing":  {second(router.In(fsm.DefaultNamespace).RedriveEntity(ctx, "orders", nil)), fsm.InvalidArgument},
		"redrive too many": {second(router.In(fsm.DefaultNamespace).RedriveEntity(ctx, "orders", make([]fsm.SequenceNumber, 1000+1))), fsm.InvalidArgument},
		"purge nowhere":    {second(router.In(fsm.DefaultNamespace).PurgeEntity(ctx, "none", 0, time.Time{}, 1)), fsm.EntityNotFound},
		"purge nothing":    {second(router.In(fsm.DefaultNamespace).PurgeEntity(ctx, "orders", 0, time.Time{}, 0)), fsm.InvalidArgument},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v", name, c.err)
		}
	}
	router.Purge(at, 0, 0, func(code fsm.Code, n int) {
		if code != fsm.InvalidArgument || n != 0 {
			t.Errorf("purge none: %v %d", code, n)
		}
	})
	// A time before 1970 is before all messages; it does not mean "all".
	sendMessage(t, c.nodes[0], at, "x")
	if n, err := router.In(fsm.DefaultNamespace).PurgeEntity(ctx, "orders", 0, time.Unix(-5, 0), 10); n != 0 || err != nil {
		t.Errorf("purged %d, %v", n, err)
	}
}

// TestPurgeOfASessionLeavesTheOthers checks that purging one session removes the unlocked messages of that session, whether or
// not it is locked, and nothing else; the holder keeps the session.
func TestPurgeOfASessionLeavesTheOthers(t *testing.T) {
	t.Parallel()
	for name, partitions := range map[string]func(*fsm.EntitySettings){
		"queue": withSessions, "partitioned queue": both(partitioned, withSessions),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
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
		})
	}
}

// TestPurgeSessionInBatches purges more messages than are locked at a time.
func TestPurgeSessionInBatches(t *testing.T) { inBubble(t, purgeSessionInBatches) }

func purgeSessionInBatches(t *testing.T) {
	c := newBubbleCluster(t, 1, 1)
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

func TestPurgeOfASessionRefusesInvalidRequests(t *testing.T) {
	inBubble(t, purgeOfASessionRefusesInvalidRequests)
}

func purgeOfASessionRefusesInvalidRequests(t *testing.T) {
	c := newBubbleCluster(t, 1, 1)
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
