package cluster

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/topology"
)

// askStorage asks a member for its disk, and for the last backup of each partition that was read through it.
var askStorage = rpc.Query[struct{}, topology.Storage]{Kind: rpc.QueryStorage} //nolint:gochecknoglobals // never changed

// backedUp has the last complete backup of each partition that was read through this member since it started. It is safe for concurrent use.
type backedUp struct {
	mu   sync.Mutex
	last map[fsm.PartitionID]topology.Backup
}

func (b *backedUp) add(id fsm.PartitionID, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last == nil {
		b.last = make(map[fsm.PartitionID]topology.Backup)
	}
	b.last[id] = topology.Backup{Partition: id, At: time.Now().UTC(), Bytes: bytes}
}

func (b *backedUp) list() []topology.Backup {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Values(b.last))
}

// localStorage answers askStorage.
func (n *Node) localStorage() topology.Storage {
	own := topology.MemberStorage{ID: n.self, Name: n.config.Name}
	own.FreeBytes, own.DiskBytes, _ = partition.FileSystemSpace(n.config.Dir) // zeros when it fails
	return topology.Storage{Members: []topology.MemberStorage{own}, Backups: n.backedUp.list()}
}

// Storage returns the disks of all living members and the last backups that were read through them. It asks them at the same time, each
// for up to 2 s.
func (o *Operator) Storage(ctx context.Context) topology.Storage {
	members := o.livingMembers()
	parts, failed := make([]topology.Storage, len(members)), make([]bool, len(members))
	var asking sync.WaitGroup
	for i := range members {
		asking.Go(func() {
			part, err := askMember(ctx, o.node, members[i].ID, askStorage, struct{}{})
			parts[i], failed[i] = part, err != nil
		})
	}
	asking.Wait()
	all := topology.Storage{Members: []topology.MemberStorage{}, Backups: []topology.Backup{}}
	for i := range members {
		if failed[i] {
			all.Unreachable = append(all.Unreachable, members[i].Name)
		}
		all.Members, all.Backups = append(all.Members, parts[i].Members...), append(all.Backups, parts[i].Backups...)
	}
	slices.SortStableFunc(all.Members, func(a, b topology.MemberStorage) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(all.Backups, func(a, b topology.Backup) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), b.At.Compare(a.At))
	})
	all.Backups = slices.CompactFunc(all.Backups, func(a, b topology.Backup) bool { return a.Partition == b.Partition })
	return all
}
