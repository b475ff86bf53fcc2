package bench

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/test/harness"
)

// What the member of BenchmarkRestart finds on its disk.
const (
	restartPartitions = 16
	restartQueues     = 16
	restartMessages   = 1_000_000
	restartBytes      = 1024 // of a body
)

// BenchmarkStart measures the time from the start of the processes until every member serves clients and every
// partition has a leader, in empty folders: three members of `peeklock serve`, and those of `peeklock dev`. Clusters run until
// the end of a run, so measure with -benchtime 1x and repeat with -count.
func BenchmarkStart(b *testing.B) {
	if testing.Short() {
		b.Skip("starts clusters: left out by -short")
	}
	harness.Binary(b) // builds it
	b.Run("serve", func(b *testing.B) {
		for range b.N {
			harness.Start(b, harness.Options{})
		}
	})
	b.Run("dev", func(b *testing.B) {
		for range b.N {
			harness.StartDev(b)
		}
	})
}

// BenchmarkRestart kills one of three members whose queues hold a million messages of 1 KiB, starts it again at once,
// and reports how long it takes until it is ready, and until a send through it is confirmed.
func BenchmarkRestart(b *testing.B) {
	if testing.Short() {
		b.Skip("fills queues with a gigabyte: left out by -short")
	}
	c := harness.Start(b, harness.Options{Partitions: restartPartitions})
	ctx := b.Context()
	for queue := range restartQueues {
		c.CreateQueue(b, "restart-"+strconv.Itoa(queue), harness.Settings{})
	}
	fillQueues(ctx, b, c.Members[0])
	m := c.Members[2]
	var ready, sent, log float64
	for range b.N {
		replayed, err := m.MetricSum(ctx, "peeklock_partition_log_bytes")
		if err != nil {
			b.Fatal(err)
		}
		log += replayed
		m.Kill()
		began := time.Now()
		m.Start()
		m.WaitReady()
		ready += time.Since(began).Seconds()
		if err := link(ctx, b, m, "restart-0").Send(ctx, amqp.NewMessage([]byte("x")), nil); err != nil {
			b.Fatal(err)
		}
		sent += time.Since(began).Seconds()
		c.WaitLed(b)
	}
	b.ReportMetric(log/float64(b.N)/(1<<20), "log-MiB")
	b.ReportMetric(ready/float64(b.N), "ready-s")
	b.ReportMetric(sent/float64(b.N), "send-s")
	b.ReportMetric(0, "ns/op") // includes the wait for all leaders
}

// fillQueues sends the million messages.
func fillQueues(ctx context.Context, b *testing.B, m *harness.Member) {
	b.Helper()
	const batch = 200 // less than the largest message
	one, err := amqp.NewMessage(make([]byte, restartBytes)).MarshalBinary()
	if err != nil {
		b.Fatal(err)
	}
	message := &amqp.Message{Format: batchFormat}
	for range batch {
		message.Data = append(message.Data, one)
	}
	ended := make(chan error, restartQueues)
	for queue := range restartQueues {
		sender := link(ctx, b, m, "restart-"+strconv.Itoa(queue))
		go func() {
			var err error
			for sent := 0; sent < restartMessages/restartQueues && err == nil; sent += batch {
				err = sender.Send(ctx, message, nil)
			}
			ended <- err
		}()
	}
	var failed error
	for range restartQueues {
		failed = errors.Join(failed, <-ended)
	}
	if failed != nil {
		b.Fatal(failed)
	}
}
