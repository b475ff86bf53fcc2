package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

const (
	batchFormat = 0x80013700 // message format of a transfer that carries a batch
	perBatch    = 1000
	filling     = 8                    // concurrent batches
	pace        = 5 * time.Millisecond // between two sends of each steady sender: 200 a second
	bodyBytes   = 64
)

// storm describes how many messages expire, and the time to send them.
type storm struct {
	messages int
	fillTime time.Duration // from the first send to the moment at which all expire
	watched  time.Duration // at least before the storm, and after it
}

// BenchmarkExpiryStorm lets 200,000 messages of one queue expire at one moment, dropped or
// dead-lettered, and reports the time of confirmations for steady senders to another queue
// of the same partition and to a queue of another partition: before, during and after the storm.
func BenchmarkExpiryStorm(b *testing.B) {
	if testing.Short() {
		b.Skip("takes a minute with three processes: left out by -short")
	}
	s := storm{messages: 200_000, fillTime: 20 * time.Second, watched: 10 * time.Second}
	for name, more := range map[string]harness.Fields{
		"dropped": nil, "dead-lettered": {"deadLetteringOnMessageExpiration": true},
	} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				s.run(b, more)
			}
		})
	}
}

func (s storm) run(b *testing.B, more harness.Fields) {
	b.Helper()
	c := harness.Start(b, harness.Options{})
	full, near, far := s.queues(b, c, more)
	leader := c.Leader(b, full)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	senders := map[string]*steady{"same": newSteady(b, leader, near), "other": newSteady(b, leader, far)}
	at := time.Now().Add(s.fillTime).Truncate(time.Second)
	s.fill(ctx, b, leader, full, at)
	filled := time.Now()
	if filled.After(at.Add(-s.watched)) {
		b.Fatalf("filling took %v, there is no calm left before the storm", filled.Sub(at.Add(-s.fillTime)))
	}
	s.counted(b, leader, full, harness.Counts{Active: uint64(s.messages)}, s.watched)
	ended := make(chan error, len(senders))
	for _, sender := range senders {
		go func() { ended <- sender.run(ctx) }()
	}
	over := s.watch(b, c.Others(leader)[0], full, at, more != nil)
	calm := time.NewTimer(s.watched)
	defer calm.Stop()
	select {
	case <-calm.C:
	case err := <-ended:
		b.Fatal(err)
	}
	cancel()
	for range senders {
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			b.Fatal(err)
		}
	}
	b.ReportMetric(over.Sub(at).Seconds(), "storm-s")
	b.ReportMetric(at.Sub(filled).Seconds(), "calm-s")
	for name, sender := range senders {
		sender.report(b, name, "before", filled, at)
		sender.report(b, name, "during", at, over)
		sender.report(b, name, "after", over, time.Now())
	}
	b.ReportMetric(0, "ns/op") // the duration of a run has no meaning
}

// queues creates the queue to fill, another queue of the same partition, and one of another
// partition, independent of which members lead.
func (s storm) queues(b *testing.B, c *harness.Cluster, more harness.Fields) (full, near, far string) {
	b.Helper()
	settings := harness.Settings{More: more}
	full = "storm"
	c.CreateQueue(b, full, settings)
	of := func(name string) uint32 {
		q, err := c.Members[0].Queue(b.Context(), name)
		if err != nil {
			b.Fatal(err)
		}
		return q.Partition
	}
	for i := 0; near == "" || far == ""; i++ {
		name := fmt.Sprintf("steady-%d", i)
		c.CreateQueue(b, name, harness.Settings{})
		switch same := of(name) == of(full); {
		case same && near == "":
			near = name
		case !same && far == "":
			far = name
		}
	}
	return full, near, far
}

// session opens a session on a connection of its own to a member.
func session(ctx context.Context, b *testing.B, m *harness.Member) *amqp.Session {
	b.Helper()
	conn, err := amqp.Dial(ctx, "amqp://"+m.AMQP, &amqp.ConnOptions{SASLType: amqp.SASLTypePlain(harness.KeyName, harness.Key)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	s, err := conn.NewSession(ctx, nil)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// link opens a sending link to a queue at a member.
func link(ctx context.Context, b *testing.B, m *harness.Member, queue string) *amqp.Sender {
	b.Helper()
	sender, err := session(ctx, b, m).NewSender(ctx, queue, nil)
	if err != nil {
		b.Fatal(err)
	}
	return sender
}

// fill sends the messages with times to live that all end at one moment.
func (s storm) fill(ctx context.Context, b *testing.B, m *harness.Member, queue string, at time.Time) {
	b.Helper()
	sender := link(ctx, b, m, queue)
	w := window{most: filling}
	for sent := 0; sent < s.messages; sent += perBatch {
		one := amqp.NewMessage(make([]byte, bodyBytes))
		one.Header = &amqp.MessageHeader{TTL: max(time.Millisecond, time.Until(at))}
		encoded, err := one.MarshalBinary()
		if err != nil {
			b.Fatal(err)
		}
		if err := w.send(ctx, sender, &amqp.Message{Format: batchFormat, Data: slices.Repeat([][]byte{encoded}, perBatch)}); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.await(ctx, 0); err != nil {
		b.Fatal(err)
	}
}

// watch waits until a member that does not lead reports that the queue has no such messages, and returns
// the time. With dead, the messages must then be dead letters.
func (s storm) watch(b *testing.B, m *harness.Member, queue string, at time.Time, dead bool) (over time.Time) {
	b.Helper()
	want := harness.Counts{}
	if dead {
		want.DeadLetter = uint64(s.messages)
	}
	s.counted(b, m, queue, want, time.Until(at)+5*time.Minute)
	return time.Now()
}

// counted waits until a member reports these counts for a queue.
func (s storm) counted(b *testing.B, m *harness.Member, queue string, want harness.Counts, within time.Duration) {
	b.Helper()
	harness.Eventually(b, within, "counts of "+queue, func(ctx context.Context) error {
		q, err := m.Queue(ctx, queue)
		if err == nil && q.Counts != want {
			err = fmt.Errorf("counts %+v, want %+v", q.Counts, want)
		}
		return err
	})
}

// steady is a sender with a fixed rate, which records the time of each confirmation. The time of a
// delayed send counts from when it was due.
type steady struct {
	sender *amqp.Sender
	every  time.Duration  // between two sends
	size   int            // bytes of a body
	took   []confirmation // written by one goroutine until run has ended
}

// confirmation is one send: when it was due and how long its confirmation took.
type confirmation struct {
	due  time.Time
	took time.Duration
}

func newSteady(b *testing.B, m *harness.Member, queue string) *steady {
	b.Helper()
	return &steady{sender: link(b.Context(), b, m, queue), every: pace, size: bodyBytes}
}

// run sends until ctx ends. The sends overlap: a slow send does not delay the next one.
func (v *steady) run(ctx context.Context) error {
	const most = 900 // concurrent sends, about the link's credit; then run waits
	type sent struct {
		due     time.Time
		receipt amqp.SendReceipt
	}
	under := make(chan sent, most)
	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		for s := range under {
			if _, err := s.receipt.Wait(ctx); err != nil {
				failed <- err
				return
			}
			v.took = append(v.took, confirmation{due: s.due, took: time.Since(s.due)})
		}
	}()
	end := func(err error) error {
		close(under)
		if late := <-failed; err == nil {
			err = late
		}
		if ctx.Err() != nil { // the client reports its own errors for cancelled sends
			err = ctx.Err()
		}
		return err
	}
	m := amqp.NewMessage(make([]byte, v.size))
	next := time.NewTimer(0)
	defer next.Stop()
	for due := time.Now(); ; due = due.Add(v.every) {
		next.Reset(time.Until(due))
		select {
		case <-ctx.Done():
			return end(ctx.Err())
		case <-next.C:
		}
		receipt, err := v.sender.SendWithReceipt(ctx, m, nil)
		if err != nil {
			return end(err)
		}
		select {
		case under <- sent{due, receipt}:
		case err := <-failed:
			return end(err)
		}
	}
}

// within returns the times of the sends that were due in a period.
func (v *steady) within(from, to time.Time) (took []time.Duration) {
	for _, c := range v.took {
		if !c.due.Before(from) && c.due.Before(to) {
			took = append(took, c.took)
		}
	}
	return took
}

// mean returns the average time of the sends that were due in a period.
func (v *steady) mean(from, to time.Time) (mean time.Duration) {
	took := v.within(from, to)
	for _, one := range took {
		mean += one
	}
	return mean / time.Duration(max(1, len(took)))
}

// report reports the times of the sends that were due in a period.
func (v *steady) report(b *testing.B, name, period string, from, to time.Time) {
	b.Helper()
	took := v.within(from, to)
	if len(took) == 0 {
		return
	}
	slices.Sort(took)
	for _, quantile := range []struct {
		name string
		at   int
	}{{"p50", len(took) / 2}, {"p99", len(took) * 99 / 100}, {"max", len(took) - 1}} {
		b.ReportMetric(float64(took[quantile.at].Microseconds())/1000, fmt.Sprintf("%s-%s-%s-ms", name, period, quantile.name))
	}
}
