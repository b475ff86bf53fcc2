package sim

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/sim/load"
	"github.com/peeklock/peeklock/test/sim/simplan"
)

const (
	bootWithin = time.Minute // from the start of all members until they serve

	stacksBytesMax = 16 << 20
)

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
			if n := p.Node.Stats(0).Store.SlowDisk.HandOvers; n > 0 {
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
	l := load.New(ctx, w.served(), report.Plan.Seed)
	if err := l.Build(boot, w.hasBacklog); err != nil {
		return err
	}
	for _, s := range l.Streams() {
		s.Clocks = &w.clocks
	}
	w.resumed, w.fill, w.forget = l.Resumed, l.FillBacklog, l.Restored
	if w.calls != nil {
		l.Keep(matrixStreams)
		w.calls.start()
	}
	l.Start()
	watched, endWatch := context.WithCancel(ctx)
	defer endWatch()
	awaitIdle := l.WatchIdle(watched)
	stopSending := time.AfterFunc(report.Plan.Length, l.StopSending)
	defer stopSending.Stop()
	d := &disturber{world: w, log: w.log}
	d.run(&report.Plan)
	if w.calls != nil {
		w.calls.stop() // a call that failed later would be repaired too late
	}
	w.repairs.Wait()
	err := finish(ctx, w, l)
	if err != nil {
		all := make([]byte, stacksBytesMax)
		report.Stacks = string(all[:runtime.Stack(all, true)])
	}
	report.Operations = l.Operations()
	report.streams, report.restored = l.Streams(), w.restored
	for _, s := range report.streams {
		s.Judge(report.find, err == nil, w.restored)
	}
	if err == nil {
		err = compare(ctx, w, l)
	}
	endWatch()
	awaitIdle(ctx)
	return err
}

// finish repairs the cluster and ends the load.
func finish(ctx context.Context, w *world, l *load.Load) error {
	// While wall time may be ahead, clients of partitioned entities settle nothing: they take every lock for one that may have ended.
	ctx, cancel := context.WithTimeout(ctx, serveWithin+2*w.clocks.Ahead(time.Now()))
	defer cancel()
	defer l.Stop()
	w.startRest() //nolint:contextcheck // processes outlive it
	w.undrainAll(ctx)
	if err := w.awaitReady(ctx); err != nil {
		return fmt.Errorf("%w: %w", load.ErrStuck, err)
	}
	if err := w.awaitUpgraded(ctx); err != nil {
		return fmt.Errorf("%w: %w", load.ErrStuck, err)
	}
	return l.Finish(ctx)
}

// compare compares the replicas of every partition.
func compare(ctx context.Context, w *world, l *load.Load) error {
	ctx, cancel := context.WithTimeout(ctx, serveWithin)
	defer cancel()
	p := l.Process(ctx, "verifier")
	if p == nil {
		return ctx.Err()
	}
	for id := range w.partitions + 1 {
		v, err := p.Node.Operator().Verify(ctx, fsm.PartitionID(id))
		if err != nil {
			return err
		}
		if !v.Equal {
			return fmt.Errorf("the replicas of partition %d differ: %+v", id, v)
		}
	}
	return nil
}
