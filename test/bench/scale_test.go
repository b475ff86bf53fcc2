package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/test/harness"
)

const (
	scaleWarmUp      = 2 * time.Second
	scaleFor         = 6 * time.Second // measured
	scaleConnections = 4
	scaleBytes       = 1024 // of a body
)

// BenchmarkScale measures the CPU time of all members per send: to 10 to 10,000 queues, to 1 to 16 busy partitions, and
// with 1 to 1,000 outstanding sends. commands/entry says how many sends share the cost of an entry of the log, on which
// the CPU time depends most.
func BenchmarkScale(b *testing.B) {
	if testing.Short() {
		b.Skip("takes minutes with three processes: left out by -short")
	}
	for _, queues := range []int{10, 100, 1000, 10_000} {
		b.Run("queues="+strconv.Itoa(queues), func(b *testing.B) {
			measureScale(b, harness.Options{Partitions: 16}, queues, 400, nil)
		})
	}
	for _, partitions := range []int{1, 2, 4, 8, 16} {
		b.Run("partitions="+strconv.Itoa(partitions), func(b *testing.B) {
			measureScale(b, harness.Options{Partitions: partitions}, 4*partitions, 64*partitions, nil)
		})
	}
	for _, window := range []int{4, 16, 64, 256, 1000} {
		b.Run("outstanding="+strconv.Itoa(window), func(b *testing.B) {
			measureScale(b, harness.Options{Partitions: 1}, scaleConnections, window, nil)
		})
	}
}

// BenchmarkScaleOut gives each of 1 to 9 members a share of a processor and as much load as they take: a model of members
// on machines of their own, without the delays of a network. The load must find enough processor beside them.
func BenchmarkScaleOut(b *testing.B) {
	if testing.Short() {
		b.Skip("takes minutes with up to nine processes: left out by -short")
	}
	const (
		partitions = 18
		share      = 0.16 // of one processor
	)
	for _, members := range []int{1, 3, 5, 7, 9} {
		b.Run("members="+strconv.Itoa(members), func(b *testing.B) {
			group := newShares(b)
			measureScale(b, harness.Options{Members: members, Partitions: partitions}, 2*partitions, 160*members, func(c *harness.Cluster) {
				for _, m := range allMembers(c) {
					group.limit(b, m.PID(), share)
				}
			})
		})
	}
}

// measureScale sends to the queues of a new cluster in turn, with a number of outstanding sends. limit is called before
// the load begins; it may be nil.
func measureScale(b *testing.B, options harness.Options, queues, outstanding int, limit func(*harness.Cluster)) {
	b.Helper()
	for range b.N {
		c := startMembers(b, options)
		senders := scaleSenders(b, c, queues)
		if limit != nil {
			limit(c)
		}
		ctx, cancel := context.WithCancel(b.Context())
		var confirmed atomic.Int64
		ended := make(chan error, len(senders))
		for _, links := range senders {
			go func() {
				ended <- sendInTurn(ctx, links, &window{most: outstanding / len(senders), confirmed: &confirmed})
			}()
		}
		<-time.After(scaleWarmUp)
		entries := countEntries(b, c) // before the CPU time is read: members use some for the metrics of 10,000 queues
		began, sent, cpu := time.Now(), confirmed.Load(), cpuTime(b, c)
		<-time.After(scaleFor)
		took := time.Since(began)
		n := float64(confirmed.Load() - sent)
		cpu = cpuTime(b, c) - cpu
		after := countEntries(b, c)
		cancel()
		for range senders {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				b.Fatal(err)
			}
		}
		b.ReportMetric(n/took.Seconds(), "sends/s")
		b.ReportMetric(float64(cpu.Microseconds())/n, "CPU-us/send")
		b.ReportMetric((after.commands-entries.commands)/(after.entries-entries.entries), "commands/entry")
		b.ReportMetric(0, "ns/op") // the duration of a run has no meaning
	}
}

// startMembers starts a cluster. Members above expectMax join it, and the partitions are spread over all of them.
func startMembers(b *testing.B, options harness.Options) *harness.Cluster {
	b.Helper()
	const expectMax = 7 // of the setting expect
	more := options.Members - expectMax
	options.Members = min(options.Members, expectMax)
	c := harness.Start(b, options)
	if more <= 0 {
		return c
	}
	for range more {
		c.Join(b)
	}
	if _, err := c.Members[0].Command(b.Context(), "partition", "rebalance"); err != nil {
		b.Fatal(err)
	}
	return c
}

func allMembers(c *harness.Cluster) []*harness.Member { return slices.Concat(c.Members, c.Joined()) }

// scaleSenders creates the queues and returns the links to them on each connection; the connections are spread over the
// members.
func scaleSenders(b *testing.B, c *harness.Cluster, queues int) [][]*amqp.Sender {
	b.Helper()
	members := allMembers(c)
	senders := make([][]*amqp.Sender, scaleConnections)
	ended := make(chan error, scaleConnections)
	for i := range senders {
		at := session(b.Context(), b, members[i%len(members)])
		go func() {
			var err error
			for n := i; n < queues && err == nil; n += scaleConnections {
				name := fmt.Sprintf("scale-%d", n)
				var link *amqp.Sender
				if err = c.Members[0].Call(b.Context(), "PUT", "/v1/queues/"+name, map[string]any{}, nil); err == nil {
					link, err = at.NewSender(b.Context(), name, nil)
				}
				senders[i] = append(senders[i], link)
			}
			ended <- err
		}()
	}
	for range senders {
		if err := <-ended; err != nil {
			b.Fatal(err)
		}
	}
	return senders
}

// sendInTurn sends to each link in turn until ctx ends, with a number of outstanding sends.
func sendInTurn(ctx context.Context, links []*amqp.Sender, w *window) error {
	m := amqp.NewMessage(make([]byte, scaleBytes))
	for n := 0; ; n++ {
		if err := w.send(ctx, links[n%len(links)], m); err != nil {
			return errors.Join(err, ctx.Err())
		}
	}
}

// cpuTime returns the CPU time that all members have used.
func cpuTime(b *testing.B, c *harness.Cluster) (sum time.Duration) {
	b.Helper()
	for _, m := range allMembers(c) {
		one, err := processCPU(b.Context(), m)
		if err != nil {
			b.Fatal(err)
		}
		sum += one
	}
	return sum
}

// entryCounts are sums over all replicas.
type entryCounts struct{ entries, commands float64 }

func countEntries(b *testing.B, c *harness.Cluster) entryCounts {
	b.Helper()
	return entryCounts{sumMetric(b, c, "peeklock_partition_entries_total"), sumMetric(b, c, "peeklock_partition_commands_total")}
}

// sumMetric adds up all values of a metric of all members.
func sumMetric(b *testing.B, c *harness.Cluster, name string) (sum float64) {
	b.Helper()
	for _, m := range allMembers(c) {
		one, err := m.MetricSum(b.Context(), name)
		if err != nil {
			b.Fatal(err)
		}
		sum += one
	}
	return sum
}
