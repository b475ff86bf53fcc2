package disk

import "testing"

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
