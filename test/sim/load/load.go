package load

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/sim/judge"
)

// The load on each stream: about four operations a second. Twice as many take twice as much of a processor.
const (
	sendEvery         = 850 * time.Millisecond // on average
	thinkMean         = 40 * time.Millisecond  // between a delivery and its settlement, on average
	lockWait          = 2 * time.Second        // of one request for messages
	deliveriesMax     = 5                      // that fail, before a message is dead-lettered
	scheduleMax       = 10 * time.Second
	batchMax          = 8
	receiversOfSource = 3
	bodyMax           = 4 << 10
	largeBody         = 100 << 10 // one in a hundred
	messageMax        = 128 << 10 // of the entities; larger messages are refused
)

// Load is all clients of a simulation.
type Load struct {
	cluster    *Cluster
	seed       uint64
	streams    []*stream
	unused     []fsm.Entity // that delete themselves
	clients    int
	operations atomic.Int64

	senders, receivers sync.WaitGroup
	sending, receiving context.Context
	stopSending        context.CancelFunc
	stopReceiving      context.CancelFunc
}

// New returns the load on a cluster. What the clients do follows from the seed. They end with ctx at the latest.
func New(ctx context.Context, on *Cluster, seed uint64) *Load {
	l := &Load{cluster: on, seed: seed}
	l.sending, l.stopSending = context.WithCancel(ctx)
	l.receiving, l.stopReceiving = context.WithCancel(ctx)
	return l
}

func (l *Load) client(name string) *client {
	l.clients++
	return newClient(l.cluster, l.seed, l.clients, name)
}

// Process returns a process that runs, of a member that is drawn for a client with a name; nil when ctx has ended.
func (l *Load) Process(ctx context.Context, client string) *Process {
	return l.client(client).process(ctx)
}

// Streams returns what the clients of each stream have seen.
func (l *Load) Streams() (judged []*judge.Stream) {
	for _, s := range l.streams {
		judged = append(judged, s.Stream)
	}
	return judged
}

// Keep leaves out all streams but those with some names, and the entities that nobody uses. It is called between Build and Start.
func (l *Load) Keep(names []string) {
	l.unused = nil
	l.streams = slices.DeleteFunc(l.streams, func(s *stream) bool { return !slices.Contains(names, s.Name) })
}

// Operations returns how many operations the clients saw succeed.
func (l *Load) Operations() int64 { return l.operations.Load() }

// StopSending ends what sends; receivers go on.
func (l *Load) StopSending() { l.stopSending() }

// Stop ends all clients, and does not wait for them.
func (l *Load) Stop() {
	l.stopSending()
	l.stopReceiving()
}

// Resumed is called when hosts run again that stood still.
func (l *Load) Resumed() {
	for _, s := range l.streams {
		s.Lives.Resumed()
	}
}

// Restored is called when the cluster is lost, before another one is started from its copy.
func (l *Load) Restored() {
	for _, s := range l.streams {
		s.restored()
	}
}
