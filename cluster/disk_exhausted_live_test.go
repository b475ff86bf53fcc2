package cluster

import (
	"bytes"
	"path/filepath"
	"slices"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/test/kit"
)

// TestOperatorDeletesAtZeroBytesFree: on a disk with 0 bytes free, of which somebody else takes also what the ballast frees,
// a member still stores settlements and deletions, in its last reserve, and nothing that frees no space. What is deleted makes
// space for the reserves, and then for messages.
func TestOperatorDeletesAtZeroBytesFree(t *testing.T) { inBubble(t, operatorDeletesAtZeroBytesFree) }

func operatorDeletesAtZeroBytesFree(t *testing.T) {
	const reserve, ballast, message = 4 << 20, 512 << 10, 64 << 10
	c := newBubbleCluster(t, 1, 1)
	c.configs[0].Sizes = partition.Sizes{Segment: 256 << 10, Snapshot: 64 << 10, Trailing: 16 << 10, Reserve: reserve, Ballast: ballast, LogSegment: 64 << 10}
	c.startAll()
	node, files := c.nodes[0], c.hosts[0].disk
	has := func(name string) bool {
		return slices.ContainsFunc(files.Files(), func(path string) bool { return filepath.Base(path) == name })
	}
	files.SetFree(4 * reserve)
	kit.Eventually(t, "both reserves are there", func() bool { return has(disk.BallastFile) && has(disk.LastReserveFile) })
	large := c.makeIn(fsm.DefaultNamespace, fsm.QueueEntity, "large", func(s *fsm.EntitySettings) { s.MaxBytes, s.MaxMessageBytes = 1<<30, 2*message })
	small := c.makeIn(fsm.DefaultNamespace, fsm.QueueEntity, "small", func(s *fsm.EntitySettings) { s.LockDuration = 300_000 })
	sendMessage(t, node, small, "kept")
	sendMessage(t, node, small, "more")
	for range reserve / message {
		if code := sendCode(node, large, fsm.Message{Payload: bytes.Repeat([]byte("x"), message)}); code != fsm.OK {
			t.Fatalf("a send with space: got %v, want %v", code, fsm.OK)
		}
	}
	files.SetFree(reserve / 2)
	kit.Eventually(t, "the member is read-only", func() bool { return node.raftLog.DiskSpace().ReadOnly })
	r := node.Router().Receiver(small, false)
	defer r.Close()
	held := lockMessages(r, 1, waitMax)
	if len(held.deliveries) != 1 {
		t.Fatalf("%+v", held)
	}

	renew := func() []fsm.Code {
		renewed := make(chan []fsm.Code, 1)
		node.Router().Renew(small, []fsm.LockID{held.deliveries[0].Lock}, func(codes []fsm.Code, _ []fsm.Instant) { renewed <- codes })
		return <-renewed
	}
	// Renewals of a lock fill the log, and somebody else takes what becomes free.
	use := func(what string, done func() bool) {
		t.Helper()
		for range 20_000 {
			if done() {
				return
			}
			files.SetFree(0)
			renew()
		}
		t.Fatalf("not reached: %s", what)
	}
	use("the ballast is deleted", func() bool { return !has(disk.BallastFile) })
	if space := node.raftLog.DiskSpace(); !space.ReadOnly || space.Exhausted {
		t.Errorf("without ballast: %+v", space)
	}
	use("the last reserve is in use", func() bool { space := node.raftLog.DiskSpace(); return space.Exhausted })
	if has(disk.LastReserveFile) {
		t.Error("the last reserve is still there")
	}
	if codes := renew(); len(codes) != 1 || codes[0] != fsm.ServerBusy {
		t.Errorf("a renewal: got %v, want %v", codes, fsm.ServerBusy)
	}
	if got := lockMessages(r, 1, waitMax); len(got.deliveries) != 1 {
		t.Errorf("a receiver got %+v, want a message", got)
	}
	if code := settleMessage(t, node, small, held.deliveries[0].Lock, fsm.Complete); code != fsm.OK {
		t.Errorf("a settlement: %v", code)
	}
	if err := node.Router().In(fsm.DefaultNamespace).DeleteEntity(t.Context(), fsm.QueueEntity, "large"); err != nil {
		t.Errorf("a deletion: %v", err)
	}
	kit.Eventually(t, "there is space again", func() bool { return has(disk.LastReserveFile) && !node.raftLog.DiskSpace().Exhausted })
	kit.Eventually(t, "messages are stored again", func() bool { return trySend(node, small, "new") == fsm.OK })
	kit.Eventually(t, "both reserves are there again", func() bool { return has(disk.BallastFile) && has(disk.LastReserveFile) })
}
