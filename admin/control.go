package admin

import (
	"context"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

// Control is the interface of the server to the cluster. Its methods are safe for concurrent use. Errors that
// the client can correct wrap an fsm.Code.
type Control interface {
	// In returns the view of a namespace. It does not block, nor check that the namespace exists: the methods of the
	// view return EntityNotFound.
	In(namespace fsm.NamespaceID) NamespaceView
	// NamespaceByHost returns the namespace that a host name, with or without port, selects, or the default one.
	// Errors: ServerBusy, for a name that the member cannot look up now.
	NamespaceByHost(ctx context.Context, host string) (fsm.NamespaceID, error)
	// NamespaceName returns the name of a namespace, "" when it is not known. It does not block.
	NamespaceName(id fsm.NamespaceID) string
	// Namespace finds a namespace by name. Errors: EntityNotFound. Its Access holds secrets.
	Namespace(ctx context.Context, name string) (fsm.Namespace, error)
	// Namespaces lists at most max namespaces by name, from the first after the given name.
	Namespaces(ctx context.Context, after string, max int) ([]fsm.Namespace, error)
	// CreateNamespace creates a namespace with access rules. Errors: EntityExists (also for a host), InvalidArgument,
	// QuotaExceeded.
	CreateNamespace(ctx context.Context, name string, settings fsm.NamespaceSettings, rules []fsm.AccessRule) (fsm.Namespace, error)
	UpdateNamespace(ctx context.Context, name string, settings fsm.NamespaceSettings) (fsm.Namespace, error)
	// DeleteNamespace deletes a namespace without entities. Errors: PreconditionFails when it has some, NotAllowed for
	// the default one.
	DeleteNamespace(ctx context.Context, name string) error
	Status(ctx context.Context) (topology.Status, error)
	// Rates returns the rates of the busiest entities of a namespace, by name and after their total, or those of one entity with its samples. Entities
	// without messages in the last hour and without consumers are missing, and so is what members that do not answer know.
	Rates(ctx context.Context, q topology.RatesQuery) []topology.EntityRates
	// Figures returns the numbers of messages of a namespace, without what partitions hold that have no leader.
	Figures(ctx context.Context, q topology.FiguresQuery) topology.Figures

	// Audit lists at most most (1 to topology.AuditPageMax) audit events of all members, newest first, from the first after the
	// given cursor. Errors: InvalidArgument for a text that is no cursor.
	Audit(ctx context.Context, after string, most int) (topology.AuditPage, error)

	// Storage returns the disks of all members, and the last backup of each partition.
	Storage(ctx context.Context) topology.Storage

	Clients
	Operations
}

// Clients reads and changes the AMQP connections of clients, those of all members together.
type Clients interface {
	// Connections lists at most most (1 to topology.ConnectionsMax) connections of a namespace, 0 for all, from the first
	// after the given id. Errors: InvalidArgument for an id that cannot be one.
	Connections(ctx context.Context, namespace fsm.NamespaceID, after string, most int) (topology.ConnectionPage, error)
	// CloseConnection closes a connection of a namespace, 0 for any. Errors: EntityNotFound, InvalidArgument, ServerBusy.
	CloseConnection(ctx context.Context, namespace fsm.NamespaceID, id string) error
}

// NamespaceView reads and changes the entities of one namespace.
type NamespaceView interface {
	// Describe returns the namespace itself.
	Describe(ctx context.Context) (fsm.Namespace, error)
	// SetAccess replaces the access rules of a queue or topic, or of the namespace where name
	// is "". version is that of the rules which the caller has changed, 0 for any
	// version. Errors: PreconditionFails when the rules have another version.
	SetAccess(ctx context.Context, name string, version uint64, rules []fsm.AccessRule) error
	// CreateEntity creates an entity and returns once every member can use it. The name of a subscription is its path
	// (fsm.SubscriptionPath); it may get a first rule other than the default one. A queue or topic may be created with
	// access rules.
	CreateEntity(ctx context.Context, kind fsm.EntityKind, name string, settings fsm.EntitySettings, rule *fsm.Rule, access []fsm.AccessRule) (fsm.Entity, error)
	// UpdateEntity changes settings; locks stay. A change of a fixed setting is InvalidArgument. The name of an entity of
	// another kind is EntityNotFound, here and in the next two methods.
	UpdateEntity(ctx context.Context, kind fsm.EntityKind, name string, settings fsm.EntitySettings) (fsm.Entity, error)
	DeleteEntity(ctx context.Context, kind fsm.EntityKind, name string) error
	Entity(ctx context.Context, kind fsm.EntityKind, name string) (fsm.Entity, fsm.Counts, error)
	// Entities lists at most max entities of a kind, ordered by name without regard to case, from the first name after
	// the given one; subscriptions below the name of their topic.
	Entities(ctx context.Context, kind fsm.EntityKind, under, after string, max int) ([]fsm.Entity, error)
	// Counts counts the messages of the entities, in the given order, with one request per partition.
	Counts(ctx context.Context, entities []fsm.Entity) ([]fsm.Counts, error)
	// PurgeEntity deletes ready messages of a queue or subscription, oldest first, at most most (1 to 4000), and unless
	// before is zero only those that were enqueued before it. It returns their number.
	PurgeEntity(ctx context.Context, name string, sub fsm.SubQueue, before time.Time, most int) (int, error)
	// PutRule adds a rule to a subscription (path), or replaces the rule of that name.
	// Errors wrap RuleExists, RuleNotFound, EntityNotFound, InvalidArgument with the position in the text, QuotaExceeded.
	PutRule(ctx context.Context, subscription string, rule fsm.Rule, replace bool) error
	DropRule(ctx context.Context, subscription, name string) error
	// Rules lists the rules of a subscription by name, case-insensitively.
	Rules(ctx context.Context, subscription string, skip, max int) ([]fsm.Rule, error)
	// Sessions lists up to max (1000) sessions of a queue or subscription that have messages or a state, after the first
	// skip ones. Errors: NotAllowed when the entity has no sessions.
	Sessions(ctx context.Context, path string, skip, max int) ([]fsm.Session, error)
}
