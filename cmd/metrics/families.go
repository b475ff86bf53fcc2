package metrics

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/peeklock/peeklock/cluster"
	"github.com/peeklock/peeklock/cluster/client"
	"github.com/peeklock/peeklock/cluster/forwarding"
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
			help: "Always 1. The labels identify the member: its name, its id, the id of its cluster (empty until it is known) and the version of the binary.",
			read: func(p *statsSnapshot, to emit) { to(1, p.name, string(p.node.Member), p.node.Cluster, p.version) },
		},
		sample("peeklock_member_ready", gauge, "1 when the member serves clients (/readyz), else 0.",
			func(p *statsSnapshot) float64 { return boolValue(p.ready) }),
		memory("peeklock_member_memory_limit_bytes", "Memory that the process may use: the setting memory_limit, or the limit of the cgroup or the machine.",
			func(m *Memory) int64 { return m.Limit }),
		memory("peeklock_member_index_bytes", "Live memory after the last garbage collection, without the memory of client connections: mostly the index of waiting messages, without their bodies.",
			func(m *Memory) int64 { return m.Index }),
		memory("peeklock_member_index_max_bytes", "Limit of peeklock_member_index_bytes. Above it the member refuses new messages and entities until the value falls below 90 percent of it.",
			func(m *Memory) int64 { return m.IndexMax }),
		{
			name: "peeklock_member_certificate_expiry_timestamp_seconds", kind: gauge, labels: []string{"shown_to"},
			help: "Time at which the certificate for clients or for members expires, in seconds since 1970; absent without TLS.",
			read: func(p *statsSnapshot, to emit) {
				for _, peers := range slices.Sorted(maps.Keys(p.expiries)) {
					to(float64(p.expiries[peers].Unix()), peers)
				}
			},
		},
	}
}

func clusterFamilies() []family {
	requests := func(read func(*client.Stats) uint64) func(*statsSnapshot) float64 {
		return func(p *statsSnapshot) float64 { return float64(read(&p.node.Requests)) }
	}
	streams := func(read func(*cluster.StreamStats) uint64) func(*statsSnapshot) float64 {
		return func(p *statsSnapshot) float64 { return float64(read(&p.node.Streams)) }
	}
	forwarded := func(read func(*forwarding.Stats) uint64) func(*statsSnapshot) float64 {
		return func(p *statsSnapshot) float64 { return float64(read(&p.node.Forwarding)) }
	}
	return []family{
		{
			name: "peeklock_cluster_members", kind: gauge, labels: []string{"state"},
			help: "Members of the cluster, including this one: alive, dead (expected to return), left (shut down gracefully). Removed members are not counted.",
			read: func(p *statsSnapshot, to emit) {
				to(float64(p.node.Alive), "alive")
				to(float64(p.node.Dead), "dead")
				to(float64(p.node.Left), "left")
			},
		},
		sample("peeklock_cluster_clock_offset_seconds", gauge, "Clock of this member minus the median of the clocks of the members that it knows. Above 0.5 or below -0.5, the member gives up its leaderships, if a quorum agrees.",
			func(p *statsSnapshot) float64 { return p.node.Clocks.Offset.Seconds() }),
		sample("peeklock_cluster_clock_agreed", gauge, "1 when the clocks of a quorum of members are within 0.5 s of their median, else 0: then wall time goes on by the monotonic clocks of leaders.",
			func(p *statsSnapshot) float64 { return boolValue(p.node.Clocks.Agreed) }),
		sample("peeklock_cluster_time_held", gauge, "1 while the clocks of the members have been set together by more than a minute: wall time does not follow them until they are right again, or an operator confirms the time.",
			func(p *statsSnapshot) float64 { return boolValue(p.node.Clocks.Held) }),
		sample("peeklock_cluster_time_step_seconds", gauge, "Time by which the clocks of the members are ahead of wall time, negative if behind, while wall time is held; else 0.",
			func(p *statsSnapshot) float64 { return p.node.Clocks.Step.Seconds() }),
		sample("peeklock_cluster_led_partitions", gauge, "Partitions that this member leads, including the catalog.",
			func(p *statsSnapshot) float64 { return float64(p.node.Led) }),
		sample("peeklock_cluster_requests_total", counter, "Commands that this member submitted to partitions: sends, settlements, changes of entities. Waiting receivers are not counted.",
			requests(func(r *client.Stats) uint64 { return r.Requests })),
		sample("peeklock_cluster_retries_total", counter, "Retries of commands because a leader refused, failed or did not respond. Clients notice only the delay.",
			requests(func(r *client.Stats) uint64 { return r.Retries })),
		sample("peeklock_cluster_busy_requests_total", counter, "Commands that ended as server-busy: they were not executed.",
			requests(func(r *client.Stats) uint64 { return r.Busy })),
		sample("peeklock_cluster_timed_out_requests_total", counter, "Commands that timed out with an unknown outcome.",
			requests(func(r *client.Stats) uint64 { return r.Timeouts })),
		{
			name: "peeklock_cluster_request_duration_seconds", kind: histogram,
			help:  "Duration of commands from the gateway to the response, including retries. The tail shows the cost of failovers.",
			times: func(p *statsSnapshot, to emitTimes) { to(p.node.Requests.Took) },
		},
		sample("peeklock_cluster_forward_connections", gauge, "Connections to and from other members that carry requests to leaders.",
			func(p *statsSnapshot) float64 { return float64(p.node.Streams.Forward) }),
		sample("peeklock_cluster_dialled_streams_total", counter, "Streams opened to other members.",
			streams(func(s *cluster.StreamStats) uint64 { return s.Dialled })),
		sample("peeklock_cluster_accepted_streams_total", counter, "Streams accepted from other members.",
			streams(func(s *cluster.StreamStats) uint64 { return s.Accepted })),
		sample("peeklock_cluster_failed_dials_total", counter, "Streams to other members that failed to open, for any reason.",
			streams(func(s *cluster.StreamStats) uint64 { return s.Failed })),
		sample("peeklock_cluster_untrusted_streams_total", counter, "Streams refused by either side because of a certificate or missing TLS.",
			streams(func(s *cluster.StreamStats) uint64 { return s.Untrusted })),
		sample("peeklock_cluster_forwarded_batches_total", counter, "Batches forwarded to other entities.",
			forwarded(func(f *forwarding.Stats) uint64 { return f.Batches })),
		sample("peeklock_cluster_forwarded_messages_total", counter, "Messages forwarded to other entities.",
			forwarded(func(f *forwarding.Stats) uint64 { return f.Messages })),
		sample("peeklock_cluster_forward_refused_messages_total", counter, "Messages that a destination refused and that were dead-lettered at their source: in its dead-letter queue, or, if a transaction sent them, in its transfer dead-letter queue. Refused dead letters are not counted: they are retried.",
			forwarded(func(f *forwarding.Stats) uint64 { return f.Refused })),
		sample("peeklock_cluster_forward_rests_total", counter, "Times that forwarding backed off because a leader or a destination was unavailable.",
			forwarded(func(f *forwarding.Stats) uint64 { return f.Backoffs })),
	}
}

func partitionFamilies() []family {
	type part = cluster.PartitionStats
	return []family{
		perPartition("peeklock_partition_leader", gauge, "1 when this member leads the partition, else 0. Partition 0 is the catalog. The sum over all members is 1 for each partition.",
			func(p *part) float64 { return boolValue(p.IsLeader) }),
		perPartition("peeklock_partition_leader_known", gauge, "1 when this replica knows the leader of the partition, else 0.",
			func(p *part) float64 { return boolValue(p.Leader != "") }),
		perPartition("peeklock_partition_halted", gauge, "1 when this replica has stopped permanently because its disk or its data is not reliable, else 0.",
			func(p *part) float64 { return boolValue(p.Halted != nil) }),
		perPartition("peeklock_partition_read_only", gauge, "1 when this replica refuses new messages as the leader because of low disk space or memory, else 0.",
			func(p *part) float64 { return boolValue(p.ReadOnly) }),
		perPartition("peeklock_partition_undecided", gauge, "1 when this member leads a partition whose replicas differ without a majority of equal ones, else 0.",
			func(p *part) float64 { return boolValue(p.Undecided) }),
		perPartition("peeklock_partition_moving", gauge, "1 when this member leads a partition that is moving to other members, else 0. Paused moves count as 0.",
			func(p *part) float64 { return boolValue(p.Moving) }),
		perPartition("peeklock_partition_missing_replicas", gauge, "Wanted replicas of the partition minus those on living members, as this member sees them. Partition 0 is the catalog: its voters are wanted.",
			func(p *part) float64 { return float64(p.Missing) }),
		perPartition("peeklock_partition_time_ahead_seconds", gauge, "Time by which the wall time of the partition is ahead of the clocks of the members. Until they have passed it, no message expires or becomes active.",
			func(p *part) float64 { return p.Ahead.Seconds() }),
		perPartition("peeklock_partition_led_total", counter, "Times that this replica became the leader.",
			func(p *part) float64 { return float64(p.LeadershipsGained) }),
		perPartition("peeklock_partition_term", gauge, "Raft term of the partition; it rises with each election.",
			func(p *part) float64 { return float64(p.Term) }),
		perPartition("peeklock_partition_leader_silence_seconds", gauge, "Time since the last contact with the leader; 0 on the leader.",
			func(p *part) float64 { return p.LastContact.Seconds() }),
		perPartition("peeklock_partition_voters", gauge, "Voting replicas of the partition, as known to this replica.",
			func(p *part) float64 { return float64(len(p.Voters)) }),
		perPartition("peeklock_partition_commit_index", gauge, "Index of the newest log entry that this replica knows to be committed.",
			func(p *part) float64 { return float64(p.Commit) }),
		perPartition("peeklock_partition_applied_index", gauge, "Index of the newest log entry that this replica has applied. The difference from the leader is its lag.",
			func(p *part) float64 { return float64(p.Applied) }),
		perPartition("peeklock_partition_log_entries", gauge, "Entries in the log of this replica.",
			func(p *part) float64 {
				if p.LogFirst == 0 {
					return 0
				}
				return float64(p.LogLast - p.LogFirst + 1)
			}),
		perPartition("peeklock_partition_log_bytes", gauge, "Approximate size of the log since the newest snapshot, which a restart replays.",
			func(p *part) float64 { return float64(p.LogBytes) }),
		perPartition("peeklock_partition_entries_total", counter, "Log entries applied since the start of the process.",
			func(p *part) float64 { return float64(p.Entries) }),
		perPartition("peeklock_partition_commands_total", counter, "Commands in the applied log entries.",
			func(p *part) float64 { return float64(p.Commands) }),
		perPartition("peeklock_partition_refused_commands_total", counter, "Commands that this leader refused because its queue was full.",
			func(p *part) float64 { return float64(p.Refused) }),
		perPartition("peeklock_partition_rules_over_budget_total", counter, "Evaluations of topic rules that exceeded the budget of steps for one message. Every replica counts them.",
			func(p *part) float64 { return float64(p.Exceeded) }),
		perPartition("peeklock_partition_queued_commands", gauge, "Commands that wait on this leader for a log entry.",
			func(p *part) float64 { return float64(p.Queued) }),
		perPartition("peeklock_partition_proposed_entries", gauge, "Log entries of this leader that wait for a quorum, 4 at most.",
			func(p *part) float64 { return float64(p.InFlight) }),
		perPartition("peeklock_partition_waiting_receivers", gauge, "Receivers that wait on this leader for messages or sessions.",
			func(p *part) float64 { return float64(p.Waiting) }),
	}
}

// entryFamilies describe what log entries wait for at their leader.
func entryFamilies() []family {
	return []family{
		{
			name: "peeklock_partition_proposal_duration_seconds", kind: histogram, labels: []string{"partition"},
			help: "Duration of log entries on this leader, from proposal to apply, including the sync on a quorum.",
			times: func(p *statsSnapshot, to emitTimes) {
				for i := range p.node.Partitions {
					to(p.node.Partitions[i].Proposals, partitionLabel(p.node.Partitions[i].ID))
				}
			},
		},
		{
			name: "peeklock_partition_stage_seconds_total", kind: counter, labels: []string{"partition", "stage"},
			help: "Time that the log entries of this leader spent in each stage: queued (their oldest command waited for an entry), raft (for Raft's main goroutine), quorum (for disks and network), applied (state machine and bodies). Divide by the count of peeklock_partition_proposal_duration_seconds.",
			read: func(p *statsSnapshot, to emit) {
				for i := range p.node.Partitions {
					id, stages := partitionLabel(p.node.Partitions[i].ID), &p.node.Partitions[i].Stages
					to(stages.Queued.Seconds(), id, "queued")
					to(stages.Raft.Seconds(), id, "raft")
					to(stages.Quorum.Seconds(), id, "quorum")
					to(stages.Applied.Seconds(), id, "applied")
				}
			},
		},
	}
}

// replicaFamilies describe what a replica stores on disk.
func replicaFamilies() []family {
	type part = cluster.PartitionStats
	return []family{
		perPartition("peeklock_partition_snapshots_total", counter, "Number of the newest snapshot; it rises with each snapshot and survives restarts.",
			func(p *part) float64 { return float64(p.Snapshots) }),
		perPartition("peeklock_partition_snapshot_age_seconds", gauge, "Age of the newest snapshot; 0 without one.",
			func(p *part) float64 {
				if p.SnapshotAt.IsZero() {
					return 0
				}
				return max(0, time.Since(p.SnapshotAt).Seconds())
			}),
		perPartition("peeklock_partition_snapshot_bytes", gauge, "Size of the newest snapshot, without message bodies.",
			func(p *part) float64 { return float64(p.SnapshotBytes) }),
		perPartition("peeklock_partition_snapshot_checks_total", counter, "Snapshots that this replica has checked after it had written them: one follower in turn loads every tenth, and at least one in an hour.",
			func(p *part) float64 { return float64(p.SnapshotChecks) }),
		perPartition("peeklock_partition_snapshot_checks_failed_total", counter, "Snapshots that this replica has written and cannot load. It keeps the one before.",
			func(p *part) float64 { return float64(p.SnapshotChecksFailed) }),
		perPartition("peeklock_partition_snapshot_checks_skipped_total", counter, "Checked snapshots that were decoded as a stream, without building the state, because that would not have fitted into the memory limit.",
			func(p *part) float64 { return float64(p.SnapshotChecksSkipped) }),
		perPartition("peeklock_partition_snapshot_checks_unprotected_total", counter, "Checked snapshots whose predecessor was deleted before they had passed, because the log behind it had become too long.",
			func(p *part) float64 { return float64(p.SnapshotChecksUnprotected) }),
		perPartition("peeklock_partition_body_segments", gauge, "Segment files that hold message bodies.",
			func(p *part) float64 { return float64(p.Segments) }),
		perPartition("peeklock_partition_body_bytes", gauge, "Size of the segment files.",
			func(p *part) float64 { return float64(p.BodyBytes) }),
		perPartition("peeklock_partition_live_body_bytes", gauge, "Bytes in the segment files that belong to existing messages. The rest is freed when a file is deleted or compacted.",
			func(p *part) float64 { return float64(p.LiveBytes) }),
		perPartition("peeklock_partition_entities", gauge, "Queues, topics, subscriptions and shards in the partition; for partition 0 all entities of the cluster.",
			func(p *part) float64 { return float64(p.Entities) }),
		perPartition("peeklock_partition_messages", gauge, "Messages in the partition in any state; 0 for partition 0.",
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
			help:  "Duration of log transactions, including the disk sync. All partitions of the member share them.",
			times: func(p *statsSnapshot, to emitTimes) { to(p.node.Store.CommitTimes) },
		},
		sample("peeklock_store_stalled_seconds", gauge, "Age of the log transaction in progress, 0 without one. More than 2 s indicates a disk problem.",
			store(func(s *cluster.StoreStats) float64 { return s.Stalled.Seconds() })),
		sample("peeklock_store_slow", gauge, "1 while the disk is slow: a log transaction takes longer than 1 s, or most of them have taken longer than 100 ms for 5 s; else 0.",
			store(func(s *cluster.StoreStats) float64 { return boolValue(s.SlowDisk.Slow) })),
		sample("peeklock_store_slow_leaderships", gauge, "Partitions that this member leads although its disk is slow, because too few of their other voters have a faster one.",
			store(func(s *cluster.StoreStats) float64 { return float64(s.SlowDisk.Stuck) })),
		sample("peeklock_store_hand_overs_total", counter, "Leaderships that moved to other members because the disk of this one was slow.",
			store(func(s *cluster.StoreStats) float64 { return float64(s.SlowDisk.HandOvers) })),
		sample("peeklock_store_appended_entries_total", counter, "Entries written to the log.",
			store(func(s *cluster.StoreStats) float64 { return float64(s.Entries) })),
		sample("peeklock_store_appended_bytes_total", counter, "Bytes written to the log.",
			store(func(s *cluster.StoreStats) float64 { return float64(s.Bytes) })),
		sample("peeklock_store_log_file_bytes", gauge, "Size of the Raft log on disk: raft.db, which never shrinks (its free space is reused), and the segments of the journal.",
			store(func(s *cluster.StoreStats) float64 { return float64(s.FileBytes) })),
		sample("peeklock_store_disk_size_bytes", gauge, "Size of the file system of the data directory; 0 when the system does not report it.",
			store(func(s *cluster.StoreStats) float64 { return float64(s.DiskBytes) })),
		sample("peeklock_store_disk_free_bytes", gauge, "Free space for this process on the file system of the data directory; 0 when the system does not report it.",
			store(func(s *cluster.StoreStats) float64 { return float64(s.FreeBytes) })),
		sample("peeklock_store_disk_reserve_bytes", gauge, "Disk space that must stay free: with less the member is read-only. 0 before the first partition is opened.",
			store(func(s *cluster.StoreStats) float64 { return float64(s.DiskSpace.Reserve) })),
		sample("peeklock_store_read_only", gauge, "1 while the member refuses new messages and entities because its disk is nearly full, else 0. Other operations continue.",
			store(func(s *cluster.StoreStats) float64 { return boolValue(s.DiskSpace.ReadOnly) })),
		sample("peeklock_store_exhausted", gauge, "1 while the disk is full and the last reserve is in use, else 0: the member accepts only what frees space.",
			store(func(s *cluster.StoreStats) float64 { return boolValue(s.DiskSpace.Exhausted) })),
		sample("peeklock_store_short_of_memory", gauge, "1 while the member refuses new messages and entities because waiting messages use too much memory, else 0. Other operations continue.",
			store(func(s *cluster.StoreStats) float64 { return boolValue(s.DiskSpace.LowMemory) })),
	}
}

// families returns all families in the order of their packages.
func families() []family {
	all := slices.Concat(memberFamilies(), gatewayFamilies(), gatewayMemoryFamilies(), clusterFamilies(), partitionFamilies(), entryFamilies(), replicaFamilies(), storeFamilies(), entityFamilies(), totalFamilies(), namespaceFamilies())
	for i := range all {
		f := &all[i]
		f.desc = prometheus.NewDesc(f.name, f.help, f.labels, nil)
	}
	return all
}

// Table returns the table of all metrics in Markdown.
func Table() string {
	var b strings.Builder
	b.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, f := range families() {
		labels := strings.Join(f.labels, ", ")
		if labels == "" {
			labels = "-"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.name, f.kind, labels, strings.ReplaceAll(f.help, "|", `\|`))
	}
	return b.String()
}
