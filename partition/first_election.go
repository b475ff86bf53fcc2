package partition

import (
	"context"
	"time"
)

// The first election of a new group.
const (
	firstElectionWithin = 2 * time.Second // then raft's own timers have expired
	firstElectionPoll   = 20 * time.Millisecond
)

// electFirst makes this replica campaign as soon as a quorum can vote, if it has just formed the group and is the first of
// its voters. A new group has no leader to lose: without this it would wait until raft's timers expire, and its first leader
// could be any voter.
func (g *Group) electFirst(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstElectionWithin)
	defer cancel()
	for !g.canQuorumVote(ctx) {
		if ctx.Err() != nil {
			return
		}
		pause(ctx, firstElectionPoll)
	}
	for ctx.Err() == nil && !g.isReluctant() {
		e := g.newElection(groupIsNew)
		if e.leader != "" {
			return
		}
		g.campaign(ctx, e)
		g.awaitLeader(ctx, e, campaignTimeout)
	}
}

// canQuorumVote reports whether a quorum of the voters that formed the group accepts streams.
func (g *Group) canQuorumVote(ctx context.Context) bool {
	open := 0
	for _, v := range g.cfg.Bootstrap {
		if v.Replica == g.cfg.Replica {
			open++
		} else if conn, err := g.cfg.Dial(ctx, v.Member, g.cfg.ID, v.Replica); err == nil {
			_ = conn.Close()
			open++
		}
	}
	return open > len(g.cfg.Bootstrap)/2
}
