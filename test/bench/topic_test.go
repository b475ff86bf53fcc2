package bench

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/test/harness"
)

const (
	publishers     = 8    // links that publish, each over its own connection
	underWay       = 64   // unconfirmed messages of each link
	publishedBytes = 1024 // of each body
	makers         = 16   // concurrent requests to the control API
	// The benchmark measures the whole log, so none of it may be truncated.
	keepLogBytes = 1 << 30
)

// fanout is a topic with its subscriptions and rules, and the messages published to it.
type fanout struct {
	name          string
	messages      int // to publish
	subscriptions int
	rules         int                          // of each subscription; 0: the default rule
	rule          func(n int) harness.Rule     // the rule with this number, counted over all subscriptions
	shape         func(n int, m *amqp.Message) // makes message n match some rules
	copies        int                          // of each message
}

// fanouts returns the topics to measure.
func fanouts() []fanout {
	sql := func(n int) harness.Rule {
		return harness.Rule{SQL: fmt.Sprintf("bucket = %d AND color IN ('red', 'green')", n%100)}
	}
	correlation := func(n int) harness.Rule {
		return harness.Rule{Conditions: harness.Fields{"sys.CorrelationId": fmt.Sprint(n), "color": "red"}}
	}
	inBucket := func(n int, m *amqp.Message) {
		m.ApplicationProperties = map[string]any{"bucket": int64(n % 100), "color": "red"}
	}
	correlated := func(n int, m *amqp.Message) {
		m.ApplicationProperties = map[string]any{"color": "red"}
		m.Properties = &amqp.MessageProperties{CorrelationID: fmt.Sprint(n * 7919 % 100_000)}
	}
	return []fanout{
		{name: "true-1", messages: 100_000, subscriptions: 1, copies: 1},
		{name: "true-10", messages: 100_000, subscriptions: 10, copies: 10},
		{name: "true-100", messages: 30_000, subscriptions: 100, copies: 100},
		{name: "sql-1000-of-which-10", messages: 30_000, subscriptions: 1000, rules: 1, rule: sql, shape: inBucket, copies: 10},
		{name: "correlation-100000-of-which-1", messages: 100_000, subscriptions: 100, rules: 1000, rule: correlation, shape: correlated, copies: 1},
	}
}

// BenchmarkTopic publishes to topics and reports messages and copies per second, and how many bytes
// each message adds to a member's disk: in segments, which store a body once, and in the log,
// which is not truncated. The publishers are at the leader; nobody receives.
// A queue is measured in the same way for comparison.
func BenchmarkTopic(b *testing.B) {
	if testing.Short() {
		b.Skip("takes minutes with three processes: left out by -short")
	}
	b.Run("queue", func(b *testing.B) {
		for range b.N {
			f := fanout{messages: 100_000, copies: 1}
			c := f.start(b)
			c.CreateQueue(b, "published", harness.Settings{})
			f.publish(b, c, "published", "published")
		}
	})
	for _, f := range fanouts() {
		b.Run(f.name, func(b *testing.B) {
			for range b.N {
				c := f.start(b)
				c.CreateTopic(b, "published", harness.Settings{})
				f.publish(b, c, "published", f.subscribe(b, c, "published"))
			}
		})
	}
}

func (f fanout) start(b *testing.B) *harness.Cluster {
	b.Helper()
	return harness.Start(b, harness.Options{Args: []string{"--snapshot-bytes", fmt.Sprint(keepLogBytes)}})
}

// subscribe creates the subscriptions with all their rules, and returns the path of one.
func (f fanout) subscribe(b *testing.B, c *harness.Cluster, topic string) string {
	b.Helper()
	begun := time.Now()
	path := func(n int) string { return harness.SubscriptionPath(topic, fmt.Sprintf("s%04d", n)) }
	f.each(b, f.subscriptions, func(ctx context.Context, n int) error {
		fields := harness.Fields{}
		if f.rules > 0 {
			fields["defaultRule"] = f.numbered(n)
		}
		return c.Members[n%len(c.Members)].Call(ctx, "PUT", "/v1/subscriptions/"+path(n), fields, nil)
	})
	f.each(b, f.subscriptions*max(0, f.rules-1), func(ctx context.Context, n int) error {
		return c.Members[0].PutRule(ctx, path(n%f.subscriptions), f.numbered(n+f.subscriptions), false)
	})
	b.Logf("%d subscriptions with %d rules each made in %v", f.subscriptions, max(1, f.rules), time.Since(begun).Round(time.Millisecond))
	return path(0)
}

func (f fanout) numbered(n int) harness.Rule {
	r := f.rule(n)
	r.Name = fmt.Sprintf("rule-%d", n)
	return r
}

// each calls do concurrently with the numbers below n.
func (f fanout) each(b *testing.B, n int, do func(ctx context.Context, n int) error) {
	b.Helper()
	var next atomic.Int64
	var all sync.WaitGroup
	for range makers {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && !b.Failed(); i = int(next.Add(1)) - 1 {
				if err := do(b.Context(), i); err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
	if b.Failed() {
		b.FailNow()
	}
}

// publish sends all messages and reports the results. holder is an entity that identifies the leader.
func (f fanout) publish(b *testing.B, c *harness.Cluster, entity, holder string) {
	b.Helper()
	leader := c.Leader(b, holder)
	segments, logs := weighFolder(b, leader.Dir)
	links := make([]*amqp.Sender, publishers)
	for i := range links {
		links[i] = link(b.Context(), b, leader, entity)
	}
	var next atomic.Int64
	var all sync.WaitGroup
	begun := time.Now()
	for _, sender := range links {
		all.Go(func() {
			if err := f.send(b.Context(), sender, &next); err != nil {
				b.Error(err)
			}
		})
	}
	all.Wait()
	took := time.Since(begun)
	if b.Failed() {
		b.FailNow()
	}
	f.arrived(b, leader, holder)
	segmentsAfter, logsAfter := weighFolder(b, leader.Dir)
	n := float64(f.messages)
	b.ReportMetric(n/took.Seconds(), "messages/s")
	b.ReportMetric(n*float64(f.copies)/took.Seconds(), "copies/s")
	b.ReportMetric(float64(segmentsAfter-segments)/n, "segment-B/message")
	b.ReportMetric(float64(logsAfter-logs)/n, "log-B/message")
	b.ReportMetric(0, "ns/op")
}

// send publishes messages until none is left, with a limited number unconfirmed.
func (f fanout) send(ctx context.Context, sender *amqp.Sender, next *atomic.Int64) error {
	body := make([]byte, publishedBytes)
	w := window{most: underWay}
	for n := int(next.Add(1)) - 1; n < f.messages; n = int(next.Add(1)) - 1 {
		m := amqp.NewMessage(body)
		if f.shape != nil {
			f.shape(n, m)
		}
		if err := w.send(ctx, sender, m); err != nil {
			return err
		}
	}
	return w.await(ctx, 0)
}

// arrived asserts that a subscription got its part, if the parts are equal.
func (f fanout) arrived(b *testing.B, leader *harness.Member, holder string) {
	b.Helper()
	q, err := leader.Queue(b.Context(), holder)
	if err != nil {
		b.Fatal(err)
	}
	part := f.messages * f.copies / max(1, f.subscriptions)
	if have := int(q.Counts.Active); have < part*9/10 || have > part*11/10 {
		b.Fatalf("%s has %d messages, %d are its part", holder, have, part)
	}
}

// weighFolder returns how many bytes on disk the segments and all other files of a member occupy.
func weighFolder(b *testing.B, dir string) (segments, logs int64) {
	b.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if strings.HasSuffix(path, ".seg") {
			segments += diskBytes(info)
		} else {
			logs += diskBytes(info)
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return segments, logs
}
