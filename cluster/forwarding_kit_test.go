package cluster

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// newForwardingCluster starts three members that can decode the messages of these tests; each payload is its
// own id.
func newForwardingCluster(t *testing.T, partitions int) *testCluster {
	t.Helper()
	c := newBubbleCluster(t, 3, partitions)
	for i := range c.configs {
		c.configs[i].Reread = readWhole
	}
	return c
}

// forwards returns a change of settings that sets ForwardTo.
func forwards(to string) func(*fsm.EntitySettings) {
	return func(s *fsm.EntitySettings) { s.ForwardTo = to }
}

func forwardsDeadLetters(to string) func(*fsm.EntitySettings) {
	return func(s *fsm.EntitySettings) { s.ForwardDeadLettersTo = to }
}

// change updates the settings of an entity.
func (c *testCluster) change(at fsm.EntityRef, change func(*fsm.EntitySettings)) {
	c.t.Helper()
	settings := testSettings
	change(&settings)
	if _, err := c.any().Router().In(fsm.DefaultNamespace).UpdateEntity(c.t.Context(), at.Kind, at.Name, settings); err != nil {
		c.t.Fatal(err)
	}
}

func (c *testCluster) remove(at fsm.EntityRef) {
	c.t.Helper()
	if err := c.any().Router().In(fsm.DefaultNamespace).DeleteEntity(c.t.Context(), at.Kind, at.Name); err != nil {
		c.t.Fatal(err)
	}
}

// counted waits until the counts of an entity satisfy holds.
func (c *testCluster) counted(at fsm.EntityRef, what string, holds func(fsm.Counts) bool) {
	c.t.Helper()
	var last fsm.Counts
	c.t.Cleanup(func() {
		if c.t.Failed() {
			c.t.Logf("%s: %s: %+v", at.Name, what, last)
		}
	})
	kit.Eventually(c.t, at.Name+": "+what, func() bool {
		last = countMessages(c.t, c.any(), at)
		return holds(last)
	})
}

func active(n uint64) func(fsm.Counts) bool {
	return func(c fsm.Counts) bool { return c.Active == n && c.Transfer == 0 }
}

// taken is one message with its changes.
type taken struct {
	Payload string
	Hops    uint8
	Patches []fsm.Patch
}

// take removes up to most messages from an entity. It waits for the first, and then as long as there are more.
func (c *testCluster) take(at fsm.EntityRef, most int) (all []taken) {
	c.t.Helper()
	receiver := c.any().Router().Receiver(at, true)
	defer receiver.Close()
	wait := waitMax
	for len(all) < most {
		got := lockMessages(receiver, most-len(all), wait)
		if got.code != fsm.OK {
			c.t.Fatalf("receive from %s: %v", at.Name, got.code)
		}
		if len(got.deliveries) == 0 && (wait == waitMax || ready(c.t, c.any(), at) == 0) {
			return all // otherwise there was no leader: receive again
		}
		for _, d := range got.deliveries {
			patches, err := fsm.DecodePatches(d.Patches)
			if err != nil {
				c.t.Fatal(err)
			}
			all = append(all, taken{string(d.Payload), d.Hops, patches})
		}
		wait = 100 * time.Millisecond
	}
	return all
}

func sub(at fsm.EntityRef, sub fsm.SubQueue) fsm.EntityRef {
	return fsm.EntityRef{Entity: at.Entity, Sub: sub}
}

// reasons returns why messages were dead-lettered the last time.
func reasons(all []taken) (list []string) {
	for _, m := range all {
		reason := ""
		for _, p := range m.Patches {
			if p.DeadLetter {
				reason = p.Reason
			}
		}
		list = append(list, reason)
	}
	return list
}

// fillQueue sends n messages m0, m1, ... and returns them.
func (c *testCluster) fillQueue(at fsm.EntityRef, n int) map[string]int {
	c.t.Helper()
	sent := make(map[string]int, n)
	for from := 0; from < n; from += 500 {
		batch := make([]fsm.Message, 0, 500)
		for i := from; i < min(n, from+500); i++ {
			id := fmt.Sprintf("m%d", i)
			batch = append(batch, fsm.Message{ID: id, Payload: []byte(id)})
			sent[id] = 1
		}
		mustSend(c.t, c.any(), at, batch...)
	}
	return sent
}

// readGate lets a limited number of messages be read, and then none until it is opened again. A member that is
// closing is let through, because it waits for its readers.
type readGate struct {
	mu   sync.Mutex
	left int
	free map[int]bool
	more chan struct{}
	shut chan struct{} // buffer of one: a reader waits
}

func newReadGate(n int) *readGate {
	return &readGate{left: n, free: make(map[int]bool), more: make(chan struct{}), shut: make(chan struct{}, 1)}
}

// of returns the Reread function of a member.
func (v *readGate) of(member int) func(payload, patches []byte) (fsm.Message, error) {
	return func(payload, patches []byte) (fsm.Message, error) {
		v.mu.Lock()
		for v.left == 0 && !v.free[member] {
			more := v.more
			v.mu.Unlock()
			notify.WakeUp(v.shut)
			<-more
			v.mu.Lock()
		}
		if !v.free[member] {
			v.left--
		}
		v.mu.Unlock()
		return readWhole(payload, patches)
	}
}

// release lets a member through, or makes it wait like the others again.
func (v *readGate) release(member int, free bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.free[member] = free
	close(v.more)
	v.more = make(chan struct{})
}

func (v *readGate) open(n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.left = n
	close(v.more)
	v.more = make(chan struct{})
}

// batchMessagesMax is the most messages that one batch has.
const batchMessagesMax = 256

// readWhole is a Config.Reread: a payload is the whole message, and begins with the id.
func readWhole(payload, _ []byte) (fsm.Message, error) {
	return fsm.Message{ID: string(payload[:min(len(payload), 100)]), Payload: payload}, nil
}
