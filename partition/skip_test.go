package partition

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/queue"
	"github.com/peeklock/peeklock/partition/raftlog"
	"github.com/peeklock/peeklock/test/kit"
)

// poisonedMachine panics on a command that contains poison.
type poisonedMachine struct{ *queue.Machine }

var poison = []byte("panics on every replica")

func (m poisonedMachine) Apply(env fsm.Env, command []byte) fsm.Result {
	if bytes.Contains(command, poison) {
		panic("planted")
	}
	return m.Machine.Apply(env, command)
}

// withStopped opens the log of a member that is stopped.
func withStopped(t *testing.T, m *member, do func(log *Log, dir string) error) error {
	t.Helper()
	log, err := raftlog.Open(raftlog.Config{Path: filepath.Join(m.dir, "raftlog", "0.db"), Kind: logKind(), SegmentBytes: 1 << 20, Logger: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}()
	return do(log, filepath.Join(m.dir, "groups", "1"))
}

// TestPoisonEntryIsSkipped: an entry on which the machine panics stops one replica after the other. With the mark of an operator two of three go
// on, its command gets the same refusal again when it is repeated, and the third one stops again and says at which entry.
func TestPoisonEntryIsSkipped(t *testing.T) {
	t.Parallel()
	ms := newMembers(t, 3, func(c *Config) {
		c.Machine = func(b fsm.Bodies) Machine { return poisonedMachine{queue.New(b)} }
	})
	a := startThree(t, ms)
	mustEventually(t, ms, a.next(), send(1, body(1)))
	_, g := leader(t, ms, 1)
	poisoned := a.next()
	poisoned.Low = 1
	g.Submit(fsm.AppendCommand(nil, poisoned, send(1, poison)), func(Answer) {})
	halted := func(m *member) error { return m.group(1).Status().Halted }
	stopped := func(want int, of ...*member) {
		t.Helper()
		kit.Eventually(t, "the replicas stop", func() bool {
			n := 0
			for _, m := range of {
				if halted(m) != nil {
					n++
				}
			}
			return n >= want
		})
	}
	stopped(2, ms...) // the last one may never learn that the entry is committed
	index := g.Status().Applied + 1
	var sum uint32
	for _, m := range ms {
		m.stop()
		kit.OK(t, withStopped(t, m, func(log *Log, _ string) error {
			e, got, err := StoredEntry(log, 1, index)
			if err != nil {
				return err
			}
			decoded, err := DecodeEntry(&e)
			if err == nil && (len(decoded.Commands) != 1 || decoded.Commands[0].Header != poisoned || decoded.Times.Wall == 0) {
				err = fmt.Errorf("entry %d is decoded as %+v", index, decoded)
			}
			sum = got
			return err
		}))
	}
	for what, of := range map[string]struct {
		index uint64
		sum   uint32
	}{"another checksum": {index, sum + 1}, "an entry that is not there": {index + 1000, sum}} {
		err := withStopped(t, ms[0], func(log *Log, dir string) error { return MarkSkipped(log, 1, dir, of.index, of.sum) })
		if !errors.Is(err, ErrSkip) {
			t.Errorf("%s is marked: %v, want ErrSkip", what, err)
		}
	}
	for _, m := range ms[:2] {
		for range 2 { // the second one changes nothing
			kit.OK(t, withStopped(t, m, func(log *Log, dir string) error { return MarkSkipped(log, 1, dir, index, sum) }))
		}
	}
	for _, m := range ms {
		m.start(1)
	}
	after := a.next()
	after.Low = poisoned.Low // keeps the answer
	mustEventually(t, ms[:2], after, send(1, body(2)))
	stopped(1, ms[2])
	if text := halted(ms[2]).Error(); !strings.Contains(text, fmt.Sprintf("entry %d with checksum %08x: planted", index, sum)) || !strings.Contains(text, poisonHint) {
		t.Errorf("the replica without the mark stopped with %q", text)
	}
	_, g = leader(t, ms[:2], 1)
	// The planted panic comes before the memory of answers, unlike a real one: so the repetition has another body.
	if got := ask(t, g, poisoned, send(1, body(9))); got.Outcome != Done || got.Result.Code != fsm.Internal {
		t.Errorf("the command of the entry was repeated: %+v, want Internal", got)
	}
	sameEverywhere(t, ms[:2])

	// The mark stays until a snapshot covers the entry.
	dir := filepath.Join(ms[0].dir, "groups", "1")
	marks := func(want int) {
		t.Helper()
		if marked, err := SkippedEntries(nil, dir); err != nil || len(marked) != want {
			t.Errorf("%d entries are marked (%v), want %d", len(marked), err, want)
		}
	}
	marks(1)
	kit.OK(t, ms[0].group(1).instance.Load().raft.Snapshot().Error())
	ms[0].stop()
	ms[0].start(1)
	marks(0)
	ms[0].stop()
	if err := withStopped(t, ms[0], func(log *Log, dir string) error { return MarkSkipped(log, 1, dir, index, sum) }); !errors.Is(err, ErrSkip) {
		t.Errorf("an entry that a snapshot covers is marked: %v, want ErrSkip", err)
	}
}
