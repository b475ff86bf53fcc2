package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/history/linear"
	"github.com/peeklock/peeklock/test/sim/judge"
	"github.com/peeklock/peeklock/test/sim/simplan"
)

const (
	bootWithin  = time.Minute // from the start of all members until they serve
	serveWithin = time.Minute // from the end of the last fault until everything is served

	stacksBytesMax = 16 << 20
)

// Report says what a simulation did and found.
type Report struct {
	Plan       simplan.Plan
	Virtual    time.Duration // from the start of the members until the judges had finished
	Operations int64         // that clients saw succeed
	Findings   []string      // each a violation; none: the cluster kept its promises
	Stacks     string        // of all goroutines, when not everything was served in time

	// Digest is a checksum of all that happened, and when.
	Digest uint64

	// Effects counts the faults that had an effect, of the kinds of which some have none.
	Effects map[simplan.Kind]int

	// Linear is what an independent checker has found, which runs after the simulation.
	Linear linear.Result

	streams   []*judge.Stream
	restored  *judge.Restoration
	recorders []*recorder
	calls     *calls // nil: they were not counted
}

// Simulate carries out a plan. It must be called in a synctest bubble. The members write to the log.
func Simulate(plan simplan.Plan, lines io.Writer, log *slog.Logger) *Report {
	report, begun, events := &Report{Plan: plan}, time.Now(), &digest{lines: lines}
	w := newWorld(&plan, events, log)
	if plan.Call != nil {
		w.calls = newCalls(w, &plan)
		for _, m := range w.members {
			m.observe()
		}
	}
	defer collectGarbage()()
	if err := simulate(report, w); err != nil {
		report.find("%v", err)
	}
	report.Findings = append(report.Findings, w.found...)
	report.Virtual = time.Since(begun)
	report.recorders = []*recorder{w.entries}
	report.calls = w.calls
	report.Effects = w.counted()
	if w.former != nil {
		report.recorders = []*recorder{w.former, w.entries}
	}
	for _, m := range w.members {
		if p := m.running(); p != nil && plan.Has(simplan.SlowDisks) {
			if n := p.node.Stats(0).Store.SlowDisk.HandOvers; n > 0 {
				report.find("member %d has handed %d leaderships over, although no disk is faster than its own", m.number, n)
			}
		}
		if err := m.stop(); err != nil {
			report.find("stop member %d: %v", m.number, err)
		}
	}
	sleep(time.Minute) // for what ends with its own timeout
	for _, s := range report.streams {
		for _, e := range s.Events() {
			events.add(s.Name, []byte(e.String()))
		}
	}
	report.Digest = events.sum
	return report
}

func (r *Report) find(format string, arguments ...any) {
	r.Findings = append(r.Findings, fmt.Sprintf(format, arguments...))
}

// checkLinear adds what Porcupine finds in the histories of the streams. It takes real time.
func (r *Report) checkLinear() {
	for _, s := range r.streams {
		found := s.CheckLinear(r.restored)
		r.Linear.Checked += found.Checked
		r.Linear.Undecided += found.Undecided
		r.Linear.Found = append(r.Linear.Found, found.Found...)
	}
}

func simulate(report *Report, w *world) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	boot, cancelBoot := context.WithTimeout(ctx, bootWithin)
	defer cancelBoot()
	if report.Plan.Length == 0 {
		return w.bootOnly(boot)
	}
	if err := w.startAll(boot); err != nil {
		return fmt.Errorf("start the cluster: %w", err)
	}
	l := newLoad(ctx, w, report.Plan.Seed)
	if err := l.build(boot); err != nil {
		return err
	}
	for _, s := range l.streams {
		s.Clocks = &w.clocks
	}
	w.resumed = func() {
		for _, s := range l.streams {
			s.Lives.Resumed()
		}
	}
	w.fill = l.fillBacklog
	w.forget = func() {
		for _, s := range l.streams {
			s.restored()
		}
	}
	if w.calls != nil {
		l.unused = nil // they would be waited for
		l.streams = slices.DeleteFunc(l.streams, func(s *stream) bool { return !slices.Contains(matrixStreams, s.Name) })
		w.calls.start()
	}
	l.start()
	watched, endWatch := context.WithCancel(ctx)
	defer endWatch()
	awaitIdle := l.watchIdle(watched)
	stopSending := time.AfterFunc(report.Plan.Length, l.stopSending)
	defer stopSending.Stop()
	d := &disturber{world: w, log: w.log}
	d.run(&report.Plan)
	if w.calls != nil {
		w.calls.stop() // a call that failed later would be repaired too late
	}
	w.repairs.Wait()
	err := l.finish(ctx)
	if err != nil {
		all := make([]byte, stacksBytesMax)
		report.Stacks = string(all[:runtime.Stack(all, true)])
	}
	report.Operations = l.operations.Load()
	report.restored = w.restored
	for _, s := range l.streams {
		report.streams = append(report.streams, s.Stream)
		s.Judge(report.find, err == nil, w.restored)
	}
	if err == nil {
		err = l.compare(ctx)
	}
	endWatch()
	waiting, cancelWait := context.WithTimeout(ctx, idleWithin)
	defer cancelWait()
	awaitIdle(waiting)
	return err
}

// finish ends the load: everything is received, although nothing more is sent, and then every queue takes another
// message.
func (l *load) finish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, serveWithin)
	defer cancel()
	defer l.stopReceiving()
	defer l.stopSending()
	l.world.startRest() //nolint:contextcheck // processes outlive it
	l.world.undrainAll(ctx)
	if err := l.world.awaitReady(ctx); err != nil {
		return fmt.Errorf("%w: %w", errStuck, err)
	}
	if err := l.world.awaitUpgraded(ctx); err != nil {
		return fmt.Errorf("%w: %w", errStuck, err)
	}
	l.stopSending()
	l.senders.Wait()
	c := l.client("last")
	p := c.process(ctx)
	if err := l.awaitEmpty(ctx, c, p); err != nil {
		return err
	}
	for _, s := range l.streams {
		for p == nil || l.sendOne(c, p, s, false) != fsm.OK {
			if !c.think(ctx, reconnectAfter) {
				return fmt.Errorf("%w: %s takes no messages", errStuck, s.Name)
			}
			p = c.process(ctx)
		}
	}
	if err := l.awaitEmpty(ctx, c, p); err != nil {
		return err
	}
	l.stopReceiving()
	l.receivers.Wait()
	return nil
}

// awaitEmpty waits until the entities hold no messages.
func (l *load) awaitEmpty(ctx context.Context, c *client, p *process) error {
	for {
		n, err := l.remaining(ctx, p)
		if err == nil && n == 0 {
			return nil
		}
		if !c.think(ctx, reconnectAfter) {
			return fmt.Errorf("%w: %d messages remain: %w", errStuck, n, cmp.Or(err, ctx.Err()))
		}
		p = cmp.Or(c.process(ctx), p)
	}
}

// compare compares the replicas of every partition.
func (l *load) compare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, serveWithin)
	defer cancel()
	p := l.client("verifier").process(ctx)
	if p == nil {
		return ctx.Err()
	}
	for id := range l.world.partitions + 1 {
		v, err := p.node.Operator().Verify(ctx, fsm.PartitionID(id))
		if err != nil {
			return err
		}
		if !v.Equal {
			return fmt.Errorf("the replicas of partition %d differ: %+v", id, v)
		}
	}
	return nil
}

var errStuck = errors.New("not everything was served in time after the last fault")
