package fault

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/harness"
	"github.com/peeklock/peeklock/test/kit"
)

const (
	senders   = 16
	receivers = 8      // at each member that has some
	phase     = 2000   // sends confirmed in each phase of a test
	queue     = "load" // every cluster has this queue
)

func TestMain(m *testing.M) { harness.Main(m) }

// start starts three members with a queue, and returns its leader and the other members.
func start(t *testing.T, s harness.Settings, args ...string) (c *harness.Cluster, leader *harness.Member, others []*harness.Member) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts three processes: -short leaves it out")
	}
	c = harness.Start(t, harness.Options{Args: args})
	c.CreateQueue(t, queue, s)
	leader = c.Leader(t, queue)
	return c, leader, c.Others(leader)
}

// appliedIndex is how much of the queue's log a member has applied.
func appliedIndex(t *testing.T, m *harness.Member) uint64 {
	t.Helper()
	var n uint64
	harness.Eventually(t, confirmsWithin, "what "+m.Name+" has applied", func(ctx context.Context) error {
		q, err := m.Queue(ctx, queue)
		if err == nil {
			n, err = m.Applied(ctx, q.Partition)
		}
		return err
	})
	return n
}

// droppedIndex is an index up to which a member has dropped its log of the queue's partition: at least, because
// its log may have entries that it has not applied.
func droppedIndex(t *testing.T, m *harness.Member) uint64 {
	t.Helper()
	var n uint64
	harness.Eventually(t, confirmsWithin, "what "+m.Name+" keeps of its log", func(ctx context.Context) error {
		q, err := m.Queue(ctx, queue)
		if err != nil {
			return err
		}
		applied := fmt.Sprintf(`peeklock_partition_applied_index{partition="%d"}`, q.Partition)
		entries := fmt.Sprintf(`peeklock_partition_log_entries{partition="%d"}`, q.Partition)
		found, err := m.Metrics(ctx, applied, entries)
		n = uint64(max(0, found[applied]-found[entries]))
		return err
	})
	return n
}

// waitCaughtUp waits until a member has applied as much of the queue's log as another had
// when this began.
func waitCaughtUp(t *testing.T, late, other *harness.Member) {
	t.Helper()
	waitCaughtUpOn(t, queue, late, other)
}

// waitCaughtUpOn is waitCaughtUp for another queue.
func waitCaughtUpOn(t *testing.T, queue string, late, other *harness.Member) {
	t.Helper()
	var partition uint32
	var want uint64
	harness.Eventually(t, confirmsWithin, "what "+other.Name+" has", func(ctx context.Context) error {
		q, err := other.Queue(ctx, queue)
		if err == nil {
			partition = q.Partition
			want, err = other.Applied(ctx, partition)
		}
		return err
	})
	harness.Progress(t, confirmsWithin, late.Name+" catches up", func(ctx context.Context) (int, error) {
		have, err := late.Applied(ctx, partition)
		if err == nil && have < want {
			err = fmt.Errorf("applied %d, the others were at %d", have, want)
		}
		return int(have), err
	})
}

// The leader is killed under load. Clients at the other members see no error, only
// a pause; no message is lost or duplicated; the killed member starts again and
// catches up by snapshot, because the others have dropped the log that it missed; then it serves.
func TestMessagesSurviveLeaderKill(t *testing.T) {
	t.Parallel()
	c, leader, others := start(t, harness.Settings{LockDuration: time.Minute}, "--snapshot-bytes", "1048576")
	l := newLoad(t, queue)
	l.send(senders, others[0])
	l.receive(receivers, others[0])
	l.receive(receivers, others[1])
	l.waitConfirmed(phase, "load before the fault")
	l.takeLongestPause()

	leader.Kill()
	begun := appliedIndex(t, others[0])
	l.waitConfirmed(2*phase, "load without the leader")
	harness.Progress(t, confirmsWithin, "the others drop the log that the killed member needs", func(ctx context.Context) (int, error) {
		kept := appliedIndex(t, others[0])
		for _, m := range others {
			kept = min(kept, droppedIndex(t, m))
		}
		if kept <= begun {
			return int(kept), fmt.Errorf("entries after %d are kept, the killed member has %d", kept, begun)
		}
		return int(kept), nil
	})
	t.Logf("leader killed: sends paused for %v", l.takeLongestPause().Round(time.Millisecond))

	leader.Start()
	leader.WaitReady()
	l.waitConfirmed(phase, "load with the member back")
	waitCaughtUp(t, leader, others[0]) // by snapshot: the entries are gone
	t.Logf("member back: sends paused for %v", l.takeLongestPause().Round(time.Millisecond))

	l.finish(c)
	if n := l.errors.Load(); n != 0 {
		t.Errorf("clients at running members saw %d errors, only a pause is allowed", n)
	}
	// The member that was down serves the messages that it caught up with.
	c.WaitLed(t)
	l2 := newLoad(t, queue)
	l2.send(2, leader)
	l2.receive(2, leader)
	l2.waitConfirmed(100, "load at the member that was killed")
	l2.finish(c)
}

// Receive-and-delete while the leader is killed: a message leaves the queue when
// it is delivered, but the member of the receiver gets it again from the next
// leader when the answer was lost between members.
func TestReceiveAndDeleteSurvivesLeaderKill(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	c, leader, others := start(t, harness.Settings{})
	l := newLoad(t, queue)
	l.send(senders, others[0])
	l.receiveAndDelete(2, others[0])
	l.receiveAndDelete(2, others[1])
	l.waitConfirmed(phase, "load before the fault")
	leader.Kill()
	l.waitConfirmed(phase, "load without the leader")
	l.finish(c)
	if n := l.errors.Load(); n != 0 {
		t.Errorf("clients at running members saw %d errors, only a pause is allowed", n)
	}
}

// The leader is paused for longer than an election and continues as if it still led.
func TestMessagesSurviveLeaderPause(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	c, leader, others := start(t, harness.Settings{LockDuration: time.Minute})
	l := newLoad(t, queue)
	l.send(senders, others[0])
	l.receive(receivers, others[0])
	l.receive(receivers, others[1])
	l.waitConfirmed(phase, "load before the fault")
	l.takeLongestPause()
	leader.Pause()
	l.waitConfirmed(phase, "load while the leader is paused")
	leader.Resume()
	t.Logf("leader paused: sends paused for %v", l.takeLongestPause().Round(time.Millisecond))
	l.waitConfirmed(phase, "load with the member back")
	waitCaughtUp(t, leader, others[0])
	if n := l.errors.Load(); n != 0 {
		t.Errorf("clients at running members saw %d errors, only a pause is allowed", n)
	}
	l.finish(c)
}

// A member is killed together with the connections of its clients, which connect to other members:
// messages that they had locked return when the locks expire, and confirmed results stay valid.
func TestMessagesSurviveKillOfAMemberWithClients(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	c, leader, others := start(t, harness.Settings{LockDuration: 5 * time.Second})
	l := newLoad(t, queue)
	l.send(senders, leader, others[0])
	l.receive(receivers, leader, others[1])
	l.receive(receivers, others[0], others[1])
	l.waitConfirmed(phase, "load before the fault")
	leader.Kill()
	l.waitConfirmed(phase, "load at the members left")
	leader.Start()
	leader.WaitReady()
	waitCaughtUp(t, leader, others[0])
	l.finish(c)
}

// Without a quorum no send and no completion is confirmed; when the quorum returns,
// all waiting operations complete.
func TestNothingIsConfirmedWithoutQuorum(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	c, leader, others := start(t, harness.Settings{LockDuration: time.Minute})
	l := newLoad(t, queue)
	l.send(senders, leader)
	l.receive(receivers, leader)
	l.waitConfirmed(phase, "load before the fault")
	for _, m := range others {
		m.Pause()
	}
	alone := time.Now()
	<-time.After(3 * time.Second)
	back := time.Now()
	for _, m := range others {
		m.Resume()
	}
	for _, e := range l.confirmedBetween(alone, back) {
		t.Errorf("confirmed by one member of three: %s", e)
	}
	l.waitConfirmed(phase, "load with the members back")
	t.Logf("two members paused: sends paused for %v", l.takeLongestPause().Round(time.Millisecond))
	l.finish(c)
	if n := l.errors.Load(); n != 0 {
		t.Errorf("clients at a running member saw %d errors, only a pause is allowed", n)
	}
}

// All members are killed at once, as by a power failure. Accepted messages are there when they have started again.
func TestMessagesSurviveKillOfAllMembers(t *testing.T) {
	t.Parallel()
	c, leader, others := start(t, harness.Settings{LockDuration: 5 * time.Second})
	l := newLoad(t, queue)
	l.send(senders, leader, others[0], others[1])
	l.receive(1, others[0], others[1], leader) // only one, so that a backlog builds up
	l.waitConfirmed(phase, "load before the fault")
	for _, m := range c.Members {
		m.Kill()
	}
	for _, m := range c.Members {
		m.Start()
	}
	for _, m := range c.Members {
		m.WaitReady()
	}
	c.WaitLed(t)
	l.waitConfirmed(phase, "load after the fault")
	l.receive(receivers, others[1])
	l.finish(c)
}
