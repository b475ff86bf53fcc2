package backup

import (
	"context"
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
	// Restored, when set, is called for each partition that is complete; of is how many there are.
	Restored func(info partition.BackupInfo, of int)
	// FS and OpenLogStore are as in the configuration of a member.
	FS           partition.FS
	OpenLogStore partition.OpenLogStore
	Logger       *slog.Logger
}

// Restore makes the data folder of a new member out of the backups of a cluster, while no process runs
// on it. The new member holds every partition, alone, under an id of its own; the former members
// are recorded as removed. It is started like a stopped member; others join it, and a rebalance
// gives them their share. The cluster keeps its id, so what is left of the old cluster must never
// reach the new one.
//
// The folder cannot be started before Restore has returned without an error: it gets its
// identity last. After a failure, delete the folder.
func Restore(ctx context.Context, config RestoreConfig) error {
	if err := restore(ctx, &config); err != nil {
		return fmt.Errorf("restore into %s: %w", config.Dir, err)
	}
	return nil
}

func restore(ctx context.Context, config *RestoreConfig) (err error) {
	dir, err := datadir.Create(config.FS, config.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	run := &restoreRun{config: config, dir: dir}
	if run.raftLog, err = partition.OpenLog(partition.LogConfig{
		Path: dir.LogPath(), FS: config.FS, OpenStore: config.OpenLogStore, Logger: config.Logger,
	}); err != nil {
		return err
	}
	failed := run.restoreAll(ctx)
	if err := errors.Join(failed, run.raftLog.Close()); err != nil {
		return err
	}
	return dir.Update(func(id *datadir.Identity) { id.Cluster = run.cluster })
}

// restoreRun is one run of Restore.
type restoreRun struct {
	config  *RestoreConfig
	dir     *datadir.Dir
	raftLog *partition.Log
	cluster string // id, from the restored catalog
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
			info, err = partition.BackupInfo{Partition: id}, r.createEmpty(ctx, id, number)
		} else {
			info, err = r.restoreOne(ctx, id, number)
		}
		if err != nil {
			return err
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
	self := r.self()
	name := raftgroup.ReplicaID(self, number)
	return partition.Config{
		ID: id, Replica: name, Member: self, Dir: r.dir.ReplicaPath(id, number),
		Log: r.raftLog, Machine: raftgroup.NewMachine(id), Bootstrap: []partition.Voter{{Replica: name, Member: self}},
		Dial: func(context.Context, fsm.MemberID, fsm.PartitionID) (net.Conn, error) {
			return nil, errors.New("a restore has no other members")
		},
		Now: time.Now, Logger: r.config.Logger, Sizes: partition.DefaultSizes(), Timing: partition.DefaultTiming(),
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

// createEmpty makes a partition that has nothing. The router creates its entities when they are used.
func (r *restoreRun) createEmpty(ctx context.Context, id fsm.PartitionID, number uint32) error {
	group, err := partition.Open(ctx, r.groupConfig(id, number))
	if err != nil {
		return err
	}
	return errors.Join(awaitLeadership(ctx, group), group.Close(context.WithoutCancel(ctx)))
}

// rewriteCatalog changes the restored catalog to what is true here: every partition is placed on this
// member, as its only replica, and the former members are removed. The replicas that are restored
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
	r.cluster = catalog.cluster
	self := r.self()
	for _, command := range takeOver(catalog.partitions, self) {
		if err := propose(ctx, group, command); err != nil {
			return nil, err
		}
	}
	placed = readCatalog(group).partitions
	for i := range placed {
		if err := propose(ctx, group, fsm.PartitionPlaced{Partition: placed[i].ID, Replicas: placed[i].Target}); err != nil {
			return nil, err
		}
	}
	for _, m := range catalog.members {
		m.Removed, m.Drained = true, true
		if err := propose(ctx, group, fsm.SetMember{Member: m}); err != nil {
			return nil, err
		}
	}
	placed = readCatalog(group).partitions
	for i := range placed {
		if p := &placed[i]; len(p.Replicas) != 1 || p.Replicas[0].Member != self || p.Target != nil {
			return nil, fmt.Errorf("partition %d is not placed on this member alone", p.ID)
		}
	}
	return placed, nil
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
	partitions []fsm.Partition
	members    []fsm.Member
}

func readCatalog(group *partition.Group) (s catalogState) {
	group.View(func(m partition.Machine) {
		catalog := raftgroup.Catalog(m)
		s = catalogState{catalog.ClusterID(), catalog.Partitions(), catalog.Members()}
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

// propose applies a command and waits for its result.
func propose(ctx context.Context, group *partition.Group, command fsm.Command) error {
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
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
