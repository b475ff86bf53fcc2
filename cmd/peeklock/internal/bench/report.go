package bench

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
)

// benchResult is the outcome of a benchmark. The JSON is stable.
type benchResult struct {
	Run       string        `json:"run"`
	Mode      string        `json:"mode"`
	Senders   int           `json:"senders"`
	Receivers int           `json:"receivers"`
	Queues    int           `json:"queues"`
	Topic     *benchFanOut  `json:"topic,omitempty"` // set instead of queues
	Groups    *benchGroups  `json:"grouped,omitempty"`
	Window    int           `json:"window"`
	Credit    int           `json:"credit"`
	Size      int           `json:"size"`
	Rate      float64       `json:"rate"` // requested messages per second; 0: unlimited
	Addresses []string      `json:"addresses"`
	Seconds   float64       `json:"seconds"` // measured duration
	Send      *benchRate    `json:"send,omitempty"`
	Receive   *benchRate    `json:"receive,omitempty"`
	Settle    *benchRate    `json:"settle,omitempty"`
	Confirm   *benchLatency `json:"confirm,omitempty"`
	EndToEnd  *benchLatency `json:"endToEnd,omitempty"`
	// Stored is the size that the broker counts for each message: its payload once, independent of the number of
	// subscriptions that hold a copy. Only runs that do not receive have it.
	Stored     float64     `json:"storedBytesPerMessage,omitempty"`
	Verify     benchVerify `json:"verify"`
	ServersCPU *benchCPU   `json:"serversCpu,omitempty"`
	ClientCPU  *benchCPU   `json:"clientCpu,omitempty"`
}

// benchFanOut describes a topic and its use.
type benchFanOut struct {
	Subscriptions    int `json:"subscriptions"`
	Copies           int `json:"copies"` // of each message
	SQLRules         int `json:"sqlRules"`
	CorrelationRules int `json:"correlationRules"`
	Matching         int `json:"matching"` // rules of each kind that match every message
}

// benchRate is the work done during the measurement.
type benchRate struct {
	Messages  uint64  `json:"messages"`
	PerSecond float64 `json:"perSecond"`
}

// benchLatency is a distribution of latencies in milliseconds.
type benchLatency struct {
	Samples int64   `json:"samples"`
	P50     float64 `json:"p50Ms"`
	P95     float64 `json:"p95Ms"`
	P99     float64 `json:"p99Ms"`
	P999    float64 `json:"p999Ms"`
	Max     float64 `json:"maxMs"`
}

// benchVerify has the outcomes of all messages of the run, including those of the warm-up and of the end.
type benchVerify struct {
	Confirmed     uint64 `json:"confirmed"`
	SendRefused   uint64 `json:"sendRefused"`
	SendUnknown   uint64 `json:"sendUnknown"` // the connection broke before the confirmation
	Received      uint64 `json:"received"`
	Settled       uint64 `json:"settled"`
	SettleLost    uint64 `json:"settleLost"` // the lock had expired
	SettleUnknown uint64 `json:"settleUnknown"`
	Lost          uint64 `json:"lost"`
	Duplicated    uint64 `json:"duplicated"`
	Unexpected    uint64 `json:"unexpected"`
	Redelivered   uint64 `json:"redelivered"`
	Foreign       uint64 `json:"foreign"`
	Reconnects    uint64 `json:"reconnects"`
}

// benchCPU is the processor time during the measurement, and the memory at its end.
type benchCPU struct {
	Seconds       float64 `json:"seconds"`
	MicrosPerItem float64 `json:"microsPerMessage"`
	ResidentBytes uint64  `json:"residentBytes"`
	WrittenBytes  uint64  `json:"writtenBytes,omitempty"` // to disk
}

// result combines what was measured between two marks.
func (l *load) result(first, second progressMark) benchResult {
	o := l.options
	r := benchResult{
		Run: fmt.Sprintf("%016x", l.ledger.run), Mode: o.mode, Queues: o.queues,
		Senders: len(l.senders), Receivers: len(l.receivers), Size: o.size, Rate: o.rate, Addresses: l.targets.used(),
		Verify: l.verify(),
	}
	if b := o.topic; b.subscriptions > 0 {
		r.Queues = 0
		r.Topic = &benchFanOut{Subscriptions: b.subscriptions, Copies: b.copies(), SQLRules: b.sqlRules, CorrelationRules: b.correlationRules, Matching: b.matching}
	}
	if n := o.perSession.sessions; n > 0 {
		r.Groups = &benchGroups{Sessions: n, Accepted: l.counts.accepted.Load(), Misordered: l.counts.misordered.Load()}
	}
	// A run over a number of messages, or until a queue is empty, ends with the last message, not when the end is
	// noticed.
	end := func(last int64) time.Duration {
		whole := second.at.Sub(first.at)
		if counted := o.messages > 0 || !o.sends(); counted && last > first.at.UnixNano() {
			return min(whole, time.Duration(last-first.at.UnixNano()))
		}
		return whole
	}
	r.Seconds = second.at.Sub(first.at).Seconds()
	items := second.confirmed - first.confirmed
	if o.sends() {
		r.Window = o.window
		r.Send = rateOf(items, end(l.counts.lastConfirm.Load()))
		r.Seconds = end(l.counts.lastConfirm.Load()).Seconds()
		r.Confirm = l.merge(l.confirmHistograms())
	}
	if o.receives() {
		r.Credit = o.credit
		items = second.settled - first.settled
		r.Receive = rateOf(second.received-first.received, end(l.counts.lastReceive.Load()))
		r.Seconds = end(l.counts.lastReceive.Load()).Seconds()
		r.EndToEnd = l.merge(l.arrivalHistograms())
		if !o.receiveAndDelete {
			r.Settle = rateOf(items, end(l.counts.lastSettle.Load()))
		}
	}
	r.ServersCPU = cpuBetween(first.servers, second.servers, items)
	r.ClientCPU = cpuBetween(first.own, second.own, items)
	return r
}

func (l *load) verify() benchVerify {
	c := &l.counts
	v := benchVerify{
		Confirmed: c.confirmed.Load(), SendRefused: c.sendRefused.Load(), SendUnknown: c.sendUnknown.Load(),
		Received: c.received.Load(), Settled: c.settled.Load(), SettleLost: c.settleLost.Load(), SettleUnknown: c.settleUnknown.Load(),
		Duplicated: c.duplicated.Load(), Unexpected: c.unexpected.Load(), Redelivered: c.redelivered.Load(),
		Foreign: c.foreign.Load(), Reconnects: c.reconnects.Load(),
	}
	if l.options.mode == modeBoth {
		v.Lost = l.ledger.lost()
	}
	return v
}

func rateOf(n uint64, d time.Duration) *benchRate {
	r := &benchRate{Messages: n}
	if d > 0 {
		r.PerSecond = round(float64(n)/d.Seconds(), 1)
	}
	return r
}

func round(v, unitsPerOne float64) float64 {
	return float64(int64(v*unitsPerOne+0.5)) / unitsPerOne
}

func (l *load) confirmHistograms() []*latencies {
	var all []*latencies
	for _, s := range l.senders {
		all = append(all, s.confirms)
	}
	return all
}

func (l *load) arrivalHistograms() []*latencies {
	var all []*latencies
	for _, r := range l.receivers {
		all = append(all, r.arrivals)
	}
	return all
}

func (l *load) merge(parts []*latencies) *benchLatency {
	total := hdrhistogram.New(1, latencyMaxMicros, latencyDigits)
	for _, p := range parts {
		p.mu.Lock()
		total.Merge(p.h)
		p.mu.Unlock()
	}
	if total.TotalCount() == 0 {
		return nil
	}
	at := func(percent float64) float64 { return float64(total.ValueAtQuantile(percent)) / 1000 }
	return &benchLatency{
		Samples: total.TotalCount(), P50: at(50), P95: at(95), P99: at(99), P999: at(99.9), Max: float64(total.Max()) / 1000,
	}
}

func cpuBetween(first, second cpuTime, items uint64) *benchCPU {
	if !first.known || !second.known {
		return nil
	}
	used := second.used - first.used
	c := &benchCPU{Seconds: used.Seconds(), ResidentBytes: second.resident, WrittenBytes: second.written - first.written}
	if items > 0 {
		c.MicrosPerItem = round(used.Seconds()*1e6/float64(items), 10)
	}
	return c
}

// report prints the result and returns an error if messages were lost, duplicated or unexpected.
func (r benchResult) report(out *output.Output) error {
	if err := r.print(out); err != nil {
		return err
	}
	if v := r.Verify; v.Lost+v.Duplicated+v.Unexpected > 0 {
		return fmt.Errorf("verification failed: %d lost, %d duplicated, %d unexpected", v.Lost, v.Duplicated, v.Unexpected)
	}
	if v := r.Verify; r.Send != nil && v.Confirmed == 0 {
		return errors.New("nothing was verified: no message was confirmed")
	}
	if g := r.Groups; g != nil && g.Misordered > 0 {
		return fmt.Errorf("verification failed: %d arrived after later messages of their session", g.Misordered)
	}
	return nil
}

func (r benchResult) print(out *output.Output) error {
	if !out.IsTable() {
		return out.Data(r)
	}
	head := fmt.Sprintf("%s, %d B, %d queues", r.Mode, r.Size, r.Queues)
	if t := r.Topic; t != nil {
		head = fmt.Sprintf("%s, %d B, 1 topic, %d subscriptions, %d copies", r.Mode, r.Size, t.Subscriptions, t.Copies)
		if t.SQLRules+t.CorrelationRules > 0 {
			head += fmt.Sprintf(" (%d SQL and %d correlation rules, %d matching)", t.SQLRules, t.CorrelationRules, t.Matching)
		}
	}
	if r.Groups != nil {
		head += fmt.Sprintf(", %d sessions each", r.Groups.Sessions)
	}
	if r.Send != nil {
		head += fmt.Sprintf(", %d senders (window %d)", r.Senders, r.Window)
	}
	if r.Receive != nil {
		head += fmt.Sprintf(", %d receivers (credit %d)", r.Receivers, r.Credit)
	}
	if err := out.Note("%s, %.1f s at %s\n", head, r.Seconds, strings.Join(r.Addresses, " ")); err != nil {
		return err
	}
	var rows [][]any
	for _, line := range []struct {
		name string
		rate *benchRate
	}{{"send", r.Send}, {"receive", r.Receive}, {"settle", r.Settle}} {
		if line.rate != nil {
			rows = append(rows, []any{line.name, line.rate.Messages, line.rate.PerSecond})
		}
	}
	if err := out.Rows(nil, []any{"work", "messages", "per second"}, rows); err != nil {
		return err
	}
	rows = nil
	for _, line := range []struct {
		name string
		l    *benchLatency
	}{{"send", r.Confirm}, {"end to end", r.EndToEnd}} {
		if line.l != nil {
			rows = append(rows, []any{line.name, line.l.P50, line.l.P95, line.l.P99, line.l.P999, line.l.Max})
		}
	}
	if len(rows) > 0 {
		if err := out.Note(""); err != nil {
			return err
		}
		if err := out.Rows(nil, []any{"latency, ms", "p50", "p95", "p99", "p99.9", "max"}, rows); err != nil {
			return err
		}
	}
	return r.printRest(out)
}

func (r benchResult) printRest(out *output.Output) error {
	for _, line := range []struct {
		name string
		c    *benchCPU
	}{{"members", r.ServersCPU}, {"this client", r.ClientCPU}} {
		if line.c == nil {
			continue
		}
		written := ""
		if line.c.WrittenBytes > 0 {
			written = ", " + output.BytesText(line.c.WrittenBytes) + " written"
		}
		if err := out.Note("\nCPU of %s: %.2f s, %.1f us per message; %s resident%s", line.name, line.c.Seconds, line.c.MicrosPerItem,
			output.BytesText(line.c.ResidentBytes), written); err != nil {
			return err
		}
	}
	if r.Stored > 0 {
		if err := out.Note("\nstored by the broker: %.1f B per message", r.Stored); err != nil {
			return err
		}
	}
	if g := r.Groups; g != nil {
		if err := out.Note("\nsessions were accepted %d times; %d messages misordered", g.Accepted, g.Misordered); err != nil {
			return err
		}
	}
	v := r.Verify
	if err := out.Note("\nverified: %d lost, %d duplicated, %d unexpected", v.Lost, v.Duplicated, v.Unexpected); err != nil {
		return err
	}
	return out.Note("  confirmed %d, received %d, settled %d\n  refused %d, unknown %d, lock lost %d, settlement unknown %d, redelivered %d, foreign %d, reconnects %d",
		v.Confirmed, v.Received, v.Settled, v.SendRefused, v.SendUnknown, v.SettleLost, v.SettleUnknown, v.Redelivered, v.Foreign, v.Reconnects)
}

// showProgress shows rates once a second during the run, on a terminal only. The returned function ends it.
func (l *load) showProgress() func() {
	if !l.client.Interactive {
		return func() {}
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		begin := time.Now()
		last := l.mark()
		for {
			select {
			case <-stop:
				_, _ = fmt.Fprint(l.client.Err, "\r\x1b[K")
				return
			case <-ticker.C:
			}
			now := l.mark()
			per := func(a, b uint64) float64 { return float64(b-a) / now.at.Sub(last.at).Seconds() }
			_, _ = fmt.Fprintf(l.client.Err, "\r\x1b[K%4.0fs  send %7.0f/s  receive %7.0f/s  settle %7.0f/s  behind %d",
				now.at.Sub(begin).Seconds(), per(last.confirmed, now.confirmed), per(last.received, now.received),
				per(last.settled, now.settled), l.backlog(now))
			last = now
		}
	}()
	return func() {
		close(stop)
		<-done
	}
}

// backlog returns the number of copies that are confirmed and not yet received.
func (l *load) backlog(m progressMark) uint64 {
	copies := m.confirmed * uint64(l.options.topic.copies())
	if l.options.mode != modeBoth || m.received > copies {
		return 0
	}
	return copies - m.received
}

// progressMark holds the counts at one point in time.
type progressMark struct {
	at                           time.Time
	confirmed, received, settled uint64
	servers, own                 cpuTime
}
