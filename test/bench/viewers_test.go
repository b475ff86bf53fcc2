package bench

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/test/harness"
)

const (
	viewedQueues  = 1000
	viewersEach   = 3 * time.Minute // measured for each number of viewers, by turns
	viewerTurns   = 6
	viewersSettle = 5 * time.Second // at the start of a turn, which is not measured
	perAddress    = 6               // viewers of one address; a member allows 8 streams
	viewedDeep    = 200             // queues that hold a message
)

// BenchmarkViewers measures what viewers of the overview cost: the processor time that all members together use with 0, 1 and 50 of
// them, by turns, in percent of a core, and how much more than with none. The cluster has 1,000 queues and no other clients. The aim is less
// than 1 % more with one viewer, and less than 5 % with 50. It takes ten minutes:
//
//	go test -run '^$' -bench Viewers -benchtime 1x -timeout 30m ./test/bench
func BenchmarkViewers(b *testing.B) {
	if testing.Short() {
		b.Skip("takes ten minutes with three processes: left out by -short")
	}
	for range b.N {
		c := harness.Start(b, harness.Options{})
		createViewed(b, c)
		used := make(map[int]time.Duration)
		counts := []int{0, 1, 50}
		for range viewerTurns {
			for _, viewers := range counts {
				used[viewers] += measureViewers(b, c, viewers, viewersEach/viewerTurns)
			}
		}
		percent := func(d time.Duration) float64 { return 100 * d.Seconds() / viewersEach.Seconds() }
		for _, viewers := range counts {
			more := percent(used[viewers] - used[0])
			b.Logf("%2d viewers: all members use %.2f %% of a core, %.2f %% more than without", viewers, percent(used[viewers]), more)
			b.ReportMetric(percent(used[viewers]), fmt.Sprintf("%%core/%d-viewers", viewers))
			if viewers > 0 {
				b.ReportMetric(more, fmt.Sprintf("%%more/%d-viewers", viewers))
			}
		}
	}
}

// createViewed creates the queues, of which some hold a message.
func createViewed(b *testing.B, c *harness.Cluster) {
	b.Helper()
	var failed atomic.Value
	var all sync.WaitGroup
	numbers := make(chan int)
	for range makers {
		all.Go(func() {
			for n := range numbers {
				if err := c.Members[n%len(c.Members)].Call(b.Context(), http.MethodPut, fmt.Sprintf("/v1/queues/viewed-%04d", n), harness.Fields{}, nil); err != nil {
					failed.Store(err)
				}
			}
		})
	}
	for n := range viewedQueues {
		numbers <- n
	}
	close(numbers)
	all.Wait()
	if err, ok := failed.Load().(error); ok {
		b.Fatal(err)
	}
	conn, err := amqp.Dial(b.Context(), "amqp://"+c.Members[0].AMQP, &amqp.ConnOptions{SASLType: amqp.SASLTypePlain(harness.KeyName, harness.Key)})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	session, err := conn.NewSession(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	for n := range viewedDeep {
		sender, err := session.NewSender(b.Context(), fmt.Sprintf("viewed-%04d", n), nil)
		if err == nil {
			err = sender.Send(b.Context(), amqp.NewMessage([]byte("viewed")), nil)
		}
		if err == nil {
			err = sender.Close(b.Context())
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// measureViewers returns the processor time of all members while so many viewers read streams of all members.
func measureViewers(b *testing.B, c *harness.Cluster, viewers int, within time.Duration) time.Duration {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	var lines atomic.Int64
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()
	for i := range viewers {
		member := c.Members[i%len(c.Members)]
		from := &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i/len(c.Members)/perAddress))}
		reading.Go(func() {
			if err := view(ctx, member, from, &lines); err != nil && ctx.Err() == nil {
				b.Errorf("viewer %d: %v", i, err)
			}
		})
	}
	<-time.After(viewersSettle)
	before, begun := membersCPU(b, c), lines.Load()
	<-time.After(within)
	used := membersCPU(b, c) - before
	if got, want := lines.Load()-begun, int64(float64(viewers)*within.Seconds()*0.9); got < want {
		b.Errorf("%d viewers read %d lines in %s, want at least %d", viewers, got, within, want)
	}
	return used
}

// view reads a stream until ctx ends.
func view(ctx context.Context, m *harness.Member, from net.Addr, lines *atomic.Int64) error {
	transport := &http.Transport{DialContext: (&net.Dialer{LocalAddr: from}).DialContext}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.Admin+"/v1/events", nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", auth.Sign("http://"+m.Admin+"/", harness.KeyName, harness.Key, time.Now().Add(time.Hour)))
	answer, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the stream is answered with %s", answer.Status)
	}
	in := bufio.NewReaderSize(answer.Body, 64<<10)
	for {
		if _, err := in.ReadSlice('\n'); err == nil {
			lines.Add(1)
		} else if err != bufio.ErrBufferFull { //nolint:errorlint // a Reader returns it as it is
			return err
		}
	}
}

// membersCPU returns the processor time that all members have used.
func membersCPU(b *testing.B, c *harness.Cluster) (sum time.Duration) {
	b.Helper()
	for _, m := range c.Members {
		used, err := processCPU(b.Context(), m)
		if err != nil {
			b.Fatal(err)
		}
		sum += used
	}
	return sum
}
