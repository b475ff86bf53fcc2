package reconcile

import (
	"context"
	"log/slog"
	"time"

	"github.com/peeklock/peeklock/cluster/bootstrap"
	"github.com/peeklock/peeklock/cluster/levels"
	"github.com/peeklock/peeklock/cluster/move"
	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/cluster/replicas"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
)

// stepTimeout bounds one step.
const stepTimeout = 5 * time.Second

// Node gives access to the member that reconciles. Its methods may be called concurrently.
type Node interface {
	move.Node

	// Hello asks a member, which may be this one, for its identity and state.
	Hello(ctx context.Context, member fsm.MemberID, request bootstrap.HelloRequest) (bootstrap.Hello, error)
	// ClusterID returns the id of the cluster, "" before it is known.
	ClusterID() string
}

// Router sends requests to the leaders of partitions. A *router.Router implements it.
type Router interface {
	Command(ctx context.Context, id fsm.PartitionID, command fsm.Command) (fsm.Result, error)
	DeleteDropped(ctx context.Context, catalog rpc.Group)
	RemoveIdleEntity(ctx context.Context, at fsm.PartitionID, id fsm.EntityID) error
}

// Config is what a Reconciler needs.
type Config struct {
	Self     fsm.MemberID
	Node     Node
	Router   Router
	Replicas *replicas.Set
	Levels   *levels.Levels
	Mover    *move.Mover
	Balancer *move.Balancer

	Interval time.Duration // between two rounds, unless Wake is called

	// Partitions is the number of message partitions of a new cluster, and Replication that of the replicas of each.
	Partitions, Replication int
	// Name, Zone and Weight of this member are recorded in the catalog, once. "" and 0 keep the recorded zone and weight.
	Name, Zone string
	Weight     uint32

	// AskIfRemoved is called in each round. It asks the other members whether this one was removed, if it may have been.
	AskIfRemoved func(ctx context.Context)
	Logger       *slog.Logger
}

// Reconciler does the work of the groups that a member leads. Its methods may be called concurrently, except Run.
type Reconciler struct {
	Config

	now      chan struct{} // buffer of one: reconcile now
	recorded bool          // name, zone and weight are recorded in the catalog; used by Run only
}

// New returns a Reconciler. Run runs it.
func New(config *Config) *Reconciler {
	return &Reconciler{Config: *config, now: make(chan struct{}, 1)}
}

// Wake starts the next round at once. It does not block.
func (r *Reconciler) Wake() { notify.WakeUp(r.now) }
