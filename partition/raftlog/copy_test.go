package raftlog

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/test/golden"
	"github.com/peeklock/peeklock/test/kit"
)

const copyTestGroups = 64 // their values need several pages and a branch

// stoppedLog is what the folder of a log held at a time.
type stoppedLog struct {
	bolt, copy []byte
	boltBytes  int64 // of the file: bbolt makes files of 16 MiB, whose rest is zeros
	journal    map[string][]byte
	values     map[string]string // terms, votes and owners
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	content := kit.Must(os.ReadFile(path))(t)
	return content
}

// readStopped reads the folder of a log with certain values.
func readStopped(t *testing.T, path string, values map[string]string) stoppedLog {
	t.Helper()
	s := stoppedLog{bolt: readFile(t, path), copy: readFile(t, path+copySuffix), journal: map[string][]byte{}, values: values}
	s.boltBytes = int64(len(s.bolt))
	size := os.Getpagesize()
	s.bolt = bytes.Clone(s.bolt[:(len(bytes.TrimRight(s.bolt, "\x00"))+size-1)/size*size])
	paths := kit.Must(filepath.Glob(filepath.Join(filepath.Dir(path), JournalFolder, "*")))(t)
	for _, p := range paths {
		s.journal[filepath.Base(p)] = readFile(t, p)
	}
	return s
}

// write replaces the folder of a log.
func (s *stoppedLog) write(t *testing.T, path string) {
	t.Helper()
	dir := filepath.Dir(path)
	err := errors.Join(os.RemoveAll(dir), os.MkdirAll(filepath.Join(dir, JournalFolder), 0o700))
	for to, content := range map[string][]byte{path: s.bolt, path + copySuffix: s.copy} {
		if content != nil {
			err = errors.Join(err, os.WriteFile(to, content, 0o600))
		}
	}
	if s.bolt != nil {
		err = errors.Join(err, os.Truncate(path, s.boltBytes))
	}
	for name, content := range s.journal {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, JournalFolder, name), content, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// valuesOf returns terms, votes and owners.
func valuesOf(t *testing.T, l *Log) map[string]string {
	t.Helper()
	values := map[string]string{}
	for id := range fsm.PartitionID(copyTestGroups) {
		for _, key := range []string{keyTerm, keyVote, keyReplica} {
			v, err := testGroup(t, l, id).get(key)
			if err != nil && !isNotFound(err) {
				t.Fatal(err)
			}
			setValue(values, fmt.Sprint(id, "/", key), string(v))
		}
	}
	return values
}

func setTerm(t *testing.T, l *Log, id fsm.PartitionID, term uint64) {
	t.Helper()
	kit.OK(t, testGroup(t, l, id).SetUint64([]byte(keyTerm), term))
}

// stopLogs returns the folder of a log some transactions ago, at the end of its process, and after an orderly end.
func stopLogs(t *testing.T) (older, killed, closed stoppedLog) {
	t.Helper()
	path := filepath.Join(kit.MemoryDir(t), "raft.db")
	l := kit.Must(Open(Config{Path: path, Kind: Journal, SegmentBytes: 4096, Logger: slog.New(slog.DiscardHandler)}))(t)
	for id := range fsm.PartitionID(copyTestGroups) {
		g := testGroup(t, l, id)
		name := fmt.Sprintf("a-member-with-a-long-name-%d.1", id)
		kit.OK(t, errors.Join(g.SetOwner(name), g.SetUint64([]byte(raftKeyVoteTerm), 3), g.Set([]byte(raftKeyVoteCand), []byte(name))))
		setTerm(t, l, id, 3)
	}
	kit.OK(t, testGroup(t, l, 1).StoreLogs(entries(1, 5, 1)))
	older = readStopped(t, path, valuesOf(t, l))
	for id := range fsm.PartitionID(copyTestGroups) {
		if id%3 == 0 {
			setTerm(t, l, id, 4)
		}
	}
	killed = readStopped(t, path, valuesOf(t, l))
	kit.OK(t, l.Close())
	return older, killed, readStopped(t, path, killed.values)
}

// openStopped opens a log at path and returns its values.
func openStopped(t *testing.T, path string) (map[string]string, error) {
	t.Helper()
	l, err := Open(Config{Path: path, Kind: Journal, SegmentBytes: 4096, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	if got := rangeOf(testGroup(t, l, 1)); got != (IndexRange{1, 5}) {
		t.Errorf("the journal has %+v", got)
	}
	return valuesOf(t, l), nil
}

// truncated lets the file end where its content does.
func (s *stoppedLog) truncated() *stoppedLog {
	s.boltBytes = int64(len(s.bolt))
	return s
}

// checkRestored checks that a log opens with its values, and once more.
func (s *stoppedLog) checkRestored(t *testing.T, path, damage string) {
	t.Helper()
	s.write(t, path)
	for range 2 {
		got, err := openStopped(t, path)
		if err != nil {
			t.Fatalf("%s: %v", damage, err)
		}
		if !maps.Equal(s.values, got) {
			t.Fatalf("%s: %s", damage, cmp.Diff(s.values, got))
		}
	}
}

// checkRefused checks that a log does not open, and that its folder remains as it is.
func (s *stoppedLog) checkRefused(t *testing.T, path, damage string) {
	t.Helper()
	s.write(t, path)
	for range 2 {
		if _, err := openStopped(t, path); !errors.Is(err, disk.ErrDamaged) {
			t.Errorf("%s: %v", damage, err)
		}
	}
	if content, err := os.ReadFile(path); s.bolt != nil && !bytes.Equal(content[:len(s.bolt)], s.bolt) || (err == nil) != (s.bolt != nil) {
		t.Errorf("%s: the file was changed: %v", damage, err)
	}
}

func flipped(b []byte, bit int) []byte {
	b = bytes.Clone(b)
	b[bit/8] ^= 1 << (bit % 8)
	return b
}

// swapped returns a file whose two parts of a size, at the given places, have changed places.
func swapped(b []byte, i, j, size int) []byte {
	c := bytes.Clone(b)
	copy(c[i*size:(i+1)*size], b[j*size:])
	copy(c[j*size:(j+1)*size], b[i*size:])
	return c
}

// The file of terms and votes was damaged while it was closed, or the process had ended without closing it. The log opens with exactly
// the values that it had, or it does not open: it never has others.
func TestDamagedValuesAreRestored(t *testing.T) {
	t.Parallel()
	older, killed, closed := stopLogs(t)
	size := os.Getpagesize()
	pages := len(closed.bolt) / size
	if pages < 8 {
		t.Fatalf("the file has %d pages", pages)
	}
	for name, sound := range map[string]stoppedLog{"killed": killed, "closed": closed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(kit.MemoryDir(t), "log", "raft.db")
			random := rand.New(rand.NewPCG(1, 1))
			with := func(bolt []byte) *stoppedLog {
				damaged := sound
				damaged.bolt = bolt
				return &damaged
			}
			sound.checkRestored(t, path, "no damage")
			for page := range pages {
				bits := []int{random.IntN(8 * size), random.IntN(8 * size), random.IntN(8 * size)}
				for at := 8; at < metaStart; at += kit.Rounds(4, 2) { // flags, count and overflow of a page
					bits = append(bits, 8*at+random.IntN(8))
				}
				for at := metaStart; at < metaEnd && page < 2; at += kit.Rounds(8, 2) {
					bits = append(bits, 8*at+random.IntN(16))
				}
				for _, bit := range bits {
					with(flipped(sound.bolt, 8*page*size+bit)).checkRestored(t, path, fmt.Sprintf("page %d, bit %d", page, bit))
				}
				zeroed := bytes.Clone(sound.bolt)
				clear(zeroed[page*size : (page+1)*size])
				with(zeroed).checkRestored(t, path, fmt.Sprintf("page %d has zeros", page))
				for other := range page {
					with(swapped(sound.bolt, other, page, size)).checkRestored(t, path, fmt.Sprintf("pages %d and %d are swapped", other, page))
				}
				if old := bytes.Clone(sound.bolt); page < 2 {
					copy(old[page*size:(page+1)*size], older.bolt[page*size:])
					with(old).checkOldMeta(t, path, page)
				} else if (page+1)*size <= len(older.bolt) {
					copy(old[page*size:(page+1)*size], older.bolt[page*size:])
					with(old).checkRestored(t, path, fmt.Sprintf("page %d is an old one", page))
				}
				for _, end := range []int{page*size + 100, (page + 1) * size} {
					with(sound.bolt[:end:end]).truncated().checkRestored(t, path, fmt.Sprintf("truncated to %d bytes", end))
				}
			}
			for _, end := range []int{0, 1, metaStart, metaEnd - 1} {
				with(sound.bolt[:end:end]).truncated().checkRefused(t, path, fmt.Sprintf("truncated to %d bytes", end))
			}
			with(nil).checkRefused(t, path, "deleted")
			with(older.bolt).checkRefused(t, path, "an older file")
			with(make([]byte, len(sound.bolt))).checkRefused(t, path, "zeros")
			both := flipped(flipped(sound.bolt, 8*metaTransaction), 8*(size+metaTransaction))
			with(both).checkRefused(t, path, "both meta pages")
		})
	}
}

// checkOldMeta: with an old page in place of the newest meta page, the file looks like an older one.
func (s *stoppedLog) checkOldMeta(t *testing.T, path string, page int) {
	t.Helper()
	if m, err := readMetas(bytes.NewReader(s.bolt)); err != nil || m.newest != decodeCopy(s.copy).transaction {
		s.checkRefused(t, path, fmt.Sprintf("meta page %d is an old one", page))
		return
	}
	s.checkRestored(t, path, fmt.Sprintf("meta page %d is an old one", page))
}

// A copy that is damaged, torn, missing or old is no worse than none: the log has the values of its sound file.
func TestDamagedCopyHarmsNothing(t *testing.T) {
	t.Parallel()
	older, killed, closed := stopLogs(t)
	path := filepath.Join(kit.MemoryDir(t), "log", "raft.db")
	for name, sound := range map[string]stoppedLog{"killed": killed, "closed": closed} {
		damaged := sound
		for at := 0; at < len(sound.copy); at += 1 + len(sound.copy)/kit.Rounds(10, 40) {
			damaged.copy = flipped(sound.copy, 8*at+at%8)
			damaged.checkRestored(t, path, fmt.Sprintf("%s, byte %d", name, at))
			damaged.copy = sound.copy[:at:at]
			damaged.checkRestored(t, path, fmt.Sprintf("%s, the first %d bytes", name, at))
		}
		for what, content := range map[string][]byte{"missing": nil, "an old one": older.copy, "zeros": make([]byte, 5000)} {
			damaged.copy = content
			damaged.checkRestored(t, path, name+", "+what)
		}
	}
	// An error of the disk is none of the file.
	killed.copy = nil
	killed.write(t, path)
	kit.OK(t, os.Mkdir(path+copySuffix, 0o700))
	if _, err := openStopped(t, path); err == nil || errors.Is(err, disk.ErrDamaged) {
		t.Errorf("a copy that cannot be read: %v", err)
	}
}

// A raft-boltdb file that was written again from its copy is another file: the one before does not count any more, although it may have
// newer transactions.
func TestFormerFileIsRefused(t *testing.T) {
	t.Parallel()
	_, killed, closed := stopLogs(t)
	path := filepath.Join(kit.MemoryDir(t), "log", "raft.db")
	for name, former := range map[string]stoppedLog{"killed": killed, "closed": closed} {
		damaged := former
		damaged.bolt = flipped(former.bolt, 8*5*os.Getpagesize())
		damaged.write(t, path)
		l := openTestLog(t, path, Journal)
		setTerm(t, l, 5, 7)
		want := valuesOf(t, l)
		lagging := readStopped(t, path, want)
		kit.OK(t, l.Close())
		for what, restored := range map[string]stoppedLog{"lagging": lagging, "closed": readStopped(t, path, want)} {
			restored.checkRestored(t, path, name+", "+what)
			if now, before := newestOf(t, restored.bolt), newestOf(t, former.bolt); now >= before {
				t.Fatalf("%s, %s: transaction %d, want one below %d", name, what, now, before)
			}
			restored.bolt = former.bolt
			restored.checkRefused(t, path, name+", "+what+", the file of before")
		}
	}
}

// newestOf returns the newest transaction of a raft-boltdb file.
func newestOf(t *testing.T, bolt []byte) uint64 {
	t.Helper()
	metas := kit.Must(readMetas(bytes.NewReader(bolt)))(t)
	return metas.newest
}

// A file that an interrupted start was writing is written again.
func TestUnfinishedFilesAreReplaced(t *testing.T) {
	t.Parallel()
	_, killed, _ := stopLogs(t)
	path := filepath.Join(kit.MemoryDir(t), "log", "raft.db")
	killed.bolt = flipped(killed.bolt, 8*5*os.Getpagesize())
	for _, part := range [][]byte{nil, killed.bolt[:5000], make([]byte, 4096)} {
		killed.write(t, path)
		for _, name := range []string{path + freshSuffix, path + copySuffix + freshSuffix} {
			kit.OK(t, os.WriteFile(name, part, 0o600))
		}
		if got, err := openStopped(t, path); err != nil || !cmp.Equal(got, killed.values) {
			t.Errorf("%v %s", err, cmp.Diff(killed.values, got))
		}
	}
}

// While a log is open, damage to its file has no effect: neither on what is read, nor on what the next start finds.
func TestDamageWhileTheLogIsOpenHasNoEffect(t *testing.T) {
	t.Parallel()
	path := filepath.Join(kit.MemoryDir(t), "raft.db")
	l := openTestLog(t, path, Journal)
	for id := range fsm.PartitionID(3) {
		setTerm(t, l, id, 5)
	}
	kit.OK(t, testGroup(t, l, 1).StoreLogs(entries(1, 5, 1)))
	want := valuesOf(t, l)
	content := bytes.TrimRight(readFile(t, path), "\x00")
	for at := 2 * os.Getpagesize(); at < len(content); at++ {
		if bytes.HasPrefix(content[at:], indexKey(5)) {
			kit.FlipBit(t, path, int64(at+7))
		}
	}
	if got := valuesOf(t, l); !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
	killed := readStopped(t, path, want)
	killed.checkRestored(t, filepath.Join(kit.MemoryDir(t), "log", "raft.db"), "terms")
}

// The copy does not grow beyond its limit, and has the newest values when it was written anew.
func TestCopyIsBounded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(kit.MemoryDir(t), "raft.db")
	l := openTestLog(t, path, Journal)
	kit.OK(t, testGroup(t, l, 1).StoreLogs(entries(1, 5, 1)))
	most, rewritten := 0, false
	for term := uint64(1); !rewritten || term%100 > 0; term++ {
		setTerm(t, l, 1, term)
		now := len(readFile(t, path+copySuffix))
		rewritten = rewritten || now < most
		most = max(most, now)
	}
	if most < copyChangesBytesMax || most > 2*copyChangesBytesMax {
		t.Errorf("the copy had up to %d bytes", most)
	}
	killed := readStopped(t, path, valuesOf(t, l))
	killed.bolt = flipped(killed.bolt, 8*3*os.Getpagesize())
	killed.checkRestored(t, filepath.Join(kit.MemoryDir(t), "log", "raft.db"), "after the copy was written anew")
}

// failingFile fails to write.
type failingFile struct{ disk.File }

func (failingFile) Write([]byte) (int, error) { return 0, os.ErrInvalid }

// A vote does not need the copy: a copy that cannot be written is written anew later.
func TestCopyThatFailsIsWrittenAnew(t *testing.T) {
	t.Parallel()
	path := filepath.Join(kit.MemoryDir(t), "raft.db")
	l := openTestLog(t, path, Journal)
	kit.OK(t, testGroup(t, l, 1).StoreLogs(entries(1, 5, 1)))
	store := l.store.(*journalStore).Store.(*valueStore)
	at := filepath.Join(kit.MemoryDir(t), "log", "raft.db")
	for term := uint64(1); term < 4; term++ {
		store.file = failingFile{store.file}
		setTerm(t, l, 1, 2*term)
		lagging := readStopped(t, path, valuesOf(t, l))
		lagging.checkRestored(t, at, "the copy lacks a change")
		setTerm(t, l, 1, 2*term+1)
		whole := readStopped(t, path, valuesOf(t, l))
		whole.bolt = flipped(whole.bolt, 8*3*os.Getpagesize())
		whole.checkRestored(t, at, "the copy was written anew")
	}
}

// slowStore waits within a transaction.
type slowStore struct {
	Store

	begun, end chan struct{}
}

func (s slowStore) Set(key, value []byte) error {
	close(s.begun)
	<-s.end
	return s.Store.Set(key, value)
}

// Raft reads the last vote for each request for votes: that waits for no transaction of another group.
func TestValuesAreReadDuringATransaction(t *testing.T) {
	t.Parallel()
	l := openTestLog(t, filepath.Join(kit.MemoryDir(t), "raft.db"), Journal)
	setTerm(t, l, 1, 5)
	store := l.store.(*journalStore).Store.(*valueStore)
	slow := slowStore{store.Store, make(chan struct{}), make(chan struct{})}
	store.Store = slow
	done := make(chan error)
	go func() { done <- testGroup(t, l, 2).SetUint64([]byte(keyTerm), 7) }()
	<-slow.begun
	if term, err := testGroup(t, l, 1).GetUint64([]byte(keyTerm)); err != nil || term != 5 {
		t.Error(term, err)
	}
	close(slow.end)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// failingStore fails a change, but leaves it in the file.
type failingStore struct{ Store }

func (s failingStore) Set(key, value []byte) error {
	return errors.Join(s.Store.Set(key, value), os.ErrInvalid)
}

// A change that failed, as after a failed sync, may be in the file: the copy is not continued.
func TestCopyEndsWhenTheFileIsUnknown(t *testing.T) {
	t.Parallel()
	path := filepath.Join(kit.MemoryDir(t), "raft.db")
	l := openTestLog(t, path, Journal)
	kit.OK(t, testGroup(t, l, 1).StoreLogs(entries(1, 5, 1)))
	store := l.store.(*journalStore).Store.(*valueStore)
	file := store.Store
	store.Store = failingStore{file}
	if err := store.Set([]byte("3/"+keyTerm), indexKey(4)); err == nil {
		t.Fatal("it did not fail")
	}
	store.Store = file
	store.closeCopy() // so that the next change writes it anew
	kit.OK(t, store.Set([]byte("4/"+keyTerm), indexKey(5)))
	killed := readStopped(t, path, map[string]string{"3/" + keyTerm: string(indexKey(4)), "4/" + keyTerm: string(indexKey(5))})
	killed.checkRestored(t, filepath.Join(kit.MemoryDir(t), "log", "raft.db"), "a change that failed")
}

// The format of a copy is that of the golden file.
func TestCopyKeepsItsFormat(t *testing.T) {
	t.Parallel()
	b := appendCopyRecord(bytes.Clone(copyHead), 7, map[string]string{"1/Replica": "m.1", "1/CurrentTerm": string(indexKey(3)), "gone": "x"})
	b = appendCopyRecord(b, 8, map[string]string{"1/CurrentTerm": string(indexKey(4))})
	b = appendCopyRecord(b, 9, map[string]string{"gone": ""})
	b = appendCopyRecord(b, 9, map[string]string{"": "checksum"})
	golden.Compare(t, "testdata/copy.golden", []byte(hex.Dump(b)))
	want := valueCopy{transaction: 9, values: map[string]string{"1/Replica": "m.1", "1/CurrentTerm": string(indexKey(4))}, sum: []byte("checksum")}
	if diff := cmp.Diff(&want, decodeCopy(b), cmp.AllowUnexported(valueCopy{})); diff != "" {
		t.Error(diff)
	}
	// A record that does not follow the one before is not read.
	skips := appendCopyRecord(appendCopyRecord(bytes.Clone(copyHead), 7, nil), 9, map[string]string{"1/Replica": "m.1"})
	if c := decodeCopy(skips); c.transaction != 7 || len(c.values) > 0 {
		t.Errorf("%+v", c)
	}
}

func FuzzCopy(f *testing.F) {
	b := appendCopyRecord(bytes.Clone(copyHead), 7, map[string]string{"1/Replica": "m.1"})
	f.Add(appendCopyRecord(b, 8, map[string]string{"1/Replica": ""}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c := decodeCopy(b); c == nil {
			return
		}
		if _, _, n := decodeCopyRecord(b[len(copyHead):]); n < copyRecordHeadBytes {
			t.Errorf("a record of %d bytes", n)
		}
	})
}
