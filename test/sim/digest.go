package sim

import (
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"io"
	"runtime"
	"sync"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/test/sim/simnet"
)

// digest is a checksum of what happened in a simulation, and when: everything that was sent, every entry that a member
// stored, and all that clients saw. Two runs of one plan with equal digests were the same.
type digest struct {
	mu    sync.Mutex
	sum   uint64
	lines io.Writer // one for each event, to find where two runs part; nil: none
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli) //nolint:gochecknoglobals // read only

// add adds an event.
func (d *digest) add(event string, data []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := fnv.New64a()
	now, check := time.Now(), crc32.Checksum(data, castagnoli)
	fmt.Fprintf(h, "%x %d %s %x %d", d.sum, now.UnixNano(), event, check, len(data))
	d.sum = h.Sum64()
	if d.lines != nil {
		fmt.Fprintf(d.lines, "%s %s %d bytes, %08x %p %x %q\n", now.Format(time.RFC3339Nano), event, len(data), check, h, bubbleState, data[:min(len(data), 150)])
	}
}

// sent adds what was sent over a link.
func (d *digest) sent(over simnet.Link, data []byte) {
	d.add(fmt.Sprintf("%d to %d", over.From, over.To), data)
}

// stored adds an entry that a member stored.
func (d *digest) stored(member string, e *raft.Log) {
	d.add(fmt.Sprintf("%s stores %d of term %d", member, e.Index, e.Term), e.Data)
}

// gcEvery is how much virtual time passes between two collections of garbage.
const gcEvery = 10 * time.Second

// collectGarbage collects garbage every now and then until stop is called, and only while every goroutine of the
// simulation waits: at any other time it would change the order in which they run.
func collectGarbage() (stop func()) {
	stopped := make(chan struct{})
	go func() {
		ticker := time.NewTicker(gcEvery)
		defer ticker.Stop()
		for {
			select {
			case <-stopped:
				return
			case <-ticker.C:
				synctest.Wait()
				runtime.GC()
			}
		}
	}()
	return func() { close(stopped) }
}
