package partition

import "testing"

func TestSnapshotsOfALargeImageAreWrittenLessOften(t *testing.T) {
	t.Parallel()
	const least = 64 << 20
	for image, want := range map[int64]uint64{
		0:            least,
		least - 1:    least,
		100 << 20:    100 << 20,
		4 * least:    4 * least,
		1000 * least: 4 * least,
	} {
		if got := snapshotDueAfter(least, image); got != want {
			t.Errorf("image of %d bytes: due after %d, want %d", image, got, want)
		}
	}
}

// The size of the image is known after a snapshot, and after a restart.
func TestTheImageDecidesWhenTheNextSnapshotIsDue(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		m, g, a := openSingle(t, func(c *Config) { c.Sizes.Snapshot = 1 << 10 })
		for i := range 100 {
			must(t, g, a.next(), send(1, body(i)))
		}
		if err := g.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		due := g.snapshotter.dueAfter()
		if due != min(uint64(g.Stats().SnapshotBytes), 4<<10) || due == 1<<10 {
			t.Errorf("due after %d with an image of %d", due, g.Stats().SnapshotBytes)
		}
		m.stop()
		m.start(1)
		if got := m.group(1).snapshotter.dueAfter(); got != due {
			t.Errorf("due after %d, after a restart %d", due, got)
		}
	})
}
