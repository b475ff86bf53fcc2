package metrics

import (
	"cmp"
	"slices"
	"strings"

	"github.com/peeklock/peeklock/cluster"
	"github.com/peeklock/peeklock/fsm/totals"
)

// perEntity returns a family with one sample for each entity that is shown.
func perEntity(name, help string, read func(*cluster.EntityStats) float64) family {
	return family{name: name, kind: gauge, labels: entityLabels(), entityNames: true, help: help, read: func(p *statsSnapshot, to emit) {
		for i := range p.node.Entities {
			e := &p.node.Entities[i]
			to(read(e), e.Namespace, e.Kind.String(), e.Name)
		}
	}}
}

func entityLabels() []string { return []string{"sb_namespace", "kind", "entity"} }

func entityFamilies() []family {
	return []family{
		{
			name: "peeklock_entity_messages", kind: gauge, labels: append(entityLabels(), "state"), entityNames: true,
			help: "Messages of an entity by state: active (including locked ones), deferred, scheduled, dead_letter, transfer (waiting to be forwarded), transfer_dead_letter. Reported by the member that leads the partition; for a partitioned entity each leader reports its shards.",
			read: func(p *statsSnapshot, to emit) {
				for i := range p.node.Entities {
					e := &p.node.Entities[i]
					for _, s := range []struct {
						state string
						count uint64
					}{
						{"active", e.Active},
						{"deferred", e.Deferred},
						{"scheduled", e.Scheduled},
						{"dead_letter", e.DeadLetter},
						{"transfer", e.Transfer},
						{"transfer_dead_letter", e.TransferDeadLetter},
					} {
						to(float64(s.count), e.Namespace, e.Kind.String(), e.Name, s.state)
					}
				}
			},
		},
		perEntity("peeklock_entity_locked_messages", "Active messages that receivers have locked.",
			func(e *cluster.EntityStats) float64 { return float64(e.Locked) }),
		perEntity("peeklock_entity_size_bytes", "Size of the messages of an entity; for a topic, the size that its subscriptions share.",
			func(e *cluster.EntityStats) float64 { return float64(e.Bytes) }),
		perEntity("peeklock_entity_oldest_message_age_seconds", "Age of the oldest message of the main queue that is not scheduled; 0 without one.",
			func(e *cluster.EntityStats) float64 { return e.Oldest.Seconds() }),
		perEntity("peeklock_entity_max_bytes", "Limit of peeklock_entity_size_bytes (maxSizeInMegabytes); for a partitioned entity that of the shards that the member leads.",
			func(e *cluster.EntityStats) float64 { return float64(e.MaxBytes) }),
		perEntity("peeklock_entity_waiting_sessions", "Message sessions with messages that no receiver has locked.",
			func(e *cluster.EntityStats) float64 { return float64(e.WaitingSessions) }),
		perEntity("peeklock_entity_sessions", "Message sessions that have messages or state, or are locked by a receiver.",
			func(e *cluster.EntityStats) float64 { return float64(e.Sessions) }),
		{
			name: "peeklock_entity_consumers", kind: gauge, labels: entityLabels(), entityNames: true,
			help: "Links on which clients of this member receive from the entity, without browsers. The sum over all members is that of the entity. An entity without any has no series.",
			read: func(p *statsSnapshot, to emit) { eachEntity(p.consumers, to) },
		},
		{
			name: "peeklock_entity_throttled_requests_total", kind: counter, labels: entityLabels(), entityNames: true,
			help: "Sends, settlements, links and management requests for the entity that this member refused with server-busy, over AMQP and HTTP. The sum over all members is that of the entity. An entity without any has no series; beyond 1,000 entities within an hour, further ones are counted together as (others).",
			read: func(p *statsSnapshot, to emit) { eachEntity(p.throttled, to) },
		},
		sample("peeklock_entity_omitted", gauge, "Entities that this member leads and does not report because others were used in the last hour or have more messages (setting metrics_entities).",
			func(p *statsSnapshot) float64 { return float64(p.node.Omitted) }),
	}
}

func eachEntity(list []ofEntity, to emit) {
	for i := range list {
		to(list[i].count, list[i].namespace, list[i].kind, list[i].entity)
	}
}

// consumers returns the receiving links at this member.
func (m *Collector) consumers() (list []ofEntity) {
	for _, e := range m.config.Consumers() {
		list = append(list, ofEntity{m.config.NamespaceName(e.Namespace), e.Kind.String(), e.Name, float64(e.Links)})
	}
	return m.most(list)
}

// throttled returns the throttled requests at this member.
func (m *Collector) throttled() (list []ofEntity) {
	for _, e := range m.config.Throttled() {
		if e.Name == "" {
			list = append(list, ofEntity{otherNamespaces, "", otherNamespaces, float64(e.Requests)})
			continue
		}
		list = append(list, ofEntity{m.config.NamespaceName(e.Namespace), e.Kind.String(), e.Name, float64(e.Requests)})
	}
	return m.most(list)
}

// most returns at most Config.Entities of a list, those with the highest numbers first, without namespaces that were removed.
func (m *Collector) most(list []ofEntity) []ofEntity {
	list = slices.DeleteFunc(list, func(e ofEntity) bool { return e.namespace == "" })
	slices.SortFunc(list, func(a, b ofEntity) int {
		return cmp.Or(cmp.Compare(b.count, a.count), strings.Compare(a.namespace, b.namespace), strings.Compare(a.kind, b.kind), strings.Compare(a.entity, b.entity))
	})
	return list[:min(len(list), m.config.Entities)]
}

// totalFamilies describe what happened to the messages of entities. They come from replicated state: a new leader continues
// where the old one ended. Each shard has a series of its own, so that none falls when another member begins to lead a shard.
func totalFamilies() []family {
	total := func(name, help string, read func(*totals.Totals) uint64) family {
		return family{
			name: "peeklock_entity_" + name + "_messages_total", kind: counter, labels: append(entityLabels(), "partition"), entityNames: true, help: help,
			read: func(p *statsSnapshot, to emit) {
				eachTotals(p, func(e *cluster.EntityStats, shard *cluster.ShardTotals) {
					to(float64(read(&shard.Totals)), e.Namespace, e.Kind.String(), e.Name, partitionLabel(shard.Partition))
				})
			},
		}
	}
	return []family{
		total("incoming", "Messages that the entity accepted from senders and from entities that forward to it, without duplicates; at a subscription, copies.",
			func(t *totals.Totals) uint64 { return t.Incoming }),
		total("outgoing", "Deliveries to receivers; each delivery of a message counts.",
			func(t *totals.Totals) uint64 { return t.Outgoing }),
		total("completed", "Messages that receivers completed, or received in the mode ReceiveAndDelete.",
			func(t *totals.Totals) uint64 { return t.Completed }),
		total("abandoned", "Deliveries that receivers abandoned.",
			func(t *totals.Totals) uint64 { return t.Abandoned }),
		total("deferred", "Deliveries that receivers deferred.",
			func(t *totals.Totals) uint64 { return t.Deferred }),
		total("expired", "Messages deleted at the end of their time to live. Those that are dead-lettered instead count as dead-lettered.",
			func(t *totals.Totals) uint64 { return t.Expired }),
		total("duplicate", "Messages dropped by duplicate detection.",
			func(t *totals.Totals) uint64 { return t.Duplicates }),
		total("redriven", "Messages moved from the dead-letter queue back to the main queue.",
			func(t *totals.Totals) uint64 { return t.Redriven }),
		total("forwarded", "Messages moved to another entity.",
			func(t *totals.Totals) uint64 { return t.Forwarded }),
		total("transferred", "Messages sent in a transaction through the entity to one of another partition: it stores them until they are forwarded.",
			func(t *totals.Totals) uint64 { return t.Transferred }),
		total("removed", "Messages purged, deleted or canceled without being received.",
			func(t *totals.Totals) uint64 { return t.Removed }),
		{
			name: "peeklock_entity_dead_lettered_messages_total", kind: counter, labels: append(entityLabels(), "partition", "reason"), entityNames: true,
			help: "Messages moved to a dead-letter queue, by reason: max_delivery_count, time_to_live, filter_error, no_session, forwarded_too_often, forwarding_refused, or other, which means by a receiver. Reasons that did not occur have no series, except other.",
			read: func(p *statsSnapshot, to emit) {
				eachTotals(p, func(e *cluster.EntityStats, shard *cluster.ShardTotals) {
					for reason, n := range shard.DeadLettered {
						if reason := totals.Reason(reason); n > 0 || reason == totals.ByReceiver {
							to(float64(n), e.Namespace, e.Kind.String(), e.Name, partitionLabel(shard.Partition), reason.String())
						}
					}
				})
			},
		},
	}
}

func eachTotals(p *statsSnapshot, visit func(*cluster.EntityStats, *cluster.ShardTotals)) {
	for i := range p.node.Entities {
		e := &p.node.Entities[i]
		for j := range e.Totals {
			visit(e, &e.Totals[j])
		}
	}
}
