package cluster

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// The pace of seeking a leader.
const (
	seekPauseMin = 2 * time.Millisecond
	seekPauseMax = 50 * time.Millisecond
	findWaitMax  = 150 * time.Millisecond // for the replicas to say who leads
)

// seek finds a leader in a goroutine of its own, one per line; mu is held.
func (l *line) seek() {
	if l.seeking || l.closed {
		return
	}
	l.seeking = l.ways.work(l.seekLoop)
}

// seekLoop asks until somebody leads or nobody wants to know any more.
func (l *line) seekLoop(ctx context.Context) {
	l.mu.Lock()
	pause := min(seekPauseMin<<min(l.refusals, 10), seekPauseMax)
	again := l.refusals > 1 // the last leader found refused at once
	l.mu.Unlock()
	changed := l.ways.changes()
	for {
		if again {
			l.rest(ctx, changed, pause)
			pause = min(2*pause, seekPauseMax)
		}
		again = true
		changed = l.ways.changes() // before looking, so that nothing is missed
		leader, term := l.find(ctx)
		l.mu.Lock()
		if leader != "" {
			l.seeking = false
			l.follow(leader, term)
			return
		}
		if ctx.Err() != nil || l.closed || (l.wanted == 0 && !l.hasQueued()) {
			l.seeking = false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
	}
}

// rest waits for a pause, or until something has changed that may have made a leader.
func (l *line) rest(ctx context.Context, changed <-chan struct{}, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-changed:
	case <-timer.C:
	}
}

// verify asks who leads although a leader is known, because it is slow; mu is held.
// Requests are not taken from a leader that is still the leader.
func (l *line) verify() {
	if l.seeking || l.closed || l.leader == "" {
		return
	}
	l.seeking = l.ways.work(func(ctx context.Context) {
		leader, term := l.find(ctx)
		l.mu.Lock()
		l.seeking = false
		if leader != "" && (leader == l.leader || term >= l.term) {
			l.follow(leader, term)
			return
		}
		l.pump() // what was queued meanwhile could not start a seek of its own
	})
}

// follow makes a member the leader in our eyes. What is on its way to another one is
// sent again: the header keeps it from being done twice. mu is held and is released.
func (l *line) follow(leader fsm.MemberID, term uint64) {
	if leader != l.leader {
		l.log.Debug("leader found", "partition", l.id, "peer", leader, "term", term)
	}
	l.leader, l.term, l.hint = leader, max(l.term, term), ""
	for serial := l.low; serial < l.next; serial++ {
		if q := *l.slot(serial); q.state == sent && q.target != leader {
			q.state, q.unknown = queued, true
			l.cursor = min(l.cursor, serial)
		}
	}
	for receiver := range l.lanes {
		if call := receiver.call; call.state == sent && call.target != leader {
			call.unknown = true
			call.enqueue()
		}
	}
	l.known.Notify()
	l.pump()
}

// find asks our own replica and the living others, all at once, who leads. Only a
// replica that says so of itself is believed; of several, the one with the highest term.
func (l *line) find(ctx context.Context) (leader fsm.MemberID, term uint64) {
	if own := l.ways.local(l.id); own != nil {
		if status := own.Status(); status.Leads {
			return l.self, status.Term
		}
	}
	members := l.ways.replicas(l.id)
	l.mu.Lock()
	hint, least := l.hint, l.term
	l.mu.Unlock()
	if hint != "" && hint != l.self && !slices.Contains(members, hint) {
		members = append(members, hint)
	}
	ctx, cancel := context.WithTimeout(ctx, findWaitMax)
	defer cancel()
	type found struct {
		member fsm.MemberID
		status statusReply
	}
	replies := make(chan found, len(members))
	for _, member := range members {
		go func() {
			status, _ := askStatus(ctx, l.ways, member, l.id)
			replies <- found{member, status}
		}()
	}
	for range members {
		reply := <-replies // comes at the latest when ctx ends
		if reply.status.Leads && (leader == "" || reply.status.Term > term) {
			leader, term = reply.member, reply.status.Term
			if term >= least {
				break // nobody whom we know of has led later
			}
		}
	}
	return leader, term
}

// awaitLeader returns who leads, and waits for somebody to do so.
func (l *line) awaitLeader(ctx context.Context) (fsm.MemberID, error) {
	l.mu.Lock()
	l.wanted++
	defer func() {
		l.mu.Lock()
		l.wanted--
		l.mu.Unlock()
	}()
	for {
		leader, closed, known := l.leader, l.closed, l.known.Wait()
		if leader == "" {
			l.seek()
		}
		l.mu.Unlock()
		if leader != "" {
			return leader, nil
		}
		if closed {
			return "", fsm.ServerBusy
		}
		select {
		case <-known:
		case <-ctx.Done():
			return "", ctx.Err()
		}
		l.mu.Lock()
	}
}

// askStatus asks one member about its replica of a partition.
func askStatus(ctx context.Context, w ways, member fsm.MemberID, id fsm.PartitionID) (status statusReply, err error) {
	conn := w.conn(member)
	if conn == nil {
		return status, errStreamUp
	}
	arguments, err := json.Marshal(statusQuery{Partition: id})
	if err != nil {
		return status, err
	}
	reply, err := conn.query(ctx, queryStatusOf, arguments)
	if err == nil {
		err = reply.decode(&status)
	}
	return status, err
}
