package entities

import (
	"github.com/peeklock/peeklock/cluster/query"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
	"github.com/peeklock/peeklock/fsm/queue"
)

// The limits of queries.
const (
	listMax       = 1000 // entities of one list
	namespacesMax = 1000 // namespaces of one list
	countsMax     = 4096 // entities of one counts query
	rulesMax      = 1000 // rules of one list
)

// The arguments of queries.
type (
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
		query.EntityIn

		Skip int `json:"Skip"`
		Max  int `json:"Max"`
	}

	namespaceQuery struct {
		Name string          `json:"Name"` // or,
		ID   fsm.NamespaceID `json:"ID"`   // where Name is empty
	}
	namespacesQuery struct {
		After string `json:"After"`
		Max   int    `json:"Max"`
	}
)

func (q countsQuery) In() fsm.PartitionID { return q.Partition }

// The queries about entities.
var (
	FindEntity = query.OfCatalog(rpc.QueryEntity, func(c *catalog.Machine, q EntityQuery) (fsm.Entity, error) {
		if q.Name != "" {
			return query.Found(c.Lookup(q.Namespace, q.Name))
		}
		return query.Found(c.ByID(q.ID))
	})
	listEntities = query.OfCatalog(rpc.QueryEntities, func(c *catalog.Machine, q listQuery) ([]fsm.Entity, error) {
		return c.List(q.Namespace, q.Kind, q.Topic, q.After, max(0, min(q.Max, listMax))), nil
	})
	findSubscriptions = query.OfCatalog(rpc.QuerySubscriptions, func(c *catalog.Machine, q subscriptionsQuery) ([]string, error) {
		return c.FindSubscriptions(q.Namespace, q.Prefix, q.Suffix, listMax), nil
	})
	findNamespace = query.OfCatalog(rpc.QueryNamespace, func(c *catalog.Machine, q namespaceQuery) (fsm.Namespace, error) {
		if q.Name != "" {
			return query.Found(c.NamespaceByName(q.Name))
		}
		return query.Found(c.NamespaceByID(q.ID))
	})
	listNamespaces = query.OfCatalog(rpc.QueryNamespaces, func(c *catalog.Machine, q namespacesQuery) ([]fsm.Namespace, error) {
		return c.Namespaces(q.After, max(0, min(q.Max, namespacesMax))), nil
	})
	loadOfPartition = query.OfCatalog(rpc.QueryLoad, func(c *catalog.Machine, _ struct{}) ([]int, error) { return c.PartitionLoad(), nil })

	countsOf = query.OfQueues(rpc.QueryCounts, func(queues *queue.Machine, q countsQuery) ([]fsm.Counts, error) {
		if len(q.Entities) > countsMax {
			return nil, fsm.InvalidArgument
		}
		counts := make([]fsm.Counts, len(q.Entities))
		for i, id := range q.Entities {
			counts[i], _ = queues.Counts(id) // not there yet: empty
		}
		return counts, nil
	})
	listRules = query.OfQueues(rpc.QueryRules, func(queues *queue.Machine, q rulesQuery) ([]fsm.Rule, error) {
		return query.Found(queues.Rules(q.Entity, q.Skip, max(0, min(q.Max, rulesMax))))
	})
	isIdle = query.OfQueues(rpc.QueryIdle, func(queues *queue.Machine, q query.EntityIn) (bool, error) {
		return query.Found(queues.IsIdle(q.Entity))
	})
)

// Register registers the handlers of all queries about entities.
func (r *Manager) Register(h rpc.Handlers) {
	for _, q := range []interface {
		Register(h rpc.Handlers, d query.Replicas)
	}{FindEntity, listEntities, findSubscriptions, findNamespace, listNamespaces, loadOfPartition, countsOf, listRules, isIdle} {
		q.Register(h, r.replicas)
	}
}
