package partition

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/test/kit"
)

// With a disk that is really full, the follower or leader on it stalls, the others continue, nothing is
// damaged, and with free space it catches up by itself. It is reopened at the end, to verify its data.
func TestFullDiskLosesNothing(t *testing.T) {
	kit.Long(t)
	if testing.Short() {
		t.Skip("takes half a minute: raft waits longer and longer between its tries")
	}
	inBubble(t, func(t *testing.T) {
		small := kit.SmallDisk(t, "48m")
		ms := newMembers(t, 3, func(c *Config) {
			c.Sizes = Sizes{Segment: 1 << 20, Snapshot: 4 << 20, Trailing: 0, Reserve: -1, Ballast: 4 << 20}
		})
		ms[0].dir = small
		for _, m := range ms {
			m.start(1)
		}
		a := &asker{origin: 7}
		mustEventually(t, ms, a.next(), fsm.PutEntity{Entity: 1, Version: 1, Settings: settings()})
		transferTo(t, ms, ms[0])
		payload := bytes.Repeat([]byte("x"), 100<<10)
		g := ms[0].group(1)
		n := 0
		ballast := filepath.Join(small, "raftlog", disk.BallastFile)
		kit.Eventually(t, "the disk is full", func() bool {
			if g.Status().ReadOnly {
				return true
			}
			mustEventually(t, ms, a.next(), send(1, payload))
			n++
			return false
		})
		transferTo(t, ms, ms[1])
		for range 300 { // and much more, if it is accepted
			mustEventually(t, ms[1:], a.next(), send(1, payload))
			n++
		}
		if fileExists(ballast) {
			t.Error("the ballast is still there")
		}
		if s := g.Status(); s.Halted != nil {
			t.Fatalf("it stopped for good: %v", s.Halted)
		}
		t.Logf("%d messages of 100 KiB, %d bytes free, applied %d", n, ms[0].log.DiskSpace().Free, g.Status().Applied)

		// The others consume everything; the small disk gets its space back by itself.
		purged := uint64(0)
		for purged < uint64(n) {
			purged += mustEventually(t, ms[1:], a.next(), fsm.PurgeMessages{Address: fsm.Address{Entity: 1}, Max: 1000}).Count
		}
		kit.OK(t, syscall.Mount("none", small, "tmpfs", syscall.MS_REMOUNT, "size=96m"))
		for _, m := range ms[1:] { // their snapshots contain no bodies then
			kit.OK(t, m.group(1).Snapshot(t.Context()))
		}
		waitCaughtUp(t, ms[1:], ms[0])
		kit.Eventually(t, "it takes messages again", func() bool { return !g.Status().ReadOnly })
		mustEventually(t, ms, a.next(), send(1, []byte("after")))
		sameEverywhere(t, ms)
		ms[0].stop()
		ms[0].start(1)
		waitCaughtUp(t, ms[1:], ms[0])
		sameEverywhere(t, ms)
		if s := ms[0].group(1).Status(); s.Halted != nil {
			t.Error(s.Halted)
		}
	})
}

// A single member on a full disk keeps confirmed messages, consuming frees space without an operator, and
// then the member accepts messages again.
func TestConsumingFreesAFullDisk(t *testing.T) {
	kit.Long(t)
	inBubble(t, func(t *testing.T) {
		small := kit.SmallDisk(t, "64m")
		ms := newMembers(t, 1, func(c *Config) {
			c.Sizes = Sizes{Segment: 1 << 20, Snapshot: 2 << 20, Trailing: 0, Reserve: 16 << 20, Ballast: 4 << 20}
		})
		m := ms[0]
		m.dir = small
		m.start(1)
		_, g := leader(t, ms, 1)
		a := &asker{origin: 7}
		must(t, g, a.next(), fsm.PutEntity{Entity: 1, Version: 1, Settings: settings()})
		payload := bytes.Repeat([]byte("x"), 100<<10)
		n := uint64(0)
		kit.Eventually(t, "the disk is nearly full", func() bool {
			x := ask(t, g, a.next(), send(1, payload))
			if x.Outcome == Done {
				n++
			}
			return x.Result.Code == fsm.ServerBusy
		})
		r := &asker{origin: 7, receiver: 1}
		for got := uint64(0); got < n; {
			x := lock(t, g, r.next(), lockOf(1, 10), time.Second)
			for _, d := range x.Result.Deliveries {
				must(t, g, a.next(), fsm.SettleMessages{Address: fsm.Address{Entity: 1}, Settlements: []fsm.Settlement{{Lock: d.Lock, Verb: fsm.Complete}}})
				got++
			}
		}
		kit.Eventually(t, "a send is accepted again", func() bool { return ask(t, g, a.next(), send(1, payload)).Outcome == Done })
		if n < 100 || g.Status().Halted != nil {
			t.Errorf("%d messages went in, %v", n, g.Status().Halted)
		}
	})
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
