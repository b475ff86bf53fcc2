package bodystore

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/test/kit"
)

// A segment that could not be created on a full disk is created when there is space; bodies appended
// meanwhile wait in memory and are read from there.
func TestBodiesWaitInMemoryForAFullDisk(t *testing.T) {
	t.Parallel()
	small := kit.SmallDisk(t, "1m")
	b := kit.Must(Open(disk.OS{}, filepath.Join(small, "seg"), 64<<10, nil, func(err error) { t.Error(err) }))(t)
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	add := func(n int) (refs []fsm.Ref) {
		for i := range n {
			refs = append(refs, b.Append(fsm.Owner{Sequence: fsm.SequenceNumber(i + 1)}, bytes.Repeat(testBody(i), 100)))
			kit.OK(t, b.Flush())
		}
		return refs
	}
	refs := add(100)
	filler := filepath.Join(small, "filler")
	if err := disk.Allocate(disk.OS{}, filler, 1<<20); err == nil {
		t.Fatal("the disk is not full")
	}
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); err == nil {
		t.Fatal("the disk is not full")
	}
	refs = append(refs, add(200)...)
	if _, err := b.Freeze(); !disk.IsNoSpace(err) {
		t.Errorf("frozen without room: %v", err)
	}
	last := refs[len(refs)-1]
	if got := b.Read(last); !bytes.Equal(got, bytes.Repeat(testBody(199), 100)) {
		t.Error("what waits is not read")
	}
	if _, err := b.ReadBodies([]fsm.Delivery{{Body: last}}); !errors.Is(err, ErrUnwritten) {
		t.Errorf("what waits is read from the file: %v", err)
	}
	kit.OK(t, os.Remove(filler))
	refs = append(refs, add(30)...)
	if _, err := b.Freeze(); err != nil {
		t.Error(err)
	}
	for i, ref := range refs {
		ds, err := b.ReadBodies([]fsm.Delivery{{Body: ref}})
		if err != nil || len(ds[0].Payload) == 0 {
			t.Fatalf("%d: %v", i, err)
		}
	}
}
