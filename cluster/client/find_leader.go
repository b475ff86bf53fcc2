package client

import (
	"context"
	"slices"
	"time"

	"github.com/peeklock/peeklock/cluster/query"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
)

// The intervals of the search for a leader.
const (
	findPauseMin   = 2 * time.Millisecond
	findPauseMax   = 50 * time.Millisecond
	askReplicasMin = 20 * time.Millisecond // for replicas to answer the first question
	askReplicasMax = 150 * time.Millisecond
)

// findLeader looks for the leader in a goroutine, one per partition client: because none is known, or because the
// known one is slow or another member may lead. Requests stay with a leader that still leads. mu is held.
func (p *Client) findLeader() {
	if p.finding || p.closed {
		return
	}
	p.finding = p.transport.Go(p.findLeaderLoop)
}

// findLeaderLoop asks until a member leads or nothing waits for a leader any more. A member that is silent delays each
// round, so the first rounds are short.
func (p *Client) findLeaderLoop(ctx context.Context) {
	p.mu.Lock()
	pause := min(findPauseMin<<min(p.refusals, 10), findPauseMax)
	wait := p.leader == "" && p.refusals > 1 // the last leader found refused immediately
	p.mu.Unlock()
	changed, news, patience := p.transport.Changes(), p.leaderNews.Wait(), askReplicasMin
	for {
		if wait {
			p.waitForChange(ctx, changed, news, pause)
			pause = min(2*pause, findPauseMax)
			if isClosed(news) {
				pause, patience = findPauseMin, askReplicasMin
			}
		}
		wait = true
		changed, news = p.transport.Changes(), p.leaderNews.Wait() // before asking, so that no change is missed
		leader, term := p.askReplicas(ctx, patience, news)
		patience = min(2*patience, askReplicasMax)
		p.mu.Lock()
		// A leader that answered before leaderChanged was called may be an earlier one, and nobody would search again.
		if leader != "" && !isClosed(news) && (p.leader == "" || term >= p.term) {
			p.finding = false
			p.followLeader(leader, term)
			return
		}
		if ctx.Err() != nil || p.closed || (p.leaderWaiters == 0 && !p.hasOutstanding()) {
			p.finding = false
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
	}
}

// leaderChanged restarts the search for the leader: this member's replica follows another one, or has gained or lost
// the leadership itself. The leader that was known may be silent for good.
func (p *Client) leaderChanged() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hasOutstanding() {
		p.findLeader()
	} else {
		p.leader = "" // the next request looks for it
	}
	p.leaderNews.Notify()
}

// untilLeaderChanges returns a context for a question to the leader, which ends when leaderChanged is called: another
// member, which may be silent for good, then need not be waited for. This member answers by itself when it does not lead.
func (p *Client) untilLeaderChanges(ctx context.Context, leader fsm.MemberID) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if leader == p.self {
		return ctx, cancel
	}
	p.mu.Lock()
	news, isKnown := p.leaderNews.Wait(), p.leader == leader
	p.mu.Unlock()
	if !isKnown {
		cancel()
		return ctx, cancel
	}
	go func() {
		select {
		case <-news:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// waitForChange waits for a pause, or until leaders or members have changed, or leaderChanged is called.
func (p *Client) waitForChange(ctx context.Context, changed, news <-chan struct{}, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-changed:
	case <-news:
	case <-timer.C:
	}
}

// isClosed reports whether the channel of a Broadcast has been closed.
func isClosed(news <-chan struct{}) bool {
	select {
	case <-news:
		return true
	default:
		return false
	}
}

// followLeader sends all requests to the leader from now on. It sends requests in flight to another member
// again; their headers prevent them from being applied twice. mu is held and is released.
func (p *Client) followLeader(leader fsm.MemberID, term uint64) {
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
// Only a replica that says so about itself counts; of several, the one with the highest term. It waits for at most
// patience, and stops when leaderChanged is called meanwhile, which closes news. Whom a replica follows is asked too, in the next
// round if the replica is that of another member: a leader that a move has taken out of the placement leads until it can be removed.
func (p *Client) askReplicas(ctx context.Context, patience time.Duration, news <-chan struct{}) (leader fsm.MemberID, term uint64) {
	var followed uint64 // term of the leader that this member's replica follows
	var followedMember fsm.MemberID
	if own := p.transport.LocalReplica(p.id); own != nil {
		status := own.Status()
		if status.IsLeader {
			return p.self, status.Term
		}
		if followedMember = status.Leader; followedMember != "" {
			followed = status.Term
		}
	}
	members := p.transport.LeaderCandidates(p.id)
	p.mu.Lock()
	p.term = max(p.term, followed)
	hint, minTerm := p.hint, p.term
	p.mu.Unlock()
	for _, m := range []fsm.MemberID{hint, followedMember} {
		if m != "" && m != p.self && !slices.Contains(members, m) {
			members = append(members, m)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
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
		select {
		case reply := <-replies: // at the latest when ctx ends
			if named := reply.status.Leader; named != "" && named != reply.member {
				p.mu.Lock()
				p.hint = named
				p.mu.Unlock()
			}
			if !reply.status.IsLeader || (leader != "" && reply.status.Term <= term) {
				continue
			}
			leader, term = reply.member, reply.status.Term
			if term >= minTerm {
				return leader, term // no leader of a later term is known
			}
		case <-news:
			return "", 0
		}
	}
	return leader, term
}

// awaitLeader waits until a leader is known and returns it.
func (p *Client) awaitLeader(ctx context.Context) (fsm.MemberID, error) {
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
	return query.StatusOfReplica.Ask(ctx, conn.Query, query.StatusQuery{Partition: id})
}
