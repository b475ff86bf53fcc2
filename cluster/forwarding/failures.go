package forwarding

import (
	"context"
	"errors"
	"log/slog"

	"github.com/peeklock/peeklock/fsm"
)

func refused(code fsm.Code) bool { return code != fsm.OK }

// backOff logs why a task backs off, unless leadership was lost.
func (f *Forwarder) backOff(ctx context.Context, task *forwardTask, err error) stepResult {
	if ctx.Err() != nil {
		return stepLostLead
	}
	code := fsm.Internal
	errors.As(err, &code)
	f.logFailure(ctx, task, code, err)
	return stepBackoff
}

// logFailure logs why a sub-queue is not forwarded, once until the code changes.
func (f *Forwarder) logFailure(ctx context.Context, task *forwardTask, code fsm.Code, err error) {
	if f.setFailure(task, code) {
		f.log.LogAttrs(ctx, logLevel(code), "messages wait to be forwarded", f.logAttrs(ctx, task, slog.Any("error", err))...)
	}
}

// countBatch counts a transferred batch, and logs, once until that changes, that the destination
// refuses messages, or accepts them again. For dead letters, the end of a pass logs that.
func (f *Forwarder) countBatch(ctx context.Context, task *forwardTask, messages int, codes []fsm.Code) {
	worst, refusedCount := fsm.OK, 0
	for _, code := range codes {
		if refused(code) {
			worst = code
			refusedCount++
		}
	}
	f.counts.batches.Add(1)
	f.counts.messages.Add(uint64(messages - refusedCount))
	switch {
	case task.isOfDeadLetters():
		return
	case worst == fsm.OK:
		f.logResumed(ctx, task)
		return
	}
	f.counts.refused.Add(uint64(refusedCount))
	if f.setFailure(task, worst) {
		f.log.LogAttrs(ctx, logLevel(worst), "destination refused forwarded messages, moved to a dead-letter queue of their source",
			f.logAttrs(ctx, task, slog.String("reason", worst.String()), slog.Int("messages", refusedCount))...)
	}
}

// logResumed logs that a sub-queue is forwarded whose last failure was logged.
func (f *Forwarder) logResumed(ctx context.Context, task *forwardTask) {
	if f.setFailure(task, fsm.OK) {
		f.log.LogAttrs(ctx, slog.LevelInfo, "forwarding resumed", f.logAttrs(ctx, task)...)
	}
}

// logLevel is WARN for failures that an operator can correct, and ERROR for faults of this program.
func logLevel(code fsm.Code) slog.Level {
	if code == fsm.Internal {
		return slog.LevelError
	}
	return slog.LevelWarn
}

// setFailure records the code of a sub-queue, OK for none, and reports whether it has changed.
func (f *Forwarder) setFailure(task *forwardTask, code fsm.Code) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.failures[task.source]
	switch {
	case code == fsm.OK:
		delete(f.failures, task.source)
	case len(f.failures) >= failuresMax && before == fsm.OK:
		clear(f.failures)
		fallthrough
	default:
		f.failures[task.source] = code
	}
	return code != before
}

// logAttrs returns attributes that name the sub-queue of a task.
func (f *Forwarder) logAttrs(ctx context.Context, task *forwardTask, more ...slog.Attr) []slog.Attr {
	attrs := []slog.Attr{slog.Uint64("partition", uint64(task.source.Partition)), slog.Uint64("entity_id", uint64(task.source.Address.Entity))}
	if entity, err := f.deps.EntityByID(ctx, task.source.Address.Entity); err == nil {
		attrs = append(attrs, slog.String("entity", entity.Name))
		if task.source.Address.Sub == fsm.DeadLetterQueue {
			attrs = append(attrs, slog.String("forward_to", entity.Settings.ForwardDeadLettersTo), slog.Bool("dead_letters", true))
		} else {
			attrs = append(attrs, slog.String("forward_to", entity.Settings.ForwardTo))
		}
	}
	return append(attrs, more...)
}
