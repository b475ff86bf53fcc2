package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// restoreLeaderTimeout is for the restored catalog to get its only replica as its leader.
const restoreLeaderTimeout = 30 * time.Second

// RestoreConfig says what is restored and where.
type RestoreConfig struct {
	Dir string // data folder of the member that is made: empty, or not there
	// Backup opens the backup of a partition, 0 being the catalog. It is called for every
	// partition of the catalog, one after the other, and closes what it gave before.
	Backup func(id fsm.PartitionID) (io.ReadCloser, error)
	// Only names the partitions whose entities are restored with what is in them, beside the
	// catalog; empty: all. The others begin with nothing, and their backups are not asked for.
	// Such a member is for looking for messages: what entities of several partitions have
	// agreed on is not there.
	Only []fsm.PartitionID
	// Restored is told of each partition that is done; of is how many there are. It may be nil.
	Restored func(info partition.BackupInfo, of int)
	Logger   *slog.Logger
}

// Restore makes the data folder of a new member out of the backups of a cluster
// ([Router.Backup]), while nothing runs there. The member holds everything, alone, under
// an id of its own; the members of before are recorded as removed. It is started like one
// that was stopped; others join it, and a rebalancing gives them their share. The cluster keeps
// its id, so what is left of the old one must never meet it.
//
// The folder cannot be started before Restore has returned without an error: it gets its
// identity last. When Restore fails, throw the folder away.
func Restore(ctx context.Context, config RestoreConfig) error {
	if err := restore(ctx, &config); err != nil {
		return fmt.Errorf("restore into %s: %w", config.Dir, err)
	}
	return nil
}

func restore(ctx context.Context, config *RestoreConfig) (err error) {
	names, err := os.ReadDir(config.Dir)
	switch {
	case err == nil && len(names) > 0:
		return errors.New("the folder is not empty")
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return err
	}
	if err := os.MkdirAll(filepath.Join(config.Dir, "groups"), 0o750); err != nil {
		return err
	}
	lock, err := lockFile(filepath.Join(config.Dir, "lock"))
	if err != nil {
		return err
	}
	x := &restoreRun{config: config, dataDir: &dataDir{
		dir: config.Dir, lock: lock, identity: identity{Version: identityVersion, Member: newMemberID()},
	}}
	defer func() { err = errors.Join(err, x.dataDir.close()) }()
	if x.raftLog, err = partition.OpenLog(x.dataDir.logPath(), config.Logger); err != nil {
		return err
	}
	failed := x.restoreAll(ctx)
	if err := errors.Join(failed, x.raftLog.Close()); err != nil {
		return err
	}
	return x.dataDir.save()
}

// restoreRun is one run of Restore.
type restoreRun struct {
	config  *RestoreConfig
	dataDir *dataDir
	raftLog *partition.Log
}

func (x *restoreRun) restoreAll(ctx context.Context) error {
	info, err := x.restoreOne(ctx, fsm.CatalogPartition, raftgroup.CatalogReplica)
	if err != nil {
		return err
	}
	placed, err := x.rewriteCatalog(ctx)
	if err != nil {
		return fmt.Errorf("settle the catalog: %w", err)
	}
	for _, id := range x.config.Only {
		if id != fsm.CatalogPartition && !slices.ContainsFunc(placed, func(p fsm.Partition) bool { return p.ID == id }) {
			return fmt.Errorf("the catalog of the backup has no partition %d", id)
		}
	}
	x.reportProgress(info, len(placed)+1)
	for i := range placed {
		id, number := placed[i].ID, placed[i].Replicas[0].Number
		if only := x.config.Only; len(only) > 0 && !slices.Contains(only, id) {
			info, err = partition.BackupInfo{Partition: id}, x.createEmpty(ctx, id, number)
		} else {
			info, err = x.restoreOne(ctx, id, number)
		}
		if err != nil {
			return err
		}
		x.reportProgress(info, len(placed)+1)
	}
	return nil
}

func (x *restoreRun) reportProgress(info partition.BackupInfo, of int) {
	if x.config.Restored != nil {
		x.config.Restored(info, of)
	}
}

// groupConfig is how the only replica of a partition is opened here.
func (x *restoreRun) groupConfig(id fsm.PartitionID, number uint32) partition.Config {
	self := x.dataDir.identity.Member
	name := raftgroup.ReplicaID(self, number)
	return partition.Config{
		ID: id, Replica: name, Member: self, Dir: x.dataDir.replicaPath(id, number),
		Log: x.raftLog, Machine: raftgroup.NewMachine(id), Bootstrap: []partition.Voter{{Replica: name, Member: self}},
		Dial: func(context.Context, fsm.MemberID, fsm.PartitionID) (net.Conn, error) {
			return nil, errors.New("nobody else is there")
		},
		Now: time.Now, Logger: x.config.Logger, Sizes: partition.DefaultSizes(), Timing: partition.DefaultTiming(),
	}
}

// restoreOne restores a partition. A backup of another one is refused.
func (x *restoreRun) restoreOne(ctx context.Context, id fsm.PartitionID, number uint32) (info partition.BackupInfo, err error) {
	file, err := x.config.Backup(id)
	if err != nil {
		return info, fmt.Errorf("backup of partition %d: %w", id, err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err = partition.RestoreFrom(ctx, x.groupConfig(id, number), file)
	if err == nil && info.Partition != id {
		err = fmt.Errorf("the backup given for partition %d is of partition %d", id, info.Partition)
	}
	return info, err
}

// createEmpty founds a partition that has nothing. Its entities the router makes when they are used.
func (x *restoreRun) createEmpty(ctx context.Context, id fsm.PartitionID, number uint32) error {
	group, err := partition.Open(ctx, x.groupConfig(id, number))
	if err != nil {
		return err
	}
	return errors.Join(awaitLeadership(ctx, group), group.Close(context.WithoutCancel(ctx)))
}

// rewriteCatalog makes the restored catalog say what is true here: every partition lies on this
// member, as its only replica, and nobody else is a member any more. What it says, the
// replicas that are restored next make true, before anybody can read it.
func (x *restoreRun) rewriteCatalog(ctx context.Context) (placed []fsm.Partition, err error) {
	group, err := partition.Open(ctx, x.groupConfig(fsm.CatalogPartition, raftgroup.CatalogReplica))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, group.Close(context.WithoutCancel(ctx))) }()
	if err := awaitLeadership(ctx, group); err != nil {
		return nil, err
	}
	var members []fsm.Member
	look := func() {
		group.View(func(m partition.Machine) {
			placed, members = raftgroup.Catalog(m).Partitions(), raftgroup.Catalog(m).Members()
			x.dataDir.identity.Cluster = raftgroup.Catalog(m).ClusterID()
		})
	}
	look()
	if x.dataDir.identity.Cluster == "" {
		return nil, errors.New("the catalog of the backup belongs to no cluster")
	}
	self := x.dataDir.identity.Member
	for i := range placed {
		id := placed[i].ID
		if !placed[i].Formed {
			if err := propose(ctx, group, fsm.PartitionFormed{Partition: id}); err != nil {
				return nil, err
			}
		}
		if err := propose(ctx, group, fsm.PlacePartition{Partition: id, Members: []fsm.MemberID{self}}); err != nil {
			return nil, err
		}
	}
	look()
	for i := range placed {
		if err := propose(ctx, group, fsm.PartitionPlaced{Partition: placed[i].ID, Replicas: placed[i].Target}); err != nil {
			return nil, err
		}
	}
	for _, m := range members {
		m.Removed, m.Drained = true, true
		if err := propose(ctx, group, fsm.SetMember{Member: m}); err != nil {
			return nil, err
		}
	}
	look()
	for i := range placed {
		if p := &placed[i]; len(p.Replicas) != 1 || p.Replicas[0].Member != self || p.Target != nil {
			return nil, fmt.Errorf("partition %d does not lie here alone", p.ID)
		}
	}
	return placed, nil
}

// awaitLeadership waits until the only replica of a group leads it.
func awaitLeadership(ctx context.Context, group *partition.Group) error {
	ctx, cancel := context.WithTimeout(ctx, restoreLeaderTimeout)
	defer cancel()
	for !group.Status().IsLeader {
		if sleep(ctx, readyPollInterval); ctx.Err() != nil {
			return fmt.Errorf("wait for a leader: %w", ctx.Err())
		}
	}
	return group.Read(ctx, func(partition.Machine) {})
}

// propose has a command applied.
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
