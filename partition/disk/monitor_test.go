package disk

import (
	"bytes"
	"io/fs"
	"log/slog"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestReserveFollowsTheDiskSize(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		reserve int64
		total   uint64
		want    uint64
	}{
		{0, 10 << 30, 1 << 30},
		{0, 100 << 30, 5 << 30},
		{0, 4 << 40, 16 << 30},
		{7, 4 << 40, 7},
		{-1, 4 << 40, 0},
	} {
		s := &Monitor{reserve: x.reserve}
		if got := s.reserveOf(x.total); got/1000 != x.want/1000 {
			t.Errorf("%+v: %d", x, got)
		}
	}
}

// A shortage of file descriptors is no lack of space: the ballast stays, the member is not read-only, and what is short is
// logged once in a while.
func TestShortageOfFilesKeepsTheBallast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		s := NewMonitor(OS{}, t.TempDir(), slog.New(slog.NewTextHandler(&logged, nil)))
		s.hasBallast = true
		for range 3 {
			if s.Relieve(&fs.PathError{Op: "open", Err: syscall.EMFILE}) || s.IsReadOnly() || !s.hasBallast {
				t.Error("it was taken for a full disk")
			}
		}
		if n := bytes.Count(logged.Bytes(), []byte("no file descriptor is free")); n != 1 {
			t.Errorf("logged %d times: %s", n, logged.Bytes())
		}
		<-time.After(outOfFilesLogInterval)
		_ = s.Relieve(syscall.ENFILE)
		if n := bytes.Count(logged.Bytes(), []byte("\n")); n != 2 {
			t.Errorf("logged %d times: %s", n, logged.Bytes())
		}
		if !s.Relieve(&fs.PathError{Op: "write", Err: syscall.ENOSPC}) && s.hasBallast || !s.IsReadOnly() {
			t.Error("a full disk was not seen")
		}
		if s.Relieve(nil) || s.Relieve(syscall.EIO) || (*Monitor)(nil).Relieve(syscall.EMFILE) || (*Monitor)(nil).Relieve(syscall.ENOSPC) {
			t.Error("tried once more without a reason")
		}
	})
}
