package amqp

import (
	"github.com/peeklock/peeklock/amqp/management"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// Rates of the work that clients request by attaching links and by requests to nodes, in units (package work). A
// unit is about 10 us of one processor, of all members together. Deliveries are not counted, since credit limits
// them, nor are the other frames that they need. Exceptions are sends that credit does not limit: those in transactions
// and those that are refused for lack of memory.
const (
	workPerSecond             = 5000   // units per second of one connection
	workBurst                 = 50_000 // units of one connection without delay
	workPerSecondPerProcessor = 10_000 // units per second of all connections, for each processor
	workBurstsPerSecond       = 10     // bursts of all connections that make a second's work: more at once delays deliveries
)

// The same for unauthenticated connections, which cannot delay others. They must suffice for the tokens of
// connectionsMaxDefault clients that connect again at once.
const (
	unauthenticatedWorkPerSecond             = 500
	unauthenticatedWorkBurst                 = 5000
	unauthenticatedWorkPerSecondPerProcessor = 5000
)

// The same for what links with selectors look at, beside the other work. Connections that look at a lot share a tenth of
// each processor, so that selectors delay nothing else.
const (
	scanWorkPerSecond             = 20_000
	scanWorkBurst                 = 5000
	scanWorkPerSecondPerProcessor = 10_000
)

// Costs in units.
const (
	attachCost          = 25      // a link beyond the most that the connection had at a time
	requestCost         = 5       // a request to a node; the following are added to it
	putTokenCost        = 3       // a signature that is checked
	responseUnitBytes   = 512     // bytes of the response; for a peek, of the largest response that it may have, until that is known
	frameCost           = 1       // a frame other than a transfer, beyond those of deliveries; the following is added to it
	beginCost           = 10      // a session
	memoryRefusalCost   = 100     // a send that is refused because memory is short: clients would send it again at once
	transactedUnitBytes = 4 << 10 // bytes of a send in a transaction that cost a unit, besides one for the send: nothing delays it before the commit
	findCost            = 200     // a search for subscriptions in the whole namespace, which may have 100,000
	emptyLockCost       = 5       // a request for messages, to the leader of the entity, that finds none until it is cancelled or ends
)

// Frames that are not charged. Every delivery in either direction may have its own flow and disposition and
// acknowledge the peer's; a connection may use that later, for example to settle in bulk, and is charged in lots.
const (
	framesPerDelivery   = 4
	savedUnitsMax       = 10_000
	frameUnitsPerCharge = 100
)

// costs counts the work of a connection that is not charged yet. The mutex of the connection guards it.
type costs struct {
	frameUnits int // units of frames; negative: entitlement of deliveries
	due        int // units of frames and sends that the reader has to wait for; used by the reader only
	bytes      int // bytes of responses; negative: charged in advance
}

// countDelivery entitles the peer to the frames that belong to a delivery. mu is held.
func (c *costs) countDelivery() {
	c.frameUnits = max(c.frameUnits-framesPerDelivery*frameCost, -savedUnitsMax)
}

// countFrame counts a frame other than a transfer, such as a flow that requests a response. Once in
// frameUnitsPerCharge units they become due, so that the usual frames of a connection do not wait. mu is held.
func (c *costs) countFrame(body wire.Performative) {
	c.frameUnits += frameCost
	if _, ok := body.(*wire.Begin); ok {
		c.frameUnits += beginCost
	}
	if c.frameUnits >= frameUnitsPerCharge {
		c.due, c.frameUnits = c.due+c.frameUnits, 0
	}
}

// countTransactedSend counts a send of so many bytes in a transaction. The reader calls it. mu is held.
func (c *costs) countTransactedSend(bytes int) { c.due += 1 + bytes/transactedUnitBytes }

// countStored counts the bytes that settlements store, each message counted. mu is held.
func (c *costs) countStored(bytes int) {
	c.frameUnits += min(management.StoredUnitsMax, bytes/management.StoredUnitBytes)
}

// countMemoryRefusal counts a send that is refused because memory is short. The reader calls it. mu is held.
func (c *costs) countMemoryRefusal() { c.due += memoryRefusalCost }

// countEmptyLock counts a request for messages that found none. mu is held.
func (c *costs) countEmptyLock() { c.frameUnits += emptyLockCost }

// countFind counts a search for subscriptions. mu is held.
func (c *costs) countFind() { c.frameUnits += findCost }

// countBrowse counts a request of a browsing link, which costs what a peek costs. mu is held.
func (c *costs) countBrowse(found []fsm.Delivery) {
	c.frameUnits += requestCost
	for i := range found {
		c.frameUnits += len(found[i].Payload) / responseUnitBytes
	}
}
