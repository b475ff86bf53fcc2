package forwarding

import (
	"context"
	"time"

	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// Run gives tasks their slots until ctx ends.
func (f *Forwarder) Run(ctx context.Context) {
	ticker, timer := time.NewTicker(f.scanEvery), time.NewTimer(f.scanEvery)
	defer ticker.Stop()
	defer timer.Stop()
	changed := f.transport.Changes()
	for {
		all := false
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			all = true
		case <-timer.C:
		case <-f.wakeUp:
		case <-changed:
			changed = f.transport.Changes()
			f.shortenBackoffs(time.Now())
		}
		f.scan(all)
		timer.Reset(f.dispatch(time.Now()))
	}
}

// scan adds a task for every sub-queue with something to forward: in partitions that this member leads and
// has not scanned yet, or with all in every partition that it leads. An effect is lost with its leader.
func (f *Forwarder) scan(all bool) {
	f.mu.Lock()
	groups := make(map[fsm.PartitionID]rpc.Group)
	for id, looked := range f.led {
		if looked && !all {
			continue
		}
		if group := f.transport.LocalReplica(id); group != nil { // else leadership was reported before the replica was registered
			groups[id], f.led[id] = group, true
		}
	}
	f.mu.Unlock()
	for id, group := range groups {
		var found []fsm.Address
		group.View(func(m partition.Machine) {
			if machine, ok := m.(outboxSource); ok {
				found = machine.Outboxes()
			}
		})
		f.mu.Lock()
		for _, address := range found {
			f.add(fsm.Outbox{Partition: id, Address: address})
		}
		f.mu.Unlock()
	}
}

// shortenBackoffs ends backoffs early because something has changed, but not before the shortest
// backoff.
func (f *Forwarder) shortenBackoffs(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for task := range f.backingOff {
		soon := task.since.Add(forwardBackoffMin)
		if soon.Before(now) {
			soon = now
		}
		if soon.Before(task.until) {
			task.until = soon
		}
	}
}

// dispatch starts tasks while slots are free, and returns the time until the next task can start
// unless an event comes first.
func (f *Forwarder) dispatch(now time.Time) time.Duration {
	f.mu.Lock()
	sleep := time.Hour
	for task := range f.backingOff {
		if left := task.until.Sub(now); left > 0 {
			sleep = min(sleep, left)
			continue
		}
		delete(f.backingOff, task)
		f.queue = append(f.queue, task)
	}
	var started []*forwardTask
	kept := f.queue[:0]
	for _, task := range f.queue {
		if f.running < forwardTasksMax && f.from[task.source.Partition] < forwardTasksPerSourceMax && (task.to == 0 || f.towards[task.to] < forwardTasksPerDestinationMax) {
			f.acquireSlot(task, 1)
			started = append(started, task)
		} else {
			kept = append(kept, task)
		}
	}
	clear(f.queue[len(kept):])
	f.queue = kept
	f.mu.Unlock()
	for _, task := range started {
		if !f.transport.Go(func(ctx context.Context) { f.runTask(ctx, task) }) {
			return sleep // closing
		}
	}
	return sleep
}

// runTask runs a task until it is done, backs off, or others wait for its slot.
func (f *Forwarder) runTask(ctx context.Context, task *forwardTask) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.mu.Lock()
	task.cancel = cancel
	f.mu.Unlock()
	for {
		f.mu.Lock()
		task.woken = false // the step may miss events from here on
		f.mu.Unlock()
		if !f.keepsSlot(task, f.step(ctx, task)) {
			notify.WakeUp(f.wakeUp)
			return
		}
	}
}

// keepsSlot reports whether a task keeps its slot after a step, and otherwise queues, delays or ends
// it.
func (f *Forwarder) keepsSlot(task *forwardTask, result stepResult) bool {
	if result == stepMore && task.pass.refused == fsm.OK {
		task.backoff = 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !task.dropped && (result == stepMore || result == stepDone && task.woken) {
		if len(f.queue) == 0 {
			return true
		}
		result = stepYield
	}
	f.acquireSlot(task, -1)
	task.cancel = nil
	switch {
	case task.dropped:
	case result == stepYield:
		f.queue = append(f.queue, task)
	case result == stepBackoff:
		f.counts.backoffs.Add(1)
		task.backoff = min(max(2*task.backoff, forwardBackoffMin), forwardBackoffMax)
		task.since = time.Now()
		task.until = task.since.Add(task.backoff)
		f.backingOff[task] = struct{}{}
	default:
		delete(f.tasks, task.source)
	}
	return false
}
