package fault

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/peeklock/peeklock/test/harness"
	"github.com/peeklock/peeklock/test/kit"
)

const (
	soakCycles   = 20 // of one connection, before it is replaced
	soakBatch    = 10 // messages of a cycle
	soakWait     = 5 * time.Second
	soakKills    = 30 * time.Second // between two
	soakSamples  = 45               // in all, so that a third is 15
	soakLock     = 5 * time.Second  // messages of an interrupted cycle return soon
	soakLife     = time.Second      // of messages that are not received
	soakBodySize = 2000
)

// soakBound limits the growth of a metric. It may grow during the first third of the soak, while everything happens for the first
// time. In the last third it may exceed the maximum of the first third by this factor
// and this amount.
type soakBound struct {
	metric string
	factor float64
	more   float64
	mean   bool // compare the means of the thirds, not their maxima: for bursts
}

func soakBounds() []soakBound {
	return []soakBound{
		{"goroutines", 1.5, 100, false},
		{"memory MB", 1.5, 64, false},
		{"open files", 1.5, 100, false},
		{"raft log MB", 1.5, 32, false},
		{"folder MB", 1.5, 128, false},
		{"text log kB/min", 2, 256, true},
	}
}

// soak runs cycles of all kinds at all members, repeatedly on new connections,
// while a leader is killed now and then.
type soak struct {
	t           *testing.T
	c           *harness.Cluster
	done        map[string]*atomic.Int64 // cycles by kind; the map does not change once they run
	interrupted atomic.Int64             // cycles interrupted by a fault
	samples     []map[string]float64     // maxima of all members
	logged      float64
	logAt       time.Time
	mu          sync.Mutex
	errors      map[string]int // by text
}

// soakKind is one kind of cycle, which receives what it sends.
type soakKind struct {
	name string
	run  func(ctx context.Context, client *azservicebus.Client, turn int64) error
}

// Temporary state does not accumulate: messages, locks, sessions, message ids and connections are created and
// removed thousands of times, for the duration in PEEKLOCK_SOAK.
func TestSoak(t *testing.T) {
	text := os.Getenv("PEEKLOCK_SOAK")
	if text == "" {
		t.Skip("takes as long as PEEKLOCK_SOAK says, like 10m")
	}
	length := kit.Must(time.ParseDuration(text))(t)
	s := &soak{
		t: t, errors: map[string]int{}, done: map[string]*atomic.Int64{}, logAt: time.Now(),
		c: harness.Start(t, harness.Options{Args: []string{"--snapshot-bytes", "1048576"}}), // many snapshots
	}
	s.entities()
	ctx, end := context.WithTimeout(t.Context(), length)
	defer end()
	var working sync.WaitGroup
	for i, kind := range s.kinds() {
		s.done[kind.name] = &atomic.Int64{}
		for at := range 2 { // at two members
			working.Go(func() { s.work(ctx, kind, s.c.Members[(i+at)%len(s.c.Members)]) })
		}
	}
	s.watch(ctx, length)
	working.Wait()
	s.checkGrowth()
}

// entities creates the entities of the cycles.
func (s *soak) entities() {
	lock := func(more harness.Fields) harness.Settings {
		return harness.Settings{LockDuration: soakLock, MaxDeliveryCount: 1000, More: more}
	}
	for _, q := range []string{"plain", "scheduled", "dead"} {
		s.c.CreateQueue(s.t, q, lock(nil))
	}
	s.c.CreateQueue(s.t, "short", lock(nil))
	s.c.CreateQueue(s.t, "sessions", lock(harness.Fields{"requiresSession": true}))
	s.c.CreateQueue(s.t, "once", lock(harness.Fields{"requiresDuplicateDetection": true, "duplicateDetectionHistoryTimeWindow": "20s"}))
	s.c.CreateTopic(s.t, "topic", harness.Settings{})
	for _, sub := range []string{"one", "two"} {
		s.c.CreateSubscription(s.t, "topic", sub, lock(nil))
	}
}

// work runs cycles until ctx ends, some on each connection. After a failed cycle it continues
// at a random member.
func (s *soak) work(ctx context.Context, kind soakKind, at *harness.Member) {
	for turn := int64(0); ctx.Err() == nil; {
		client, err := azservicebus.NewClientFromConnectionString(at.ConnectionString(), &azservicebus.ClientOptions{
			RetryOptions: azservicebus.RetryOptions{MaxRetries: -1},
		})
		if err != nil {
			s.t.Error(err)
			return
		}
		for range soakCycles {
			one, cancel := context.WithTimeout(ctx, soakWait)
			err = kind.run(one, client, turn)
			late := one.Err() != nil
			cancel()
			turn++
			if err != nil && !late {
				break
			}
			s.done[kind.name].Add(1)
		}
		if ctx.Err() == nil && err != nil {
			s.interrupted.Add(1)
			s.recordError(kind.name, err)
			at = s.c.Members[rand.N(len(s.c.Members))]
		}
		// The member may have been killed, and its connections with it.
		_ = client.Close(context.WithoutCancel(ctx))
	}
}

// recordError counts an error by its text.
func (s *soak) recordError(kind string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.errors) < 50 {
		s.errors[fmt.Sprintf("%s: %.120v", kind, strings.ReplaceAll(err.Error(), "\n", " "))]++
	}
}

// watch kills leaders and takes samples until ctx ends.
func (s *soak) watch(ctx context.Context, length time.Duration) {
	kill := time.NewTicker(soakKills)
	defer kill.Stop()
	sample := time.NewTicker(length / soakSamples)
	defer sample.Stop()
	queues := []string{"plain", "sessions", "topic", "once"}
	for n := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-sample.C:
			s.sample(ctx)
		case <-kill.C:
			m := s.c.Members[n%len(s.c.Members)]
			if q := queues[n%len(queues)]; q != "topic" {
				m = s.c.Leader(s.t, q)
			}
			n++
			m.Kill()
			restart(m)
		}
	}
}

// sample records the maximum of each metric over all members.
func (s *soak) sample(ctx context.Context) {
	most := map[string]float64{}
	take := func(figure string, value float64) { most[figure] = max(most[figure], value) }
	var logged float64
	for _, m := range s.c.Members {
		figures, err := m.Metrics(ctx, "go_goroutines", "process_open_fds")
		if err != nil {
			return // the end of the soak
		}
		take("goroutines", figures["go_goroutines"])
		take("open files", figures["process_open_fds"])
		take("memory MB", float64(m.MemoryBytes())/1e6)
		take("folder MB", folderBytes(m.Dir)/1e6)
		take("raft log MB", folderBytes(filepath.Join(m.Dir, "raft.db"))/1e6)
		logged += float64(m.LogSize())
	}
	now := time.Now()
	most["text log kB/min"] = (logged - s.logged) / 1e3 / now.Sub(s.logAt).Minutes()
	s.logged, s.logAt = logged, now
	s.samples = append(s.samples, most)
}

// folderBytes is the disk space of the files below a folder, without files that are deleted meanwhile.
func folderBytes(dir string) float64 {
	var sum float64
	// Files may be deleted during the walk.
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if info, err := d.Info(); err == nil {
				sum += diskBytes(info)
			}
		}
		return nil
	})
	return sum
}

// checkGrowth prints the table and compares the last third with the first one.
func (s *soak) checkGrowth() {
	s.t.Logf("%-16s %10s %10s %10s %10s", "worst member", "1st third", "2nd third", "3rd third", "allowed")
	third := len(s.samples) / 3
	if third == 0 {
		s.t.Fatal("too short: there are not even three samples")
	}
	for _, b := range soakBounds() {
		var most [3]float64
		for i, sample := range s.samples[:3*third] {
			if b.mean {
				most[i/third] += sample[b.metric] / float64(third)
			} else {
				most[i/third] = max(most[i/third], sample[b.metric])
			}
		}
		allowed := b.factor*most[0] + b.more
		s.t.Logf("%-16s %10.1f %10.1f %10.1f %10.1f", b.metric, most[0], most[1], most[2], allowed)
		if most[2] > allowed {
			s.t.Errorf("%s grew from %.1f to %.1f", b.metric, most[0], most[2])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.done)) {
		n := s.done[name].Load()
		s.t.Logf("%8d cycles of %s", n, name)
		if n == 0 {
			s.t.Errorf("no cycle of %s was done", name)
		}
	}
	s.t.Logf("%8d cycles were interrupted", s.interrupted.Load())
	for _, text := range slices.Sorted(maps.Keys(s.errors)) {
		s.t.Logf("%8d times %s", s.errors[text], text)
	}
}

// sendAll sends n messages, each modified by fill.
func sendAll(ctx context.Context, client *azservicebus.Client, to string, n int, fill func(i int, m *azservicebus.Message)) error {
	sender, err := client.NewSender(to, nil)
	if err != nil {
		return err
	}
	for i := range n {
		m := &azservicebus.Message{Body: make([]byte, soakBodySize)}
		if fill != nil {
			fill(i, m)
		}
		if err := sender.SendMessage(ctx, m, nil); err != nil {
			return err
		}
	}
	return sender.Close(ctx)
}

// receiveAll receives n messages and settles each.
func receiveAll(ctx context.Context, r *azservicebus.Receiver, err error, n int, settle func(*azservicebus.Receiver, *azservicebus.ReceivedMessage) error) error {
	for got := 0; got < n && err == nil; {
		var some []*azservicebus.ReceivedMessage
		some, err = r.ReceiveMessages(ctx, n-got, nil)
		for _, m := range some {
			err = errors.Join(err, settle(r, m))
		}
		got += len(some)
	}
	if err != nil {
		return err
	}
	return r.Close(ctx)
}

// kinds returns the kinds of cycles.
func (s *soak) kinds() []soakKind {
	complete := func(ctx context.Context) func(*azservicebus.Receiver, *azservicebus.ReceivedMessage) error {
		return func(r *azservicebus.Receiver, m *azservicebus.ReceivedMessage) error {
			return r.CompleteMessage(ctx, m, nil)
		}
	}
	queueCycle := func(name string, n int, fill func(turn int64) func(int, *azservicebus.Message)) soakKind {
		return soakKind{name, func(ctx context.Context, c *azservicebus.Client, turn int64) error {
			if err := sendAll(ctx, c, name, soakBatch, fill(turn)); err != nil {
				return err
			}
			r, err := c.NewReceiverForQueue(name, nil)
			return receiveAll(ctx, r, err, n, complete(ctx))
		}}
	}
	none := func(int64) func(int, *azservicebus.Message) { return nil }
	return []soakKind{
		queueCycle("plain", soakBatch, none),
		queueCycle("scheduled", soakBatch, func(int64) func(int, *azservicebus.Message) {
			return func(_ int, m *azservicebus.Message) {
				at := time.Now().Add(500 * time.Millisecond)
				m.ScheduledEnqueueTime = &at
			}
		}),
		queueCycle("once", soakBatch/2, func(int64) func(int, *azservicebus.Message) {
			base := rand.Int64()
			return func(i int, m *azservicebus.Message) { // each id twice
				id := fmt.Sprint(base, "-", i/2)
				m.MessageID = &id
			}
		}),
		{"short", func(ctx context.Context, c *azservicebus.Client, _ int64) error {
			life := soakLife
			return sendAll(ctx, c, "short", soakBatch, func(_ int, m *azservicebus.Message) { m.TimeToLive = &life })
		}},
		{"topic", func(ctx context.Context, c *azservicebus.Client, _ int64) error {
			err := sendAll(ctx, c, "topic", soakBatch, nil)
			for _, sub := range []string{"one", "two"} {
				if err == nil {
					r, failed := c.NewReceiverForSubscription("topic", sub, nil)
					err = receiveAll(ctx, r, failed, soakBatch, complete(ctx))
				}
			}
			return err
		}},
		{"dead", soakDeadLetters},
		{"sessions", soakSession},
	}
}

// soakDeadLetters creates dead letters and removes them.
func soakDeadLetters(ctx context.Context, c *azservicebus.Client, _ int64) error {
	if err := sendAll(ctx, c, "dead", soakBatch, nil); err != nil {
		return err
	}
	r, err := c.NewReceiverForQueue("dead", nil)
	if err := receiveAll(ctx, r, err, soakBatch, func(r *azservicebus.Receiver, m *azservicebus.ReceivedMessage) error {
		return r.DeadLetterMessage(ctx, m, nil)
	}); err != nil {
		return err
	}
	r, err = c.NewReceiverForQueue("dead", &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
	return receiveAll(ctx, r, err, soakBatch, func(r *azservicebus.Receiver, m *azservicebus.ReceivedMessage) error {
		return r.CompleteMessage(ctx, m, nil)
	})
}

// soakSession creates a session with a state, and removes both.
func soakSession(ctx context.Context, c *azservicebus.Client, _ int64) error {
	session := fmt.Sprint(rand.Int64())
	if err := sendAll(ctx, c, "sessions", soakBatch, func(_ int, m *azservicebus.Message) { m.SessionID = &session }); err != nil {
		return err
	}
	r, err := c.AcceptSessionForQueue(ctx, "sessions", session, nil)
	if err != nil {
		return err
	}
	err = r.SetSessionState(ctx, []byte("half way"), nil)
	for got := 0; got < soakBatch && err == nil; {
		var some []*azservicebus.ReceivedMessage
		some, err = r.ReceiveMessages(ctx, soakBatch-got, nil)
		for _, m := range some {
			err = errors.Join(err, r.CompleteMessage(ctx, m, nil))
		}
		got += len(some)
	}
	if err == nil {
		err = r.SetSessionState(ctx, []byte{}, nil)
	}
	return errors.Join(err, r.Close(ctx))
}
