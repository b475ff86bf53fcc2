package simfs

import (
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	spaceBytes = 1 << 40 // free on a disk that is not full
)

// Disk is the disk of one host. All methods may be called concurrently.
type Disk struct {
	mu       sync.Mutex
	rand     *rand.Rand
	root     *node
	mount    uint64 // number of the file system of the running process; all others fail
	locks    map[*node]uint64
	full     bool
	capacity int64 // see SetFree; 0: no limit
	delay    time.Duration
	failing  map[Op]error
	decide   func(call, path string) Failure // see Intercept
	hung     chan struct{}                   // closed when the disk goes on; nil: it does not hang
	lost     func(path string) bool          // see SetUnreadable
	refused  int                             // reads that SetUnreadable made fail
	crashIn  int                             // operations until the power fails; 0: it does not
	inFlight []*transaction                  // of logs, that have not returned
	read     int64                           // bytes
}

// FS is the file system of one process. It implements disk.FS.
type FS struct {
	disk  *Disk
	mount uint64
}

// New returns an empty disk. Only the disk uses random, under a lock of its own.
func New(random *rand.Rand) *Disk {
	return &Disk{
		rand: random, root: newFolder(), locks: make(map[*node]uint64), failing: make(map[Op]error),
	}
}

// Mount returns the file system for a new process, and ends that of an earlier one.
func (d *Disk) Mount() *FS {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end()
	return &FS{disk: d, mount: d.mount}
}

// Kill ends the file system of the running process: its operations fail, its locks are free. The disk keeps
// what was written.
func (d *Disk) Kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end()
}

// end ends the file system of the running process. Called with mu held.
func (d *Disk) end() {
	d.mount++
	clear(d.locks)
	for _, t := range d.inFlight {
		if d.rand.IntN(2) == 0 {
			t.run()
		}
	}
	d.inFlight = nil
}

// Crash ends the file system of the running process as a loss of power does.
func (d *Disk) Crash() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end()
	d.crash(d.root)
}

// SetUnreadable makes every read of the files that match fail with EIO, as bad sectors do; nil ends that. The content does
// not change, and the file of a log is left out. It returns how many reads have failed since the disk exists.
func (d *Disk) SetUnreadable(match func(path string) bool) (failed int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost = match
	return d.refused
}

// Clone returns a disk with the same content, as an image of a volume has it that was taken after everything was synced.
func (d *Disk) Clone(random *rand.Rand) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	copied := New(random)
	copied.root = d.root.clone()
	return copied
}

// BytesRead returns how many bytes were read from files since the disk exists.
func (d *Disk) BytesRead() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.read
}

// Space returns the free and the total bytes, for cluster.Config.Free.
func (d *Disk) Space(string) (free, total uint64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.full:
	case d.capacity > 0:
		free = uint64(max(0, d.capacity-d.root.bytes()))
	default:
		free = spaceBytes
	}
	return free, spaceBytes, nil
}

// Durable returns the content of a file as a loss of power may leave it; nil if the file may be gone.
func (d *Disk) Durable(path string) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.root
	for _, name := range split(path) {
		if n == nil || !n.isFolder() {
			return nil
		}
		n = n.onDisk[name]
	}
	if n == nil || n.isFolder() {
		return nil
	}
	content := make([]byte, n.synced.size)
	n.synced.readAt(content, 0)
	return content
}

// Files returns the paths of all files, in order.
func (d *Disk) Files() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var paths []string
	d.root.walk("/", func(path string, n *node) {
		if !n.isFolder() {
			paths = append(paths, path)
		}
	})
	slices.Sort(paths)
	return paths
}

// IsLog reports whether a file is that of a log.
func (d *Disk) IsLog(path string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.root.find(filepath.Clean(path))
	return n != nil && n.log != nil
}

// check returns the error of an operation of a process. Called with mu held.
func (d *Disk) check(mount uint64, op Op, path string) error {
	if mount == d.mount && d.crashIn > 0 && op != Read {
		if d.crashIn--; d.crashIn == 0 {
			d.end()
			d.crash(d.root)
		}
	}
	if mount != d.mount {
		return &fs.PathError{Op: string(op), Path: path, Err: fs.ErrClosed}
	}
	if err := d.failing[op]; err != nil {
		delete(d.failing, op)
		return err
	}
	return nil
}

// lacks reports whether there is no space for so many more bytes. Called with mu held.
func (d *Disk) lacks(more int64) bool {
	return more > 0 && (d.full || d.capacity > 0 && d.root.bytes()+more > d.capacity)
}

// noSpace is the error of a write on a full disk.
func noSpace(path string) error { return &fs.PathError{Op: "write", Path: path, Err: syscall.ENOSPC} }

// wait waits as long as the disk takes. Called without mu.
func (d *Disk) wait(path string) {
	d.mu.Lock()
	delay, hung := d.delay, d.hung
	if delay > 0 {
		delay = time.Duration(d.rand.Int64N(2 * int64(delay)))
	}
	d.mu.Unlock()
	switch filepath.Base(path) {
	case "member.json.new", "ballast", "ballast.last": // synced under a mutex of the product
		return
	}
	if delay > 0 {
		<-time.After(delay)
	}
	if hung != nil {
		<-hung
	}
}

// crash leaves what is on disk, and some of what was on its way.
func (d *Disk) crash(n *node) {
	if !n.isFolder() {
		if n.log == nil {
			n.crashData(d.rand)
		}
		return
	}
	n.syncNames(someOf(d.rand, len(n.unsynced)))
	clear(n.names)
	for name, child := range n.onDisk {
		n.names[name] = child
	}
	for _, name := range sortedNames(n.names) { // in order, so that a seed means the same crash
		d.crash(n.names[name])
	}
}
