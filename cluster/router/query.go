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

	// entityIn is an entity in a message partition. Alone it asks whether the entity is idle.
	entityIn struct {
		Partition fsm.PartitionID `json:"Partition"`
		Entity    fsm.EntityID    `json:"Entity"`
	}

	countsQuery struct {
		Partition fsm.PartitionID `json:"Partition"`
		Entities  []fsm.EntityID  `json:"Entities"`
	}

	rulesQuery struct {
		entityIn

		Skip int `json:"Skip"`
		Max  int `json:"Max"`
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

func (q entityIn) partition() fsm.PartitionID    { return q.Partition }
func (q countsQuery) partition() fsm.PartitionID { return q.Partition }

// The queries that the router sends and answers. A peek is answered in binary form.
var (
	StatusOfReplica = rpc.Query[StatusQuery, raftgroup.Status]{Kind: rpc.QueryStatus}
	stateOfSession  = rpc.Query[sessionStateQuery, sessionStateReply]{Kind: rpc.QuerySessionState}
	locksHeld       = rpc.Query[locksQuery, []fsm.Code]{Kind: rpc.QueryLocks}

	FindEntity = readCatalog(rpc.QueryEntity, func(c *fsm.Catalog, q EntityQuery) (fsm.Entity, error) {
		if q.Name != "" {
			return foundIn(c.Lookup(q.Namespace, q.Name))
		}
		return foundIn(c.ByID(q.ID))
	})
	listEntities = readCatalog(rpc.QueryEntities, func(c *fsm.Catalog, q listQuery) ([]fsm.Entity, error) {
		return c.List(q.Namespace, q.Kind, q.Topic, q.After, clamp(q.Max, 0, listMax)), nil
	})
	findSubscriptions = readCatalog(rpc.QuerySubscriptions, func(c *fsm.Catalog, q subscriptionsQuery) ([]string, error) {
		return c.FindSubscriptions(q.Namespace, q.Prefix, q.Suffix, listMax), nil
	})
	findNamespace = readCatalog(rpc.QueryNamespace, func(c *fsm.Catalog, q namespaceQuery) (fsm.Namespace, error) {
		if q.Name != "" {
			return foundIn(c.NamespaceByName(q.Name))
		}
		return foundIn(c.NamespaceByID(q.ID))
	})
	listNamespaces = readCatalog(rpc.QueryNamespaces, func(c *fsm.Catalog, q namespacesQuery) ([]fsm.Namespace, error) {
		return c.Namespaces(q.After, clamp(q.Max, 0, namespacesMax)), nil
	})
	loadOfPartition = readCatalog(rpc.QueryLoad, func(c *fsm.Catalog, _ struct{}) ([]int, error) { return c.PartitionLoad(), nil })

	countsOf = readQueues(rpc.QueryCounts, func(queues *fsm.Queues, q countsQuery) ([]fsm.Counts, error) {
		if len(q.Entities) > countsMax {
			return nil, fsm.InvalidArgument
		}
		counts := make([]fsm.Counts, len(q.Entities))
		for i, id := range q.Entities {
			counts[i], _ = queues.Counts(id) // not there yet: empty
		}
		return counts, nil
	})
	listRules = readQueues(rpc.QueryRules, func(queues *fsm.Queues, q rulesQuery) ([]fsm.Rule, error) {
		return foundIn(queues.Rules(q.Entity, q.Skip, clamp(q.Max, 0, rulesMax)))
	})
	listSessions = readQueues(rpc.QuerySessions, func(queues *fsm.Queues, q sessionsQuery) ([]fsm.Session, error) {
		list, found := queues.Sessions(q.Entity, q.UpdatedAfter, q.Skip, clamp(q.Max, 0, sessionsListMax))
		if !found {
			return nil, fsm.NotAllowed
		}
		return list, nil
	})
	purgeable = readQueues(rpc.QueryPurgeable, func(queues *fsm.Queues, q purgeableQuery) (reply purgeableReply, err error) {
		var code fsm.Code
		reply.Lock, reply.Reach, code = queues.PurgeableInSession(q.Entity, q.Session, q.Before, clamp(q.Max, 0, purgeMessagesMax))
		if code != fsm.OK {
			err = code
		}
		return reply, err
	})
	isIdle = readQueues(rpc.QueryIdle, func(queues *fsm.Queues, q entityIn) (bool, error) { return foundIn(queues.IsIdle(q.Entity)) })
)

// leaderRead is a query that the leader of a partition answers from its state machine alone.
type leaderRead[Q, R any] struct {
	rpc.Query[Q, R]

	partition func(Q) fsm.PartitionID
	look      func(partition.Machine, Q) (R, error)
}

// readCatalog returns a query that the leader of the catalog answers.
func readCatalog[Q, R any](kind rpc.QueryKind, look func(*fsm.Catalog, Q) (R, error)) leaderRead[Q, R] {
	return leaderRead[Q, R]{
		rpc.Query[Q, R]{Kind: kind},
		func(Q) fsm.PartitionID { return fsm.CatalogPartition },
		func(m partition.Machine, q Q) (R, error) { return look(raftgroup.Catalog(m), q) },
	}
}

// readQueues returns a query that the leader of the message partition in its arguments answers.
func readQueues[Q interface{ partition() fsm.PartitionID }, R any](kind rpc.QueryKind, look func(*fsm.Queues, Q) (R, error)) leaderRead[Q, R] {
	return leaderRead[Q, R]{
		rpc.Query[Q, R]{Kind: kind},
		Q.partition,
		func(m partition.Machine, q Q) (reply R, err error) {
			if queues := raftgroup.Queues(m); queues != nil {
				return look(queues, q)
			}
			return reply, fsm.InvalidArgument // the catalog
		},
	}
}

// foundIn returns EntityNotFound for a value that is not there.
func foundIn[R any](value R, found bool) (R, error) {
	if !found {
		return value, fsm.EntityNotFound
	}
	return value, nil
}

// at asks the leader.
func (a leaderRead[Q, R]) at(ctx context.Context, r *Router, q Q) (R, error) {
	return a.Ask(ctx, r.Leader(a.partition(q)), q)
}

// answer reads this member's replica, which has to lead.
func (a leaderRead[Q, R]) answer(ctx context.Context, d queryHandler, q Q) (reply R, err error) {
	var refused error
	err = d.read(ctx, a.partition(q), func(m partition.Machine) { reply, refused = a.look(m, q) })
	if err == nil {
		err = refused
	}
	return reply, err
}

func (a leaderRead[Q, R]) register(h rpc.Handlers, d queryHandler) {
	a.Handle(h, func(ctx context.Context, q Q) (R, error) { return a.answer(ctx, d, q) })
}

// queryHandler answers queries from this member's replicas.
type queryHandler struct {
	local       func(fsm.PartitionID) rpc.Group
	replicaName func(fsm.PartitionID) string // of the replica, in raft; nil in tests
}

// RegisterQueries registers the handlers of all queries about replicas and their content.
func (r *Router) RegisterQueries(h rpc.Handlers) {
	d := r.queries
	StatusOfReplica.Handle(h, func(_ context.Context, q StatusQuery) (raftgroup.Status, error) { return d.status(q.Partition) })
	stateOfSession.Handle(h, d.sessionState)
	locksHeld.Handle(h, d.locks)
	for _, q := range []interface {
		register(h rpc.Handlers, d queryHandler)
	}{FindEntity, listEntities, findSubscriptions, findNamespace, listNamespaces, loadOfPartition, countsOf, listRules, listSessions, purgeable, isIdle} {
		q.register(h, d)
	}
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
