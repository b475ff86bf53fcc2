package client

import (
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// Stats counts the router's commands to partitions: sends, settlements and others, not the waits
// of receivers.
type Stats struct {
	Requests uint64 // begun
	Retries  uint64 // further submissions, after a leader refused, failed or went silent
	Busy     uint64 // ended ServerBusy: certainly not done
	Timeouts uint64 // given up: perhaps done
	// Took is the time from the call of the gateway to the answer, retries included.
	Took partition.Durations
}

// clientCounts counts the requests of a partition client.
type clientCounts struct {
	requests, retries, busy, timeouts atomic.Uint64
	took                              partition.Histogram
}

// count records the end of a request that took some time, and returns that time.
func (c *clientCounts) count(took time.Duration, code fsm.Code) time.Duration {
	c.took.Observe(took)
	switch code { //nolint:exhaustive // the others are answers
	case fsm.ServerBusy:
		c.busy.Add(1)
	case fsm.Timeout:
		c.timeouts.Add(1)
	}
	return took
}
