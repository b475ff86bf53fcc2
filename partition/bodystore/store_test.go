package bodystore

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/test/kit"
)

func testBody(i int) []byte { return fmt.Appendf(nil, "body %d", i) }

// failed fails the test when the store would stop its group.
func failed(t *testing.T) func(error) {
	return func(err error) { t.Errorf("stopped: %v", err) }
}

func testBodies(t *testing.T, dir string, segBytes int64, listed []SegmentSize) *Store {
	t.Helper()
	b := kit.Must(Open(disk.OS{}, dir, segBytes, listed, failed(t)))(t)
	b.Retain(listed)
	kit.OK(t, b.TruncateToSnapshot(listed))
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func owner(i int) fsm.Owner {
	return fsm.Owner{Address: fsm.Address{Entity: 3, Sub: 1}, Sequence: fsm.SequenceNumber(i), Patch: i%2 == 0}
}

func TestBodiesAreReadBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := testBodies(t, dir, 64<<10, nil)
	rng := rand.New(rand.NewPCG(1, 2))
	var refs []fsm.Ref
	var want [][]byte
	for i := range 500 {
		body := make([]byte, rng.IntN(3000))
		if i == 250 {
			body = make([]byte, 200<<10) // larger than a segment: gets a segment of its own
		}
		for j := range body {
			body[j] = byte(rng.Uint32())
		}
		refs, want = append(refs, b.Append(owner(i), body)), append(want, body)
		if got := b.Read(refs[i]); !bytes.Equal(got, body) {
			t.Fatalf("body %d before the flush", i)
		}
		if i%7 == 0 {
			kit.OK(t, b.Flush())
		}
	}
	kit.OK(t, b.Flush())
	var ds []fsm.Delivery
	for i, r := range refs {
		if !bytes.Equal(b.Read(r), want[i]) {
			t.Fatalf("body %d", i)
		}
		ds = append(ds, fsm.Delivery{Body: r})
	}
	for len(ds) > 0 {
		n := min(len(ds), 1+rng.IntN(40))
		got, err := b.ReadBodies(ds[:n])
		if err != nil || len(got) != n {
			t.Fatal(len(got), err)
		}
		for i, d := range got {
			if !bytes.Equal(d.Payload, want[i]) {
				t.Fatalf("delivered body of %d bytes differs", len(want[i]))
			}
		}
		ds, want = ds[n:], want[n:]
	}
}

func TestUnreferencedSegmentsAreDeleted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := testBodies(t, dir, 4<<10, nil)
	var refs []fsm.Ref
	for i := range 10 {
		refs = append(refs, b.Append(owner(i), make([]byte, 1000)))
	}
	list := kit.Must(b.Freeze())(t)
	before := kit.CountFiles(t, dir, "*.seg")
	b.Pin()
	for _, r := range refs {
		b.Release(r)
	}
	if n := kit.CountFiles(t, dir, "*.seg"); n != before {
		t.Errorf("%d of %d segments left while a snapshot refers to them", n, before)
	}
	b.ReleaseSegments(list)
	if n := kit.CountFiles(t, dir, "*.seg"); n != before {
		t.Errorf("%d of %d segments left while a delivery is read", n, before)
	}
	if got, err := b.ReadBodies([]fsm.Delivery{{Body: refs[0]}}); err != nil || len(got) != 1 {
		t.Errorf("a pinned body: %d, %v", len(got), err)
	}
	b.Unpin()
	if n := kit.CountFiles(t, dir, "*.seg"); n != 1 {
		t.Errorf("%d segments, want only the active one", n)
	}
	got, err := b.ReadBodies([]fsm.Delivery{{Body: refs[0]}, {Body: refs[1]}})
	if err != nil || len(got) != 0 {
		t.Errorf("bodies of a gone segment: %d, %v", len(got), err)
	}
}

// TestFewRecordsWaitInMemory: records are written when enough have gathered, and until then read from memory.
func TestFewRecordsWaitInMemory(t *testing.T) {
	t.Parallel()
	b := testBodies(t, t.TempDir(), SegmentBytesDefault, nil)
	body := bytes.Repeat([]byte("body"), 1<<10)
	var last fsm.Delivery
	for i := 0; b.end() < HeaderBytes+flushBytesMin-RecordBytes(last.Body) || last.Body.Size == 0; i++ {
		last.Body = b.Append(owner(i), body)
		if err := b.FlushFull(); err != nil || b.active.size != HeaderBytes {
			t.Fatalf("%d bytes were written of %d: %v", b.active.size, b.end(), err)
		}
	}
	filled := []fsm.Delivery{last}
	if !b.FillFromTail(filled) || !bytes.Equal(filled[0].Payload, body) {
		t.Error("a record that waits is not read from memory")
	}
	if _, err := b.ReadBodies([]fsm.Delivery{last}); !errors.Is(err, ErrUnwritten) {
		t.Errorf("a record that waits is read from the file: %v", err)
	}
	b.Append(owner(0), body)
	if err := b.FlushFull(); err != nil || b.active.size != b.end() {
		t.Fatalf("%d bytes were written of %d: %v", b.active.size, b.end(), err)
	}
	if got, err := b.ReadBodies([]fsm.Delivery{last}); err != nil || !bytes.Equal(got[0].Payload, body) {
		t.Errorf("a record that was written: %v", err)
	}
}

func TestDoubleReleaseIsRefused(t *testing.T) {
	t.Parallel()
	b := testBodies(t, t.TempDir(), 4<<10, nil)
	r := b.Append(owner(1), []byte("x"))
	b.Release(r)
	defer func() {
		if recover() == nil {
			t.Error("a second release went through")
		}
	}()
	b.Release(r)
}

// After a crash the segments are truncated to the sizes in the snapshot.
func TestSegmentsAreTruncatedToTheSnapshot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := testBodies(t, dir, 4<<10, nil)
	var kept []fsm.Ref
	for i := range 6 {
		kept = append(kept, b.Append(owner(i), testBody(i)))
	}
	list := kit.Must(b.Freeze())(t)
	kit.OK(t, b.Sync(list))
	for range 10 {
		b.Append(owner(9), make([]byte, 1500))
	}
	kit.OK(t, errors.Join(b.Flush(), b.Close()))
	b = testBodies(t, dir, 4<<10, list)
	if n := kit.CountFiles(t, dir, "*.seg"); n != len(list) {
		t.Errorf("%d segments, want %d", n, len(list))
	}
	for i, r := range kept {
		if !bytes.Equal(b.Read(r), testBody(i)) {
			t.Errorf("body %d", i)
		}
	}
}

// heldFolder holds the first sync of the folder of segments.
type heldFolder struct {
	disk.OS

	reached, open chan struct{}
	syncs         *atomic.Int32
}

func (f heldFolder) SyncFolder(path string) error {
	if f.syncs.Add(1) == 1 {
		close(f.reached)
		<-f.open
	}
	return f.OS.SyncFolder(path)
}

// While the folder is being synced for one caller, another one whose segments are synced already does not take their
// names for durable.
func TestNamesAreDurableWhenSyncReturns(t *testing.T) {
	t.Parallel()
	files := heldFolder{reached: make(chan struct{}), open: make(chan struct{}), syncs: new(atomic.Int32)}
	b := kit.Must(Open(files, t.TempDir(), 4<<10, nil, failed(t)))(t)
	t.Cleanup(func() { _ = b.Close() })
	b.Append(owner(1), testBody(1))
	list := kit.Must(b.Freeze())(t)
	first := make(chan error, 1)
	go func() { first <- b.Sync(list) }()
	<-files.reached
	if err := b.Sync(list); err != nil {
		t.Error(err)
	}
	if n := files.syncs.Load(); n != 2 {
		t.Errorf("the second caller relied on a sync that has not ended: %d syncs", n)
	}
	close(files.open)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if err := b.Sync(list); err != nil || files.syncs.Load() != 2 {
		t.Errorf("%d syncs of names that are durable: %v", files.syncs.Load(), err)
	}
}

// Damage is detected and never repaired by truncating.
func TestDamagedSegmentIsRefused(t *testing.T) {
	t.Parallel()
	make1 := func(t *testing.T) (string, []SegmentSize, fsm.Ref) {
		dir := t.TempDir()
		b := testBodies(t, dir, 4<<10, nil)
		r := b.Append(owner(1), bytes.Repeat([]byte("x"), 100))
		list := kit.Must(b.Freeze())(t)
		kit.OK(t, b.Close())
		return dir, list, r
	}
	t.Run("short", func(t *testing.T) {
		t.Parallel()
		dir, list, _ := make1(t)
		path := Path(dir, list[0].Number)
		kit.OK(t, os.Truncate(path, list[0].Size-1))
		if _, err := Open(disk.OS{}, dir, 4<<10, list, failed(t)); !errors.Is(err, disk.ErrDamaged) {
			t.Errorf("open: %v", err)
		}
		if info, err := os.Stat(path); err != nil || info.Size() != list[0].Size-1 {
			t.Error("the file was touched")
		}
	})
	t.Run("missing", func(t *testing.T) {
		t.Parallel()
		dir, list, _ := make1(t)
		kit.OK(t, os.Remove(Path(dir, list[0].Number)))
		if _, err := Open(disk.OS{}, dir, 4<<10, list, failed(t)); !errors.Is(err, disk.ErrDamaged) {
			t.Errorf("open: %v", err)
		}
	})
	for _, at := range []int64{0, 4, 8, 24, 25, 26, 125} {
		t.Run(fmt.Sprintf("bit flipped at %d of a record", at), func(t *testing.T) {
			t.Parallel()
			dir, list, r := make1(t)
			kit.FlipBit(t, Path(dir, r.Segment), int64(r.Offset)+at)
			b := testBodies(t, dir, 4<<10, list)
			if _, err := b.ReadBodies([]fsm.Delivery{{Body: r}}); !errors.Is(err, disk.ErrDamaged) {
				t.Errorf("read: %v", err)
			}
		})
	}
}

// BenchmarkBodiesAppend measures appending one body of 1 KiB, with 64 bodies per flush.
func BenchmarkBodiesAppend(b *testing.B) {
	bs, err := Open(disk.OS{}, b.TempDir(), SegmentBytesDefault, nil, func(err error) { b.Error(err) })
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = bs.Close() }()
	payload := make([]byte, 1024)
	b.SetBytes(1024)
	b.ReportAllocs()
	refs := make([]fsm.Ref, 0, 64)
	i := 0
	for b.Loop() {
		refs = append(refs, bs.Append(fsm.Owner{Sequence: fsm.SequenceNumber(i)}, payload))
		if i++; i%64 == 0 {
			if err := bs.Flush(); err != nil {
				b.Fatal(err)
			}
			for _, r := range refs {
				bs.Release(r)
			}
			refs = refs[:0]
		}
	}
}
