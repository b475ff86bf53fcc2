package client

import (
	"context"
	"log/slog"
	"time"

	"github.com/peeklock/peeklock/cluster/confirm"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
)

// Transport gives the router access to replicas.
type Transport interface {
	// LocalReplica returns this member's replica of the partition, or nil when it has none open.
	LocalReplica(id fsm.PartitionID) rpc.Group
	// Conn returns the connection to another member, or nil while closing.
	Conn(member fsm.MemberID) *rpc.Conn
	// LeaderCandidates returns the other live members that may hold replicas.
	LeaderCandidates(id fsm.PartitionID) []fsm.MemberID
	// Changes returns a channel that is closed when leaders or members have changed.
	Changes() <-chan struct{}
	// Go runs a goroutine that Close waits for; ctx ends with the router. It returns false while closing.
	Go(func(ctx context.Context)) bool
}

// Config configures a Clients. All fields but Slow and SlowAfter are required.
type Config struct {
	Transport   Transport
	Incarnation uint64 // of this member's process; identifies its requests
	Self        fsm.MemberID
	Timing      Timing
	// Confirmed tells whether this member's replica of the catalog may be believed; nil: always.
	Confirmed *confirm.Catalog
	// AnswerLocal answers the queries that are sent to this member.
	AnswerLocal func(ctx context.Context, kind rpc.QueryKind, arguments []byte) rpc.Reply
	Now         func() time.Time // the clock of messages
	Slow        *slog.Logger     // for slow operations; nil: none is logged
	SlowAfter   time.Duration    // 0: none is slow
	Logger      *slog.Logger
}

// Timing holds the time limits of requests.
type Timing struct {
	Retry   time.Duration // after which a request ends unanswered
	Suspect time.Duration // after which a leader that does not answer is verified
}
