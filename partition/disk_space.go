package partition

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

const (
	reserveBytesMin     = 1 << 30  // kept free by default at least
	reservePercent      = 5        // of the file system, if that is more
	reserveBytesMax     = 16 << 30 // and no more than this
	ballastBytesDefault = 64 << 20
	ballastFile         = "ballast"
	spaceCheckInterval  = time.Second
	// spaceBackPercent of the reserve must be free before a member that had too little takes
	// messages again, so that it does not go to and fro.
	spaceRecoverPercent  = 125
	spaceRecoverBytesMin = 1 << 20
	spaceRetryInterval   = 200 * time.Millisecond // for space, by those who can do nothing else
	// shortSnapshotEvery is how often a member without room writes snapshots of groups in which
	// something was consumed: bodies go with the next snapshot only.
	lowDiskSnapshotInterval = 5 * time.Second
	lowDiskSnapshotBytesMin = 1 << 20 // of dead bodies or log that make one worth its while
)

// errUnwritten says that something is in memory that has no room on the disk yet.
var errUnwritten = fmt.Errorf("bodies wait in memory for room on the disk: %w", syscall.ENOSPC)

// DiskSpace is the room on the file system of a member's data, in bytes.
type DiskSpace struct {
	Free  uint64 // for this process
	Total uint64
	// Reserve is what must stay free. Below it the member is ReadOnly: its leaders take no new
	// messages and entities (fsm.ServerBusy), everything else goes on.
	Reserve  uint64
	ReadOnly bool
	// ShortOfMemory says that the process was told that its memory is nearly used up
	// (SetShortOfMemory): the member refuses then what it refuses when it is ReadOnly.
	LowMemory bool
}

// RefusesGrowth says whether the member refuses what grows, for want of either.
func (s *DiskSpace) RefusesGrowth() bool { return s.ReadOnly || s.LowMemory }

// diskSpace watches the room for a member's data. The log owns it.
type diskSpace struct {
	dir     string
	logger  *slog.Logger
	measure func(dir string) (free, total uint64, err error)
	reserve int64 // as in Sizes
	ballast int64

	state     atomic.Pointer[DiskSpace]
	readOnly  atomic.Bool
	lowMemory atomic.Bool // SetShortOfMemory

	once   sync.Once
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu         sync.Mutex // guards the ballast file and changes of state
	hasBallast bool       // the ballast lies there
}

func newDiskSpace(dir string, logger *slog.Logger) *diskSpace {
	return &diskSpace{dir: dir, logger: logger, measure: fileSystemSpace}
}

// watch begins to look, until close, with the sizes of the first group that is opened.
func (s *diskSpace) watch(ctx context.Context, sizes Sizes, measure func(dir string) (free, total uint64, err error)) {
	s.once.Do(func() {
		s.reserve, s.ballast = sizes.Reserve, sizes.Ballast
		if s.ballast == 0 {
			s.ballast = ballastBytesDefault
		}
		if measure != nil {
			s.measure = measure
		}
		_, err := os.Stat(filepath.Join(s.dir, ballastFile))
		s.hasBallast = err == nil
		s.refresh()
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		s.cancel = cancel
		s.wg.Go(func() {
			tick := time.NewTicker(spaceCheckInterval)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					s.refresh()
				case <-ctx.Done():
					return
				}
			}
		})
	})
}

// close stops looking.
func (s *diskSpace) close() {
	s.once.Do(func() {})
	if s.cancel != nil {
		s.cancel()
	}
	s.wg.Wait()
}

// refresh measures, and says what follows from it.
func (s *diskSpace) refresh() {
	free, total, err := s.measure(s.dir)
	if err != nil || total == 0 {
		return // what is not known is no reason to stop
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	reserve := s.reserveOf(total)
	now := DiskSpace{Free: free, Total: total, Reserve: reserve, ReadOnly: s.readOnly.Load()}
	switch {
	case !now.ReadOnly && free < reserve:
		now.ReadOnly = true
		s.logReadOnly(&now)
	case now.ReadOnly && free >= s.recoverAt(reserve):
		now.ReadOnly = false
		s.logger.Info("there is room on the disk again: the member takes new messages", "folder", s.dir, "free_bytes", free)
	}
	s.state.Store(&now)
	s.readOnly.Store(now.ReadOnly)
	if !s.hasBallast && s.ballast > 0 && !now.ReadOnly && free > reserve+uint64(s.ballast) {
		s.hasBallast = allocate(filepath.Join(s.dir, ballastFile), s.ballast) == nil
	}
}

// logReadOnly says once what is to be done.
func (s *diskSpace) logReadOnly(now *DiskSpace) {
	s.logger.Error("disk is nearly full: the member takes no new messages and entities until there is room; "+
		"receive, purge or delete messages, make the volume larger, or move partitions to other members",
		"folder", s.dir, "free_bytes", now.Free, "reserve_bytes", now.Reserve,
		"goes_on_at_bytes", s.recoverAt(now.Reserve))
}

// recoverAt is how much must be free again.
func (s *diskSpace) recoverAt(reserve uint64) uint64 {
	return max(reserve/100*spaceRecoverPercent, 2*uint64(max(s.ballast, 0)), spaceRecoverBytesMin)
}

// reserveOf is what must stay free of so much.
func (s *diskSpace) reserveOf(total uint64) uint64 {
	switch {
	case s.reserve < 0:
		return 0
	case s.reserve > 0:
		return uint64(s.reserve)
	}
	return min(max(reserveBytesMin, total/100*reservePercent), reserveBytesMax)
}

// releaseBallast is told that a write found no room at all. It gives the ballast away and says
// whether it did: then the write should be tried once more.
func (s *diskSpace) releaseBallast() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.readOnly.Load() {
		now := DiskSpace{ReadOnly: true}
		if last := s.state.Load(); last != nil {
			now.Total, now.Reserve = last.Total, last.Reserve
		}
		s.state.Store(&now)
		s.readOnly.Store(true)
		s.logReadOnly(&now)
	}
	if !s.hasBallast {
		return false
	}
	s.hasBallast = false
	if err := os.Remove(filepath.Join(s.dir, ballastFile)); err != nil {
		return false
	}
	s.logger.Warn("disk is full: gave away the space kept for cutting the log", "folder", s.dir, "freed_bytes", s.ballast)
	return true
}

// DiskSpace says how much room there is, as it was within the last second; zeros before the
// first group is opened.
func (l *Log) DiskSpace() (now DiskSpace) {
	if known := l.diskSpace.state.Load(); known != nil {
		now = *known
	}
	now.LowMemory = l.diskSpace.lowMemory.Load()
	return now
}

// SetLowMemory makes every group of the log refuse what grows, when it leads, as if the
// disk were short of room: what waits in queues takes memory on each replica.
func (l *Log) SetLowMemory(on bool) { l.diskSpace.lowMemory.Store(on) }

// refusesGrowth says whether disk or memory are short.
func (s *diskSpace) refusesGrowth() bool { return s.readOnly.Load() || s.lowMemory.Load() }

// allocate makes a file that really takes so many bytes.
func allocate(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, segmentFileMode) //nolint:gosec // a path of our own making
	if err != nil {
		return fmt.Errorf("allocate: %w", err)
	}
	err = reserveBytes(f, size)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("allocate %s: %w", path, errors.Join(err, os.Remove(path)))
	}
	return nil
}

// writeZeros is for file systems that set nothing aside.
func writeZeros(f *os.File, size int64) error {
	zeros := make([]byte, copyBufferBytes)
	for size > 0 {
		n, err := f.Write(zeros[:min(size, int64(len(zeros)))])
		if err != nil {
			return err
		}
		size -= int64(n)
	}
	return f.Sync()
}

// isNoSpace says that a disk or a quota is full.
func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// isRetriable says that a write to the log found no room and changed nothing, so that it can
// be tried again. Anything else, a failed sync above all, leaves open what is on the disk.
func isRetriable(err error) bool {
	var p *fs.PathError
	return isNoSpace(err) && errors.As(err, &p) && p.Op == "write"
}

// growsData says whether a command makes the data of a group larger, and may thus be refused:
// the others make it smaller, or others wait for them. A transaction may settle, but what
// it sends comes with it.
func growsData(command []byte) bool {
	info, err := fsm.PeekCommand(command)
	if err != nil {
		return false
	}
	switch info.Kind { //nolint:exhaustive // the others do not
	case fsm.KindSendMessages, fsm.KindTransferMessages, fsm.KindTransact, fsm.KindCreateEntity, fsm.KindCreateNamespace:
		return true
	}
	return false
}

// SetReadOnly makes this replica, when it leads, refuse what grows, as if its own disk were
// short of room: for when so many members of the other voters are that no quorum has any. Its
// refusals are then Firm.
func (g *Group) SetReadOnly(on bool) { g.toldReadOnly.Store(on) }

// isReadOnly says whether what grows is refused.
func (g *Group) isReadOnly() bool {
	return g.toldReadOnly.Load() || g.cfg.Log.diskSpace.refusesGrowth()
}
