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
	putTokenCost        = 3       // a shared access signature that is checked
	putJWTCost          = 15      // any other token: the signature of a JWT, of RSA with 2048 bits or P-256, and its claims
	responseUnitBytes   = 512     // bytes of the response; for a peek, of the largest response that it may have, until that is known
	frameCost           = 1       // a frame other than a transfer, beyond those of deliveries; the following are added to it
	frameUnitBytes      = 4 << 10 // bytes of a frame besides the payload of a transfer
	valuesPerUnit       = 100     // values in a frame that are decoded, such as the entries of its maps
	requestUnitBytes    = 4 << 10 // bytes of a request, and of what its values take when they are decoded
	shortPayloadBytes   = 512     // a transfer with fewer, which does not end a delivery, costs as any other frame
	beginCost           = 10      // a session
	memoryRefusalCost   = 100     // a send that is refused because memory is short: clients would send it again at once
	transactedUnitBytes = 4 << 10 // bytes of a send in a transaction that cost a unit, besides one for the send: nothing delays it before the commit
	findCost            = 200     // a search for subscriptions in the whole namespace, which may have 100,000
	releaseCost         = 10      // messages that were locked for the client, and are released because it has taken its credit back or has detached
	releasedUnitBytes   = 4 << 10 // bytes of such messages that cost a unit more
	foundPerUnit        = 500     // unsettled deliveries among which those of a disposition are searched
	linksPerUnit        = 100     // links of a session that continue when its window opens
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
	answered   int // bytes of answers to frames
}

// countDelivery entitles the peer to the frames that belong to a delivery. mu is held.
func (c *costs) countDelivery() {
	c.frameUnits = max(c.frameUnits-framesPerDelivery*frameCost, -savedUnitsMax)
}

// countFrame counts a frame other than a transfer. Once in frameUnitsPerCharge units they become due, so that the usual
// frames of a connection do not wait. mu is held.
func (c *costs) countFrame(k kind, f *wire.Frame) {
	c.frameUnits += frameCost + performatives[k].units + f.Bytes/frameUnitBytes + f.Values/valuesPerUnit
	c.charge()
}

// countTransfer counts a transfer besides its payload. Credit limits deliveries, but neither the frames of one nor those that
// are aborted. mu is held.
func (c *costs) countTransfer(f *wire.Frame, t *wire.Transfer) {
	c.frameUnits += (f.Bytes-len(t.Payload))/frameUnitBytes + f.Values/valuesPerUnit
	if (t.More || t.Aborted) && len(t.Payload) < shortPayloadBytes {
		c.frameUnits += frameCost
	}
	c.charge()
}

// charge makes units due. Only the reader calls it. mu is held.
func (c *costs) charge() {
	if c.frameUnits >= frameUnitsPerCharge {
		c.due, c.frameUnits = c.due+c.frameUnits, 0
	}
}

// countSettled counts a disposition that searched so many unsettled deliveries, and found those that it settles. mu is held.
func (c *costs) countSettled(searched, found int) {
	c.frameUnits += searched/foundPerUnit + found/management.ItemsPerUnit
}

// countAnswered counts so many bytes of an answer to a frame. mu is held.
func (c *costs) countAnswered(bytes int) {
	c.answered += bytes
	c.frameUnits += c.answered / responseUnitBytes
	c.answered %= responseUnitBytes
}

// countReleased counts messages that were locked and are released. mu is held.
func (c *costs) countReleased(deliveries []fsm.Delivery) {
	bytes := 0
	for i := range deliveries {
		bytes += len(deliveries[i].Payload)
	}
	c.frameUnits += releaseCost + len(deliveries)/management.ItemsPerUnit + bytes/releasedUnitBytes
}

// countOpened counts the links that continue because a window has opened. mu is held.
func (c *costs) countOpened(links int) { c.frameUnits += links / linksPerUnit }

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
