package admin

import (
	"context"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// Control is all that HTTP asks of the house. Every method may be called from any
// goroutine. Errors that are the caller's to mend wrap an fsm.Code.
type Control interface {
	// In is a namespace, as far as its entities go. It does not block and does not ask
	// whether there is such a one: the methods of Space say EntityNotFound then.
	In(namespace fsm.NamespaceID) NamespaceView
	// NamespaceByHost is the one that a host name selects (a port included or not), the
	// default one if no other. It does not block.
	NamespaceByHost(host string) fsm.NamespaceID
	// NamespaceName is how a namespace is called, "" when that is not known. It does not block.
	NamespaceName(id fsm.NamespaceID) string
	// Namespace finds one by name: EntityNotFound. Its Access holds secrets.
	Namespace(ctx context.Context, name string) (fsm.Namespace, error)
	// Namespaces lists all by name, from the first after the one given, at most max.
	Namespaces(ctx context.Context, after string, max int) ([]fsm.Namespace, error)
	// CreateNamespace makes one with these access rules: EntityExists (also for a host),
	// InvalidArgument, QuotaExceeded.
	CreateNamespace(ctx context.Context, name string, settings fsm.NamespaceSettings, rules []fsm.AccessRule) (fsm.Namespace, error)
	UpdateNamespace(ctx context.Context, name string, settings fsm.NamespaceSettings) (fsm.Namespace, error)
	// DeleteNamespace removes one without entities: PreconditionFails when it has some,
	// NotAllowed for the default one.
	DeleteNamespace(ctx context.Context, name string) error
	Status(ctx context.Context) (Status, error)

	Operations
}

// NamespaceView is what can be done with the entities of one namespace.
type NamespaceView interface {
	// Describe is the namespace itself.
	Describe(ctx context.Context) (fsm.Namespace, error)
	// SetAccess replaces the access rules of a queue or topic, or of the namespace where name
	// is "". version is the one of the rules that were changed, 0 for whatever is there:
	// PreconditionFails when somebody else was faster.
	SetAccess(ctx context.Context, name string, version uint64, rules []fsm.AccessRule) error
	// CreateEntity makes an entity and returns once it can be used at every member. A
	// subscription is named by its path (fsm.SubscriptionPath) and may get another first rule
	// than the default one; a queue or topic may be made with access rules.
	CreateEntity(ctx context.Context, kind fsm.EntityKind, name string, settings fsm.EntitySettings, rule *fsm.Rule, access []fsm.AccessRule) (fsm.Entity, error)
	// UpdateEntity changes settings; locks that are held stay. Whether duplicates are
	// detected and sessions required cannot be changed: InvalidArgument. A name of another
	// kind is EntityNotFound, here and in the next two.
	UpdateEntity(ctx context.Context, kind fsm.EntityKind, name string, settings fsm.EntitySettings) (fsm.Entity, error)
	DeleteEntity(ctx context.Context, kind fsm.EntityKind, name string) error
	Entity(ctx context.Context, kind fsm.EntityKind, name string) (fsm.Entity, fsm.Counts, error)
	// Entities lists one kind by name without regard to case, in order, from the first name
	// after the one given, at most max; subscriptions under the name of their topic.
	Entities(ctx context.Context, kind fsm.EntityKind, under, after string, max int) ([]fsm.Entity, error)
	// Counts says what each entity holds, in the order given; it asks the leaders once
	// per partition.
	Counts(ctx context.Context, entities []fsm.Entity) ([]fsm.Counts, error)
	// PurgeEntity removes ready messages of a queue or subscription for good, oldest first,
	// at most most (1 to 4000) and only those enqueued before a moment unless that is zero;
	// it says how many.
	PurgeEntity(ctx context.Context, name string, sub fsm.SubQueue, before time.Time, most int) (int, error)
	// RedriveEntity brings dead letters (1 to 1000, by number) back to their queue or
	// subscription and says how many; a number that is no ready dead letter is left out.
	RedriveEntity(ctx context.Context, name string, sequences []fsm.SequenceNumber) (int, error)
	// PutRule adds a rule to a subscription (path), or replaces the one of that name.
	// Errors wrap RuleExists, RuleNotFound, EntityNotFound, InvalidArgument with the place in
	// the text, QuotaExceeded.
	PutRule(ctx context.Context, subscription string, rule fsm.Rule, replace bool) error
	DropRule(ctx context.Context, subscription, name string) error
	// Rules lists the rules of a subscription in the order of their making.
	Rules(ctx context.Context, subscription string, skip, max int) ([]fsm.Rule, error)
	// Sessions lists up to max sessions (1000) of a queue or subscription that have messages
	// or a state, without the first skip. NotAllowed where there are no sessions.
	Sessions(ctx context.Context, path string, skip, max int) ([]fsm.Session, error)
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
	// ReadOnly says that its disk is nearly full: it takes no new messages until there is room.
	ReadOnly bool `json:"readOnly"`
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
