package partition

import (
	"time"

	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/partition/histogram"
)

// Types of the subpackages that callers of this package use, so that they need not import them.
type (
	// DiskSpace is the disk space of a member, see [disk.Space].
	DiskSpace = disk.Space
	// Histogram counts durations, see [histogram.Histogram].
	Histogram = histogram.Histogram
	// Durations is a snapshot of a histogram, see [histogram.Durations].
	Durations = histogram.Durations
)

// Bound returns the upper end of bucket i of a histogram.
func Bound(i int) time.Duration { return histogram.Bound(i) }
