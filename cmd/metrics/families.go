package metrics

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/peeklock/peeklock/cluster"
	"github.com/peeklock/peeklock/fsm"
)

func memberFamilies() []family {
	memory := func(name, help string, read func(*Memory) int64) family {
		return family{name: name, kind: gauge, help: help, read: func(p *statsSnapshot, to emit) {
			if p.hasMemory {
				to(float64(read(&p.memory)))
			}
		}}
	}
	return []family{
		{
			name: "peeklock_member_info", kind: gauge, labels: []string{"name", "id", "cluster", "version"},
			help: "1. Who this member is: its name, its id, the id of its cluster (empty before it is known) and the version of the binary.",
			read: func(p *statsSnapshot, to emit) { to(1, p.name, string(p.node.Member), p.node.Cluster, p.version) },
		},
		sample("peeklock_member_ready", gauge, "1 when the member serves clients, as /readyz says, else 0.",
			func(p *statsSnapshot) float64 { return boolValue(p.ready) }),
		memory("peeklock_member_memory_limit_bytes", "Memory that the process may use: the setting memory_limit, or what the cgroup or the machine allows.",
			func(m *Memory) int64 { return m.Limit }),
		memory("peeklock_member_index_bytes", "Live memory without that of client connections, after the last garbage collection: mostly the index of waiting messages, without their bodies.",
			func(m *Memory) int64 { return m.Index }),
		memory("peeklock_member_index_max_bytes", "When peeklock_member_index_bytes is above this, the member refuses new messages and entities, until it is below 90 percent of this.",
			func(m *Memory) int64 { return m.IndexMax }),
		{
			name: "peeklock_member_certificate_expiry_timestamp_seconds", kind: gauge, labels: []string{"shown_to"},
			help: "When the certificate ends that the member shows to clients or to members, in seconds since 1970; none without TLS.",
			read: func(p *statsSnapshot, to emit) {
				for _, who := range slices.Sorted(maps.Keys(p.expiries)) {
					to(float64(p.expiries[who].Unix()), who)
				}
			},
		},
	}
}

func clusterFamilies() []family {
	requests := func(read func(*cluster.RequestStats) uint64) func(*statsSnapshot) float64 {
		return func(p *statsSnapshot) float64 { return float64(read(&p.node.Requests)) }
	}
	streams := func(read func(*cluster.StreamStats) uint64) func(*statsSnapshot) float64 {
		return func(p *statsSnapshot) float64 { return float64(read(&p.node.Streams)) }
	}
	forwarding := func(read func(*cluster.ForwardStats) uint64) func(*statsSnapshot) float64 {
		return func(p *statsSnapshot) float64 { return float64(read(&p.node.Forwarding)) }
	}
	return []family{
		{
			name: "peeklock_cluster_members", kind: gauge, labels: []string{"state"},
			help: "Members that gossip knows here, this one included: alive, dead (expected back), left (went in order).",
			read: func(p *statsSnapshot, to emit) {
				to(float64(p.node.Alive), "alive")
				to(float64(p.node.Dead), "dead")
				to(float64(p.node.Left), "left")
			},
		},
		sample("peeklock_cluster_led_partitions", gauge, "Partitions that this member leads, the catalog included.",
			func(p *statsSnapshot) float64 { return float64(p.node.Led) }),
		sample("peeklock_cluster_requests_total", counter, "Commands for partitions that this member began: sends, settlements, changes of entities; not the waiting of receivers.",
			requests(func(r *cluster.RequestStats) uint64 { return r.Requests })),
		sample("peeklock_cluster_retries_total", counter, "Further attempts of these, because a leader refused, died or went silent. Clients saw nothing of them but time.",
			requests(func(r *cluster.RequestStats) uint64 { return r.Retries })),
		sample("peeklock_cluster_busy_requests_total", counter, "Of these, how many ended as server-busy: certainly not done.",
			requests(func(r *cluster.RequestStats) uint64 { return r.Busy })),
		sample("peeklock_cluster_timed_out_requests_total", counter, "Of these, how many were given up without knowing whether they were done.",
			requests(func(r *cluster.RequestStats) uint64 { return r.Timeouts })),
		{
			name: "peeklock_cluster_request_duration_seconds", kind: histogram,
			help:  "How long these took from the gateway to the answer, retries included: what a failover costs is at the end of it.",
			times: func(p *statsSnapshot, to emitTimes) { to(p.node.Requests.Took) },
		},
		sample("peeklock_cluster_forward_connections", gauge, "Connections to and from other members that carry requests to leaders.",
			func(p *statsSnapshot) float64 { return float64(p.node.Streams.Forward) }),
		sample("peeklock_cluster_dialled_streams_total", counter, "Streams opened to other members.",
			streams(func(s *cluster.StreamStats) uint64 { return s.Dialled })),
		sample("peeklock_cluster_accepted_streams_total", counter, "Streams of other members that were taken.",
			streams(func(s *cluster.StreamStats) uint64 { return s.Accepted })),
		sample("peeklock_cluster_failed_dials_total", counter, "Streams to other members that could not be opened, whatever the reason.",
			streams(func(s *cluster.StreamStats) uint64 { return s.Failed })),
		sample("peeklock_cluster_untrusted_streams_total", counter, "Streams that were refused, here or by the other member, for a certificate or for the lack of TLS.",
			streams(func(s *cluster.StreamStats) uint64 { return s.Untrusted })),
		sample("peeklock_cluster_forwarded_batches_total", counter, "Batches that were moved from entities that forward to their destinations.",
			forwarding(func(f *cluster.ForwardStats) uint64 { return f.Batches })),
		sample("peeklock_cluster_forwarded_messages_total", counter, "Messages in them that arrived.",
			forwarding(func(f *cluster.ForwardStats) uint64 { return f.Messages })),
		sample("peeklock_cluster_forward_refused_messages_total", counter, "Messages that a destination did not take: they are in a transfer dead-letter queue.",
			forwarding(func(f *cluster.ForwardStats) uint64 { return f.Refused })),
		sample("peeklock_cluster_forward_rests_total", counter, "Tries to forward that were put off because a leader or a destination was not there.",
			forwarding(func(f *cluster.ForwardStats) uint64 { return f.Backoffs })),
	}
}

func partitionFamilies() []family {
	type part = cluster.PartitionStats
	return []family{
		perPartition("peeklock_partition_leader", gauge, "1 where this member leads the partition, else 0. Partition 0 is the catalog. The sum over all members is 1 for each.",
			func(p *part) float64 { return boolValue(p.IsLeader) }),
		perPartition("peeklock_partition_leader_known", gauge, "1 when this replica knows who leads, else 0: then it cannot be written to from here.",
			func(p *part) float64 { return boolValue(p.Leader != "") }),
		perPartition("peeklock_partition_halted", gauge, "1 when this replica has stopped for good because its disk or its data cannot be trusted, else 0.",
			func(p *part) float64 { return boolValue(p.Halted != nil) }),
		perPartition("peeklock_partition_read_only", gauge, "1 when this replica would refuse new messages as the leader, because disks or memory are short, else 0.",
			func(p *part) float64 { return boolValue(p.ReadOnly) }),
		perPartition("peeklock_partition_undecided", gauge, "1 where this member leads a partition whose replicas differ without a majority for any of them, else 0: nobody can tell who is right.",
			func(p *part) float64 { return boolValue(p.Undecided) }),
		perPartition("peeklock_partition_moving", gauge, "1 where this member leads a partition that is to lie on other members than it does and whose move is not paused, else 0.",
			func(p *part) float64 { return boolValue(p.Moving) }),
		perPartition("peeklock_partition_led_total", counter, "Times that this replica became the leader.",
			func(p *part) float64 { return float64(p.LeadershipsGained) }),
		perPartition("peeklock_partition_term", gauge, "Term of the raft group: it rises with every election.",
			func(p *part) float64 { return float64(p.Term) }),
		perPartition("peeklock_partition_leader_silence_seconds", gauge, "Since when nothing was heard of the leader; 0 at the leader.",
			func(p *part) float64 { return p.LastContact.Seconds() }),
		perPartition("peeklock_partition_voters", gauge, "Replicas with a vote, as this replica knows it.",
			func(p *part) float64 { return float64(len(p.Voters)) }),
		perPartition("peeklock_partition_commit_index", gauge, "Newest log entry that this replica knows to be committed.",
			func(p *part) float64 { return float64(p.Commit) }),
		perPartition("peeklock_partition_applied_index", gauge, "Newest log entry that this replica has applied. Far below that of the leader: it lags.",
			func(p *part) float64 { return float64(p.Applied) }),
		perPartition("peeklock_partition_log_entries", gauge, "Entries in the log of this replica.",
			func(p *part) float64 {
				if p.LogFirst == 0 {
					return 0
				}
				return float64(p.LogLast - p.LogFirst + 1)
			}),
		perPartition("peeklock_partition_log_bytes", gauge, "Log applied since the newest snapshot: what a restart replays, about.",
			func(p *part) float64 { return float64(p.LogBytes) }),
		perPartition("peeklock_partition_entries_total", counter, "Log entries applied since the start.",
			func(p *part) float64 { return float64(p.Entries) }),
		perPartition("peeklock_partition_commands_total", counter, "Commands in these entries.",
			func(p *part) float64 { return float64(p.Commands) }),
		perPartition("peeklock_partition_refused_commands_total", counter, "Commands that this leader refused because too many were waiting.",
			func(p *part) float64 { return float64(p.Refused) }),
		perPartition("peeklock_partition_rules_over_budget_total", counter, "How often a rule of a topic failed because it exceeded its budget of steps for one message. Every replica counts.",
			func(p *part) float64 { return float64(p.Exceeded) }),
		perPartition("peeklock_partition_queued_commands", gauge, "Commands that wait at this leader for a log entry.",
			func(p *part) float64 { return float64(p.Queued) }),
		perPartition("peeklock_partition_proposed_entries", gauge, "Entries of this leader that are on their way to a quorum, 4 at most.",
			func(p *part) float64 { return float64(p.InFlight) }),
		perPartition("peeklock_partition_waiting_receivers", gauge, "Receivers that wait at this leader for messages or sessions.",
			func(p *part) float64 { return float64(p.Waiting) }),
		{
			name: "peeklock_partition_proposal_duration_seconds", kind: histogram, labels: []string{"partition"},
			help: "How long entries took at this leader, from being composed to being applied: a quorum has synced them.",
			times: func(p *statsSnapshot, to emitTimes) {
				for i := range p.node.Partitions {
					to(p.node.Partitions[i].Proposals, partitionLabel(p.node.Partitions[i].ID))
				}
			},
		},
	}
}

// replicaFamilies are about what a replica holds on disk.
func replicaFamilies() []family {
	type part = cluster.PartitionStats
	return []family{
		perPartition("peeklock_partition_snapshots_total", counter, "Number of the newest snapshot, which rises with each, also over restarts.",
			func(p *part) float64 { return float64(p.Snapshots) }),
		perPartition("peeklock_partition_snapshot_age_seconds", gauge, "Age of the newest snapshot, 0 when there is none.",
			func(p *part) float64 {
				if p.SnapshotAt.IsZero() {
					return 0
				}
				return max(0, time.Since(p.SnapshotAt).Seconds())
			}),
		perPartition("peeklock_partition_snapshot_bytes", gauge, "Size of the newest snapshot, without the bodies of messages.",
			func(p *part) float64 { return float64(p.SnapshotBytes) }),
		perPartition("peeklock_partition_body_segments", gauge, "Files that hold bodies of messages.",
			func(p *part) float64 { return float64(p.Segments) }),
		perPartition("peeklock_partition_body_bytes", gauge, "Size of these files.",
			func(p *part) float64 { return float64(p.BodyBytes) }),
		perPartition("peeklock_partition_live_body_bytes", gauge, "Bytes in them of messages that are still there; the rest is given back when whole files are done with.",
			func(p *part) float64 { return float64(p.LiveBytes) }),
		perPartition("peeklock_partition_entities", gauge, "Queues, topics, subscriptions and shards of such in the partition; of partition 0 all entities of the cluster.",
			func(p *part) float64 { return float64(p.Entities) }),
		perPartition("peeklock_partition_messages", gauge, "Messages in the partition, in whatever state; 0 for partition 0.",
			func(p *part) float64 { return float64(p.Messages) }),
	}
}

func storeFamilies() []family {
	store := func(read func(*cluster.StoreStats) float64) func(*statsSnapshot) float64 {
		return func(p *statsSnapshot) float64 { return read(&p.node.Store) }
	}
	return []family{
		{
			name: "peeklock_store_commit_duration_seconds", kind: histogram,
			help:  "How long transactions of the log took, the sync of the disk included. All partitions of the member share them.",
			times: func(p *statsSnapshot, to emitTimes) { to(p.node.Store.CommitTimes) },
		},
		sample("peeklock_store_stalled_seconds", gauge, "How long the transaction that is under way has taken, 0 when none is. Over 2 s the disk is in trouble.",
			store(func(s *cluster.StoreStats) float64 { return s.Stalled.Seconds() })),
		sample("peeklock_store_appended_entries_total", counter, "Entries written to the log.",
			store(func(s *cluster.StoreStats) float64 { return float64(s.Entries) })),
		sample("peeklock_store_appended_bytes_total", counter, "Bytes written to the log.",
			store(func(s *cluster.StoreStats) float64 { return float64(s.Bytes) })),
		sample("peeklock_store_log_file_bytes", gauge, "Size of the log file, which never shrinks: room in it is used again.",
			store(func(s *cluster.StoreStats) float64 { return float64(s.FileBytes) })),
		sample("peeklock_store_disk_size_bytes", gauge, "Size of the file system of the data folder; 0 where the system does not say.",
			store(func(s *cluster.StoreStats) float64 { return float64(s.DiskBytes) })),
		sample("peeklock_store_disk_free_bytes", gauge, "What is free in it for this process; 0 where the system does not say.",
			store(func(s *cluster.StoreStats) float64 { return float64(s.FreeBytes) })),
		sample("peeklock_store_disk_reserve_bytes", gauge, "What must stay free: below it the member is read-only. 0 before the first partition is opened.",
			store(func(s *cluster.StoreStats) float64 { return float64(s.DiskSpace.Reserve) })),
		sample("peeklock_store_read_only", gauge, "1 while the member takes no new messages and entities because its disk is nearly full, else 0. All else goes on.",
			store(func(s *cluster.StoreStats) float64 { return boolValue(s.DiskSpace.ReadOnly) })),
		sample("peeklock_store_short_of_memory", gauge, "1 while the member refuses new messages and entities because waiting messages take too much memory, else 0. Other operations continue.",
			store(func(s *cluster.StoreStats) float64 { return boolValue(s.DiskSpace.LowMemory) })),
	}
}

// perEntity makes a family with one sample for each entity that is shown.
func perEntity(name, help string, read func(*cluster.EntityStats) float64) family {
	return family{name: name, kind: gauge, labels: entityLabels(), entityNames: true, help: help, read: func(p *statsSnapshot, to emit) {
		for i := range p.node.Entities {
			e := &p.node.Entities[i]
			to(read(e), e.Namespace, e.Kind.String(), e.Name)
		}
	}}
}

func entityLabels() []string { return []string{"namespace", "kind", "entity"} }

func entityFamilies() []family {
	return []family{
		{
			name: "peeklock_entity_messages", kind: gauge, labels: append(entityLabels(), "state"), entityNames: true,
			help: "Messages of an entity by state: active (locked ones included), deferred, scheduled, dead_letter, transfer (waiting to be forwarded), transfer_dead_letter. Shown by the member that leads its partition; of a partitioned entity each member shows its shards.",
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
		perEntity("peeklock_entity_locked_messages", "Of the active ones, those that receivers hold locked.",
			func(e *cluster.EntityStats) float64 { return float64(e.Locked) }),
		perEntity("peeklock_entity_size_bytes", "What the messages of an entity take; of a topic what its subscriptions share.",
			func(e *cluster.EntityStats) float64 { return float64(e.Bytes) }),
		perEntity("peeklock_entity_oldest_message_age_seconds", "Age of the first message of the main queue that is not scheduled, 0 when there is none.",
			func(e *cluster.EntityStats) float64 { return e.Oldest.Seconds() }),
		perEntity("peeklock_entity_sessions", "Sessions that hold messages or state, or are held.",
			func(e *cluster.EntityStats) float64 { return float64(e.Sessions) }),
		sample("peeklock_entity_omitted", gauge, "Entities that this member leads and does not show, because others hold more messages (metrics_entities).",
			func(p *statsSnapshot) float64 { return float64(p.node.Omitted) }),
	}
}

func partitionLabel(id fsm.PartitionID) string { return strconv.FormatUint(uint64(id), 10) }
