package receiver

import "time"

// Pauses between looks at an entity, and limits of a search.
const (
	// PauseMax is the longest pause between two looks of a Consumer for new messages.
	PauseMax = 50 * time.Millisecond
	// AgainMin is the shortest pause between two passes of a Consumer over messages that it has looked at before.
	AgainMin = 250 * time.Millisecond
	// AgainPause is how many times longer a Consumer pauses between two passes than the first of them took by
	// its cost, with UnitTime for a unit.
	AgainPause = 9
	// UnitTime is the time that a unit of work takes (package work).
	UnitTime = 10 * time.Microsecond

	browsePauseMin   = time.Second           // between two searches of a Browser for new messages; doubles
	selectPauseMin   = 10 * time.Millisecond // between two looks of a Consumer for new messages; doubles
	browsePeekWithin = 60 * time.Second      // one peek of a Browser at one shard
	selectPeekWithin = 5 * time.Second       // one peek of a Consumer at one shard
	scanWithin       = 45 * time.Second      // one search; clients wait a minute for a drain
)

// The cost of one peek for a selector, in units (package work), at the gateway and at the leader together: a page of 250 messages of
// 1 KiB takes about 2 ms.
const (
	// PeekCost is the fixed part: a quorum confirms the leader.
	PeekCost = 25
	// MessagesPerUnit is the number of messages whose properties are read for a unit.
	MessagesPerUnit = 5

	unitBytes     = 2 << 10 // bytes of their payloads and patches for a unit
	unitSteps     = 20_000  // steps of the evaluations (package fsm/filter) for a unit
	firstPageCost = 100     // units that are paid before the first page of a link, until its cost is known
)
