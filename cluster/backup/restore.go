package backup

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// The limits of a restore.
const (
	restoreLeaderTimeout = 30 * time.Second // for the only replica of a group to lead it
	leaderPollInterval   = 20 * time.Millisecond
	aloneTimeout         = 50 * time.Millisecond // until the only replica of a group elects itself: it waits for nobody
)

// RestoreConfig says what is restored and where.
type RestoreConfig struct {
	Dir string // data folder of the new member: empty or absent
	// Backup opens the backup of a partition, 0 being the catalog. It is called for every
	// partition of the catalog, one after the other; each backup is closed before the next is opened.
	Backup func(id fsm.PartitionID) (io.ReadCloser, error)
	// Only names the partitions whose messages are restored in addition to the catalog; empty: all. The
	// other partitions begin empty, and their backups are not opened. Use such a member to look for
	// messages only: agreements between entities of several partitions are lost.
	Only []fsm.PartitionID
	// ClusterID is the id of the restored cluster, which no other may have; random if it is empty.
	ClusterID string
	// Restored, when set, is called for each partition that is complete; of is how many there are.
	Restored func(info partition.BackupInfo, of int)
	// LogStore is the kind of the log of the new member; empty means partition.JournalLog.
	LogStore partition.LogKind
	// FS and OpenLogStore are as in the configuration of a member.
	FS           partition.FS
	OpenLogStore partition.OpenLogStore
	Logger       *slog.Logger
}

// ErrIncomplete is wrapped by errors of Restore after which the folder holds a part of a restore, and nothing else.
var ErrIncomplete = errors.New("the restore is incomplete")

// Restore makes the data folder of a new member out of the backups of a cluster, while no process runs
// on it. The new member holds every partition, alone, under an id of its own; the former members
// are recorded as removed. It is started like a stopped member; others join it, and a rebalance
// gives them their share. The cluster gets an id of its own, so members of the cluster that was backed
// up, and those of another restore of the same backup, are refused. It has the format level of this
// binary.
//
// The partitions were copied at different moments. All of them begin the same new epoch of forwarding,
// so that what is forwarded from now on cannot be mistaken for what was forwarded before.
//
// The folder cannot be started before Restore has returned without an error: it gets its
// identity last. An error wraps ErrIncomplete if Restore has written to the folder, which was empty before: delete its content then.
func Restore(ctx context.Context, config RestoreConfig) error {
	if err := restore(ctx, &config); err != nil {
		return fmt.Errorf("restore into %s: %w", config.Dir, err)
	}
	return nil
}

func restore(ctx context.Context, config *RestoreConfig) (err error) {
	config.LogStore = cmp.Or(config.LogStore, partition.JournalLog)
	dir, err := datadir.Create(config.FS, config.Dir)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, dir.Close()); err != nil {
			err = fmt.Errorf("%w: %w", ErrIncomplete, err)
		}
	}()
	run := &restoreRun{config: config, dir: dir, cluster: cmp.Or(config.ClusterID, rand.Text()), epoch: raftgroup.NewEpoch()}
	if run.raftLog, err = partition.OpenLog(partition.LogConfig{
		Path: dir.LogPath(), Kind: config.LogStore, FS: config.FS, OpenStore: config.OpenLogStore, Logger: config.Logger,
	}); err != nil {
		return err
	}
	failed := run.restoreAll(ctx)
	if err := errors.Join(failed, run.raftLog.Close()); err != nil {
		return err
	}
	return dir.Update(func(id *datadir.Identity) {
		id.Cluster, id.Level, id.Log = run.cluster, fsm.FormatLevel, datadir.Log(config.LogStore)
	})
}

// restoreRun is one run of Restore.
type restoreRun struct {
	config  *RestoreConfig
	dir     *datadir.Dir
	raftLog *partition.Log
	cluster string // id of the restored cluster
	epoch   uint64 // of forwarding in all partitions
}

func (r *restoreRun) self() fsm.MemberID { return r.dir.Identity().Member }

func (r *restoreRun) restoreAll(ctx context.Context) error {
	info, err := r.restoreOne(ctx, fsm.CatalogPartition, raftgroup.CatalogReplica)
	if err != nil {
		return err
	}
	placed, err := r.rewriteCatalog(ctx)
	if err != nil {
		return fmt.Errorf("rewrite the catalog: %w", err)
	}
	for _, id := range r.config.Only {
		if id != fsm.CatalogPartition && !slices.ContainsFunc(placed, func(p fsm.Partition) bool { return p.ID == id }) {
			return fmt.Errorf("the catalog of the backup has no partition %d", id)
		}
	}
	r.reportProgress(info, len(placed)+1)
	for i := range placed {
		id, number := placed[i].ID, placed[i].Replicas[0].Number
		if only := r.config.Only; len(only) > 0 && !slices.Contains(only, id) {
			info = partition.BackupInfo{Partition: id} // begins empty
		} else if info, err = r.restoreOne(ctx, id, number); err != nil {
			return err
		}
		if err := r.beginEpoch(ctx, id, number); err != nil {
			return fmt.Errorf("begin an epoch of partition %d: %w", id, err)
		}
		r.reportProgress(info, len(placed)+1)
	}
	return nil
}

func (r *restoreRun) reportProgress(info partition.BackupInfo, of int) {
	if r.config.Restored != nil {
		r.config.Restored(info, of)
	}
}

// groupConfig configures the only replica of a partition.
func (r *restoreRun) groupConfig(id fsm.PartitionID, number uint32) partition.Config {
	self, timing := r.self(), partition.DefaultTiming()
	timing.Heartbeat, timing.Election, timing.Lease = aloneTimeout, aloneTimeout, aloneTimeout
	name := raftgroup.ReplicaID(self, number)
	return partition.Config{
		ID: id, Replica: name, Member: self, Dir: r.dir.ReplicaPath(id, number),
		Log: r.raftLog, Machine: raftgroup.NewMachine(id), Bootstrap: []partition.Voter{{Replica: name, Member: self}},
		Dial: func(context.Context, fsm.MemberID, fsm.PartitionID, string) (net.Conn, error) {
			return nil, errors.New("a restore has no other members")
		},
		Now: time.Now, Logger: r.config.Logger, Sizes: partition.DefaultSizes(), Timing: timing,
	}
}

// restoreOne restores a partition. A backup of another partition is refused.
func (r *restoreRun) restoreOne(ctx context.Context, id fsm.PartitionID, number uint32) (info partition.BackupInfo, err error) {
	file, err := r.config.Backup(id)
	if err != nil {
		return info, fmt.Errorf("open backup of partition %d: %w", id, err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err = partition.RestoreFrom(ctx, r.groupConfig(id, number), file)
	if err == nil && info.Partition != id {
		err = fmt.Errorf("the backup given for partition %d is of partition %d", id, info.Partition)
	}
	return info, err
}

// beginEpoch begins a new epoch of forwarding in a partition. A partition that was not restored is
// created, and has nothing: the router creates its entities when they are used.
func (r *restoreRun) beginEpoch(ctx context.Context, id fsm.PartitionID, number uint32) (err error) {
	group, err := partition.Open(ctx, r.groupConfig(id, number))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, group.Close(context.WithoutCancel(ctx))) }()
	if err := awaitLeadership(ctx, group); err != nil {
		return err
	}
	return propose(ctx, group, fsm.RaiseLevel{Level: fsm.FormatLevel}, fsm.BeginEpoch{Epoch: r.epoch})
}

// rewriteCatalog changes the restored catalog to what is true here: every partition is placed on this
// member, as its only replica, the former members are removed, and the cluster is another. The replicas that are restored
// next make that true before anything can read it.
func (r *restoreRun) rewriteCatalog(ctx context.Context) (placed []fsm.Partition, err error) {
	group, err := partition.Open(ctx, r.groupConfig(fsm.CatalogPartition, raftgroup.CatalogReplica))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, group.Close(context.WithoutCancel(ctx))) }()
	if err := awaitLeadership(ctx, group); err != nil {
		return nil, err
	}
	catalog := readCatalog(group)
	if catalog.cluster == "" {
		return nil, errors.New("the catalog of the backup belongs to no cluster")
	}
	if catalog.level > fsm.FormatLevel {
		return nil, fmt.Errorf("the backup has format level %d and this release knows %d: restore it with the release that wrote it, or a newer one", catalog.level, fsm.FormatLevel)
	}
	self := r.self()
	if err := propose(ctx, group, append([]fsm.Command{fsm.HoldLevel{}, fsm.RaiseLevel{Level: fsm.FormatLevel}}, takeOver(catalog.partitions, self)...)...); err != nil {
		return nil, err
	}
	if err := propose(ctx, group, r.takenOver(readCatalog(group), catalog.members)...); err != nil {
		return nil, err
	}
	placed = readCatalog(group).partitions
	for i := range placed {
		if p := &placed[i]; len(p.Replicas) != 1 || p.Replicas[0].Member != self || p.Target != nil {
			return nil, fmt.Errorf("partition %d is not placed on this member alone", p.ID)
		}
	}
	// A member reads the snapshot before it knows which entries behind it are committed, and members that
	// join receive it: it must have the new id.
	return placed, group.Snapshot(ctx)
}

// takenOver returns the commands that end the moves to this member, remove the former members, and give the
// cluster its new id.
func (r *restoreRun) takenOver(catalog catalogState, members []fsm.Member) (commands []fsm.Command) {
	for i := range catalog.partitions {
		commands = append(commands, fsm.PartitionPlaced{Partition: catalog.partitions[i].ID, Replicas: catalog.partitions[i].Target})
	}
	for _, m := range members {
		m.Removed, m.Drained = true, true
		commands = append(commands, fsm.SetMember{Member: m})
	}
	return append(commands, fsm.RenameCluster{ClusterID: r.cluster})
}

// takeOver returns the commands that give every partition this member as its only target.
func takeOver(placed []fsm.Partition, self fsm.MemberID) (commands []fsm.Command) {
	for i := range placed {
		id := placed[i].ID
		if !placed[i].Formed {
			commands = append(commands, fsm.PartitionFormed{Partition: id})
		}
		commands = append(commands, fsm.PlacePartition{Partition: id, Members: []fsm.MemberID{self}})
	}
	return commands
}

// catalogState is what a restore reads from a catalog.
type catalogState struct {
	cluster    string
	level      uint32
	partitions []fsm.Partition
	members    []fsm.Member
}

func readCatalog(group *partition.Group) (s catalogState) {
	group.View(func(m partition.Machine) {
		catalog := raftgroup.Catalog(m)
		s = catalogState{catalog.ClusterID(), catalog.FormatLevel(), catalog.Partitions(), catalog.Members()}
	})
	return s
}

// awaitLeadership waits until the only replica of a group leads it.
func awaitLeadership(ctx context.Context, group *partition.Group) error {
	ctx, cancel := context.WithTimeout(ctx, restoreLeaderTimeout)
	defer cancel()
	ticker := time.NewTicker(leaderPollInterval)
	defer ticker.Stop()
	for !group.Status().IsLeader {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for a leader: %w", ctx.Err())
		}
	}
	return group.Read(ctx, func(partition.Machine) {})
}

// propose applies commands, each after the one before it is done.
func propose(ctx context.Context, group *partition.Group, commands ...fsm.Command) error {
	for _, command := range commands {
		done := make(chan partition.Answer, 1)
		group.Submit(fsm.AppendCommand(nil, fsm.Header{}, command), func(a partition.Answer) { done <- a })
		select {
		case a := <-done:
			if a.Outcome != partition.Done {
				return fmt.Errorf("%T was not done", command)
			}
			if a.Result.Code != fsm.OK {
				return fmt.Errorf("%T: %w", command, a.Result.Code)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
