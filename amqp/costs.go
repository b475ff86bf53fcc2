package amqp

import (
	"context"

	"github.com/peeklock/peeklock/amqp/wire"
)

// Rates of the work that clients request by attaching links and by requests to nodes, in units (package work). A
// unit is about 10 us of one processor, of all members together. Sends, deliveries and settlements on links are
// not counted: credit limits them.
const (
	workPerSecond             = 5000   // units per second of one connection
	workBurst                 = 50_000 // units of one connection without delay
	workPerSecondPerProcessor = 10_000 // units per second of all connections, for each processor; the burst is that of one second
)

// Costs in units.
const (
	attachCost        = 25   // a link beyond the most that the connection had at a time
	requestCost       = 5    // a request to a node; the following are added to it
	putTokenCost      = 3    // a signature that is checked
	fetchCost         = 25   // fetchAtOnceMax deferred messages: one log entry
	itemsPerUnit      = 16   // lock tokens, scheduled messages to cancel, or messages of a batch delete
	responseUnitBytes = 1024 // bytes of the response; for a peek, of the largest response that it may have, until that is known
)

// costOf returns the units that a request costs, without its response.
func costOf(r *request, operation string) int {
	body, _ := r.body.(wire.Map)
	switch operation {
	case putTokenOperation:
		return requestCost + putTokenCost
	case renewOperation, dispositionOperation:
		return requestCost + countOf(body.Get("lock-tokens"))/itemsPerUnit
	case cancelOperation:
		return requestCost + countOf(body.Get("sequence-numbers"))/itemsPerUnit
	case batchDeleteOperation:
		most, _ := integerOf(body.Get(messageCountKey))
		return requestCost + int(max(0, min(most, purgeMessagesMax)))/itemsPerUnit
	case deferredOperation:
		fetches := (countOf(body.Get("sequence-numbers")) + fetchAtOnceMax - 1) / fetchAtOnceMax
		return requestCost + fetches*fetchCost
	}
	return requestCost
}

// countOf returns the number of elements of a list in a request, at most tokensMax: longer ones are refused.
func countOf(v any) int {
	if array, ok := v.(wire.Array); ok {
		v = array.Values
	}
	switch values := v.(type) {
	case []wire.UUID:
		return min(len(values), tokensMax)
	case []int64:
		return min(len(values), tokensMax)
	case []any:
		return min(len(values), tokensMax)
	}
	return 1
}

// waitForWork makes the reader wait until it may begin work. It charges the responses that were sent since the
// last time too. mu is not held.
func (c *conn) waitForWork(ctx context.Context, cost int) {
	c.mu.Lock()
	cost += c.unpaidBytes / responseUnitBytes
	c.unpaidBytes %= responseUnitBytes
	if cost < 0 { // requests were charged for more than they got
		c.unpaidBytes, cost = c.unpaidBytes+cost*responseUnitBytes, 0
	}
	c.readPaused = true // a peer that is not read is not silent
	c.mu.Unlock()
	c.work.Wait(ctx, c.failing, cost)
	c.mu.Lock()
	c.readPaused = false
	c.mu.Unlock()
}
