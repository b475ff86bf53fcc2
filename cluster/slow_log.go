package cluster

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// slowLogger tells of what took long. Lines of one operation are put together by partition and time: what
// the leader did in it says the leader (partition.Config.Slow), under the same name.
type slowLogger struct {
	logger *slog.Logger
	after  time.Duration // 0: nothing is slow
}

// isSlow says whether something took long enough to be told.
func (s *slowLogger) isSlow(took time.Duration) bool {
	return s.after > 0 && took >= s.after && s.logger != nil
}

// requestProgress is how far a request had come when it ended.
type requestProgress struct {
	command     []byte       // encoded, nil when it was not
	sentAt      time.Time    // the last attempt left, zero when none did
	target      fsm.MemberID // to whom
	submissions uint64
}

// logRequest says where the time of a command went: until its last attempt left (sought: for want of a leader,
// of room in the window, or in attempts before it), and with who was held for the leader.
func (s *slowLogger) logRequest(id fsm.PartitionID, progress requestProgress, code fsm.Code, took time.Duration) {
	atLeader := time.Duration(0)
	if !progress.sentAt.IsZero() {
		atLeader = min(took, time.Since(progress.sentAt))
	}
	s.log(id, progress, code, slog.Duration("took", took), slog.Duration("sought", took-atLeader), slog.Duration("at_leader", atLeader))
}

// logLock tells of the waiting of a receiver, which takes as long as it was asked for: late is what came on top.
func (s *slowLogger) logLock(id fsm.PartitionID, progress requestProgress, code fsm.Code, late time.Duration) {
	s.log(id, progress, code, slog.Duration("late", late))
}

func (s *slowLogger) log(id fsm.PartitionID, progress requestProgress, code fsm.Code, took ...slog.Attr) {
	kind, receiver, serial := "not sent", uint64(0), uint64(0)
	if progress.command != nil {
		if info, err := fsm.PeekCommand(progress.command); err == nil {
			kind, receiver, serial = operationName(info.Kind), info.Header.Receiver, info.Header.Serial
		}
	}
	attrs := []any{slog.String("operation", kind), slog.Uint64("partition", uint64(id))}
	for _, part := range took {
		attrs = append(attrs, part)
	}
	attrs = append(attrs, slog.Uint64("attempts", progress.submissions), slog.String("leader", shortID(progress.target)), slog.String("code", code.Error()),
		slog.Uint64("lane", receiver), slog.Uint64("serial", serial))
	s.logger.Warn("slow operation", attrs...)
}

// operationName is the word of operators for a command.
func operationName(kind fsm.Kind) string {
	switch kind { //nolint:exhaustive // the others by their number
	case fsm.KindSendMessages:
		return "send"
	case fsm.KindLockMessages:
		return "lock"
	case fsm.KindSettleMessages:
		return "settle"
	case fsm.KindRenewLocks:
		return "renew locks"
	case fsm.KindFetchDeferred:
		return "fetch deferred"
	case fsm.KindCancelScheduled:
		return "cancel scheduled"
	case fsm.KindPurgeMessages:
		return "purge"
	case fsm.KindRedriveMessages:
		return "redrive"
	case fsm.KindAcceptSession:
		return "accept session"
	case fsm.KindSetSessionState:
		return "set session state"
	case fsm.KindTransact:
		return "transaction"
	case fsm.KindForwardMessages, fsm.KindTransferMessages:
		return "forward"
	}
	return fmt.Sprintf("command %d", kind)
}
