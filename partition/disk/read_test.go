package disk

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"syscall"
	"testing"
)

// brokenReader cannot read a byte for the next so many times.
type brokenReader struct {
	content []byte
	bad     int64
	times   int
}

func (r *brokenReader) ReadAt(b []byte, at int64) (int, error) {
	if at <= r.bad && r.bad < at+int64(len(b)) && r.times > 0 {
		r.times--
		return 0, &fs.PathError{Op: "read", Path: "f", Err: syscall.EIO}
	}
	return bytes.NewReader(r.content).ReadAt(b, at)
}

// Only the page that cannot be read is lost, and an error that passes loses nothing.
func TestOnlyUnreadablePagesAreLost(t *testing.T) {
	t.Parallel()
	content := bytes.Repeat([]byte("peeklock"), 3*readPageBytes/8)
	for _, c := range []struct {
		times int
		lost  bool
	}{{1, false}, {3, false}, {1 << 30, true}} {
		r := &brokenReader{content, readPageBytes + 7, c.times}
		const begin = 100
		got := make([]byte, len(content)-begin)
		err := ReadPages(r, got, begin)
		want := bytes.Clone(content)
		if c.lost {
			copy(want[readPageBytes:], bytes.Repeat([]byte{unreadableByte}, readPageBytes))
		}
		if errors.Is(err, ErrDamaged) != c.lost || (err != nil) != c.lost || !bytes.Equal(got, want[begin:]) {
			t.Errorf("%d failures: %v, as it should be: %v", c.times, err, bytes.Equal(got, want[begin:]))
		}
	}
	for times, lost := range map[int]bool{1: false, 2: true} {
		r := &brokenReader{content, 0, times}
		got, err := io.ReadAll(Reader(io.NewSectionReader(r, 0, int64(len(content)))))
		if errors.Is(err, ErrDamaged) != lost || !lost && !bytes.Equal(got, content) {
			t.Errorf("read in order, %d failures: %v", times, err)
		}
	}
	if err := ReadAt(&brokenReader{content: content}, make([]byte, 1), int64(len(content))); !errors.Is(err, ErrDamaged) {
		t.Errorf("behind the end: %v", err)
	}
}
