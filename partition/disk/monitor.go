package disk

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// The ballast is a file that is deleted when the disk is full, so that there is space to compact the log. The last reserve is
// one of the same size that is deleted when the ballast is used up too. From then on only commands that free space enter the
// log.
const (
	BallastFile         = "ballast"
	LastReserveFile     = "ballast.last"
	BallastBytesDefault = 64 << 20
)

const (
	reserveBytesMin    = 1 << 30  // minimum of the default reserve
	reservePercent     = 5        // of the file system, if that is more
	reserveBytesMax    = 16 << 30 // maximum of the default reserve
	spaceCheckInterval = time.Second
	// spaceRecoverPercent of the reserve must be free before a read-only member accepts messages again, so
	// that it does not alternate.
	spaceRecoverPercent  = 125
	spaceRecoverBytesMin = 1 << 20
	// lastReserveAt is how many times its size must be free for the last reserve to be created.
	lastReserveAt = 2
	// outOfFilesLogInterval is the least time between two log records of a shortage of file descriptors.
	outOfFilesLogInterval = time.Minute
)

// Space is the space on the file system of a member's data, in bytes.
type Space struct {
	Free  uint64 // for this process
	Total uint64
	// Reserve must stay free. Below it the member is ReadOnly: its leaders refuse new messages and entities
	// (fsm.ServerBusy), everything else continues.
	Reserve  uint64
	ReadOnly bool
	// LowMemory is set when the memory of the process is nearly used up (SetLowMemory): the member then
	// refuses the same commands as when it is ReadOnly.
	LowMemory bool
	// Exhausted is set when the last reserve was deleted: the member's leaders refuse all that frees no space
	// (fsm.ServerBusy).
	Exhausted bool
}

// RefusesGrowth reports whether the member refuses commands that make data grow, for lack of disk space or
// memory.
func (s *Space) RefusesGrowth() bool { return s.ReadOnly || s.LowMemory }

// Monitor watches the disk space of a member. The log owns it.
type Monitor struct {
	files   FS
	dir     string
	logger  *slog.Logger
	measure func(dir string) (free, total uint64, err error)
	reserve int64 // as in Sizes
	ballast int64

	state     atomic.Pointer[Space]
	readOnly  atomic.Bool
	lowMemory atomic.Bool // SetLowMemory
	exhausted atomic.Bool // the last reserve was deleted, and there is not enough space for another

	once   sync.Once
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu         sync.Mutex // guards the files and changes of state
	hasBallast bool       // the ballast file exists
	hasLast    bool       // the last reserve exists
	outOfFiles time.Time  // of the newest log record of a shortage of file descriptors
}

// NewMonitor creates a monitor of the file system of dir. It measures nothing before Watch.
func NewMonitor(files FS, dir string, logger *slog.Logger) *Monitor {
	return &Monitor{files: files, dir: dir, logger: logger, measure: FileSystemSpace}
}

// Watch starts to measure until close, with the sizes of the first call.
func (s *Monitor) Watch(ctx context.Context, reserve, ballast int64, measure func(dir string) (free, total uint64, err error)) {
	s.once.Do(func() {
		s.reserve, s.ballast = reserve, ballast
		if s.ballast == 0 {
			s.ballast = BallastBytesDefault
		}
		if measure != nil {
			s.measure = measure
		}
		s.hasBallast, s.hasLast = s.exists(BallastFile), s.exists(LastReserveFile)
		s.Refresh()
		s.resume()
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		s.cancel = cancel
		s.wg.Go(func() {
			tick := time.NewTicker(spaceCheckInterval)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					s.Refresh()
				case <-ctx.Done():
					return
				}
			}
		})
	})
}

// resume keeps the last reserve in use if an earlier process has deleted it and there is no space for another.
func (s *Monitor) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exhausted.Store(s.ballast > 0 && !s.hasLast && s.readOnly.Load())
}

func (s *Monitor) exists(name string) bool {
	_, err := s.files.Stat(filepath.Join(s.dir, name))
	return err == nil
}

// Close stops measuring.
func (s *Monitor) Close() {
	s.once.Do(func() {})
	if s.cancel != nil {
		s.cancel()
	}
	s.wg.Wait()
}

// Refresh measures the free space and updates the state.
func (s *Monitor) Refresh() {
	free, total, err := s.measure(s.dir)
	if err != nil || total == 0 {
		return // unknown space is no reason to refuse commands
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	reserve := s.reserveOf(total)
	now := Space{Free: free, Total: total, Reserve: reserve, ReadOnly: s.readOnly.Load()}
	switch {
	case !now.ReadOnly && free < reserve:
		now.ReadOnly = true
		s.logReadOnly(&now)
	case now.ReadOnly && free >= s.recoverAt(reserve):
		now.ReadOnly = false
		s.logger.Info("disk space recovered; the member accepts new messages again", "folder", s.dir, "free_bytes", free)
	}
	s.state.Store(&now)
	s.readOnly.Store(now.ReadOnly)
	if s.ballast <= 0 {
		return
	}
	// The last reserve comes first, and as soon as there is any space: it is what lets an operator delete.
	if !s.hasLast && free > lastReserveAt*uint64(s.ballast) {
		s.hasLast = Allocate(s.files, filepath.Join(s.dir, LastReserveFile), s.ballast) == nil
		free -= uint64(s.ballast)
	}
	if s.hasLast && s.exhausted.CompareAndSwap(true, false) {
		s.logger.Info("disk gained space beyond the last reserve; the member renews locks and forwards again", "folder", s.dir, "free_bytes", free)
	}
	if !s.hasBallast && !now.ReadOnly && free > reserve+uint64(s.ballast) {
		s.hasBallast = Allocate(s.files, filepath.Join(s.dir, BallastFile), s.ballast) == nil
	}
}

// logReadOnly logs that the member is read-only, and what to do.
func (s *Monitor) logReadOnly(now *Space) {
	s.logger.Error("disk is nearly full; the member refuses new messages and entities until space is freed: "+
		"receive, purge or delete messages, make the volume larger, or move partitions to other members",
		"folder", s.dir, "free_bytes", now.Free, "reserve_bytes", now.Reserve,
		"goes_on_at_bytes", s.recoverAt(now.Reserve))
}

// recoverAt returns the free bytes at which the member accepts messages again.
func (s *Monitor) recoverAt(reserve uint64) uint64 {
	return max(reserve/100*spaceRecoverPercent, 2*uint64(max(s.ballast, 0)), spaceRecoverBytesMin)
}

// reserveOf returns the reserve of a file system with total bytes.
func (s *Monitor) reserveOf(total uint64) uint64 {
	switch {
	case s.reserve < 0:
		return 0
	case s.reserve > 0:
		return uint64(s.reserve)
	}
	return min(max(reserveBytesMin, total/100*reservePercent), reserveBytesMax)
}

// Relieve is called after a write, or opening a file for one, has failed. It logs what is short. It reports whether that
// should be tried once more, because ReleaseBallast has freed space.
func (s *Monitor) Relieve(err error) bool {
	if s == nil || !IsOutOfFiles(err) {
		return IsNoSpace(err) && s.ReleaseBallast()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.outOfFiles.IsZero() || now.Sub(s.outOfFiles) >= outOfFilesLogInterval {
		s.outOfFiles = now
		s.logger.Error("failed to open a file because no file descriptor is free, will retry: raise the limit of open files "+
			"(LimitNOFILE= in systemd, --ulimit nofile for a container; fs.file-max if it is that of the system), or close client connections",
			"folder", s.dir, "error", err)
	}
	return false
}

// ReleaseBallast is called after a write has failed for lack of space. It deletes the ballast, or the last reserve if there is
// none, and reports whether it did: then the write should be tried once more.
func (s *Monitor) ReleaseBallast() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.readOnly.Load() {
		now := Space{ReadOnly: true}
		if last := s.state.Load(); last != nil {
			now.Total, now.Reserve = last.Total, last.Reserve
		}
		s.state.Store(&now)
		s.readOnly.Store(true)
		s.logReadOnly(&now)
	}
	switch {
	case s.hasBallast:
		s.hasBallast = false
		if s.files.Remove(filepath.Join(s.dir, BallastFile)) != nil {
			return false
		}
		s.logger.Warn("disk is full; deleted the ballast to keep space for the log", "folder", s.dir, "freed_bytes", s.ballast)
		return true
	case s.hasLast:
		s.hasLast = false
		s.exhausted.Store(true)
		if s.files.Remove(filepath.Join(s.dir, LastReserveFile)) != nil {
			return false
		}
		s.logger.Error("disk is full and the ballast is used up; deleted the last reserve: the member accepts only what frees space: "+
			"settle, purge or delete messages and entities, or make the volume larger", "folder", s.dir, "freed_bytes", s.ballast)
		return true
	}
	return false
}

// IsReadOnly reports whether disk space is low.
func (s *Monitor) IsReadOnly() bool { return s.readOnly.Load() }

// Space returns the disk space as measured within the last second; zeros before watch.
func (s *Monitor) Space() (now Space) {
	if known := s.state.Load(); known != nil {
		now = *known
	}
	now.LowMemory, now.Exhausted = s.lowMemory.Load(), s.exhausted.Load()
	return now
}

// SetLowMemory records whether the memory of the process is nearly used up.
func (s *Monitor) SetLowMemory(on bool) { s.lowMemory.Store(on) }

// RefusesGrowth reports whether disk space or memory is low.
func (s *Monitor) RefusesGrowth() bool { return s.readOnly.Load() || s.lowMemory.Load() }

// IsExhausted reports whether the last reserve is in use, so that only commands that free space may enter the log.
func (s *Monitor) IsExhausted() bool { return s.exhausted.Load() }
