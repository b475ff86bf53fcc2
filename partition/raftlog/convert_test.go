package raftlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/partition/raftlog"
	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/test/sim/simfs"
)

const (
	convertedGroups = 3
	convertedPath   = "/raft.db" // in a folder whose own name is durable
)

// simLog is the configuration of a log on a simulated disk.
func simLog(d *simfs.Disk, kind raftlog.Kind) raftlog.Config {
	files := d.Mount()
	return raftlog.Config{
		Path: convertedPath, FS: files, OpenStore: files.OpenLog, Kind: kind, SegmentBytes: 4096, Logger: slog.New(slog.DiscardHandler),
	}
}

// fillLog writes entries, terms, votes and owners of some groups; the entries of two groups do not begin at 1, and the last group has none.
func fillLog(t *testing.T, cfg raftlog.Config) {
	t.Helper()
	l, err := raftlog.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for id := range fsm.PartitionID(convertedGroups) {
		g, err := l.Group(id)
		if err != nil {
			t.Fatal(err)
		}
		var list []*raft.Log
		for i := uint64(1); i <= 20 && id < convertedGroups-1; i++ {
			list = append(list, &raft.Log{
				Index: i, Term: 1 + i/7, Type: raft.LogType(i % 2), Data: bytes.Repeat([]byte{byte(i)}, int(100*(i%9))), Extensions: []byte{byte(i)}, AppendedAt: time.Unix(int64(i), 0),
			})
		}
		err = errors.Join(
			g.StoreLogs(list), g.DeleteRange(1, uint64(2*id)), g.SetOwner(fmt.Sprint("replica ", id)), g.SetTerm(7),
			g.SetUint64([]byte("LastVoteTerm"), 6), g.Set([]byte("LastVoteCand"), []byte("somebody")),
		)
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// contentOf returns all that a log holds, as text.
func contentOf(t *testing.T, cfg raftlog.Config) (content []string, err error) {
	t.Helper()
	l, err := raftlog.Open(cfg)
	if err != nil {
		return nil, err
	}
	for id := range fsm.PartitionID(convertedGroups) {
		g, err := l.Group(id)
		if err != nil {
			t.Fatal(err)
		}
		first, _ := g.FirstIndex()
		last, _ := g.LastIndex()
		owner, err := g.Owner()
		if err != nil {
			t.Fatal(err)
		}
		term, _ := g.GetUint64([]byte("CurrentTerm"))
		voted, _ := g.VoteTerm()
		candidate, _ := g.Get([]byte("LastVoteCand"))
		content = append(content, fmt.Sprintf("%d: %d to %d of %q, term %d, vote %d for %q", id, first, last, owner, term, voted, candidate))
		for i := first; i <= last && last > 0; i++ {
			var e raft.Log
			if err := g.GetLog(i, &e); err != nil {
				t.Fatalf("entry %d of group %d: %v", i, id, err)
			}
			content = append(content, fmt.Sprint(e.Index, e.Term, e.Type, len(e.Data), crc32.ChecksumIEEE(e.Data), string(e.Extensions), e.AppendedAt.Unix()))
		}
	}
	return content, l.Close()
}

// convert moves a log into a store of the other kind, or of the same one.
func convert(cfg raftlog.Config, to raftlog.Kind) error {
	if to == raftlog.Bolt {
		return raftlog.ReturnToBolt(cfg)
	}
	cfg.Kind = raftlog.Journal
	l, err := raftlog.Open(cfg)
	if err != nil {
		return err
	}
	return l.Close()
}

// TestConversionKeepsTheWholeLog checks that entries, terms, votes and owners are the same after both conversions, also
// in real files, and that a second conversion changes nothing.
func TestConversionKeepsTheWholeLog(t *testing.T) {
	t.Parallel()
	cfg := raftlog.Config{Path: filepath.Join(kit.MemoryDir(t), "raft.db"), Kind: raftlog.Bolt, SegmentBytes: 4096, Logger: slog.New(slog.DiscardHandler)}
	fillLog(t, cfg)
	want, err := contentOf(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range []raftlog.Kind{raftlog.Journal, raftlog.Journal, raftlog.Bolt, raftlog.Bolt, raftlog.Journal} {
		if err := convert(cfg, to); err != nil {
			t.Fatalf("to %s: %v", to, err)
		}
		cfg.Kind = to
		got, err := contentOf(t, cfg)
		if err != nil {
			t.Fatalf("to %s: %v", to, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("to %s:\n%s", to, diff)
		}
		_, err = disk.OS{}.Stat(filepath.Join(filepath.Dir(cfg.Path), raftlog.JournalFolder))
		if found := err == nil; found != (to == raftlog.Journal) {
			t.Errorf("to %s: a folder of a journal is there: %t", to, found)
		}
	}
}

// TestConversionSurvivesALossOfPowerAtEveryStep checks that at any time during a conversion exactly one of the two
// stores is the log, and that it is whole: opened as a journal, the log holds everything, and opened without one, it
// holds everything or refuses.
func TestConversionSurvivesALossOfPowerAtEveryStep(t *testing.T) {
	t.Parallel()
	for from, to := range map[raftlog.Kind]raftlog.Kind{raftlog.Bolt: raftlog.Journal, raftlog.Journal: raftlog.Bolt} {
		t.Run("to "+string(to), func(t *testing.T) {
			t.Parallel()
			finished := false
			for step := 0; !finished; step++ {
				for seed := range uint64(4) {
					finished = crashConversion(t, from, to, step, seed)
				}
			}
		})
	}
}

// crashConversion lets the power fail after some steps of a conversion. It reports whether that was later.
func crashConversion(t *testing.T, from, to raftlog.Kind, step int, seed uint64) (finished bool) {
	t.Helper()
	d := simfs.New(rand.New(rand.NewPCG(seed, uint64(step))))
	fillLog(t, simLog(d, from))
	want, err := contentOf(t, simLog(d, from))
	if err != nil {
		t.Fatal(err)
	}
	check := func(kind raftlog.Kind) (refused bool) {
		t.Helper()
		got, err := contentOf(t, simLog(d, kind))
		if kind == raftlog.Bolt && errors.Is(err, raftlog.ErrOtherKind) {
			return true
		}
		if err != nil {
			t.Fatalf("step %d, seed %d, opened as %s: %v", step, seed, kind, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("step %d, seed %d, opened as %s:\n%s", step, seed, kind, diff)
		}
		return false
	}
	cfg := simLog(d, from)
	d.CrashAfter(step)
	finished = convert(cfg, to) == nil
	d.CrashAfter(-1)
	d.Crash()
	if refused := check(raftlog.Bolt); finished && refused != (to == raftlog.Journal) {
		t.Errorf("a conversion to %s that has ended is not there", to)
	}
	if to == raftlog.Bolt {
		if err := convert(simLog(d, from), to); err != nil {
			t.Fatalf("step %d, seed %d: repeated: %v", step, seed, err)
		}
		if check(raftlog.Bolt) {
			t.Errorf("step %d, seed %d: repeated, and still a journal", step, seed)
		}
	}
	check(raftlog.Journal)
	return finished
}
