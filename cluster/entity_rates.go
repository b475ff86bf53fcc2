package cluster

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/peeklock/peeklock/cluster/query"
	"github.com/peeklock/peeklock/cluster/rates"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
	"github.com/peeklock/peeklock/topology"
)

// askRates asks a member for the rates of entities whose partitions it leads.
var askRates = rpc.Query[topology.RatesQuery, []topology.EntityRates]{Kind: rpc.QueryRates} //nolint:gochecknoglobals // never changed

// ledRates answers askRates: the rates of entities that this member leads, and its consumers.
func (n *Node) ledRates(q topology.RatesQuery) []topology.EntityRates {
	leads := make(map[fsm.PartitionID]bool)
	for id, group := range n.replicas.All() {
		leads[id] = group.Status().IsLeader
	}
	found := make(map[fsm.EntityID]topology.Rates)
	n.rates.Each(func(id fsm.EntityID, in fsm.PartitionID, now topology.Rates) {
		if leads[in] {
			found[id] = now
		}
	})
	var list []topology.EntityRates
	kinds := make(map[fsm.EntityID]fsm.EntityKind) // of the entities of the namespace
	query.Replicas{Local: transport{n}.LocalReplica}.ViewCatalog(func(c *catalog.Machine) {
		for id, now := range found {
			e, known := c.ByID(id)
			if !known || e.Dropping || e.Namespace != q.Namespace || q.Name != "" && !strings.EqualFold(e.Name, q.Name) {
				continue
			}
			kinds[id] = e.Kind
			r := topology.EntityRates{Name: e.Name, Kind: e.Kind.String(), Rates: now}
			if q.Name != "" {
				r.Samples = n.rates.Samples(id)
			}
			list = append(list, r)
		}
	})
	if q.Total && q.Name == "" {
		list = append(list, n.rates.Total(func(id fsm.EntityID) (isCounted, isSubscription bool) {
			kind, found := kinds[id]
			return found, kind == fsm.SubscriptionEntity
		}))
	}
	return append(list, n.localConsumers(q)...)
}

// localConsumers returns the consumers at this member as entities without rates, those with the most first.
func (n *Node) localConsumers(q topology.RatesQuery) (list []topology.EntityRates) {
	clients := n.clients.Load()
	if clients == nil {
		return nil
	}
	for _, c := range (*clients).Consumers() {
		if c.Namespace == q.Namespace && (q.Name == "" || strings.EqualFold(c.Name, q.Name)) {
			list = append(list, topology.EntityRates{Name: c.Name, Kind: c.Kind.String(), Consumers: c.Links})
		}
	}
	slices.SortFunc(list, func(a, b topology.EntityRates) int { return cmp.Compare(b.Consumers, a.Consumers) })
	return list[:min(len(list), topology.ConsumersMax)]
}

// Rates returns the rates and consumers of the busiest entities of a namespace, by name, or those of the named one, with the samples of the
// last hour. The total, if it is asked for, is first. It asks all living members, each for up to 2 s. Entities without messages in the last
// hour and without consumers are missing, and so is what members that do not answer know.
func (o *Operator) Rates(ctx context.Context, q topology.RatesQuery) []topology.EntityRates {
	return mergeShards(askAlive(ctx, o.node, askRates, q), func(r *topology.EntityRates) (name, kind string) { return r.Name, r.Kind }, rates.Add)
}
