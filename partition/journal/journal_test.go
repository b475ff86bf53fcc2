package journal_test

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/partition/journal"
	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/test/sim/simfs"
)

func newDisk(t *testing.T, seed uint64) (*simfs.Disk, *simfs.FS) {
	t.Helper()
	d := simfs.New(rand.New(rand.NewPCG(seed, 1)))
	files := d.Mount()
	return d, files
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	kit.OK(t, errors.Join(errs...))
}

// The power fails at every sector of every write of a workload, and with any sectors of those that were not
// synced. Each time the journal opens, holds what was confirmed, and the operation that ran as a whole or not at
// all; then it goes on.
func TestJournalSurvivesALossOfPowerAtEverySector(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const seed, operations, reordered = 1, 250, 4
		_, inner := newDisk(t, seed)
		files, catalog, m := newRecorder(inner), &values{set: map[string][]byte{}}, newModel(seed)
		random, states, torn := rand.New(rand.NewPCG(seed, 3)), 0, 0
		check := func(image map[string][]byte) {
			states++
			values := catalog.clone()
			lost := diskOf(t, image)
			j, err := open(lost, values)
			if err != nil {
				t.Fatalf("state %d does not open: %v", states, err)
			}
			got := contentOf(t, j)
			if !m.allows(got) {
				t.Fatalf("state %d holds something else: %s", states, m.diff(got))
			}
			e := journal.Entry{Group: 99, Index: 1, Data: []byte("goes on")}
			must(t, j.Append([]journal.Entry{e}), j.Close())
			j = mustOpen(t, lost, values)
			got[99] = []string{text(&e)}
			if diff := cmp.Diff(got, contentOf(t, j)); diff != "" {
				t.Fatal(diff)
			}
			must(t, j.Close())
		}
		files.onWrite = func() {
			sectors := files.sectors()
			image := files.image()
			for _, apply := range sectors[:len(sectors)-1] { // the last one completes the write: checked below
				torn++
				apply(image)
				check(image)
			}
			for range reordered {
				image := files.image()
				for _, apply := range sectors {
					if random.IntN(2) == 0 {
						apply(image)
					}
				}
				check(image)
			}
		}
		j := mustOpen(t, files, catalog)
		for n := range operations {
			must(t, m.run(j))
			if n%20 == 0 {
				<-time.After(200 * time.Millisecond) // a mark is written
				must(t, j.Close())
				j = mustOpen(t, files, catalog)
			}
			files.mu.Lock()
			check(files.image())
			files.mu.Unlock()
		}
		if diff := m.diff(contentOf(t, j)); diff != "" {
			t.Error(diff)
		}
		must(t, j.Close())
		t.Logf("%d states, %d of them torn writes", states, torn)
		if torn < operations/2 {
			t.Error("hardly any write was torn")
		}
	})
}

// Crashes of the simulated disk tear, reorder and lose writes and names, as chance has it, and processes end
// without a crash.
func TestJournalSurvivesCrashes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			d, files := newDisk(t, seed)
			catalog, m := &values{set: map[string][]byte{}}, newModel(seed)
			for range 12 {
				j := mustOpen(t, files, catalog)
				got := contentOf(t, j)
				if !m.allows(got) {
					t.Fatalf("seed %d: %s", seed, m.diff(got))
				}
				for range m.random.IntN(20) {
					must(t, m.run(j))
				}
				synctest.Wait()
				if m.random.IntN(2) == 0 {
					d.Crash()
				} else {
					d.Kill()
				}
				_ = j.Close()
				files = d.Mount()
			}
		})
	}
}

// A failed sync may have lost the batch although it can still be read. After that nothing more is written; and what
// the next process reads is on disk before it is used.
func TestWhatIsReadAfterAFailedSyncIsDurable(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			d, files := newDisk(t, seed)
			catalog := &values{set: map[string][]byte{}}
			j := mustOpen(t, files, catalog)
			must(t, j.Append([]journal.Entry{{Group: 1, Index: 1, Data: []byte("a")}}))
			d.FailNext(simfs.Sync, syscall.EIO)
			if err := j.Append([]journal.Entry{{Group: 1, Index: 2, Data: []byte("b")}}); !errors.Is(err, syscall.EIO) {
				t.Fatal(err)
			}
			if err := j.Append([]journal.Entry{{Group: 2, Index: 1}}); !errors.Is(err, syscall.EIO) {
				t.Errorf("written after a failed sync: %v", err)
			}
			d.Kill()
			_ = j.Close()
			j = mustOpen(t, d.Mount(), catalog)
			want := contentOf(t, j)
			d.Crash()
			_ = j.Close()
			j = mustOpen(t, d.Mount(), catalog)
			if diff := cmp.Diff(want, contentOf(t, j)); diff != "" {
				t.Error(diff)
			}
			must(t, j.Close())
		})
	}
}

// damaged opens a journal whose segment has a content, and describes what comes of it.
func damaged(t *testing.T, path string, segment []byte, catalog *values) (*journal.Journal, error) {
	t.Helper()
	return open(diskOf(t, map[string][]byte{path: segment}), catalog.clone())
}

// Every bit of a segment matters: flipped, the group of the entry is known to be damaged, or the journal does not
// open, or the bit is padding. No entry changes and none is missing.
func TestFlippedBitsAreFound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, files := newDisk(t, 1)
		catalog := &values{set: map[string][]byte{}}
		j := mustOpen(t, files, catalog)
		must(t,
			j.Append([]journal.Entry{{Group: 1, Type: 1, Index: 1, Term: 2, AppendedAt: 3, Data: []byte("first"), Extensions: []byte("x")}, {Group: 2, Index: 9}}),
			j.Append([]journal.Entry{{Group: 1, Index: 2, Term: 2, Data: bytes.Repeat([]byte("second"), 200)}}),
			j.Append([]journal.Entry{{Group: 1, Index: 3, Term: 2, Data: []byte("third")}}),
			j.DeleteRange(1, 3, 3))
		<-time.After(200 * time.Millisecond) // the mark is written
		synctest.Wait()
		want := contentOf(t, j)
		names, err := files.ReadDir(folder)
		must(t, err)
		path := folder + "/" + names[0].Name()
		segment, err := files.ReadFile(path)
		must(t, err, j.Close())
		outcomes := map[string]int{}
		end := len(bytes.TrimRight(segment, "\x00"))
		for bit := range 8 * end {
			if bit%8 != bit/8%8 {
				continue // one bit of each byte
			}
			flipped := slices.Clone(segment)
			flipped[bit/8] ^= 1 << (bit % 8)
			j, err := damaged(t, path, flipped, catalog)
			if err != nil {
				t.Fatalf("bit %d: %v", bit, err)
			}
			switch lost, damage := j.Lost(), j.Damage(1); {
			case lost != nil && (damage == nil || j.Damage(2) == nil):
				t.Fatalf("bit %d: a group opens although a part of the journal is lost: %v", bit, lost)
			case errors.Is(lost, journal.ErrUndecided): // the mark itself
				outcomes["undecided"]++
			case lost != nil:
				outcomes["damaged"]++
			case damage != nil:
				outcomes["group damaged"]++
				if err := j.Damage(2); err != nil {
					t.Errorf("bit %d: %v", bit, err)
				}
			default:
				outcomes["none"]++
				if diff := cmp.Diff(want, contentOf(t, j)); diff != "" {
					t.Fatalf("bit %d: %s", bit, diff)
				}
			}
			must(t, j.Close())
		}
		t.Log(outcomes)
		for _, outcome := range []string{"damaged", "undecided", "group damaged", "none"} {
			if outcomes[outcome] == 0 {
				t.Errorf("no flipped bit leads to %q", outcome)
			}
		}
	})
}

// A bad batch is damaged if a later one shows that it was synced, cut if a sector of it was never written, and otherwise
// undecided, also when it holds sectors of zeros: it is kept if it tells which groups are damaged, and cut on demand if it does not.
func TestBadBatchIsJudgedByWhatFollows(t *testing.T) {
	t.Parallel()
	zeros := append([]byte("begin"), make([]byte, 3*sectorBytes)...)
	const second = 2 * sectorBytes // the offset of the second batch; the first has one sector
	for _, x := range []struct {
		name   string
		marked bool
		change func(segment []byte)
		want   error
		cut    bool
	}{
		{"whole", false, func([]byte) {}, nil, false},
		{"a flipped bit", false, func(b []byte) { b[second+120] ^= 1 }, disk.ErrDamaged, false},
		{"a flipped bit of the head of a record", false, func(b []byte) { b[second+64+20] ^= 1 }, journal.ErrUndecided, false},
		{"a flipped bit of its head", false, func(b []byte) { b[second+40] ^= 1 }, journal.ErrUndecided, false},
		{"a sector that was not written", false, func(b []byte) { clear(b[second+3*sectorBytes : second+4*sectorBytes]) }, nil, true},
		{"its head was not written", false, func(b []byte) { clear(b[second : second+sectorBytes]) }, nil, true},
		{"a flipped bit, marked", true, func(b []byte) { b[second+120] ^= 1 }, disk.ErrDamaged, false},
		{"a flipped bit of its head, marked", true, func(b []byte) { b[second+40] ^= 1 }, disk.ErrDamaged, false},
		{"a sector that was not written, marked", true, func(b []byte) { clear(b[second+3*sectorBytes : second+4*sectorBytes]) }, disk.ErrDamaged, false},
		{"its head was not written, marked", true, func(b []byte) { clear(b[second : second+sectorBytes]) }, disk.ErrDamaged, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, files := newDisk(t, 1)
				catalog := &values{set: map[string][]byte{}}
				j := mustOpen(t, files, catalog)
				must(t, j.Append([]journal.Entry{{Group: 1, Index: 1}}), j.Append([]journal.Entry{{Group: 1, Index: 2, Data: slices.Concat(zeros, []byte("end"))}}))
				if x.marked {
					<-time.After(200 * time.Millisecond)
					synctest.Wait()
				}
				names, err := files.ReadDir(folder)
				must(t, err)
				path := folder + "/" + names[0].Name()
				segment, err := files.ReadFile(path)
				must(t, err, j.Close())
				x.change(segment)
				j, err = damaged(t, path, segment, catalog)
				must(t, err)
				if err = j.Damage(1); errors.Is(err, journal.ErrUndecided) {
					must(t, j.Close())
					checkCut(t, path, segment, catalog)
				} else {
					if err == nil && j.Ranges()[1].Last != map[bool]uint64{false: 2, true: 1}[x.cut] {
						t.Errorf("%+v", j.Ranges())
					}
					must(t, j.Close())
				}
				if !errors.Is(err, x.want) || (x.want == nil) != (err == nil) {
					t.Errorf("%v, want %v", err, x.want)
				}
			})
		})
	}
}

// checkCut checks that an undecided batch is cut when that is asked for, and only then.
func checkCut(t *testing.T, path string, segment []byte, catalog *values) {
	t.Helper()
	files := diskOf(t, map[string][]byte{path: segment})
	config := journal.Config{FS: files, Dir: folder, Catalog: catalog, SegmentBytes: segmentBytes, Logger: slog.New(slog.DiscardHandler)}
	for i, cut := range []bool{false, false, true, false} {
		config.CutUndecided = cut
		j := kit.Must(journal.Open(config))(t)
		<-time.After(200 * time.Millisecond) // no mark is written behind a batch that may be cut
		synctest.Wait()
		if got := j.Ranges()[1]; got != (journal.Range{First: 1, Last: 1}) || j.HasCut() != cut {
			t.Errorf("%+v, has cut: %t", got, j.HasCut())
		}
		if err := j.Damage(1); (err == nil) != (i >= 2) {
			t.Errorf("open %d: %v", i, err)
		}
		must(t, j.Close())
	}
}

// The file of the next segment is there before it is needed: the append that begins the segment creates none.
func TestNextSegmentIsPrepared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, files := newDisk(t, 1)
		j := mustOpen(t, files, &values{set: map[string][]byte{}})
		count := func() int {
			names, err := files.ReadDir(folder)
			must(t, err)
			return len(names)
		}
		const batches = segmentBytes/sectorBytes - 1 // in a segment, each of one sector
		for i := range uint64(3 * batches) {
			inSegment := int(i % batches)
			if inSegment == 0 && i > 0 {
				d.FailNext(simfs.Open, errors.New("a file is created"))
			}
			must(t, j.Append([]journal.Entry{{Group: 1, Index: i + 1}}))
			d.FailNext(simfs.Open, nil)
			synctest.Wait()
			want := 1 + int(i)/batches
			if 2*(inSegment+1) > batches {
				want++
			}
			if got := count(); got != want {
				t.Errorf("%d files after %d batches, want %d", got, i+1, want)
			}
		}
		must(t, j.Close())
	})
}

// The journal does not grow: segments are freed when their entries are deleted, and the few entries of a group that
// writes rarely are copied out of old ones.
func TestSegmentsAreFreed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, files := newDisk(t, 1)
		catalog := &values{set: map[string][]byte{}}
		j := mustOpen(t, files, catalog)
		must(t, j.Append([]journal.Entry{{Group: 3, Index: 1, Data: []byte("old")}, {Group: 3, Index: 2, Data: []byte("older")}}))
		most := int64(0)
		for i := uint64(1); i <= 500; i++ {
			must(t, j.Append([]journal.Entry{{Group: 1, Index: i, Data: make([]byte, 700)}}))
			if i > 10 {
				must(t, j.DeleteRange(1, i-10, i-10))
			}
			synctest.Wait()
			most = max(most, j.Bytes())
		}
		if live := int64(10 * 700); most > 2*live+8*segmentBytes {
			t.Errorf("%d bytes for %d", most, live)
		}
		names, err := files.ReadDir(folder)
		must(t, err)
		if int64(len(names)) > j.Bytes()/segmentBytes+1 { // one is prepared
			t.Errorf("%d files for %d bytes", len(names), j.Bytes())
		}
		want := contentOf(t, j)
		if diff := cmp.Diff([]string{"1.0 old", "2.0 older"}, want[3]); diff != "" {
			t.Error(diff)
		}
		must(t, j.Close())
		j = mustOpen(t, files, catalog)
		if diff := cmp.Diff(want, contentOf(t, j)); diff != "" {
			t.Error(diff)
		}
		must(t, j.DeleteRange(3, 1, 2), j.DeleteRange(1, 1, 500))
		synctest.Wait()
		if j.Bytes() > segmentBytes || len(j.Ranges()) > 0 {
			t.Errorf("%d bytes, %v", j.Bytes(), j.Ranges())
		}
		must(t, j.Close())
	})
}

// A full disk refuses an append and changes nothing; it succeeds when there is space.
func TestFullDiskRefusesAppends(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, files := newDisk(t, 1)
		catalog := &values{set: map[string][]byte{}}
		j := mustOpen(t, files, catalog)
		d.SetFull(true)
		refused, next := 0, uint64(1)
		for range 30 {
			err := j.Append([]journal.Entry{{Group: 1, Index: next, Data: make([]byte, 2*sectorBytes)}})
			switch {
			case err == nil:
				next++
			case !disk.IsRetriableWrite(err):
				t.Fatal(err)
			default:
				refused++
				d.SetFull(refused%3 != 0)
			}
		}
		if refused < 3 || next < 5 {
			t.Errorf("%d refused, %d written", refused, next-1)
		}
		d.FailNext(simfs.Write, &fs.PathError{Op: "write", Err: syscall.ENOSPC})
		if err := j.Append([]journal.Entry{{Group: 1, Index: next}}); !disk.IsRetriableWrite(err) {
			t.Error(err)
		}
		d.SetFull(false)
		must(t, j.Append([]journal.Entry{{Group: 1, Index: next}}), j.Close())
		j = mustOpen(t, files, catalog)
		if diff := cmp.Diff(map[uint32]journal.Range{1: {First: 1, Last: next}}, j.Ranges()); diff != "" {
			t.Error(diff)
		}
		must(t, j.Close())
	})
}

// An entry that does not continue its group is refused, and a hole is not made.
func TestHolesAreRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, files := newDisk(t, 1)
		j := mustOpen(t, files, &values{set: map[string][]byte{}})
		must(t, j.Append([]journal.Entry{{Group: 1, Index: 5}, {Group: 1, Index: 6}, {Group: 1, Index: 7}, {Group: 2, Index: 1}}))
		for _, e := range []journal.Entry{{Group: 1, Index: 7}, {Group: 1, Index: 9}, {Group: 3, Index: 0}} {
			if err := j.Append([]journal.Entry{e}); err == nil {
				t.Errorf("%+v was taken", e)
			}
		}
		if err := j.DeleteRange(1, 6, 6); err == nil {
			t.Error("a hole was made")
		}
		if err := j.Read(1, 8, new(journal.Entry)); !errors.Is(err, journal.ErrNotFound) {
			t.Error(err)
		}
		if got := slices.Sorted(maps.Keys(j.Ranges())); len(got) != 2 {
			t.Error(got)
		}
		must(t, j.DeleteRange(1, 1, 4), j.DeleteRange(4, 1, 4), j.Close())
	})
}
