package simfs

import (
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"
)

const sectorBytes = 512

// node is a file or a folder. The lock of the disk guards it.
type node struct {
	names    map[string]*node // of a folder, nil for a file
	onDisk   map[string]*node // names as they are on disk
	unsynced []nameChange     // from onDisk to names

	data   content
	synced content // as it is on disk
	writes []write // from synced to data

	log     *logData // of the file of a log
	changed time.Time
}

// bytes returns the size of a file, or of all files in a folder.
func (n *node) bytes() (sum int64) {
	for _, child := range n.names {
		sum += child.bytes()
	}
	return sum + int64(n.data.size)
}

// nameChange is one change of the names of a folder; it is on disk as a whole or not at all. A nil node is a
// name that was removed.
type nameChange map[string]*node

// write is a change of bytes, or of the size alone.
type write struct{ from, to int }

// logData is the content of a log.
type logData struct {
	entries map[uint64]*raft.Log
	values  map[string][]byte
}

// transaction is a transaction of a log that has not returned.
type transaction struct {
	log *logData
	run func()
}

func newFolder() *node {
	return &node{names: make(map[string]*node), onDisk: make(map[string]*node), changed: time.Now()}
}

func (n *node) isFolder() bool { return n.names != nil }

// split returns the elements of a clean path.
func split(path string) []string {
	return strings.FieldsFunc(filepath.Clean(path), func(r rune) bool { return r == filepath.Separator || r == '.' && path == "." })
}

// find returns the node at a path below a folder, nil if there is none.
func (n *node) find(path string) *node {
	for _, name := range split(path) {
		if n == nil || !n.isFolder() {
			return nil
		}
		n = n.names[name]
	}
	return n
}

// clone returns a copy of a file, or of a folder with all that is in it, of which everything is on disk.
func (n *node) clone() *node {
	copied := &node{changed: n.changed}
	if n.isFolder() {
		copied.names, copied.onDisk = make(map[string]*node, len(n.names)), make(map[string]*node, len(n.names))
		for name, child := range n.names {
			c := child.clone()
			copied.names[name], copied.onDisk[name] = c, c
		}
		return copied
	}
	copied.data, copied.synced = n.data.clone(), n.data.clone()
	if n.log != nil {
		copied.log = &logData{entries: maps.Clone(n.log.entries), values: maps.Clone(n.log.values)}
	}
	return copied
}

// walk visits all nodes below a folder.
func (n *node) walk(path string, visit func(path string, n *node)) {
	for name, child := range n.names {
		at := filepath.Join(path, name)
		visit(at, child)
		if child.isFolder() {
			child.walk(at, visit)
		}
	}
}

// change changes names of a folder, not yet on disk.
func (n *node) change(c nameChange) {
	apply(n.names, c)
	n.unsynced = append(n.unsynced, c)
	n.changed = time.Now()
}

func apply(names map[string]*node, c nameChange) {
	for name, child := range c {
		if child == nil {
			delete(names, name)
		} else {
			names[name] = child
		}
	}
}

// syncNames makes the names of a folder durable.
func (n *node) syncNames(changes int) {
	for _, c := range n.unsynced[:changes] {
		apply(n.onDisk, c)
	}
	n.unsynced = nil
}

// writeAt changes the content of a file, not yet on disk.
func (n *node) writeAt(p []byte, at int) {
	if len(p) == 0 && at <= n.data.size {
		return
	}
	from := min(at, n.data.size)
	n.data.writeAt(p, at)
	n.writes = append(n.writes, write{from, at + len(p)})
	n.changed = time.Now()
}

// truncate changes the size of a file, not yet on disk.
func (n *node) truncate(size int) {
	if size > n.data.size {
		n.writeAt(nil, size)
		return
	}
	if size == n.data.size {
		return
	}
	n.data.resize(size)
	n.writes = append(n.writes, write{size, size})
	n.changed = time.Now()
}

// syncData makes the content of a file durable.
func (n *node) syncData() {
	for _, w := range n.writes {
		n.reach(w)
	}
	n.writes = nil
}

// reach brings the bytes of a write to the disk, as they are now. A write of no bytes sets the size.
func (n *node) reach(w write) {
	if w.from == w.to && w.to < n.synced.size {
		n.synced.resize(w.to)
		return
	}
	to := min(w.to, n.data.size)
	if to > n.synced.size {
		n.synced.resize(to)
	}
	n.synced.copyFrom(&n.data, w.from, to)
}

// someOf returns how many of the first changes survive: often none or all.
func someOf(random *rand.Rand, changes int) int {
	switch random.IntN(4) {
	case 0, 1:
		return 0
	case 2:
		return changes
	}
	return random.IntN(changes + 1)
}

// crashData leaves some of the writes to a file.
func (n *node) crashData(random *rand.Rand) {
	if len(n.writes) > 0 && random.IntN(5) == 0 { // any of them
		for _, w := range n.writes {
			if random.IntN(2) == 0 {
				n.reach(w)
			}
		}
	} else {
		keep := someOf(random, len(n.writes))
		for _, w := range n.writes[:keep] {
			n.reach(w)
		}
		if keep < len(n.writes) && random.IntN(2) == 0 {
			n.reach(torn(random, n.writes[keep]))
		}
	}
	n.writes = nil
	n.data = n.synced.clone()
}

// torn returns the part of a write up to a sector of the disk.
func torn(random *rand.Rand, w write) write {
	first := w.from/sectorBytes + 1
	sectors := w.to/sectorBytes - first + 1
	if sectors <= 0 {
		return w
	}
	w.to = (first + random.IntN(sectors)) * sectorBytes
	return w
}

// flipBit changes a bit of an entry.
func (l *logData) flipBit(random *rand.Rand) bool {
	held := slices.DeleteFunc(slices.Sorted(maps.Keys(l.entries)), func(index uint64) bool { return len(l.entries[index].Data) == 0 })
	if len(held) == 0 {
		return false
	}
	index := held[random.IntN(len(held))]
	e := *l.entries[index]
	e.Data = slices.Clone(e.Data)
	bit := random.IntN(8 * len(e.Data))
	e.Data[bit/8] ^= 1 << (bit % 8)
	l.entries[index] = &e
	return true
}

func sortedNames(names map[string]*node) []string { return slices.Sorted(maps.Keys(names)) }
