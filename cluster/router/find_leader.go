package router

import (
	"context"
	"slices"
	"time"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
)

// The intervals of the search for a leader.
const (
	findPauseMin   = 2 * time.Millisecond
	findPauseMax   = 50 * time.Millisecond
	askReplicasMax = 150 * time.Millisecond // for replicas to answer
)

// findLeader looks for the leader in a goroutine, one per partition client; mu is held.
func (p *partitionClient) findLeader() {
	if p.finding || p.closed {
		return
	}
	p.finding = p.transport.Go(p.findLeaderLoop)
}

// findLeaderLoop asks until a member leads or nothing waits for a leader any more.
func (p *partitionClient) findLeaderLoop(ctx context.Context) {
	p.mu.Lock()
	pause := min(findPauseMin<<min(p.refusals, 10), findPauseMax)
	wait := p.refusals > 1 // the last leader found refused immediately
	p.mu.Unlock()
	changed := p.transport.Changes()
	for {
		if wait {
			p.waitForChange(ctx, changed, pause)
			pause = min(2*pause, findPauseMax)
		}
		wait = true
		changed = p.transport.Changes() // before asking, so that no change is missed
		leader, term := p.askReplicas(ctx)
		p.mu.Lock()
		if leader != "" {
			p.finding = false
			p.followLeader(leader, term)
			return
		}
		if ctx.Err() != nil || p.closed || (p.leaderWaiters == 0 && !p.hasQueued()) {
			p.finding = false
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
	}
}

// waitForChange waits for a pause, or until leaders or members have changed.
func (p *partitionClient) waitForChange(ctx context.Context, changed <-chan struct{}, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-changed:
	case <-timer.C:
	}
}

// verifyLeader asks which member leads although a leader is known, because that one is slow; mu is held.
// Requests stay with a leader that still leads.
func (p *partitionClient) verifyLeader() {
	if p.finding || p.closed || p.leader == "" {
		return
	}
	p.finding = p.transport.Go(func(ctx context.Context) {
		leader, term := p.askReplicas(ctx)
		p.mu.Lock()
		p.finding = false
		if leader != "" && (leader == p.leader || term >= p.term) {
			p.followLeader(leader, term)
			return
		}
		p.sendQueued() // requests queued meanwhile could not start a search
	})
}

// followLeader sends all requests to the leader from now on. It sends requests in flight to another member
// again; their headers prevent them from being applied twice. mu is held and is released.
func (p *partitionClient) followLeader(leader fsm.MemberID, term uint64) {
	if leader != p.leader {
		p.log.Debug("leader found", "partition", p.id, "peer", leader, "term", term)
	}
	p.leader, p.term, p.hint = leader, max(p.term, term), ""
	for serial := p.low; serial < p.next; serial++ {
		if q := *p.windowSlot(serial); q.state == requestSent && q.target != leader {
			q.state, q.unknown = requestQueued, true
			p.cursor = min(p.cursor, serial)
		}
	}
	for receiver := range p.receivers {
		if call := receiver.call; call.state == requestSent && call.target != leader {
			call.unknown = true
			call.enqueue()
		}
	}
	p.leaderKnown.Notify()
	p.sendQueued()
}

// askReplicas asks this member's replica and those of other live members concurrently whether they lead.
// Only a replica that says so about itself counts; of several, the one with the highest term.
func (p *partitionClient) askReplicas(ctx context.Context) (leader fsm.MemberID, term uint64) {
	if own := p.transport.LocalReplica(p.id); own != nil {
		if status := own.Status(); status.IsLeader {
			return p.self, status.Term
		}
	}
	members := p.transport.LeaderCandidates(p.id)
	p.mu.Lock()
	hint, minTerm := p.hint, p.term
	p.mu.Unlock()
	if hint != "" && hint != p.self && !slices.Contains(members, hint) {
		members = append(members, hint)
	}
	ctx, cancel := context.WithTimeout(ctx, askReplicasMax)
	defer cancel()
	type found struct {
		member fsm.MemberID
		status raftgroup.Status
	}
	replies := make(chan found, len(members))
	for _, member := range members {
		go func() {
			status, _ := askStatus(ctx, p.transport, member, p.id)
			replies <- found{member, status}
		}()
	}
	for range members {
		reply := <-replies // at the latest when ctx ends
		if reply.status.IsLeader && (leader == "" || reply.status.Term > term) {
			leader, term = reply.member, reply.status.Term
			if term >= minTerm {
				break // no leader of a later term is known
			}
		}
	}
	return leader, term
}

// awaitLeader waits until a leader is known and returns it.
func (p *partitionClient) awaitLeader(ctx context.Context) (fsm.MemberID, error) {
	p.mu.Lock()
	p.leaderWaiters++
	defer func() {
		p.mu.Lock()
		p.leaderWaiters--
		p.mu.Unlock()
	}()
	for {
		leader, closed, known := p.leader, p.closed, p.leaderKnown.Wait()
		if leader == "" {
			p.findLeader()
		}
		p.mu.Unlock()
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
		p.mu.Lock()
	}
}

// askStatus asks one member about its replica of a partition.
func askStatus(ctx context.Context, transport Transport, member fsm.MemberID, id fsm.PartitionID) (raftgroup.Status, error) {
	conn := transport.Conn(member)
	if conn == nil {
		return raftgroup.Status{}, rpc.ErrClosed
	}
	return StatusOfReplica.Ask(ctx, conn.Query, StatusQuery{Partition: id})
}
