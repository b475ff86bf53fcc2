package amqp

import (
	"context"
	"time"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/wire"
)

// tick handles the only timer of the connection: heartbeats, silent peers, connections that do not
// authenticate, and grants that expire.
func (c *conn) tick(ctx context.Context) {
	defer c.recovered(ctx)
	now := time.Now()
	c.mu.Lock()
	phase, proven := c.phase, c.credentials.Authenticated()
	silent := now.Sub(time.Unix(0, c.lastRead.Load()))
	busy := c.readPaused // the reader is paused, so a silent peer cannot be detected
	linkless := c.links.open == 0 && now.Sub(c.links.changed) >= linklessWithin
	c.mu.Unlock()
	switch {
	case phase == phaseOpening && now.Sub(c.started) >= openWithin:
		c.fail(ctx, connectionForced("The connection was not opened in time."))
		return
	case phase == phaseOpen && !proven && now.Sub(c.started) >= authenticateWithin:
		c.fail(ctx, connectionForced("The connection has put no token and attached no link."))
		return
	case phase == phaseOpen && !busy && silent >= idleTimeOut:
		c.fail(ctx, connectionForced("The connection was silent for longer than its idle-time-out."))
		return
	case phase == phaseOpen && linkless:
		c.fail(ctx, connectionForced("The connection had no link for too long."))
		return
	}
	c.mu.Lock()
	defer c.unlock()
	if c.phase >= phaseClosing {
		return
	}
	c.credentials.CheckDue(ctx, now)
	c.transactions.Expire(now)
	c.flushStats()
	for _, s := range c.sessions {
		if s.unsettledMaxReached { // locks may have expired
			s.sendAllQueued()
		}
	}
	if c.phase == phaseOpen && now.Sub(time.Unix(0, c.lastWrite.Load())) >= c.heartbeatInterval() {
		c.emit(0, nil)
		c.lastWrite.Store(now.UnixNano())
	}
	c.memory.account.Trim(c.heldBytes())
	c.timer.Reset(c.nextTick(now))
}

// heartbeatInterval returns the longest time without sending anything: half of the peer's idle-time-out, and
// never more than heartbeatMax (docs/service-bus-protocol.md#keep-alive).
func (c *conn) heartbeatInterval() time.Duration {
	if c.peerIdleTimeout == 0 {
		return heartbeatMax
	}
	return min(heartbeatMax, c.peerIdleTimeout/2)
}

// nextTick returns the time until tick must run again.
func (c *conn) nextTick(now time.Time) time.Duration {
	next := now.Add(heartbeatMax)
	soonest := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	if c.phase == phaseOpening {
		soonest(c.started.Add(openWithin))
	} else {
		soonest(time.Unix(0, c.lastWrite.Load()).Add(c.heartbeatInterval()))
		if !c.readPaused {
			soonest(time.Unix(0, c.lastRead.Load()).Add(idleTimeOut))
		}
		if !c.credentials.Authenticated() {
			soonest(c.started.Add(authenticateWithin))
		}
		if c.links.open == 0 {
			soonest(c.links.changed.Add(linklessWithin))
		}
	}
	if check := c.credentials.NextCheck(); !check.IsZero() {
		soonest(check)
	}
	if at, ok := c.transactions.FirstDeadline(); ok {
		soonest(at)
	}
	return max(next.Sub(now), time.Millisecond)
}

// resetTimer resets the timer after a change.
func (c *conn) resetTimer() { c.timer.Reset(c.nextTick(time.Now())) }

func connectionForced(text string) *wire.Error {
	return &wire.Error{Condition: wire.ConditionConnectionForced, Description: text}
}

// shrinkBuffers releases buffers that traffic has enlarged. The reader calls it at a heartbeat, which the peer
// sends when it has nothing else to send. mu is held.
func (c *conn) shrinkBuffers() {
	c.reader.Shrink()
	c.idBuffer, c.rules, c.scratch = nil, message.RuleReader{}, nil
	c.memory.account.Trim(c.heldBytes())
}
