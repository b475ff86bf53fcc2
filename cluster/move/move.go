package move

import (
	"context"
	"log/slog"
	"time"

	"github.com/peeklock/peeklock/cluster/gossip"
	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
	"github.com/peeklock/peeklock/partition"
)

// Node gives access to the member that runs the operations. Its methods may be called concurrently.
type Node interface {
	// Group returns this member's open replica of a partition, nil when there is none.
	Group(id fsm.PartitionID) *partition.Group
	// Partitions returns the message partitions in this member's replica of the catalog, by id. It returns nil
	// before the catalog is loaded. The caller must not change them.
	Partitions() []fsm.Partition
	// MemberRecord returns the record of a member in this member's replica of the catalog, or an empty record
	// with its id.
	MemberRecord(id fsm.MemberID) fsm.Member
	// Lookup returns what gossip knows about a member, and false when it knows nothing.
	Lookup(id fsm.MemberID) (gossip.Member, bool)
	// Alive lists the members that gossip considers alive, this one included.
	Alive() []fsm.MemberID
	// Processes lists the processes that gossip knows, dead ones included.
	Processes() []gossip.Member
	// HasSpace reports whether neither the disk nor the memory of a member is nearly full.
	HasSpace(id fsm.MemberID) bool
	// HasClock reports whether the clock of a member is not known to differ from those of a quorum.
	HasClock(id fsm.MemberID) bool
	// Status asks a member, which may be this one, for the status of its replica of a partition.
	Status(ctx context.Context, member fsm.MemberID, id fsm.PartitionID) (raftgroup.Status, error)
	// Placement asks the catalog's leader for the records of members and of one partition, or of all partitions
	// if id is 0, as of a moment after the call.
	Placement(ctx context.Context, id fsm.PartitionID) (placement.Record, error)
	// Go runs a task until the member closes. It returns false when the member is closing.
	Go(task func(ctx context.Context)) bool
}

// Router sends requests to the leaders of partitions. A *router.Router implements it.
type Router interface {
	Command(ctx context.Context, id fsm.PartitionID, command fsm.Command) (fsm.Result, error)
	AwaitLeader(ctx context.Context, id fsm.PartitionID) (fsm.MemberID, error)
	SuspectLeader(id fsm.PartitionID, member fsm.MemberID)
	AwaitCatalog(ctx context.Context, seen func(*catalog.Machine) bool)
}

// Config is what a Mover, an Operator and a Balancer need.
type Config struct {
	Self        fsm.MemberID
	Node        Node
	Router      Router
	Replication int           // replicas of a partition, if there are as many members
	Settle      time.Duration // how long a member must have been alive to get a leadership, and the cluster stable to be rebalanced
	Opened      time.Time     // when this member was opened
	Logger      *slog.Logger
}

// AcceptsLeaders reports whether a member is alive, is not leaving or drained, has free disk space, and has a
// clock that is not known to be wrong.
func (c *Config) AcceptsLeaders(id fsm.MemberID) bool {
	return c.IsStaying(id) && c.Node.HasSpace(id) && c.Node.HasClock(id)
}

// IsStaying reports whether a member is alive, is not leaving and is not drained.
func (c *Config) IsStaying(id fsm.MemberID) bool {
	m, ok := c.Node.Lookup(id)
	return ok && m.Alive && !m.Leaving && !c.Node.MemberRecord(id).Drained
}

// isAlive reports whether gossip considers a member alive.
func (c *Config) isAlive(id fsm.MemberID) bool {
	m, ok := c.Node.Lookup(id)
	return ok && m.Alive
}

// acceptsReplicas reports whether a member is alive and has free space for new replicas.
func (c *Config) acceptsReplicas(id fsm.MemberID) bool {
	return c.isAlive(id) && c.Node.HasSpace(id)
}

// isKnown reports whether gossip on this member or the catalog knows a member.
func (c *Config) isKnown(id fsm.MemberID) bool {
	if _, known := c.Node.Lookup(id); known {
		return true
	}
	return c.Node.MemberRecord(id) != fsm.Member{ID: id}
}

// pollUntil calls holds until it returns true. It returns false when ctx ends before.
func pollUntil(ctx context.Context, holds func() bool) bool {
	for !holds() {
		notify.Pause(ctx, operatorPollInterval)
		if ctx.Err() != nil {
			return false
		}
	}
	return true
}
