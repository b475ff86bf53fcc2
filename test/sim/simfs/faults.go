package simfs

import (
	"path/filepath"
	"time"
)

// CrashAfter makes the power fail, as Crash does, after the next n operations that are not reads; -1 takes that back.
func (d *Disk) CrashAfter(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.crashIn = n + 1
}

// SetFull makes every write fail that needs space, or ends that.
func (d *Disk) SetFull(full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = full
}

// SetFree makes so many bytes free: files can grow by them together, and by what is deleted. Folders, and the entries of logs that
// are not files, take none. -1 ends the limit.
func (d *Disk) SetFree(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.capacity = 0
	if bytes >= 0 {
		d.capacity = max(1, d.root.bytes()+bytes)
	}
}

// SetDelay sets how long a sync of a file or a transaction of the log takes: the delay on average, at most
// twice as long.
func (d *Disk) SetDelay(delay time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.delay = delay
}

// SetHung makes every sync of a file and every transaction of the log wait until that is ended.
func (d *Disk) SetHung(hung bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case hung && d.hung == nil:
		d.hung = make(chan struct{})
	case !hung && d.hung != nil:
		close(d.hung)
		d.hung = nil
	}
}

// FailNext makes the next operation of a kind fail with the error; nil takes that back. A transaction of the
// log that fails with a full disk's *fs.PathError of a write can be tried again, after any other error the log
// accepts no more. It reports whether an operation of the kind was about to fail before.
func (d *Disk) FailNext(op Op, err error) (wasSet bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	wasSet = d.failing[op] != nil
	d.failing[op] = err
	return wasSet
}

// Intercept sets the function that decides what happens to each call of the running process; nil means nothing. The
// function is called without the lock of the disk, on the goroutine of the call. A call may hang with a mutex of the
// product held, so Failure.Hang needs the runtime of command repeat.
func (d *Disk) Intercept(decide func(call, path string) Failure) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.decide = decide
}

// intercept returns what happens to a call, after it has hung. Called without the lock of the disk.
func (f *FS) intercept(call, path string) Failure {
	d := f.disk
	d.mu.Lock()
	decide := d.decide
	if f.mount != d.mount {
		decide = nil // the call fails because its process has ended
	}
	d.mu.Unlock()
	if decide == nil {
		return Failure{}
	}
	failure := decide(call, path)
	if failure.Hang > 0 {
		<-time.After(failure.Hang)
	}
	return failure
}

// failure is intercept for a call that fails as a whole.
func (f *FS) failure(call, path string) error { return f.intercept(call, path).Err }

// flipTries is how often FlipBit draws a place until it holds something.
const flipTries = 10_000

// FlipBit changes one bit of a file, of an entry or a value if it is the file of a log. It reports whether there
// was one.
func (d *Disk) FlipBit(path string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.root.find(filepath.Clean(path))
	switch {
	case n == nil || n.isFolder():
		return false
	case n.log != nil:
		return n.log.flipBit(d.rand)
	case n.data.size == 0:
		return false
	}
	bit := d.rand.IntN(8 * n.data.size)
	for range flipTries { // a file that was made for what comes later is mostly zeros
		if n.data.byteAt(bit/8) != 0 {
			break
		}
		bit = d.rand.IntN(8 * n.data.size)
	}
	flipped := []byte{n.data.byteAt(bit/8) ^ 1<<(bit%8)}
	n.data.writeAt(flipped, bit/8)
	if bit/8 < n.synced.size {
		n.synced.writeAt(flipped, bit/8)
	}
	return true
}
