package router

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/planted"
	"github.com/peeklock/peeklock/partition"
)

// The limits of queries.
const (
	peekBytesMax = 8 << 20 // payloads of one peek; the first is returned even when it is larger
	peekCountMax = 1024    // messages of one peek
	listMax      = 1000    // entities of one list
	countsMax    = 4096    // entities of one counts query
	rulesMax     = 1000    // rules of one list
)

// The arguments and replies of queries.
type (
	// StatusQuery asks for the status of the replica of a partition.
	StatusQuery struct {
		Partition fsm.PartitionID `json:"Partition"`
	}
	// EntityQuery asks for an entity by its name or number.
	EntityQuery struct {
		Namespace fsm.NamespaceID `json:"Namespace"`
		Name      string          `json:"Name"` // or,
		ID        fsm.EntityID    `json:"ID"`   // where Name is empty
	}

	listQuery struct {
		Namespace fsm.NamespaceID `json:"Namespace"`
		Kind      fsm.EntityKind  `json:"Kind"`
		Topic     fsm.EntityID    `json:"Topic"` // of subscriptions
		After     string          `json:"After"`
		Max       int             `json:"Max"`
	}

	subscriptionsQuery struct {
		Namespace fsm.NamespaceID `json:"Namespace"`
		Prefix    string          `json:"Prefix"` // of the subscription's own name
		Suffix    string          `json:"Suffix"`
	}

	countsQuery struct {
		Partition fsm.PartitionID `json:"Partition"`
		Entities  []fsm.EntityID  `json:"Entities"`
	}

	rulesQuery struct {
		Partition fsm.PartitionID `json:"Partition"`
		Entity    fsm.EntityID    `json:"Entity"`
		Skip      int             `json:"Skip"`
		Max       int             `json:"Max"`
	}

	peekQuery struct {
		Partition fsm.PartitionID    `json:"Partition"`
		Address   fsm.Address        `json:"Address"`
		From      fsm.SequenceNumber `json:"From"`
		Max       int                `json:"Max"`
		MaxBytes  int                `json:"MaxBytes"`
		Session   *string            `json:"Session"` // only messages of that session
	}
)

// The queries that the router sends and answers. A peek is answered in binary form.
var (
	StatusOfReplica = rpc.Query[StatusQuery, raftgroup.Status]{Kind: rpc.QueryStatus}
	FindEntity      = rpc.Query[EntityQuery, fsm.Entity]{Kind: rpc.QueryEntity}
	listEntities    = rpc.Query[listQuery, []fsm.Entity]{Kind: rpc.QueryEntities}
	countsOf        = rpc.Query[countsQuery, []fsm.Counts]{Kind: rpc.QueryCounts}
	loadOfPartition = rpc.Query[struct{}, []int]{Kind: rpc.QueryLoad}
	listRules       = rpc.Query[rulesQuery, []fsm.Rule]{Kind: rpc.QueryRules}
	stateOfSession  = rpc.Query[sessionStateQuery, sessionStateReply]{Kind: rpc.QuerySessionState}
	listSessions    = rpc.Query[sessionsQuery, []fsm.Session]{Kind: rpc.QuerySessions}
	findNamespace   = rpc.Query[namespaceQuery, fsm.Namespace]{Kind: rpc.QueryNamespace}
	listNamespaces  = rpc.Query[namespacesQuery, []fsm.Namespace]{Kind: rpc.QueryNamespaces}
	purgeable       = rpc.Query[purgeableQuery, purgeableReply]{Kind: rpc.QueryPurgeable}
	locksHeld       = rpc.Query[locksQuery, []fsm.Code]{Kind: rpc.QueryLocks}
	isIdle          = rpc.Query[idleQuery, bool]{Kind: rpc.QueryIdle}

	findSubscriptions = rpc.Query[subscriptionsQuery, []string]{Kind: rpc.QuerySubscriptions}
)

// queryHandler answers queries from this member's replicas.
type queryHandler struct {
	local       func(fsm.PartitionID) rpc.Group
	replicaName func(fsm.PartitionID) string // of the replica, in raft; nil in tests
}

// RegisterQueries registers the handlers of all queries about replicas and their content.
func (r *Router) RegisterQueries(h rpc.Handlers) {
	d := r.queries
	StatusOfReplica.Handle(h, func(_ context.Context, q StatusQuery) (raftgroup.Status, error) { return d.status(q.Partition) })
	FindEntity.Handle(h, d.lookup)
	listEntities.Handle(h, d.list)
	countsOf.Handle(h, d.counts)
	loadOfPartition.Handle(h, func(ctx context.Context, _ struct{}) ([]int, error) { return d.partitionLoad(ctx) })
	listRules.Handle(h, d.rules)
	stateOfSession.Handle(h, d.sessionState)
	listSessions.Handle(h, d.sessions)
	findNamespace.Handle(h, d.namespace)
	listNamespaces.Handle(h, d.namespaces)
	purgeable.Handle(h, d.purgeable)
	locksHeld.Handle(h, d.locks)
	isIdle.Handle(h, d.isIdle)
	findSubscriptions.Handle(h, d.findSubscriptions)
	h[rpc.QueryPeek] = d.answerPeek
}

// answerPeek answers a peek with the encoded messages.
func (d queryHandler) answerPeek(ctx context.Context, arguments []byte) rpc.Reply {
	var q peekQuery
	if json.Unmarshal(arguments, &q) != nil {
		return rpc.Reply{Status: rpc.StatusFailed, Code: fsm.InvalidArgument}
	}
	deliveries, err := d.peek(ctx, q)
	if err != nil {
		return rpc.NewReply(nil, err)
	}
	return rpc.Reply{Status: rpc.StatusOK, Body: fsm.AppendResult(nil, fsm.Result{Deliveries: deliveries})}
}

// ReplicaStatus returns the status of this member's replica of a partition, leader or not; EntityNotFound
// when none is open.
func (r *Router) ReplicaStatus(id fsm.PartitionID) (raftgroup.Status, error) {
	return r.queries.status(id)
}

// status reads the local replica, whether it leads or not.
func (d queryHandler) status(id fsm.PartitionID) (raftgroup.Status, error) {
	group := d.local(id)
	if group == nil {
		return raftgroup.Status{}, fsm.EntityNotFound
	}
	s := group.Status()
	reply := raftgroup.Status{
		IsLeader: s.IsLeader, Leader: s.Leader, Term: s.Term, Applied: s.Applied, Halted: s.Halted != nil,
		Commit: s.Commit, Live: s.LiveBytes, Removed: s.Removed, Voters: s.Voters, Nonvoters: s.Nonvoters,
		Uncommitted: !s.ConfigurationCommitted,
	}
	reply.Transferring = s.Transferring
	if catalog := d.local(fsm.CatalogPartition); s.IsLeader && catalog != nil {
		reply.Catalog = catalog.Status().Applied
	}
	if d.replicaName != nil {
		reply.Replica = d.replicaName(id)
	}
	group.View(func(m partition.Machine) {
		if queues := raftgroup.Queues(m); queues != nil {
			reply.Entities, reply.Messages = queues.Entities(), queues.Messages()
		}
		if catalog := raftgroup.Catalog(m); catalog != nil {
			reply.Entities = catalog.Entities()
		}
	})
	return reply, nil
}

// read calls a function with a state machine at its leader, as of the call or later. It returns ServerBusy for a
// catalog whose cluster is still being bootstrapped: that it contains nothing yet is no answer.
func (d queryHandler) read(ctx context.Context, id fsm.PartitionID, look func(partition.Machine)) error {
	group := d.local(id)
	if group == nil {
		return rpc.ErrNotLeader
	}
	starting := false
	err := group.Read(ctx, func(m partition.Machine) {
		catalog := raftgroup.Catalog(m)
		if starting = catalog != nil && catalog.ClusterID() == "" && !planted.Active(planted.EmptyCatalogAnswers); !starting {
			look(m)
		}
	})
	if err == nil && starting {
		return fmt.Errorf("the cluster is starting: %w", fsm.ServerBusy)
	}
	return err
}

func (d queryHandler) lookup(ctx context.Context, q EntityQuery) (entity fsm.Entity, err error) {
	found := false
	err = d.read(ctx, fsm.CatalogPartition, func(m partition.Machine) {
		if q.Name != "" {
			entity, found = raftgroup.Catalog(m).Lookup(q.Namespace, q.Name)
		} else {
			entity, found = raftgroup.Catalog(m).ByID(q.ID)
		}
	})
	if err == nil && !found {
		err = fsm.EntityNotFound
	}
	return entity, err
}

func (d queryHandler) list(ctx context.Context, q listQuery) (entities []fsm.Entity, err error) {
	err = d.read(ctx, fsm.CatalogPartition, func(m partition.Machine) {
		entities = raftgroup.Catalog(m).List(q.Namespace, q.Kind, q.Topic, q.After, clamp(q.Max, 0, listMax))
	})
	return entities, err
}

func (d queryHandler) findSubscriptions(ctx context.Context, q subscriptionsQuery) (paths []string, err error) {
	err = d.read(ctx, fsm.CatalogPartition, func(m partition.Machine) {
		paths = raftgroup.Catalog(m).FindSubscriptions(q.Namespace, q.Prefix, q.Suffix, listMax)
	})
	return paths, err
}

func (d queryHandler) partitionLoad(ctx context.Context) (load []int, err error) {
	err = d.read(ctx, fsm.CatalogPartition, func(m partition.Machine) { load = raftgroup.Catalog(m).PartitionLoad() })
	return load, err
}

func (d queryHandler) counts(ctx context.Context, q countsQuery) ([]fsm.Counts, error) {
	if len(q.Entities) > countsMax || q.Partition == fsm.CatalogPartition {
		return nil, fsm.InvalidArgument
	}
	counts := make([]fsm.Counts, len(q.Entities))
	err := d.read(ctx, q.Partition, func(m partition.Machine) {
		for i, id := range q.Entities {
			counts[i], _ = raftgroup.Queues(m).Counts(id) // not there yet: empty
		}
	})
	return counts, err
}

func (d queryHandler) rules(ctx context.Context, q rulesQuery) (rules []fsm.Rule, err error) {
	if q.Partition == fsm.CatalogPartition {
		return nil, fsm.InvalidArgument
	}
	found := false
	err = d.read(ctx, q.Partition, func(m partition.Machine) {
		rules, found = raftgroup.Queues(m).Rules(q.Entity, q.Skip, clamp(q.Max, 0, rulesMax))
	})
	if err == nil && !found {
		err = fsm.EntityNotFound
	}
	return rules, err
}

// peek reads messages at the leader. It reads bodies while the state machine is not locked, so a
// slow disk does not delay other requests.
func (d queryHandler) peek(ctx context.Context, q peekQuery) ([]fsm.Delivery, error) {
	if q.Partition == fsm.CatalogPartition {
		return nil, fsm.InvalidArgument
	}
	var found []fsm.Delivery
	err := d.read(ctx, q.Partition, func(m partition.Machine) {
		if q.Session != nil {
			found = raftgroup.Queues(m).PeekSession(q.Address.Entity, *q.Session, q.From, clamp(q.Max, 0, peekCountMax))
			return
		}
		found = raftgroup.Queues(m).Peek(q.Address, q.From, clamp(q.Max, 0, peekCountMax))
	})
	if err != nil {
		return nil, err
	}
	bytesLeft := uint64(clamp(q.MaxBytes, 0, peekBytesMax))
	for i := range found {
		size := uint64(found[i].Body.Size) + uint64(found[i].Patch.Size)
		if i > 0 && size > bytesLeft {
			found = found[:i]
			break
		}
		bytesLeft -= min(bytesLeft, size)
	}
	if len(found) == 0 {
		return nil, nil
	}
	return d.local(q.Partition).ReadBodies(found)
}
