package move

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// The limits of moves.
const (
	concurrentMovesMax  = 2                      // partitions that get new replicas at the same time
	catchUpTimeout      = 5 * time.Second        // for a replica to apply what its leader has committed
	catchUpPollInterval = 20 * time.Millisecond  // between two checks of the replica
	moveBackoffMin      = 100 * time.Millisecond // between two attempts of a step that failed
	moveBackoffMax      = 5 * time.Second
	memberQueryTimeout  = time.Second     // for one member to answer
	stepTimeout         = 5 * time.Second // for one change of a group
	transferRetriesMin  = 3               // attempts of a step before a leader whose transfer failed removes itself
	moveRetriesMax      = 20              // attempts by one goroutine; the reconciler starts another
	// transferInterval is how long a member leads before it transfers a leadership because of the catalog. Two members whose replicas of
	// the catalog differ, when a drain begins, would hand it back and forth.
	transferInterval = time.Second
)

// Mover executes the moves of the partitions that its member leads, and transfers their leaderships. Its methods
// may be called concurrently.
type Mover struct {
	Config

	mu      sync.Mutex
	running map[fsm.PartitionID]bool // partitions that have a goroutine that moves them; guarded by mu
	led     leaderships              // guarded by mu
}

// leaderships are the terms in which this member was last seen to lead each partition, and since when.
type leaderships map[fsm.PartitionID]struct {
	term  uint64
	since time.Time
}

// isSettled reports whether this member has led a partition in that term for transferInterval.
func (l leaderships) isSettled(id fsm.PartitionID, term uint64, now time.Time) bool {
	seen := l[id]
	if seen.term != term {
		seen.term, seen.since = term, now
		l[id] = seen
	}
	return now.Sub(seen.since) >= transferInterval
}

// NewMover returns a Mover.
func NewMover(config Config) *Mover {
	return &Mover{Config: config, running: make(map[fsm.PartitionID]bool), led: make(leaderships)}
}

// Start starts a goroutine for a partition that is led here and whose replicas differ from its target,
// unless one is already running.
func (m *Mover) Start(part *fsm.Partition, group *partition.Group) {
	status := group.Status()
	if step := nextStep(part, &status, m.Self, m.isAlive, anyRemovable); step.stage == stageNone {
		return
	}
	m.mu.Lock()
	running := m.running[part.ID]
	m.running[part.ID] = true
	m.mu.Unlock()
	if running {
		return
	}
	ended := func() {
		m.mu.Lock()
		delete(m.running, part.ID)
		m.mu.Unlock()
	}
	if !m.Node.Go(func(ctx context.Context) {
		defer ended()
		m.runMove(ctx, part.ID)
	}) {
		ended()
	}
}

// runMove executes one step after another while this member leads the partition.
func (m *Mover) runMove(ctx context.Context, id fsm.PartitionID) {
	pause := moveBackoffMin
	for tries := 0; tries < moveRetriesMax; {
		group := m.Node.Group(id)
		if group == nil || ctx.Err() != nil || !group.Status().IsLeader {
			return
		}
		done, more, err := m.runMoveStep(ctx, id, group, tries)
		switch {
		case err != nil && ctx.Err() == nil && !errors.Is(err, partition.ErrNotLeader):
			m.Logger.InfoContext(ctx, "failed to complete a step of a partition move, will retry", "partition", id, "error", err)
		case !more:
			return
		}
		if done {
			tries, pause = 0, moveBackoffMin
			continue
		}
		tries++
		notify.Pause(ctx, pause)
		pause = min(2*pause, moveBackoffMax)
	}
}

// runMoveStep executes one step. It asks the catalog's leader for the record each time: this member's own
// replica of the catalog may be outdated, after a restart even by much, and a step based on an outdated record
// could undo what was done since. done means that the step succeeded; more means that there may be another
// step.
func (m *Mover) runMoveStep(ctx context.Context, id fsm.PartitionID, group *partition.Group, tries int) (done, more bool, err error) {
	reply, err := m.Node.Placement(ctx, id)
	if err != nil || len(reply.Partitions) != 1 {
		return false, true, err
	}
	part, status := &reply.Partitions[0], group.Status()
	step := nextStep(part, &status, m.Self, m.isAlive, func(v partition.Voter) bool {
		return !slices.Contains(status.Voters, v) || m.HasQuorumWithout(ctx, id, v, &status)
	})
	switch step.stage {
	case stageNone:
		return false, false, nil
	case stageWait:
		return false, true, nil
	case stageRemove:
		done, err = m.removeReplica(ctx, part, group, step.replica, tries)
		return done, true, err
	case stageAdd, stageCatchUp, stageReport:
	}
	if part.Paused || addsReplicas(part) && !isAdmitted(id, m.Node.Partitions(), m.acceptsReplicas) {
		return false, false, nil // the reconciler tries again
	}
	switch step.stage { //nolint:exhaustive // the others were before
	case stageAdd:
		done, err = m.addReplica(ctx, part, group, step.replica)
	case stageCatchUp:
		done, err = m.promoteReplica(ctx, part, group, step.replica)
	case stageReport:
		_, err = m.Router.Command(ctx, fsm.CatalogPartition, fsm.PartitionPlaced{Partition: id, Replicas: part.Target})
		if done = err == nil; done {
			m.Logger.InfoContext(ctx, "partition move was completed: the target replicas vote", "partition", id, "members", placement.Members(part.Target))
		}
	}
	return done, true, err
}

// addReplica adds an empty replica that does not vote, once its member has opened it. The member is asked
// first: while it still has a former replica of the group open, that replica would receive what is sent to the
// new one.
func (m *Mover) addReplica(ctx context.Context, part *fsm.Partition, group *partition.Group, v partition.Voter) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	theirs, err := m.Node.Status(ctx, v.Member, part.ID)
	if err != nil || theirs.Replica != v.Replica || theirs.Halted {
		return false, nil // the member does not know the replica yet, or is away
	}
	if err := group.AddNonvoter(ctx, v.Replica, v.Member); err != nil {
		return false, err
	}
	m.Logger.InfoContext(ctx, "replica was added, copying started", "partition", part.ID, "peer", v.Member, "replica", v.Replica)
	return true, nil
}

// promoteReplica makes a replica a voter when it has applied, twice in a row, everything that the leader had
// applied when the replica was asked; once may be coincidence. (Applied counts commands and configurations. The
// state machine does not see other committed entries, such as the one that begins a term.)
func (m *Mover) promoteReplica(ctx context.Context, part *fsm.Partition, group *partition.Group, v partition.Voter) (bool, error) {
	for range 2 {
		if !m.HasApplied(ctx, part.ID, v, group.Status().Applied) {
			return false, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if err := group.AddVoter(ctx, v.Replica, v.Member); err != nil {
		return false, err
	}
	m.Logger.InfoContext(ctx, "replica caught up and was given a vote", "partition", part.ID, "peer", v.Member, "replica", v.Replica)
	return true, nil
}

// HasApplied waits, for at most catchUpTimeout, until a replica has applied everything up to an index.
func (m *Mover) HasApplied(ctx context.Context, id fsm.PartitionID, v partition.Voter, index uint64) bool {
	ctx, cancel := context.WithTimeout(ctx, catchUpTimeout)
	defer cancel()
	for ctx.Err() == nil {
		theirs, err := m.Node.Status(ctx, v.Member, id)
		if err == nil && theirs.Replica == v.Replica && !theirs.Halted && theirs.Applied >= index {
			return true
		}
		notify.Pause(ctx, catchUpPollInterval)
	}
	return false
}

// removeReplica removes a replica that the catalog's record no longer contains from its group. If that replica
// leads, it transfers the leadership first. The remaining voters can form a quorum without it.
func (m *Mover) removeReplica(ctx context.Context, part *fsm.Partition, group *partition.Group, v partition.Voter, tries int) (bool, error) {
	if v.Member == m.Self {
		switch err := m.TransferToHolder(ctx, part, group); {
		case err == nil:
			return false, nil // the next leader continues
		case errors.Is(err, errNoSuccessor), errors.Is(err, partition.ErrTransferUsed) && tries < transferRetriesMin:
			return false, nil // a successor will appear, or another transfer is in progress
		case !errors.Is(err, partition.ErrTransferUsed):
			return false, err
		}
		// The transfer has failed before. Removing the leader costs an election and nothing else.
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if err := group.RemoveReplica(ctx, v.Replica); err != nil {
		return false, err
	}
	m.Logger.InfoContext(ctx, "replica was removed from its group", "partition", part.ID, "peer", v.Member, "replica", v.Replica)
	return true, nil
}

// HasQuorumWithout reports whether a voter can be removed: a majority of those that would remain are alive and have applied the newest
// configuration, so that they know of each other that they vote. If a majority of all voters store what the leader sends them, so must a
// majority of those that would remain; one without free space, with a hung disk or behind does not.
func (m *Mover) HasQuorumWithout(ctx context.Context, id fsm.PartitionID, v partition.Voter, status *partition.Status) bool {
	has := func(v partition.Voter, index uint64) bool {
		ctx, cancel := context.WithTimeout(ctx, memberQueryTimeout)
		defer cancel()
		return m.isAlive(v.Member) && m.HasApplied(ctx, id, v, index)
	}
	stores := func(v partition.Voter) bool { return m.Node.HasSpace(v.Member) && has(v, status.Applied) }
	left, knowing, storing := len(status.Voters)-1, 0, 0
	for _, other := range status.Voters {
		if other == v || !has(other, status.Configuration) {
			continue
		}
		knowing++
		if stores(other) {
			storing++
		}
	}
	if knowing <= left/2 || storing > left/2 {
		return knowing > left/2
	}
	return storing < len(status.Voters)/2 || !stores(v)
}
