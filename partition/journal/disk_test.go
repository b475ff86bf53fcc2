package journal_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/partition/journal"
	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/test/sim/simfs"
)

const (
	sectorBytes  = 512
	segmentBytes = 8 * sectorBytes
	folder       = "/journal"
)

// values is a catalog in memory.
type values struct {
	mu  sync.Mutex
	set map[string][]byte
}

func (v *values) Get(key string) ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.set[key], nil
}

func (v *values) Set(key string, value []byte) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.set[key] = bytes.Clone(value)
	return nil
}

func (v *values) clone() *values {
	v.mu.Lock()
	defer v.mu.Unlock()
	return &values{set: maps.Clone(v.set)}
}

// write is a write that was not synced.
type write struct {
	at   int64
	data []byte
}

// recorder is a file system that tells of each write before it happens, and knows what was synced.
type recorder struct {
	disk.FS

	mu      sync.Mutex
	synced  map[string][]byte
	pending map[string][]write
	onWrite func() // called after pending has changed, with mu
}

func newRecorder(files disk.FS) *recorder {
	return &recorder{FS: files, synced: map[string][]byte{}, pending: map[string][]write{}}
}

func (r *recorder) OpenFile(path string, flag int, mode fs.FileMode) (disk.File, error) {
	f, err := r.FS.OpenFile(path, flag, mode)
	if err != nil {
		return nil, err
	}
	return &recordedFile{f, r, path}, nil
}

func (r *recorder) Remove(path string) error {
	r.mu.Lock()
	delete(r.synced, path)
	delete(r.pending, path)
	r.mu.Unlock()
	return r.FS.Remove(path)
}

type recordedFile struct {
	disk.File

	recorder *recorder
	path     string
}

func (f *recordedFile) WriteAt(b []byte, at int64) (int, error) {
	r := f.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending[f.path] = append(r.pending[f.path], write{at, bytes.Clone(b)})
	if r.onWrite != nil {
		r.onWrite()
	}
	return f.File.WriteAt(b, at)
}

func (f *recordedFile) Sync() error {
	r := f.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := f.File.Sync(); err != nil {
		return err
	}
	content, err := r.ReadFile(f.path)
	r.synced[f.path] = content
	delete(r.pending, f.path)
	return err
}

// sectors returns the sectors of all writes that were not synced. Called with mu.
func (r *recorder) sectors() (all []func(files map[string][]byte)) {
	for _, path := range slices.Sorted(maps.Keys(r.pending)) {
		for _, w := range r.pending[path] {
			for from := 0; from < len(w.data); from += sectorBytes {
				to := min(from+sectorBytes, len(w.data))
				all = append(all, func(files map[string][]byte) { copy(files[path][int(w.at)+from:], w.data[from:to]) })
			}
		}
	}
	return all
}

// image returns what was synced, to be changed. Called with mu.
func (r *recorder) image() map[string][]byte {
	files := make(map[string][]byte)
	for path, content := range r.synced {
		files[path] = bytes.Clone(content)
	}
	return files
}

// diskOf returns a file system that holds an image.
func diskOf(t *testing.T, image map[string][]byte) disk.FS {
	t.Helper()
	files := simfs.New(rand.New(rand.NewPCG(1, 1))).Mount()
	err := files.MkdirAll(folder, disk.FolderMode)
	for path, content := range image {
		err = errors.Join(err, disk.WriteFile(files, path, content, disk.FileMode))
	}
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func open(files disk.FS, catalog journal.Catalog) (*journal.Journal, error) {
	return journal.Open(journal.Config{FS: files, Dir: folder, Catalog: catalog, SegmentBytes: segmentBytes, Logger: slog.New(slog.DiscardHandler)})
}

func mustOpen(t *testing.T, files disk.FS, catalog journal.Catalog) *journal.Journal {
	t.Helper()
	j := kit.Must(open(files, catalog))(t)
	return j
}

// content is what a journal holds: the entries of each group, as text.
type content map[uint32][]string

func contentOf(t *testing.T, j *journal.Journal) content {
	t.Helper()
	all := content{}
	for group, held := range j.Ranges() {
		for i := held.First; i <= held.Last; i++ {
			var e journal.Entry
			kit.OK(t, j.Read(group, i, &e))
			all[group] = append(all[group], text(&e))
		}
	}
	return all
}

func text(e *journal.Entry) string {
	return fmt.Sprintf("%d.%d %s", e.Index, e.Term, strings.TrimRight(string(e.Data), "\x00"))
}

func (c content) clone() content {
	all := content{}
	for group, list := range c {
		all[group] = slices.Clone(list)
	}
	return all
}

// model is what the journal should hold, and one random operation after the other.
type model struct {
	random *rand.Rand

	mu      sync.Mutex // guards the two below
	before  content    // what was confirmed
	pending content    // with the operation that runs; the same as before while none runs

	next  map[uint32]uint64 // index of the next entry
	first map[uint32]uint64
}

func newModel(seed uint64) *model {
	return &model{
		random: rand.New(rand.NewPCG(seed, 2)), before: content{}, pending: content{},
		next: map[uint32]uint64{1: 1, 2: 1, 3: 1}, first: map[uint32]uint64{1: 1, 2: 1, 3: 1},
	}
}

// run does one operation: entries of one or more groups are appended, or deleted at either end of a group.
func (m *model) run(j *journal.Journal) error {
	after := m.before.clone()
	operation := m.choose(j, after)
	m.mu.Lock()
	m.pending = after
	m.mu.Unlock()
	if err := operation(); err != nil {
		return err
	}
	m.mu.Lock()
	m.before = after
	m.mu.Unlock()
	return nil
}

func (m *model) choose(j *journal.Journal, after content) func() error {
	group := uint32(1 + m.random.IntN(2))
	held := m.next[group] - m.first[group]
	switch kind := m.random.IntN(6); {
	case kind == 0 && held > 1:
		n := 1 + m.random.Uint64N(held)
		low := m.first[group]
		m.first[group] += n
		if after[group] = after[group][n:]; len(after[group]) == 0 {
			delete(after, group)
		}
		return func() error { return j.DeleteRange(group, low, low+n-1) }
	case kind == 1 && held > 1:
		n := 1 + m.random.Uint64N(held-1)
		m.next[group] -= n
		high := m.next[group] + n - 1
		after[group] = after[group][:held-n]
		return func() error { return j.DeleteRange(group, high-n+1, high) }
	}
	var entries []journal.Entry
	for range 1 + m.random.IntN(3) {
		group := uint32(1 + m.random.IntN(2))
		if m.random.IntN(40) == 0 {
			group = 3 // its entries hold old segments back
		}
		e := journal.Entry{Group: group, Index: m.next[group], Term: uint64(m.random.IntN(100))}
		e.Data = append(fmt.Appendf(nil, "%x", m.random.Uint64()), make([]byte, m.random.IntN(900))...)
		m.next[group]++
		after[group] = append(after[group], text(&e))
		entries = append(entries, e)
	}
	slices.SortStableFunc(entries, func(a, b journal.Entry) int { return int(a.Group) - int(b.Group) })
	return func() error { return j.Append(entries) }
}

// allows reports whether a journal may hold a content after a loss of power now.
func (m *model) allows(c content) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return cmp.Equal(c, m.before) || cmp.Equal(c, m.pending)
}

func (m *model) diff(c content) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return cmp.Diff(m.before, c)
}
