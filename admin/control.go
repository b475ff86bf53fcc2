package admin

import (
	"context"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// Control is all that HTTP asks of the house. Every method may be called from any
// goroutine. Errors that are the caller's to mend wrap an fsm.Code.
type Control interface {
	// CreateQueue makes a queue and returns once it can be used at every member.
	CreateQueue(ctx context.Context, name string, settings fsm.QueueSettings) (fsm.Entity, error)
	// UpdateQueue changes settings; locks that are held stay. Whether duplicates are
	// detected cannot be changed: InvalidArgument.
	UpdateQueue(ctx context.Context, name string, settings fsm.QueueSettings) (fsm.Entity, error)
	DeleteQueue(ctx context.Context, name string) error
	Queue(ctx context.Context, name string) (fsm.Entity, fsm.Counts, error)
	// Queues lists by name without regard to case, in order, from the first name after
	// the one given, at most max.
	Queues(ctx context.Context, after string, max int) ([]fsm.Entity, error)
	// Counts says what each entity holds, in the order given; it asks the leaders once
	// per partition.
	Counts(ctx context.Context, entities []fsm.Entity) ([]fsm.Counts, error)
	// PurgeQueue removes ready messages for good, oldest first, at most most (1 to 4000)
	// and only those enqueued before a moment unless that is zero; it says how many.
	PurgeQueue(ctx context.Context, name string, sub fsm.SubQueue, before time.Time, most int) (int, error)
	// Redrive brings dead letters (1 to 1000, by number) back to their queue and says how
	// many; a number that is no ready dead letter is left out.
	Redrive(ctx context.Context, name string, sequences []fsm.SequenceNumber) (int, error)
	Status(ctx context.Context) (Status, error)
}

// Status is the cluster as the answering member sees it.
type Status struct {
	ClusterID  string            `json:"clusterId"`
	Members    []MemberStatus    `json:"members"`
	Partitions []PartitionStatus `json:"partitions"`
}

// MemberStatus is one process of the cluster.
type MemberStatus struct {
	ID      fsm.MemberID `json:"id"`
	Name    string       `json:"name"`
	State   string       `json:"state"`   // alive, suspect, dead, left
	Version string       `json:"version"` // of the binary
	AMQP    string       `json:"amqp"`    // host:port for clients
	HTTP    string       `json:"http"`    // host:port for admin
	Leads   int          `json:"leads"`   // partitions led
	Holds   int          `json:"holds"`   // replicas held
}

// PartitionStatus is one raft group.
type PartitionStatus struct {
	ID       fsm.PartitionID `json:"id"`
	Leader   fsm.MemberID    `json:"leader"` // empty: none known
	Term     uint64          `json:"term"`
	Applied  uint64          `json:"applied"`
	Replicas []fsm.MemberID  `json:"replicas"`
	Entities int             `json:"entities"`
	Messages uint64          `json:"messages"`
	Contact  time.Duration   `json:"contactNs"` // since the leader was heard, on the answering member
}
