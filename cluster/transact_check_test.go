package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// checked asks a member whether a transaction could settle under locks, or without locks send.
func checked(node *Node, at fsm.EntityRef, locks ...fsm.LockID) []fsm.Code {
	done := make(chan []fsm.Code, 1)
	node.Router().Check(at, locks, func(codes []fsm.Code) { done <- codes })
	return <-done
}

// TestEveryMemberKnowsWhichLocksAreHeld: whether a lock is held, and an entity exists, is told by any member, also of a
// partitioned queue; a partition without a leader refuses nothing.
func TestEveryMemberKnowsWhichLocksAreHeld(t *testing.T) {
	inBubble(t, everyMemberKnowsWhichLocksAreHeld)
}

func everyMemberKnowsWhichLocksAreHeld(t *testing.T) {
	c := newBubbleCluster(t, 3, 2)
	c.startAll()
	for name, at := range map[string]fsm.EntityRef{"whole": c.make(fsm.QueueEntity, "whole", nil), "divided": c.make(fsm.QueueEntity, "divided", partitioned)} {
		sendMessage(t, c.nodes[0], at, "a")
		sendMessage(t, c.nodes[0], at, "b")
		receiver := c.nodes[0].Router().Receiver(at, false)
		var locks []fsm.LockID
		for len(locks) < 2 {
			for _, d := range lockMessages(receiver, 2, time.Minute).deliveries {
				locks = append(locks, d.Lock)
			}
		}
		receiver.Close()
		if code := settleMessage(t, c.nodes[1], at, locks[0], fsm.Complete); code != fsm.OK {
			t.Fatalf("%s: complete: %v", name, code)
		}
		for i, node := range c.nodes {
			if got := checked(node, at, locks...); !slices.Equal(got, []fsm.Code{fsm.MessageLockLost, fsm.OK}) {
				t.Errorf("%s: member %d says %v", name, i, got)
			}
			if got := checked(node, at); !slices.Equal(got, []fsm.Code{fsm.OK}) {
				t.Errorf("%s: member %d says %v of the entity", name, i, got)
			}
		}
	}
	nowhere := fsm.EntityRef{Entity: fsm.Entity{ID: 999, Partition: 1}}
	if got := checked(c.nodes[1], nowhere); !slices.Equal(got, []fsm.Code{fsm.EntityNotFound}) {
		t.Errorf("an entity that is not there: %v", got)
	}
	at := resolve(t, c.nodes[0], "whole")
	c.kill(1)
	c.kill(2)
	// A leader that has not noticed yet that it has no quorum may still tell what it knows.
	kit.Eventually(t, "without a leader no lock is refused", func() bool {
		return slices.Equal(checked(c.nodes[0], at, fsm.LockID{Sequence: 1, Epoch: 1}), []fsm.Code{fsm.OK})
	})
}
