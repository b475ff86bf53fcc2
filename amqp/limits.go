package amqp

import (
	"time"

	"github.com/peeklock/peeklock/amqp/settlement"
)

// Limits of the memory and time that a peer can make the gateway use. A test reaches each of them.
const (
	frameBytesMax     = 65536 // max-frame-size that we announce (part 2, 2.7.1)
	frameBytesMin     = 512   // smallest max-frame-size that a peer may announce
	channelMax        = 4999  // channel-max that we announce: 5000 sessions per connection
	handleMax         = 9999  // handle-max that we announce, per session
	linksMax          = 10000 // links of one connection
	hostBytesMax      = 261   // host name and port of an open; the rest of a longer one is not kept
	linkNameBytesMax  = 1024  // link names; SDKs use up to about 300 bytes
	saslFrameBytesMax = 4096  // one SASL frame; part 5, 5.3.1 says 512, but a rule name and a key may have 256 bytes each

	linkCreditMax       = 1000                        // deliveries in flight from a sender on one link
	requestCreditMax    = 100                         // requests in flight or in progress on one link to a node
	requestsMax         = 128                         // requests in progress for one connection
	responsesMax        = 256                         // responses that wait for credit on one link
	nodeMessageBytesMax = 1 << 20                     // largest request of a node, unless messages of the entity are larger
	tokenBytesMax       = 64 << 10                    // largest request of $cbs; tokens of identity providers have up to about 16 KiB
	requestOverhead     = 64 << 10                    // bytes of a request besides the message that it holds
	settledAtOnceMax    = 2 * settlement.PartBytesMax // bytes counted for settlements in progress that store something: a part, and once more encoded
	batchBytesMax       = 1 << 20                     // largest batch that clients are told to send
	batchBytesMore      = 256                         // bytes by which a batch may exceed the largest message: Python's client counts short

	windowFrames     = 5000     // incoming-window of each session
	inFlightOverhead = 512      // bytes counted for a delivery in addition to its payload
	partialBytesMax  = 32 << 20 // unfinished deliveries of one connection together
	outBytesHigh     = 1 << 20  // above this no delivery is started
	outBytesMax      = 4 << 20  // above this nothing more is read from the peer
	bufferBytesKept  = 1 << 20  // a larger buffer is not kept for the next use
	bufferBytesIdle  = 1 << 10  // a larger buffer is not kept while there are only heartbeats
	heartbeatBytes   = 8        // one empty frame
	lockBatchMax     = 256      // messages requested at a time by one link
	lockBytesMax     = 1 << 20  // bytes requested at a time by one link
	queuedBytesMax   = 32 << 20 // locked but unsent payloads of one connection together
	unsettledMax     = 65536    // deliveries of one session sent and not settled
	fairBytesMin     = 64 << 10 // bytes that a connection may use even when memory is short

	deletedCheckEvery            = 250 * time.Millisecond // shortest time between two searches for links of deleted entities
	successorWithin              = time.Second            // for the entity that has the name of a deleted one
	shareWithin                  = 5 * time.Second        // for a request whose owner holds more than its share, before it is refused
	endWithin                    = time.Second            // for message sessions to be released before the end of their session is answered
	openWithin                   = 10 * time.Second       // from accept to open
	authenticateWithin           = 60 * time.Second       // from accept to the first token or link
	linklessWithin               = 5 * time.Minute        // without any link; as the cloud does
	idleTimeOut                  = 240 * time.Second      // idle-time-out that we announce
	idleTimeOutMin               = time.Second            // shortest idle-time-out that a peer may announce
	heartbeatMax                 = 15 * time.Second       // longest time without sending anything
	writeWithin                  = 30 * time.Second       // one write to the peer
	closeWithin                  = 5 * time.Second        // from our close to the peer's
	attachBusyMax                = 5 * time.Second        // how long an attach is repeated at a busy broker
	attachPauseMin               = 20 * time.Millisecond
	lockWait                     = 60 * time.Second // one wait of a receiving link
	sweepEvery                   = time.Second      // shortest interval between searches for expired deliveries
	connectionsMaxDefault        = 20000
	connectionsPerPeerMaxDefault = 5000        // of one address, or of one /64 of IPv6
	rejectLogEvery               = time.Second // shortest interval between log lines about rejected connections
	inFlightBytesDefault         = 16 << 20    // received and not yet stored, per connection
	memoryBytesDefault           = 1 << 30     // held by all connections together
)

// Limits of an unauthenticated connection. No client needs more than two sessions and four links to put a
// token.
const (
	unauthenticatedSessionsMax = 64        // sessions at a time
	unauthenticatedLinksMax    = 128       // links at a time
	unauthenticatedRefusalsMax = 64        // links refused for lack of a token
	unauthenticatedBytesMax    = 256 << 10 // received and not answered yet; also received in part
)

// coordinatorBytesMax limits a command to a coordinator; a discharge has 28 bytes.
const coordinatorBytesMax = 4096
