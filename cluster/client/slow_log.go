package client

import (
	"log/slog"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// slowLogger logs slow operations. The leader logs its part under the same message
// (partition.Config.Slow); partition and time relate the lines of one operation.
type slowLogger struct {
	logger *slog.Logger
	after  time.Duration // 0: nothing is slow
}

// isSlow reports whether a duration is long enough to be logged.
func (s *slowLogger) isSlow(took time.Duration) bool {
	return s.after > 0 && took >= s.after && s.logger != nil
}

// requestProgress describes the progress of a request when it ended.
type requestProgress struct {
	command     []byte       // encoded; nil when it was not encoded yet
	sentAt      time.Time    // of the last submission; zero when there was none
	target      fsm.MemberID // of the last submission
	submissions uint64
}

// logRequest logs how the time of a command was spent: until its last submission (sought: no leader, a full
// window, earlier submissions), and at the presumed leader.
func (s *slowLogger) logRequest(id fsm.PartitionID, progress requestProgress, code fsm.Code, took time.Duration) {
	atLeader := time.Duration(0)
	if !progress.sentAt.IsZero() {
		atLeader = min(took, time.Since(progress.sentAt))
	}
	s.log(id, progress, code, slog.Duration("took", took), slog.Duration("sought", took-atLeader), slog.Duration("at_leader", atLeader))
}

// logLock logs a Lock that took longer than it was asked to wait, by late.
func (s *slowLogger) logLock(id fsm.PartitionID, progress requestProgress, code fsm.Code, late time.Duration) {
	s.log(id, progress, code, slog.Duration("late", late))
}

func (s *slowLogger) log(id fsm.PartitionID, progress requestProgress, code fsm.Code, took ...slog.Attr) {
	kind, receiver, serial := "not sent", uint64(0), uint64(0)
	if progress.command != nil {
		if info, err := fsm.PeekCommand(progress.command); err == nil {
			kind, receiver, serial = info.Kind.String(), info.Header.Receiver, info.Header.Serial
		}
	}
	attrs := []any{slog.String("operation", kind), slog.Uint64("partition", uint64(id))}
	for _, part := range took {
		attrs = append(attrs, part)
	}
	attrs = append(attrs, slog.Uint64("attempts", progress.submissions), slog.String("leader", string(progress.target[:min(8, len(progress.target))])), slog.String("code", code.Error()),
		slog.Uint64("receiver", receiver), slog.Uint64("serial", serial))
	s.logger.Warn("slow operation", attrs...)
}
