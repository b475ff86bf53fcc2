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

// A full disk takes the ballast first, then the last reserve, which is created again before the ballast, and below the reserve.
func TestLastReserveGoesLastAndComesFirst(t *testing.T) {
	t.Parallel()
	const ballast, reserve = 4 << 10, 1 << 20
	free := uint64(10 * reserve)
	s := NewMonitor(OS{}, t.TempDir(), slog.New(slog.DiscardHandler))
	s.ballast, s.reserve = ballast, reserve
	s.measure = func(string) (uint64, uint64, error) { return free, 100 * reserve, nil }
	expect := func(what string, hasBallast, hasLast, exhausted bool) {
		t.Helper()
		if s.exists(BallastFile) != hasBallast || s.exists(LastReserveFile) != hasLast || s.IsExhausted() != exhausted || s.Space().Exhausted != exhausted {
			t.Errorf("%s: ballast %t, last reserve %t, exhausted %t", what, s.exists(BallastFile), s.exists(LastReserveFile), s.IsExhausted())
		}
	}
	s.Refresh()
	expect("with space", true, true, false)
	full := &fs.PathError{Op: "write", Err: syscall.ENOSPC}
	if !s.Relieve(full) {
		t.Error("the ballast did not help")
	}
	expect("full", false, true, false)
	if !s.Relieve(full) {
		t.Error("the last reserve did not help")
	}
	expect("full again", false, false, true)
	if s.Relieve(full) {
		t.Error("tried again with nothing left")
	}
	free = ballast
	s.Refresh()
	expect("with too little space", false, false, true)
	s.exhausted.Store(false) // as in a process that starts
	s.resume()
	expect("after a restart", false, false, true)
	free = 3 * ballast
	s.Refresh()
	expect("with some space", false, true, false)
	if !s.IsReadOnly() {
		t.Error("messages are accepted below the reserve")
	}
	free = 10 * reserve
	s.Refresh()
	s.Refresh()
	expect("with space again", true, true, false)
}
