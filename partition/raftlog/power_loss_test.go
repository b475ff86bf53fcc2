package raftlog

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// logContent is all that the groups of a log have confirmed.
type logContent struct {
	Ranges  map[fsm.PartitionID]IndexRange
	Entries map[fsm.PartitionID][]string
	Terms   map[fsm.PartitionID]uint64
}

func contentOf(t *testing.T, l *Log) logContent {
	t.Helper()
	c := logContent{map[fsm.PartitionID]IndexRange{}, map[fsm.PartitionID][]string{}, map[fsm.PartitionID]uint64{}}
	for id := range fsm.PartitionID(3) {
		g := testGroup(t, l, id)
		held := rangeOf(g)
		c.Ranges[id] = held
		for i := held.First; i <= held.Last && i > 0; i++ {
			var e raft.Log
			kit.OK(t, g.GetLog(i, &e))
			c.Entries[id] = append(c.Entries[id], fmt.Sprint(e.Index, e.Term, string(e.Data)))
		}
		c.Terms[id], _ = g.GetUint64([]byte(keyTerm))
	}
	return c
}

// changedPages lists the pages that a transaction has written: its data, and the one of the two meta pages that
// makes it valid.
func changedPages(before, after []byte) (data, meta []int) {
	size := os.Getpagesize()
	zeros := make([]byte, size)
	for at := 0; at < len(after); at += size {
		old := zeros
		if at < len(before) {
			old = before[at : at+size]
		}
		if bytes.Equal(old, after[at:at+size]) {
			continue
		}
		if at < 2*size {
			meta = append(meta, at)
		} else {
			data = append(data, at)
		}
	}
	return data, meta
}

// openAfterPowerLoss opens a log whose file has a content, and returns what the log holds.
func openAfterPowerLoss(t *testing.T, path string, file []byte) logContent {
	t.Helper()
	f := kit.Must(os.Create(path))(t)
	size := os.Getpagesize()
	zeros := make([]byte, size)
	kit.OK(t, f.Truncate(int64(len(file))))
	for at := 0; at < len(file); at += size {
		page := file[at : at+size]
		if bytes.Equal(page, zeros) {
			continue
		}
		kit.Must(f.WriteAt(page, int64(at)))(t)
	}
	kit.OK(t, f.Close())
	l := openTestLog(t, path, Bolt)
	defer func() { _ = l.Close() }()
	return contentOf(t, l)
}

// bbolt writes the pages of a transaction and syncs, then the meta page, and syncs again. A loss of power leaves
// any of the pages, torn at sectors, and no meta page; or all pages, and a part of the meta page. The log then
// opens and holds what was confirmed; the transaction is there as a whole or not at all.
func TestLogSurvivesALossOfPowerInEveryTransaction(t *testing.T) {
	t.Parallel()
	const seed, sector = 1, 512
	random := rand.New(rand.NewPCG(seed, 1))
	dir := kit.MemoryDir(t)
	path, lost := filepath.Join(dir, "raft.db"), filepath.Join(dir, "lost.db")
	l := openTestLog(t, path, Bolt)
	read := func() []byte {
		file := kit.Must(os.ReadFile(path))(t)
		return file
	}
	file, content, states := read(), contentOf(t, l), 0
	for n := range kit.Rounds(10, 30) {
		operate(t, l, random)
		after, afterContent := read(), contentOf(t, l)
		data, meta := changedPages(file, after)
		if len(data) == 0 || len(meta) != 1 {
			t.Fatalf("operation %d wrote %d pages and %d meta pages: not one transaction", n, len(data), len(meta))
		}
		check := func(what string, file []byte, want ...logContent) {
			states++
			got := openAfterPowerLoss(t, lost, file)
			if !slices.ContainsFunc(want, func(c logContent) bool { return cmp.Equal(c, got) }) {
				t.Fatalf("operation %d, %s:\n%s", n, what, cmp.Diff(want[0], got))
			}
		}
		for _, grown := range []int{len(file), len(after)} {
			some := append(slices.Clone(file), make([]byte, grown-len(file))...)
			for _, at := range data {
				for s := at; s < at+os.Getpagesize() && s < grown; s += sector {
					if random.IntN(2) == 0 {
						copy(some[s:s+sector], after[s:s+sector])
					}
				}
			}
			check("some sectors of its data", some, content)
		}
		all := slices.Clone(after)
		copy(all[meta[0]:meta[0]+os.Getpagesize()], file[meta[0]:])
		check("all data", all, content)
		torn := meta[0] + random.IntN(100)
		copy(all[meta[0]:torn], after[meta[0]:torn])
		check("a part of its meta page", all, content, afterContent)
		check("all of it", after, afterContent)
		file, content = after, afterContent
	}
	t.Logf("%d files opened", states)
}

// operate does one transaction: it appends, deletes at either end, or writes a term.
func operate(t *testing.T, l *Log, random *rand.Rand) {
	t.Helper()
	g := testGroup(t, l, fsm.PartitionID(random.IntN(3)))
	held := rangeOf(g)
	var err error
	switch kind := random.IntN(6); {
	case kind == 0 && held.Last > held.First:
		err = g.DeleteRange(held.First, held.First+random.Uint64N(held.Last-held.First))
	case kind == 1 && held.Last > held.First:
		err = g.DeleteRange(held.First+1+random.Uint64N(held.Last-held.First), held.Last)
	case kind == 2:
		term, _ := g.GetUint64([]byte(keyTerm))
		err = g.SetUint64([]byte(keyTerm), term+1)
	default:
		list := entries(held.Last+1, held.Last+1+random.Uint64N(40), 1)
		for _, e := range list {
			e.Data = append(e.Data, make([]byte, random.IntN(2000))...)
		}
		err = g.StoreLogs(list)
	}
	if err != nil {
		t.Fatal(err)
	}
}
