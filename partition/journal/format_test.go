package journal

import (
	"bytes"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/test/golden"
	"github.com/peeklock/peeklock/test/kit"
)

// memoryCatalog is a catalog in memory.
type memoryCatalog map[string][]byte

func (c memoryCatalog) Get(key string) ([]byte, error) { return c[key], nil }

func (c memoryCatalog) Set(key string, value []byte) error {
	c[key] = value
	return nil
}

// goldenSegment is a segment with a batch of an entry, a copy and a deletion, and a mark, and its catalog.
func goldenSegment() (memoryCatalog, []byte) {
	id := [idBytes]byte{'j', 'o', 'u', 'r', 'n', 'a', 'l', '-', 'i', 'd'}
	head := segmentHead{id: id, seg: 7, base: 1 << 33, size: 4 * sectorBytes}
	batch := beginBatch(nil)
	batch = appendRecord(batch, kindAppend, &Entry{Group: 1, Type: 2, Index: 3, Term: 4, AppendedAt: 5, Data: []byte("data"), Extensions: []byte("extensions")})
	batch = appendRecord(batch, kindCopy, &Entry{Group: 6, Index: 7, Term: 8})
	batch = appendRecord(batch, kindAppend, &Entry{Group: 6, Index: 8, Term: 8})
	batch = appendRecord(batch, kindDelete, &Entry{Group: 6, Index: 7, Term: 7})
	batch = endBatch(batch, batchHead{id: id, position: head.base, synced: head.base, records: 4})
	end := head.base + uint64(len(batch))
	b := append(head.encode(), batch...)
	b = append(b, endBatch(beginBatch(nil), batchHead{id: id, position: end, synced: end})...)
	b = append(b, make([]byte, int(head.size)-len(b))...)
	return memoryCatalog{KeyID: id[:], keySegments: encodeCatalog([]*segment{{segmentHead: head}})}, b
}

// Segments and the catalog keep their format: what an older binary has written stays readable.
func TestJournalKeepsItsFormat(t *testing.T) {
	t.Parallel()
	catalog, written := goldenSegment()
	golden.Compare(t, "testdata/segment.golden", []byte(hex.Dump(written)))
	golden.Compare(t, "testdata/catalog.golden", []byte(hex.Dump(catalog[keySegments])))

	stored := kit.Must(os.ReadFile("testdata/segment.golden"))(t)
	dir := t.TempDir()
	kit.OK(t, os.WriteFile(filepath.Join(dir, "00000007.seg"), undump(t, string(stored)), disk.FileMode))
	j := kit.Must(Open(Config{FS: disk.OS{}, Dir: dir, Catalog: catalog, Logger: slog.New(slog.DiscardHandler)}))(t)
	defer func() { _ = j.Close() }()
	if diff := cmp.Diff(map[uint32]Range{1: {3, 3}, 6: {8, 8}}, j.Ranges()); diff != "" {
		t.Error(diff)
	}
	var got Entry
	kit.OK(t, j.Read(1, 3, &got))
	want := Entry{Group: 1, Type: 2, Index: 3, Term: 4, AppendedAt: 5, Data: []byte("data"), Extensions: []byte("extensions"), Sum: []byte{0x9c, 0x7d, 0x50, 0x62}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// undump reverses hex.Dump; a line with a star stands for none here, because hex.Dump writes all lines.
func undump(t *testing.T, text string) []byte {
	t.Helper()
	var all []byte
	for line := range strings.Lines(text) {
		if len(line) < 60 {
			continue
		}
		b := kit.Must(hex.DecodeString(strings.ReplaceAll(line[9:59], " ", "")))(t)
		all = append(all, b...)
	}
	return all
}

// The place of an entry takes 12 bytes of memory, whatever its data is.
func TestIndexIsSmall(t *testing.T) {
	t.Parallel()
	var g groupIndex
	for i := range uint64(100_000) {
		kit.Must(g.set(i+1, place{segment: 1}))(t)
	}
	for i := range uint64(100_000) {
		kit.Must(g.delete(i+1, i+1))(t)
		kit.Must(g.set(100_001+i, place{segment: 2}))(t)
	}
	if n := cap(g.places); n > 2*100_000 {
		t.Errorf("%d places for %d entries", n, len(g.places))
	}
}

// A group whose entries are not read in order, because some were copied, has no hole in the end, and a large hole
// takes no memory.
func TestIndexTakesEntriesInAnyOrder(t *testing.T) {
	t.Parallel()
	var g groupIndex
	for _, i := range []uint64{11, 5, 7, 6, 8, 10, 9} {
		if g.firstGap() == 0 && len(g.places) > 1 {
			t.Error("no gap before", i)
		}
		kit.Must(g.set(i, place{segment: uint32(i)}))(t)
	}
	if g.firstGap() != 0 || g.rangeOf() != (Range{5, 11}) || g.get(9).segment != 9 {
		t.Errorf("%+v", g)
	}
	for _, far := range []uint64{1 << 39, 1} {
		h := groupIndex{first: 1 << 38, places: make([]place, 1)}
		if _, err := h.set(far, place{segment: 1}); err == nil {
			t.Error("a hole of any size was taken")
		}
	}
	if _, err := g.delete(6, 7); err == nil {
		t.Error("a hole was made")
	}
}

// TestSumIsStoredAsGiven: the journal stores the checksum with which an entry comes, so an entry whose data has changed on the way is
// found when it is read.
func TestSumIsStoredAsGiven(t *testing.T) {
	t.Parallel()
	entry := Entry{Group: 1, Index: 1, Term: 1, Data: []byte("data")}
	computed := appendRecord(nil, kindAppend, &entry)
	r, n := decodeRecord(computed)
	if n != len(computed) || r.damaged {
		t.Fatalf("record of %d bytes read as %d, damaged %t", len(computed), n, r.damaged)
	}
	entry.Sum = r.Sum
	if again := appendRecord(nil, kindAppend, &entry); !bytes.Equal(again, computed) {
		t.Errorf("with its checksum the record is %x, want %x", again, computed)
	}
	entry.Data = []byte("datA")
	if r, n := decodeRecord(appendRecord(nil, kindAppend, &entry)); n == 0 || !r.damaged {
		t.Error("the checksum of an entry was computed again")
	}
}
