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
func (c *candidacy) electFirst(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstElectionWithin)
	defer cancel()
	for !c.canQuorumVote(ctx) {
		if ctx.Err() != nil {
			return
		}
		pause(ctx, firstElectionPoll)
	}
	for ctx.Err() == nil && !c.isReluctant() {
		e := c.newElection(groupIsNew)
		if e.leader != "" {
			return
		}
		c.campaign(ctx, e)
		c.awaitLeader(ctx, e, campaignTimeout)
	}
}

// canQuorumVote reports whether a quorum of the voters that formed the group accepts streams.
func (c *candidacy) canQuorumVote(ctx context.Context) bool {
	open := 0
	for _, v := range c.cfg.Bootstrap {
		if v.Replica == c.cfg.Replica {
			open++
		} else if conn, err := c.cfg.Dial(ctx, v.Member, c.cfg.ID, v.Replica); err == nil {
			_ = conn.Close()
			open++
		}
	}
	return open > len(c.cfg.Bootstrap)/2
}
