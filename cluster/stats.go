package cluster

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/peeklock/peeklock/cluster/client"
	"github.com/peeklock/peeklock/cluster/clocks"
	"github.com/peeklock/peeklock/cluster/entities"
	"github.com/peeklock/peeklock/cluster/forwarding"
	"github.com/peeklock/peeklock/cluster/quota"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/slowdisk"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/queue"
	"github.com/peeklock/peeklock/fsm/totals"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/topology"
)

// The limits of statistics.
const (
	statsEntitiesMax    = 3000    // entities of one Stats
	statsScanMax        = 200_000 // entities scanned for one Stats
	statsPageEntities   = 256     // entities read under one lock of a state machine
	statsOldestMessages = 64      // messages searched for the oldest
)

// Stats holds what this member has done since its start and what it holds, for dashboards and alerts. Counters
// never decrease while the process runs.
type Stats struct {
	Member  fsm.MemberID
	Cluster string // id, empty before it is known
	// Alive, Dead and Left count the members of the cluster, as Status lists them; Alive includes this one.
	Alive, Dead, Left int
	// Led is the number of partitions that this member leads, the catalog included.
	Led        int
	Partitions []PartitionStats // the replicas that are open here, by id
	Store      StoreStats
	Clocks     clocks.Comparison
	Requests   client.Stats
	Forwarding forwarding.Stats
	Streams    StreamStats
	// Entities are those whose partition this member leads, up to the requested number: first those that an earlier call
	// returned in the last hour, then those that were used in the last hour, then those with the most messages. Of a
	// partitioned entity, only the shards led here count. Omitted is the number of further entities.
	Entities []EntityStats
	Omitted  int
	// Namespaces is what namespaces store, as the sums of the last second have it.
	Namespaces quota.Stats
}

// PartitionStats holds the statistics of one replica.
type PartitionStats struct {
	partition.Status
	partition.Stats
	Entities int
	Messages uint64 // 0 for the catalog
	// Moving is set when the partition has a move that is not paused. Only its leader reports it.
	Moving bool
	// Missing is the number of wanted replicas whose members are not alive, as this member sees them.
	Missing int
	// Undecided is set when replicas differ and no state has a majority. Only the leader reports it.
	Undecided bool
}

// StoreStats holds the statistics of the log and the disk.
type StoreStats struct {
	partition.LogStats
	// DiskBytes and FreeBytes are the size of the file system of the data folder and the free space that this
	// process may still use; 0 if the operating system does not report them.
	DiskBytes, FreeBytes uint64
	// DiskSpace is the state that makes the member read-only.
	DiskSpace partition.DiskSpace
	// SlowDisk tells whether the disk is slow, and what became of the leaderships.
	SlowDisk slowdisk.Stats
}

// StreamStats holds the statistics of the peer port.
type StreamStats struct {
	Dialled   uint64 // streams opened to other members
	Accepted  uint64 // streams accepted from other members
	Failed    uint64 // failed attempts to open one
	Untrusted uint64 // streams refused, by either end, because of a certificate or because TLS is missing
	Forward   int    // open connections for requests, to and from other members
}

// EntityStats holds the statistics of a queue, a topic or a subscription.
type EntityStats struct {
	Namespace string
	Name      string // for a subscription its path
	Kind      fsm.EntityKind
	fsm.Counts
	// Oldest is the age of the first message of the main queue, by number, that is not scheduled; 0 when none
	// of the first 64 messages qualifies.
	Oldest time.Duration
	// MaxBytes is the limit of Counts.Bytes.
	MaxBytes uint64
	// WaitingSessions is the number of sessions with messages that no receiver has locked.
	WaitingSessions uint64
	// Totals are those of each shard that is led here. They never fall, so sums over shards must not depend on where these are led.
	Totals []ShardTotals
}

// ShardTotals are the totals of a shard, or of an entity that is not partitioned.
type ShardTotals struct {
	Partition fsm.PartitionID
	totals.Totals
}

// messages returns the number of messages, by which entities are ordered.
func (f *EntityStats) messages() uint64 {
	return f.Active + f.Deferred + f.Scheduled + f.DeadLetter + f.Transfer + f.TransferDeadLetter
}

// Stats returns the statistics, with at most the given number of entities (0 to 3,000). It reads every entity
// of the catalog and every replica of this member: do not call it more than once a second.
func (n *Node) Stats(entities int) Stats {
	s := Stats{Member: n.self, Cluster: n.clusterID(), Forwarding: n.forwarder.Stats(), Requests: n.router.Stats(), Clocks: n.clocks.Last()}
	for _, m := range n.knownMembers() {
		switch m.State {
		case topology.Alive:
			s.Alive++
		case topology.Left:
			s.Left++
		case topology.Dead:
			s.Dead++
		}
	}
	streams := n.peers.Stats()
	s.Streams = StreamStats{
		Dialled: streams.Dialled, Accepted: streams.Accepted, Failed: streams.Failed, Untrusted: streams.Untrusted,
		Forward: n.served.count() + n.peerClient.Conns(),
	}
	s.Store.LogStats, s.Store.DiskSpace = n.raftLog.Stats(), n.raftLog.DiskSpace()
	s.Store.SlowDisk = n.slowDisk.Stats()
	s.Store.FreeBytes, s.Store.DiskBytes, _ = partition.FileSystemSpace(n.config.Dir) // zeros when it fails
	moving, wanted := n.movingPartitions(), n.wantedReplicas()
	groups := n.replicas.All()
	led := make(map[fsm.PartitionID]*partition.Group)
	for id, group := range groups {
		p := partitionStats(group)
		for _, holder := range wanted[id] {
			if !n.isAlive(holder) {
				p.Missing++
			}
		}
		if p.IsLeader {
			led[id] = group
			p.Moving = moving[id]
			p.Undecided = n.comparer.IsUndecided(id)
		}
		s.Partitions = append(s.Partitions, p)
	}
	s.Led = len(led)
	s.Namespaces = n.quotas.Stats(led[fsm.CatalogPartition] != nil)
	slices.SortFunc(s.Partitions, func(a, b PartitionStats) int { return cmp.Compare(a.ID, b.ID) })
	if catalog := groups[fsm.CatalogPartition]; catalog != nil {
		w := entityScan{catalog: catalog, led: led, max: max(0, min(entities, statsEntitiesMax)), now: n.config.Now(), shown: n.shown.Load()}
		s.Entities, s.Omitted = w.run()
		n.shown.Store(w.shown.next(s.Entities, w.now))
	}
	return s
}

// movingPartitions returns the partitions that have a target in this member's replica of the catalog and are
// not paused.
func (n *Node) movingPartitions() map[fsm.PartitionID]bool {
	moving := make(map[fsm.PartitionID]bool)
	if placed := n.partitions.Load(); placed != nil {
		for i := range *placed {
			if part := &(*placed)[i]; part.Target != nil && !part.Paused {
				moving[part.ID] = true
			}
		}
	}
	return moving
}

func partitionStats(group *partition.Group) PartitionStats {
	p := PartitionStats{Status: group.Status(), Stats: group.Stats()}
	group.View(func(m partition.Machine) {
		if queues := raftgroup.Queues(m); queues != nil {
			p.Entities, p.Messages = queues.Entities(), queues.Messages()
		}
		if catalog := raftgroup.Catalog(m); catalog != nil {
			p.Entities = catalog.Entities()
		}
	})
	return p
}

// entityScan searches the catalog for the entities of a Stats, among those that this member leads.
type entityScan struct {
	catalog *partition.Group
	led     map[fsm.PartitionID]*partition.Group
	max     int
	now     time.Time
	shown   *shownEntities // by the Stats before

	scanned int // entities
	found   int // entities of which at least one shard is led here
	top     []*shardedEntity
}

// shardedEntity is an entity with its shards that are led here.
type shardedEntity struct {
	EntityStats
	shards []fsm.Shard
	rank   entityRank
}

func (w *entityScan) run() (top []EntityStats, omitted int) {
	var namespaces []fsm.Namespace
	for after := ""; ; after = namespaces[len(namespaces)-1].Name {
		var page []fsm.Namespace
		w.catalog.View(func(m partition.Machine) { page = raftgroup.Catalog(m).Namespaces(after, statsPageEntities) })
		if namespaces = append(namespaces, page...); len(page) < statsPageEntities {
			break
		}
	}
	for i := range namespaces {
		for _, kind := range []fsm.EntityKind{fsm.QueueEntity, fsm.TopicEntity, fsm.SubscriptionEntity} {
			w.scanKind(&namespaces[i], kind)
		}
	}
	w.keepTop()
	top = make([]EntityStats, len(w.top))
	for i, r := range w.top {
		w.setOldest(r)
		top[i] = r.EntityStats
	}
	return top, w.found - len(w.top)
}

// scanKind scans the entities of one kind in a namespace, page by page: no state machine is locked
// for longer than a page takes.
func (w *entityScan) scanKind(namespace *fsm.Namespace, kind fsm.EntityKind) {
	for after := ""; w.scanned < statsScanMax; {
		var page []fsm.Entity
		w.catalog.View(func(m partition.Machine) {
			page = raftgroup.Catalog(m).List(namespace.ID, kind, 0, after, statsPageEntities)
		})
		at := make(map[fsm.PartitionID][]shardOfPage)
		for i := range page {
			for _, shard := range shardsOrSelf(&page[i]) {
				if w.led[shard.Partition] != nil {
					at[shard.Partition] = append(at[shard.Partition], shardOfPage{i, shard})
				}
			}
		}
		here := make([]*shardedEntity, len(page))
		for id, shards := range at {
			w.led[id].View(func(m partition.Machine) {
				for _, s := range shards {
					w.add(here, page, namespace.Name, s, raftgroup.Queues(m))
				}
			})
		}
		for _, r := range here {
			if r != nil {
				w.found++
				r.rank = w.shown.rank(&r.EntityStats, w.now)
				w.top = append(w.top, r)
			}
		}
		if len(w.top) > 2*w.max+statsPageEntities {
			w.keepTop()
		}
		if w.scanned += len(page); len(page) < statsPageEntities {
			return
		}
		after = page[len(page)-1].Name
	}
}

// shardOfPage is a shard of entity i of a page.
type shardOfPage struct {
	i     int
	shard fsm.Shard
}

// shardsOrSelf returns the shards of an entity, or the entity itself when it has none.
func shardsOrSelf(e *fsm.Entity) []fsm.Shard {
	if len(e.Shards) > 0 {
		return e.Shards
	}
	return []fsm.Shard{{Entity: e.ID, Partition: e.Partition}}
}

// add adds what a shard has to its entity.
func (w *entityScan) add(here []*shardedEntity, page []fsm.Entity, namespace string, s shardOfPage, queues *queue.Machine) {
	counts, found := queues.Counts(s.shard.Entity)
	if !found {
		return
	}
	all, _ := queues.Totals(s.shard.Entity)
	r := here[s.i]
	if r == nil {
		r = &shardedEntity{EntityStats: EntityStats{Namespace: namespace, Name: page[s.i].Name, Kind: page[s.i].Kind}}
		here[s.i] = r
	}
	r.shards = append(r.shards, s.shard)
	r.Counts = entities.AddCounts(r.Counts, counts)
	r.MaxBytes += page[s.i].Settings.MaxBytes
	r.WaitingSessions += queues.AvailableSessions(s.shard.Entity)
	r.Totals = append(r.Totals, ShardTotals{Partition: s.shard.Partition, Totals: all})
}

// keepTop keeps the first entities by rank, then by messages. Entities with equally many are ordered by name, so that
// the selection is stable.
func (w *entityScan) keepTop() {
	slices.SortFunc(w.top, func(a, b *shardedEntity) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(b.messages(), a.messages()), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	if len(w.top) > w.max {
		clear(w.top[w.max:])
		w.top = w.top[:w.max]
	}
}

// setOldest sets the age of the oldest message.
func (w *entityScan) setOldest(r *shardedEntity) {
	if r.Active+r.Deferred == 0 {
		return
	}
	now := fsm.Instant(w.now.UnixMilli())
	for _, shard := range r.shards {
		group := w.led[shard.Partition]
		group.View(func(m partition.Machine) {
			for _, d := range raftgroup.Queues(m).Peek(fsm.Address{Entity: shard.Entity}, 0, statsOldestMessages) {
				if d.State != fsm.Scheduled {
					r.Oldest = max(r.Oldest, time.Duration(max(now, d.Enqueued)-d.Enqueued)*time.Millisecond)
					return
				}
			}
		})
	}
}
