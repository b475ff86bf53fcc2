package simfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/partition/raftlog"
)

func newDisk(seed uint64) *Disk { return New(rand.New(rand.NewPCG(seed, 1))) }

// must fails the test on an error.
func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, f *FS, path string, content []byte) disk.File {
	t.Helper()
	opened, err := disk.Create(f, path)
	must(t, err)
	_, err = opened.Write(content)
	must(t, err)
	return opened
}

func TestACrashKeepsWhatWasSynced(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		d := newDisk(seed)
		f := d.Mount()
		must(t, f.MkdirAll("/a/b", 0o700), f.SyncFolder("/"), f.SyncFolder("/a"))
		must(t, disk.WriteSynced(f, "/a/b/x", []byte("one"), disk.FileMode))
		must(t, disk.WriteFile(f, "/a/b/x.new", []byte("two"), 0o600), f.Rename("/a/b/x.new", "/a/b/x"), f.SyncFolder("/a/b"))
		must(t, disk.WriteSynced(f, "/a/b/gone", nil, disk.FileMode), f.Remove("/a/b/gone"), f.SyncFolder("/a/b"))
		d.Crash()
		f = d.Mount()
		if got, err := f.ReadFile("/a/b/x"); err != nil || string(got) != "two" {
			t.Fatalf("seed %d: %q, %v", seed, got, err)
		}
		if names, err := f.ReadDir("/a/b"); err != nil || len(names) != 1 {
			t.Fatalf("seed %d: %v, %v", seed, names, err)
		}
	}
}

// Every outcome that a disk may have is one that some crash leaves: content without its name, a name without
// its content, a write torn at a sector, a later write without an earlier one.
func TestACrashLosesWhatWasNotSynced(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	block := bytes.Repeat([]byte{1}, 4*sectorBytes)
	for seed := range uint64(1000) {
		d := newDisk(seed)
		f := d.Mount()
		opened := create(t, f, "/x", block)
		must(t, opened.Sync())
		_, err := opened.WriteAt(block, int64(len(block)))
		must(t, err)
		_, err = opened.WriteAt(block, int64(2*len(block)))
		must(t, err)
		d.Crash()
		if _, err := opened.Write(block); !errors.Is(err, fs.ErrClosed) {
			t.Fatal("written after the process ended", err)
		}
		got, err := d.Mount().ReadFile("/x")
		switch n := len(got) / len(block); {
		case errors.Is(err, fs.ErrNotExist):
			seen["no name"]++
		case err != nil || n == 0 || !bytes.Equal(got[:len(block)], block):
			t.Fatalf("seed %d: synced bytes are lost: %v", seed, err)
		case len(got)%len(block) != 0 && len(got)%sectorBytes == 0:
			seen["torn"]++
		case n == 3 && got[len(block)] == 0:
			seen["the second without the first"]++
		default:
			seen[fmt.Sprint(n, " blocks")]++
		}
	}
	for _, outcome := range []string{"no name", "torn", "the second without the first", "1 blocks", "2 blocks", "3 blocks"} {
		if seen[outcome] == 0 {
			t.Errorf("no crash left %q: %v", outcome, seen)
		}
	}
}

func TestARenameIsOnDiskAsAWhole(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for seed := range uint64(100) {
		d := newDisk(seed)
		f := d.Mount()
		must(t, disk.WriteSynced(f, "/x", []byte("old"), disk.FileMode), disk.WriteSynced(f, "/y", []byte("new"), disk.FileMode))
		must(t, f.Rename("/y", "/x"))
		d.Crash()
		f = d.Mount()
		content, err := f.ReadFile("/x")
		must(t, err)
		_, gone := f.Stat("/y")
		seen[string(content)]++
		if (string(content) == "new") != errors.Is(gone, fs.ErrNotExist) {
			t.Fatalf("seed %d: %s, %v", seed, content, gone)
		}
	}
	if seen["old"] == 0 || seen["new"] == 0 {
		t.Error(seen)
	}
}

func TestAKilledProcessLosesNothingAndItsLock(t *testing.T) {
	t.Parallel()
	d := newDisk(1)
	f := d.Mount()
	create(t, f, "/x", []byte("one"))
	_, err := f.Lock("/lock")
	must(t, err)
	if _, err := f.Lock("/lock"); err == nil {
		t.Fatal("locked twice")
	}
	d.Kill()
	if _, err := f.Stat("/x"); !errors.Is(err, fs.ErrClosed) {
		t.Error(err)
	}
	f = d.Mount()
	held, err := f.Lock("/lock")
	must(t, err, held.Close())
	_, err = f.Lock("/lock")
	must(t, err)
	if got, err := f.ReadFile("/x"); err != nil || string(got) != "one" {
		t.Error(string(got), err)
	}
}

func TestAFailedSyncLosesItsWrites(t *testing.T) {
	t.Parallel()
	d := newDisk(1)
	f := d.Mount()
	must(t, disk.WriteSynced(f, "/x", nil, disk.FileMode))
	opened, err := disk.OpenWritable(f, "/x")
	must(t, err)
	_, err = opened.Write([]byte("lost"))
	must(t, err)
	d.FailNext(Sync, syscall.EIO)
	if err := opened.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	must(t, opened.Sync())
	d.Crash()
	if got, err := d.Mount().ReadFile("/x"); err != nil || len(got) != 0 {
		t.Errorf("%q, %v", got, err)
	}
}

func TestAFullDiskRefusesWhatGrows(t *testing.T) {
	t.Parallel()
	d := newDisk(1)
	f := d.Mount()
	opened := create(t, f, "/x", []byte("four"))
	log, _, err := f.OpenLog("/log")
	must(t, err, log.StoreLogs([]*raft.Log{{Index: 1}}))
	d.SetFull(true)
	_, grown := opened.WriteAt([]byte("56"), 3)
	_, created := disk.Create(f, "/y")
	for _, err := range []error{grown, created, f.Mkdir("/z", 0o700), log.Set([]byte("k"), nil)} {
		if !disk.IsNoSpace(err) {
			t.Error(err)
		}
	}
	if free, total, err := d.Space("/"); free != 0 || total == 0 || err != nil {
		t.Error(free, total, err)
	}
	_, err = opened.WriteAt([]byte("FOUR"), 0)
	must(t, err, log.DeleteRange(1, 1))
	d.SetFull(false)
	must(t, f.Mkdir("/z", 0o700))
}

func TestFlipBitChangesOneBit(t *testing.T) {
	t.Parallel()
	d := newDisk(1)
	f := d.Mount()
	must(t, disk.WriteSynced(f, "/x", []byte{0, 0, 0}, disk.FileMode))
	log, _, err := f.OpenLog("/log")
	must(t, err, log.StoreLogs([]*raft.Log{{Index: 7, Data: []byte{0}}}))
	for _, path := range d.Files() {
		if !d.FlipBit(path) {
			t.Error(path)
		}
	}
	content, err := f.ReadFile("/x")
	must(t, err)
	if bytes.Equal(content, []byte{0, 0, 0}) {
		t.Error("no bit is flipped")
	}
	var e raft.Log
	must(t, log.GetLog(7, &e))
	if e.Data[0] == 0 {
		t.Error("no bit of the log is flipped")
	}
	if d.FlipBit("/none") {
		t.Error("a file that is not there")
	}
}

func TestALogKeepsWhatItConfirmed(t *testing.T) {
	t.Parallel()
	d := newDisk(1)
	log, _, err := d.Mount().OpenLog("/log")
	must(t, err)
	const group = 3 << 40
	for i := range uint64(20) {
		must(t, log.StoreLogs([]*raft.Log{{Index: group | (i + 1), Term: 2, Data: []byte{byte(i)}}}))
	}
	must(t, log.DeleteRange(group|1, group|5), log.Set([]byte("vote"), []byte("m1")))
	d.root.syncNames(len(d.root.unsynced))
	d.Crash()
	log, ranges, err := d.Mount().OpenLog("/log")
	must(t, err)
	if ranges[3] != (raftlog.IndexRange{First: 6, Last: 20}) || len(ranges) != 1 {
		t.Error(ranges)
	}
	if v, err := log.Get([]byte("vote")); err != nil || string(v) != "m1" {
		t.Error(string(v), err)
	}
	var e raft.Log
	if err := log.GetLog(group|5, &e); !errors.Is(err, raft.ErrLogNotFound) {
		t.Error(err)
	}
}

func TestACrashKeepsAllOrNothingOfATransaction(t *testing.T) {
	t.Parallel()
	kept := map[int]int{}
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			d := newDisk(seed)
			f := d.Mount()
			log, _, err := f.OpenLog("/log")
			must(t, err, f.SyncFolder("/"))
			d.SetDelay(time.Second)
			done := make(chan error, 1)
			go func() { done <- log.StoreLogs([]*raft.Log{{Index: 1}, {Index: 2}}) }()
			synctest.Wait()
			d.Crash()
			if err := <-done; !errors.Is(err, fs.ErrClosed) {
				t.Error(err)
			}
			_, ranges, err := d.Mount().OpenLog("/log")
			must(t, err)
			if r := ranges[0]; r.Last-r.First != 0 && r.Last != 2 {
				t.Error(ranges)
			}
			kept[int(ranges[0].Last)]++
		})
	}
	if kept[0] == 0 || kept[2] == 0 || len(kept) != 2 {
		t.Error(kept)
	}
}
