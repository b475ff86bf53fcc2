package partition

import (
	"context"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// Machine is what a group keeps alive: [fsm.Queues] or [fsm.Catalog]. The group calls
// it from one goroutine at a time.
type Machine interface {
	// Apply performs one encoded command. It panics on bytes it does not know, and the
	// group then stops: skipping a command would fork the replica.
	Apply(env fsm.Env, command []byte) fsm.Result
	// Effects returns and clears what the applies since the last call ask of the leader.
	Effects() []fsm.Effect
	// NextDeadline says when the next Pulse is due.
	NextDeadline() (at fsm.Instant, ok bool)
	// Image freezes the state in microseconds; the image stays as it is while Apply goes on.
	Image() Image
	// Restore replaces the state with an image read back.
	Restore(r io.Reader) error
	// Refs visits every body reference in a fixed order; what visit returns takes its place.
	Refs(visit func(fsm.Owner, fsm.Ref) fsm.Ref)
}

// Image is a frozen state.
type Image interface {
	// WriteTo writes the image; it may run beside Apply.
	WriteTo(w io.Writer) (int64, error)
	// Refs visits every body reference of the image in the order of Machine.Refs.
	Refs(visit func(fsm.Owner, fsm.Ref))
}

// Outcome is how a submission ended.
type Outcome uint8

// The outcomes.
const (
	Done    Outcome = iota + 1 // applied; Result is meaningful
	Refused                    // certainly not in the log: ask the leader
	Unknown                    // may or may not have happened: ask again with the same Header
)

// Answer is the end of a submission.
type Answer struct {
	Outcome Outcome
	Result  fsm.Result
}

// Voter is a member of a group at bootstrap.
type Voter struct {
	Replica string // raft server id, never reused
	Member  fsm.MemberID
}

// Config is what a group needs. Log is shared by all groups of a member.
type Config struct {
	ID        fsm.PartitionID
	Replica   string // this replica's raft server id
	Member    fsm.MemberID
	Dir       string // of this replica alone
	Log       *Log
	Machine   func(fsm.Bodies) Machine
	Bootstrap []Voter // non-empty: form the group if it holds no state yet
	// Dial opens a raft stream to the same group at another member.
	Dial func(ctx context.Context, member fsm.MemberID, id fsm.PartitionID) (net.Conn, error)
	// Now is the wall clock of prepare.
	Now func() time.Time
	// Applied is called after every applied batch, on every replica, without locks held;
	// it must not block.
	Applied func()
	// Led is called when leadership is gained (true, after everything older is applied) or lost.
	Led    func(leads bool)
	Logger *slog.Logger
}

// LockRequest waits at the leader until messages are ready.
type LockRequest struct {
	Header fsm.Header
	Lock   fsm.LockMessages
	Until  time.Time // when waiting ends: Done then gets Done with no deliveries
	Done   func(Answer)
}

// Status is a group as this replica sees it.
type Status struct {
	ID          fsm.PartitionID
	Leads       bool         // leader, and everything older than its term is applied
	Leader      fsm.MemberID // empty: none known
	Term        uint64
	Applied     uint64 // index the machine has seen
	LastContact time.Duration
	Voters      []Voter
	Halted      error // why this replica stopped, nil while it runs
}
