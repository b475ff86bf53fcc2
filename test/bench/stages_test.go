package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/peeklock/peeklock/test/harness"
)

// BenchmarkStages sends 500 messages a second to one queue, from a client of its leader and then from a client of
// another member, and prints what an average send waits for.
func BenchmarkStages(b *testing.B) {
	if testing.Short() {
		b.Skip("takes half a minute with three processes: left out by -short")
	}
	const watched, warmUp = 12 * time.Second, 3 * time.Second
	for range b.N {
		c := harness.Start(b, harness.Options{})
		c.CreateQueue(b, "steady", harness.Settings{})
		leader := c.Leader(b, "steady")
		q, err := leader.Queue(b.Context(), "steady")
		if err != nil {
			b.Fatal(err)
		}
		for at, gateway := range map[string]*harness.Member{"leader": leader, "other": c.Others(leader)[0]} {
			ctx, cancel := context.WithCancel(b.Context())
			sender := newSteady(b, gateway, "steady")
			sender.every, sender.size = 2*time.Millisecond, 1024
			ended := make(chan error, 1)
			go func() { ended <- sender.run(ctx) }()
			<-time.After(warmUp)
			from, before := time.Now(), measureStages(b, c, leader, gateway, q.Partition)
			<-time.After(watched)
			to, after := time.Now(), measureStages(b, c, leader, gateway, q.Partition)
			cancel()
			if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
				b.Fatal(err)
			}
			sender.report(b, at, "sends", from, to)
			b.Logf("client of the %s\n%s", at, after.sub(before).table(sender.mean(from, to)))
		}
	}
	b.ReportMetric(0, "ns/op") // the duration of a run has no meaning
}

// stageTimes are sums of seconds, and what to divide them by.
type stageTimes struct {
	requests, request float64 // commands of the gateway, and their time until the response
	entries           float64
	stages            [4]float64 // of entries at the leader, in the order of stageNames
	commits, commit   [2]float64 // of the log: at the leader, and at both followers
}

var stageNames = [4]string{"queued", "raft", "quorum", "applied"}

// measureStages reads the times of a partition since the start of its members.
func measureStages(b *testing.B, c *harness.Cluster, leader, gateway *harness.Member, partition uint32) stageTimes {
	b.Helper()
	read := func(m *harness.Member, name string) float64 {
		found, err := m.Metrics(b.Context(), name)
		if err != nil {
			b.Fatal(err)
		}
		return found[name]
	}
	of := func(format string, args ...any) string { return "peeklock_" + fmt.Sprintf(format, args...) }
	s := stageTimes{
		requests: read(gateway, of("cluster_request_duration_seconds_count")),
		request:  read(gateway, of("cluster_request_duration_seconds_sum")),
		entries:  read(leader, of(`partition_proposal_duration_seconds_count{partition="%d"}`, partition)),
	}
	for i, stage := range stageNames {
		s.stages[i] = read(leader, of(`partition_stage_seconds_total{partition="%d",stage="%s"}`, partition, stage))
	}
	for _, m := range c.Members {
		side := 1
		if m == leader {
			side = 0
		}
		s.commits[side] += read(m, of("store_commit_duration_seconds_count"))
		s.commit[side] += read(m, of("store_commit_duration_seconds_sum"))
	}
	return s
}

func (s stageTimes) sub(other stageTimes) stageTimes {
	s.requests -= other.requests
	s.request -= other.request
	s.entries -= other.entries
	for i := range s.stages {
		s.stages[i] -= other.stages[i]
	}
	for i := range s.commits {
		s.commits[i] -= other.commits[i]
		s.commit[i] -= other.commit[i]
	}
	return s
}

// table draws the parts of an average send as bars of one character for each 25 us.
func (s stageTimes) table(send time.Duration) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	line := func(name string, seconds float64) {
		us := seconds * 1e6
		_, _ = fmt.Fprintf(w, "%s\t%.0f us\t%s\n", name, us, strings.Repeat("#", max(0, int(us/25+0.5))))
	}
	request := s.request / s.requests
	inEntry := 0.0
	for _, stage := range s.stages {
		inEntry += stage / s.entries
	}
	line("a send, at the client", send.Seconds())
	line("client, sockets, gateway", send.Seconds()-request)
	line("to the leader and back", request-inEntry)
	for i, stage := range stageNames {
		line(stage, s.stages[i]/s.entries)
	}
	line("(commit of the leader's log)", s.commit[0]/s.commits[0])
	line("(commit of a follower's log)", s.commit[1]/s.commits[1])
	_, _ = fmt.Fprintf(w, "(sends per entry)\t%.2f\t\n", s.requests/s.entries)
	_ = w.Flush()
	return text.String()
}
