package partition

import (
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/raftlog"
	"github.com/peeklock/peeklock/test/kit"
)

// A send that waits for the disk is logged with the stage in which it waited; fast operations are not logged.
func TestSlowEntryIsLogged(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const held, after = 300 * time.Millisecond, 250 * time.Millisecond
		store, lines := &heldStore{hold: make(chan struct{}, 1)}, &kit.LogLines{}
		ms := newMembers(t, 1, func(c *Config) {
			if store.Store == nil {
				c.Log.WrapStore(func(inner raftlog.Store) raftlog.Store {
					store.Store = inner
					return store
				})
			}
			c.SlowLogger, c.SlowAfter = slog.New(slog.NewTextHandler(lines, nil)), after
		})
		ms[0].start(1)
		_, g := leader(t, ms, 1)
		a := &asker{origin: 1}
		must(t, g, a.next(), fsm.PutEntity{Entity: 1, Version: 1, Settings: settings()})
		before := strings.Count(lines.String(), "slow operation")
		store.hold <- struct{}{}
		done := make(chan Answer, 1)
		g.Submit(fsm.AppendCommand(nil, a.next(), send(1, []byte("a secret"))), func(a Answer) { done <- a })
		kit.Eventually(t, "raft has taken it", func() bool { // and recorded it: further time counts for the quorum
			g.proposer.mu.Lock()
			defer g.proposer.mu.Unlock()
			return slices.ContainsFunc(g.proposer.inFlight, func(b *batch) bool { return !b.takenAt.IsZero() })
		})
		taken := time.Now()
		kit.Eventually(t, "it has waited", func() bool { return time.Since(taken) > held })
		<-store.hold
		await1(t, done)
		kit.Eventually(t, "a line", func() bool { return strings.Count(lines.String(), "slow operation") > before })
		one := regexp.MustCompile(`msg="slow operation" operation="log entry" partition=1 took=(\S+) queued=(\S+) raft=(\S+) quorum=(\S+) applied=(\S+) commands=1\n`)
		told := false // among others: on a busy machine any entry may be slow
		for _, line := range one.FindAllStringSubmatch(lines.String(), -1) {
			var parts [5]time.Duration
			for i := range parts {
				var err error
				if parts[i], err = time.ParseDuration(line[1+i]); err != nil {
					t.Fatal(err)
				}
			}
			took, queued, inRaft, quorum, applied := parts[0], parts[1], parts[2], parts[3], parts[4]
			if (queued + inRaft + quorum + applied - took).Abs() > time.Millisecond {
				t.Errorf("the parts are not the whole: %s", line[0])
			}
			told = told || quorum >= held
		}
		if !told || strings.Contains(lines.String(), "secret") {
			t.Errorf("%s", lines.String())
		}
	})
}

// Without SlowAfter nothing is logged, and without a logger neither.
func TestSlowLogIsOffByDefault(t *testing.T) {
	t.Parallel()
	var lines kit.LogLines
	g := &Group{}
	reader := bodyReader{g: g}
	g.cfg.logSlowEntry(slowEntry{})
	g.cfg.SlowAfter = time.Nanosecond
	reader.logSlowRead(readJob{}, time.Time{})
	g.cfg.SlowLogger, g.cfg.SlowAfter = slog.New(slog.NewTextHandler(&lines, nil)), 0
	reader.logSlowRead(readJob{}, time.Time{})
	if lines.String() != "" {
		t.Errorf("%s", lines.String())
	}
}
