package cluster

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/test/sim/simnet"
)

// reopenCounter counts the raft instances that a member reopens, by what it logs.
type reopenCounter struct {
	slog.Handler

	count *atomic.Int64
}

func (c reopenCounter) Enabled(context.Context, slog.Level) bool { return true }

func (c reopenCounter) Handle(ctx context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "being reopened") {
		c.count.Add(1)
	}
	return c.Handler.Handle(ctx, r)
}

func (c reopenCounter) WithAttrs([]slog.Attr) slog.Handler { return c }

// TestDiskIsFullForTenMinutes checks that a former leader which has to replace the end of its log, and whose disk is full when it
// returns, costs the cluster nothing until it has space: it reopens raft at most once for a truncation and not for each request that
// its leader repeats, does not read its log again and again, and causes no election.
func TestDiskIsFullForTenMinutes(t *testing.T) { inBubble(t, diskIsFullForTenMinutes) }

func diskIsFullForTenMinutes(t *testing.T) {
	const full = 10 * time.Minute
	c := newBubbleCluster(t, 3, 1)
	var reopened atomic.Int64
	for i := range c.configs {
		c.configs[i].Timing = Default().Timing // ten minutes of the timing of other tests take half a minute
		c.configs[i].Logger = slog.New(reopenCounter{c.configs[i].Logger.Handler(), &reopened})
	}
	c.startAll()
	at := createQueue(t, c.nodes[0], "q")
	sendMessage(t, c.nodes[0], at, "before")
	former := c.leader(at.Partition)
	disk, network := c.hosts[former].disk, c.hosts[former].network
	rest := c.nodes[(former+1)%3]

	cuts := make(map[simnet.Link]bool)
	for i := range c.nodes {
		if i != former {
			cuts[simnet.Link{From: i, To: former}], cuts[simnet.Link{From: former, To: i}] = true, true
		}
	}
	network.SetCuts(cuts)
	alone := c.nodes[former].replicas.Local(at.Partition)
	last := alone.Status().LastIndex
	go func() { _ = trySend(c.nodes[former], at, "alone") }()
	kit.Eventually(t, "it has an entry that no other member has", func() bool { return alone.Status().LastIndex > last })
	sendMessage(t, rest, at, "behind")
	disk.SetFull(true)
	network.SetCuts(nil)
	sleep(t.Context(), 10*time.Second)

	leader := rest.replicas.Local(at.Partition)
	read, term := disk.BytesRead(), leader.Status().Term
	sent := 0
	for end := time.Now().Add(full); time.Now().Before(end); sent++ {
		sendMessage(t, rest, at, "meanwhile")
		sleep(t.Context(), time.Second)
	}
	if n := reopened.Load(); n > 2 { // a truncation in partition 1, and one in the catalog
		t.Errorf("raft was reopened %d times in %s, not once for each truncation", n, full)
	}
	if now := leader.Status().Term; now != term {
		t.Errorf("%d elections while the disk was full", now-term)
	}
	if n := disk.BytesRead() - read; n > 1<<20 {
		t.Errorf("%d bytes were read from the full disk", n)
	}
	t.Logf("%d instances reopened, %d bytes read, %d messages", reopened.Load(), disk.BytesRead()-read, sent)
	disk.SetFull(false)
	kit.Eventually(t, "it has applied all entries", func() bool {
		return alone.Status().Applied >= leader.Status().Applied
	})
	if n := countMessages(t, rest, at).Active; n < uint64(sent)+2 {
		t.Errorf("%d messages of %d", n, sent+2)
	}
}
