package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/test/harness"
)

const (
	movedPartitions      = 8
	movedBytes           = 8 << 10 // of each message of the backlog
	movedMessages        = 1024    // of the backlog of each partition: 64 MiB in all
	movedBatch           = 16      // messages of the backlog in one transfer
	workloadBytes        = 1024    // of each message sent during the run
	workloadInFlight     = 128     // unconfirmed sends of one queue; the sender waits when it reaches them
	workloadCredit       = 128     // messages at the receiver of one queue
	measuredFor          = 5 * time.Second
	phaseFor             = 10 * time.Second // of the phases without moves
	moveMax              = 5 * time.Minute  // for a phase in which partitions move
	workloadQueuesMax    = 64               // queues to create until each partition has one
	workloadDrainsWithin = time.Minute
)

// BenchmarkRebalance moves eight partitions with 64 MiB of messages from three members to five
// and back to three, as an operator would, while each partition has a queue in use at half the
// maximum rate of the three members. It reports what clients of the members that stay observe before,
// during and after the moves. It fails when a client gets an error, when a message is lost or
// delivered twice, and when replicas differ at the end.
func BenchmarkRebalance(b *testing.B) {
	if testing.Short() {
		b.Skip("takes two minutes with five processes: left out by -short")
	}
	for range b.N {
		newRebalance(b).run(b)
	}
	b.ReportMetric(0, "ns/op") // the duration of a run has no meaning
}

// rebalance is one run of the benchmark.
type rebalance struct {
	c         *harness.Cluster
	backlog   []string    // one queue of each partition that only holds a backlog
	workloads []*workload // one queue of each partition that is in use
	phases    []phase
	work      context.Context
	stop      context.CancelFunc
}

// phase is a period whose sends are reported together.
type phase struct {
	name     string
	from, to time.Time
	replicas int // replicas copied during the phase
}

func newRebalance(b *testing.B) *rebalance {
	b.Helper()
	r := &rebalance{c: harness.Start(b, harness.Options{Partitions: movedPartitions})}
	r.work, r.stop = context.WithCancel(b.Context())
	b.Cleanup(r.stop)
	r.backlog = r.queues(b, "backlog")
	for i, queue := range r.queues(b, "steady") {
		at := r.c.Members[i%len(r.c.Members)]
		r.workloads = append(r.workloads, &workload{queue: queue, sender: link(r.work, b, at, queue), receiver: source(r.work, b, at, queue, workloadCredit, false)})
	}
	return r
}

// queues creates a queue in each partition, independent of which members lead.
func (r *rebalance) queues(b *testing.B, name string) []string {
	b.Helper()
	in := map[uint32]string{}
	for i := 0; i < workloadQueuesMax && len(in) < movedPartitions; i++ {
		queue := fmt.Sprintf("%s-%d", name, i)
		r.c.CreateQueue(b, queue, harness.Settings{})
		q, err := r.c.Members[0].Queue(b.Context(), queue)
		if err != nil {
			b.Fatal(err)
		}
		in[q.Partition] = queue
	}
	if len(in) < movedPartitions {
		b.Fatalf("%d queues lie in %d of %d partitions", workloadQueuesMax, len(in), movedPartitions)
	}
	var queues []string
	for id := range uint32(movedPartitions) {
		queues = append(queues, in[id+1])
	}
	return queues
}

func (r *rebalance) run(b *testing.B) {
	b.Helper()
	for _, queue := range r.backlog {
		r.fill(b, queue)
	}
	var sending, receiving sync.WaitGroup
	for _, l := range r.workloads {
		sending.Go(func() { l.send(r.work) })
		receiving.Go(func() { l.receive(r.work) })
	}
	rate := r.measure(b)
	pace := time.Duration(float64(len(r.workloads)) / (rate / 2) * float64(time.Second))
	for _, l := range r.workloads {
		l.pace.Store(int64(pace))
	}
	r.caughtUp(b, workloadInFlight)
	b.Logf("the most was %.0f messages/s; %d senders each send one in %v", rate, len(r.workloads), pace)
	calm := func() int { r.watch(b, phaseFor); return 0 }
	r.phase("before", calm)
	r.phase("three to five", func() int { return r.grow(b) })
	r.phase("with five", calm)
	r.phase("five to three", func() int { return r.shrink(b) })
	r.phase("after", calm)
	for _, l := range r.workloads {
		l.ended.Store(true)
	}
	sending.Wait()
	r.caughtUp(b, 0)
	r.stop()
	receiving.Wait()
	r.equal(b)
	for _, l := range r.workloads {
		l.judge(b)
	}
	for _, queue := range r.backlog {
		r.take(b, queue)
	}
	r.report(b)
}

// phase runs do and records its start and end.
func (r *rebalance) phase(name string, do func() (replicas int)) {
	p := phase{name: name, from: time.Now()}
	p.replicas, p.to = do(), time.Now()
	r.phases = append(r.phases, p)
}

// watch waits for the given time, and ends early when a client gets an error.
func (r *rebalance) watch(b *testing.B, long time.Duration) {
	b.Helper()
	over := time.After(long)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-over:
			return
		case <-tick.C:
			r.sound(b)
		}
	}
}

// sound ends the benchmark when a client has got an error.
func (r *rebalance) sound(b *testing.B) {
	b.Helper()
	for _, l := range r.workloads {
		if err := l.error(); err != nil {
			b.Fatalf("a client of %s saw an error: %v", l.queue, err)
		}
	}
}

// measure returns how many messages per second go through all queues when senders do not pause.
func (r *rebalance) measure(b *testing.B) float64 {
	b.Helper()
	done := func() (n int) {
		for _, l := range r.workloads {
			n += int(min(l.confirmed.Load(), l.completed.Load()))
		}
		return n
	}
	begun, before := time.Now(), done()
	r.watch(b, measuredFor)
	return float64(done()-before) / time.Since(begun).Seconds()
}

// caughtUp waits until all but the given number of messages of each queue are completed.
func (r *rebalance) caughtUp(b *testing.B, but int64) {
	b.Helper()
	for _, l := range r.workloads {
		harness.Eventually(b, workloadDrainsWithin, "all of "+l.queue, func(context.Context) error {
			r.sound(b)
			if left := l.sent.Load() - l.completed.Load(); left > but {
				return fmt.Errorf("%d are left", left)
			}
			return nil
		})
	}
}

// grow starts two members and spreads the partitions over all members.
func (r *rebalance) grow(b *testing.B) (replicas int) {
	b.Helper()
	fourth, fifth := r.c.Join(b), r.c.Join(b)
	ctx, cancel := context.WithTimeout(b.Context(), moveMax)
	defer cancel()
	if _, err := r.c.Members[0].Command(ctx, "partition", "rebalance"); err != nil {
		b.Fatal(err)
	}
	for _, m := range []*harness.Member{fourth, fifth} {
		holds := r.holds(b, m)
		if holds == 0 {
			b.Errorf("%s holds nothing", m.Name)
		}
		replicas += holds
	}
	return replicas
}

// shrink removes the members that grow added.
func (r *rebalance) shrink(b *testing.B) (replicas int) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), moveMax)
	defer cancel()
	joined := r.c.Joined()
	for _, m := range slices.Backward(joined) {
		replicas += r.holds(b, m)
		if _, err := r.c.Members[0].Command(ctx, "member", "remove", m.Name, "--yes"); err != nil {
			b.Fatal(err)
		}
		m.WaitEnded()
	}
	return replicas
}

// holds returns how many partitions the catalog assigns to a member.
func (r *rebalance) holds(b *testing.B, m *harness.Member) (n int) {
	b.Helper()
	s, err := r.c.Members[0].Status(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for _, known := range s.Members {
		for _, p := range s.Partitions {
			if known.Name == m.Name && p.ID != 0 && slices.Contains(p.Replicas, known.ID) {
				n++
			}
		}
	}
	return n
}

// equal asserts that the replicas of each partition are equal and are on the members that stayed.
func (r *rebalance) equal(b *testing.B) {
	b.Helper()
	for id := range movedPartitions {
		harness.Eventually(b, workloadDrainsWithin, fmt.Sprintf("partition %d is equal everywhere", id+1), func(ctx context.Context) error {
			var said struct {
				Equal    bool
				Replicas []struct{ Member, Digest, Error string }
			}
			err := r.c.Members[0].Call(ctx, http.MethodGet, fmt.Sprintf("/v1/verify/%d", id+1), nil, &said)
			if err == nil && (!said.Equal || len(said.Replicas) != len(r.c.Members)) {
				err = fmt.Errorf("%+v", said)
			}
			return err
		})
	}
}

// report prints the results of each phase.
func (r *rebalance) report(b *testing.B) {
	b.Helper()
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w, "\tseconds\tsends/s\treceives/s\tp50 ms\tp99 ms\tlongest ms\tlongest gap ms\tof\treplicas moved\tMiB\t")
	for i := range r.phases {
		p := &r.phases[i]
		var took []time.Duration
		var gap time.Duration
		received, widest := 0, ""
		for _, l := range r.workloads {
			some, longest := l.during(p)
			took = append(took, some...)
			if longest > gap {
				gap, widest = longest, l.queue
			}
			received += count(l.receipts, p)
		}
		if len(took) == 0 {
			b.Errorf("no send was due %s", p.name)
			continue
		}
		slices.Sort(took)
		ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
		long := p.to.Sub(p.from).Seconds()
		p99, most := took[len(took)*99/100], took[len(took)-1]
		_, _ = fmt.Fprintf(w, "%s\t%.1f\t%.0f\t%.0f\t%.1f\t%.1f\t%.1f\t%.1f\t%s\t%d\t%d\t\n", p.name, long, float64(len(took))/long, float64(received)/long,
			ms(took[len(took)/2]), ms(p99), ms(most), ms(gap), widest, p.replicas, p.replicas*movedMessages*movedBytes>>20)
		unit := strings.ReplaceAll(p.name, " ", "-")
		b.ReportMetric(ms(p99), unit+"-p99-ms")
		b.ReportMetric(ms(gap), unit+"-gap-ms")
	}
	_ = w.Flush()
	b.Logf("no client saw an error, nothing was lost or doubled\n%s", table.String())
}

// fill creates the backlog of a queue. The body of each message repeats the number of the message.
func (r *rebalance) fill(b *testing.B, queue string) {
	b.Helper()
	sender := link(b.Context(), b, r.c.Members[0], queue)
	w := window{most: filling}
	for sent := 0; sent < movedMessages; sent += movedBatch {
		batch := &amqp.Message{Format: batchFormat}
		for n := sent; n < sent+movedBatch; n++ {
			encoded, err := amqp.NewMessage(numbered(uint64(n), movedBytes)).MarshalBinary()
			if err != nil {
				b.Fatal(err)
			}
			batch.Data = append(batch.Data, encoded)
		}
		if err := w.send(b.Context(), sender, batch); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.await(b.Context(), 0); err != nil {
		b.Fatal(err)
	}
}

// take asserts that a backlog is complete and has each message once.
func (r *rebalance) take(b *testing.B, queue string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), workloadDrainsWithin)
	defer cancel()
	receiver := source(ctx, b, r.c.Members[0], queue, workloadCredit, true)
	var seen [movedMessages]bool
	for range movedMessages {
		m, err := receiver.Receive(ctx, nil)
		if err != nil {
			b.Fatalf("backlog of %s: %v", queue, err)
		}
		n := number(m)
		if n >= movedMessages || seen[n] || !bytes.Equal(m.GetData(), numbered(n, movedBytes)) {
			b.Fatalf("message %d of %s came twice, or with another body", n, queue)
		}
		seen[n] = true
	}
	harness.Eventually(b, workloadDrainsWithin, "nothing is left of "+queue, func(ctx context.Context) error {
		q, err := r.c.Members[0].Queue(ctx, queue)
		if err == nil && q.Counts != (harness.Counts{}) {
			err = fmt.Errorf("counts %+v", q.Counts)
		}
		return err
	})
}

// source opens a receiving link to a queue at a member. With remove it receives and deletes.
func source(ctx context.Context, b *testing.B, m *harness.Member, queue string, credit int32, remove bool) *amqp.Receiver {
	b.Helper()
	options := &amqp.ReceiverOptions{Credit: credit, SettlementMode: amqp.ReceiverSettleModeSecond.Ptr()}
	if remove {
		options = &amqp.ReceiverOptions{Credit: credit, RequestedSenderSettleMode: amqp.SenderSettleModeSettled.Ptr()}
	}
	receiver, err := session(ctx, b, m).NewReceiver(ctx, queue, options)
	if err != nil {
		b.Fatal(err)
	}
	return receiver
}

// numbered returns a body that repeats a number.
func numbered(n uint64, size int) []byte {
	return bytes.Repeat(binary.BigEndian.AppendUint64(nil, n), size/8)
}

// number returns the number in a body.
func number(m *amqp.Message) uint64 {
	return binary.BigEndian.Uint64(append(m.GetData(), make([]byte, 8)...))
}

// workload is a queue in use: a sender with a fixed rate and a receiver that completes messages.
type workload struct {
	queue    string
	sender   *amqp.Sender
	receiver *amqp.Receiver
	pace     atomic.Int64 // nanoseconds between two sends; 0: without a pause
	ended    atomic.Bool  // send no more messages

	sent, confirmed, completed atomic.Int64

	mu       sync.Mutex
	failed   error
	took     []confirmation // in the order of the confirmations
	receipts []time.Time    // times of completions
	times    []uint8        // deliveries per message
}

// fail records the first error that a client of the queue gets.
func (l *workload) fail(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // the benchmark has ended
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed == nil {
		l.failed = fmt.Errorf("at %s: %w", time.Now().Format("15:04:05.000"), err)
	}
}

func (l *workload) error() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// send sends at the pace until ended is set, and waits for the last confirmation. The time of a delayed send
// counts from when it was due.
func (l *workload) send(ctx context.Context) {
	places := make(chan struct{}, workloadInFlight)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	for due := time.Now(); ctx.Err() == nil && !l.ended.Load(); {
		if pace := time.Duration(l.pace.Load()); pace == 0 {
			due = time.Now()
		} else {
			due = due.Add(pace)
			timer := time.NewTimer(time.Until(due))
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
		}
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		n := l.sent.Add(1) - 1
		receipt, err := l.sender.SendWithReceipt(ctx, amqp.NewMessage(numbered(uint64(n), workloadBytes)), nil)
		if err != nil {
			l.fail(ctx, fmt.Errorf("send: %w", err))
			return
		}
		waiting.Go(func() {
			defer func() { <-places }()
			state, err := receipt.Wait(ctx)
			if _, accepted := state.(*amqp.StateAccepted); err == nil && !accepted {
				err = fmt.Errorf("the outcome is %v", state)
			}
			if err != nil {
				l.fail(ctx, fmt.Errorf("send: %w", err))
				return
			}
			now := time.Now()
			l.mu.Lock()
			l.took = append(l.took, confirmation{due, now.Sub(due)})
			l.mu.Unlock()
			l.confirmed.Add(1)
		})
	}
}

// receive completes the messages that arrive.
func (l *workload) receive(ctx context.Context) {
	for {
		m, err := l.receiver.Receive(ctx, nil)
		if err != nil {
			l.fail(ctx, fmt.Errorf("receive: %w", err))
			return
		}
		n := number(m)
		l.mu.Lock()
		for uint64(len(l.times)) <= n && n < uint64(l.sent.Load()) {
			l.times = append(l.times, 0)
		}
		if n < uint64(len(l.times)) {
			l.times[n]++
		} else if l.failed == nil {
			l.failed = fmt.Errorf("message %d came and was never sent", n)
		}
		l.mu.Unlock()
		go func() { // one for each credit
			if err := l.receiver.AcceptMessage(ctx, m); err != nil {
				l.fail(ctx, fmt.Errorf("complete: %w", err))
				return
			}
			l.mu.Lock()
			l.receipts = append(l.receipts, time.Now())
			l.mu.Unlock()
			l.completed.Add(1)
		}()
	}
}

// judge asserts that each message was delivered once. Call it when all goroutines have ended.
func (l *workload) judge(b *testing.B) {
	b.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		b.Errorf("a client of %s saw an error: %v", l.queue, l.failed)
	}
	if int64(len(l.times)) != l.sent.Load() {
		b.Errorf("%d messages were sent to %s, the last that came was number %d", l.sent.Load(), l.queue, len(l.times))
	}
	for n, times := range l.times {
		if times != 1 {
			b.Errorf("message %d of %s came %d times", n, l.queue, times)
		}
	}
}

// during returns how long the sends took that were due in a phase, and the longest time between two
// confirmations that began in the phase.
func (l *workload) during(p *phase) (took []time.Duration, gap time.Duration) {
	var ends []time.Time
	for _, c := range l.took {
		if p.has(c.due) {
			took = append(took, c.took)
		}
		ends = append(ends, c.due.Add(c.took))
	}
	slices.SortFunc(ends, time.Time.Compare)
	for i := 1; i < len(ends); i++ {
		if p.has(ends[i-1]) {
			gap = max(gap, ends[i].Sub(ends[i-1]))
		}
	}
	return took, gap
}

func (p *phase) has(at time.Time) bool { return !at.Before(p.from) && at.Before(p.to) }

func count(times []time.Time, p *phase) (n int) {
	for _, at := range times {
		if p.has(at) {
			n++
		}
	}
	return n
}
