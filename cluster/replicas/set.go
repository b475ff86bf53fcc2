package replicas

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"sync"
	"sync/atomic"

	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/cluster/peer"
	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// Config is what a Set needs.
type Config struct {
	Self fsm.MemberID
	Dir  *datadir.Dir
	Log  *partition.Log
	// Configure returns the configuration of a replica of a partition. The Set fills in ID, Replica, Member, Dir, Log, Machine
	// and Bootstrap.
	Configure func(id fsm.PartitionID) partition.Config
	// Changed is called when a replica was opened or unregistered. It must not block.
	Changed func()
	// Opened is called when a replica was opened. It must not block.
	Opened func(id fsm.PartitionID)
	Logger *slog.Logger
}

// Set is the open replicas of a member.
type Set struct {
	Config

	groups atomic.Pointer[map[fsm.PartitionID]*partition.Group] // replaced under mu, never written

	mu      sync.Mutex // guards the fields below
	numbers map[fsm.PartitionID]uint32
	damaged map[fsm.PartitionID]uint32 // numbers of the replicas that were not opened because their log is damaged
}

// New returns a Set without open replicas.
func New(config *Config) *Set {
	s := &Set{Config: *config, numbers: make(map[fsm.PartitionID]uint32), damaged: make(map[fsm.PartitionID]uint32)}
	s.groups.Store(&map[fsm.PartitionID]*partition.Group{})
	return s
}

// All returns the open replicas by partition. The caller must not change the map.
func (s *Set) All() map[fsm.PartitionID]*partition.Group { return *s.groups.Load() }

// Group returns the open replica of a partition, nil when there is none.
func (s *Set) Group(id fsm.PartitionID) *partition.Group { return s.All()[id] }

// Local returns the open replica of a partition, nil when there is none.
func (s *Set) Local(id fsm.PartitionID) rpc.Group {
	if group := s.Group(id); group != nil {
		return group
	}
	return nil
}

// Number returns the number of the open replica of a partition, 0 when there is none.
func (s *Set) Number(id fsm.PartitionID) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.numbers[id]
}

// Name returns the raft name of the open replica of a partition, "" when there is none.
func (s *Set) Name(id fsm.PartitionID) string {
	if number := s.Number(id); number != 0 {
		return raftgroup.ReplicaID(s.Self, number)
	}
	return ""
}

// HasAll reports whether every replica that a record places on this member is open.
func (s *Set) HasAll(placed []fsm.Partition) bool {
	groups := s.All()
	for i := range placed {
		if part := &placed[i]; placement.HoldsReplica(part, s.Self) && groups[part.ID] == nil {
			return false
		}
	}
	return true
}

// Accept passes a stream to a group; with a nil conn it only reports whether the group is open. A backup names no replica.
func (s *Set) Accept(from fsm.MemberID, id fsm.PartitionID, replica string, conn net.Conn) peer.Reply {
	group := s.Group(id)
	switch {
	case group == nil:
		return peer.NoReplica
	case (replica != "" || conn != nil) && !group.Accepts(replica):
		return peer.OtherReplica
	case conn != nil:
		group.Accept(from, conn)
	}
	return peer.Accepted
}

// AnswerCampaign answers the question of a replica that wants to campaign.
func (s *Set) AnswerCampaign(ctx context.Context, q partition.Question) (verdict partition.Verdict, err error) {
	if group := s.Group(q.Partition); group != nil && group.Accepts(q.Replica) {
		verdict = group.Answer(ctx, q)
	}
	return verdict, nil
}

// register registers an open replica.
func (s *Set) register(id fsm.PartitionID, number uint32, group *partition.Group) {
	s.mu.Lock()
	groups := maps.Clone(s.All())
	groups[id] = group
	s.numbers[id] = number
	s.groups.Store(&groups)
	s.mu.Unlock()
	s.Changed()
}

// unregister makes the Set forget the replica of a partition. The caller closes or destroys it.
func (s *Set) unregister(id fsm.PartitionID) {
	s.mu.Lock()
	groups := maps.Clone(s.All())
	delete(groups, id)
	delete(s.numbers, id)
	s.groups.Store(&groups)
	s.mu.Unlock()
	s.Changed()
}

// takeDamaged returns the numbers of the replicas of message partitions whose log is damaged, by partition: those that could
// not be opened since the last call, and those that have halted.
func (s *Set) takeDamaged() map[fsm.PartitionID]uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.damaged
	s.damaged = make(map[fsm.PartitionID]uint32)
	for id, group := range s.All() {
		if id != fsm.CatalogPartition && errors.Is(group.Status().Halted, partition.ErrLogDamaged) {
			found[id] = s.numbers[id]
		}
	}
	return found
}

// Close closes all replicas. No replica may be opened during or after the call.
func (s *Set) Close(ctx context.Context) error {
	var closing sync.WaitGroup
	groups := s.All()
	s.groups.Store(&map[fsm.PartitionID]*partition.Group{})
	failures := make(chan error, len(groups))
	for _, group := range groups {
		closing.Go(func() { failures <- group.Close(ctx) })
	}
	closing.Wait()
	close(failures)
	var failed error
	for err := range failures {
		failed = errors.Join(failed, err)
	}
	return failed
}
