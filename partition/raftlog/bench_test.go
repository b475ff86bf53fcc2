package raftlog

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// BenchmarkOpen opens a log of 1 GiB in 64 groups, as the start of a member does.
func BenchmarkOpen(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10} {
		for _, kind := range []Kind{Bolt, Journal} {
			b.Run(fmt.Sprintf("entry=%d/%s", size, kind), func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					cfg := Config{Path: filepath.Join(b.TempDir(), "raft.db"), Kind: kind, Logger: slog.New(slog.DiscardHandler)}
					fillLog(b, cfg, 64, size, kit.Size(1<<30))
					b.StartTimer()
					l, err := Open(cfg)
					if err != nil {
						b.Fatal(err)
					}
					b.StopTimer()
					if err := l.Close(); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
			})
		}
	}
}

// fillLog writes entries of all groups by turns.
func fillLog(b *testing.B, cfg Config, groups, entryBytes, total int) {
	b.Helper()
	l, err := Open(cfg)
	if err != nil {
		b.Fatal(err)
	}
	const appendEntries = 64
	all := make([]*Group, groups)
	for i := range all {
		if all[i], err = l.Group(fsm.PartitionID(i + 1)); err != nil {
			b.Fatal(err)
		}
	}
	entries := make([]*raft.Log, appendEntries)
	data := make([]byte, entryBytes)
	for first := uint64(1); total > 0; first += appendEntries {
		for _, g := range all {
			if total <= 0 {
				break
			}
			for i := range entries {
				entries[i] = &raft.Log{Index: first + uint64(i), Term: 1, Data: data}
			}
			if err := g.StoreLogs(entries); err != nil {
				b.Fatal(err)
			}
			total -= appendEntries * entryBytes
		}
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
}
