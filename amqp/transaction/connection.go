package transaction

import (
	"context"
	"sync"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// Limits of the transactions of a connection.
const (
	OpenMax                = 1000            // of one connection, including those being committed
	OverheadBytes          = 1 << 10         // memory of a transaction without operations
	DeclareWithin          = 5 * time.Second // a declare waits for another transaction to end
	waitingMax             = OpenMax         // declares of a connection that wait
	SendsMax               = 100             // messages sent in one transaction: the maximum of the cloud
	SettlementsMax         = 1000            // messages settled in one transaction
	BytesMax               = 16 << 20        // one transaction: payloads, and the properties of settlements
	TotalBytesMax          = 32 << 20        // all transactions of a connection together
	Within                 = 2 * time.Minute // from declare to discharge
	expiredTransactionsMax = OpenMax         // remembered ids of transactions that took too long
	operationOverhead      = 256             // bytes counted for an operation in addition to its payload
)

// Connection is what a Set needs of its connection. Its mutex guards the Set and every Transaction in it.
type Connection interface {
	// Lock locks the mutex. Unlock unlocks it, and then makes the calls that Later collected.
	sync.Locker
	// Later makes a call at the next Unlock. The mutex is held.
	Later(call func())
	// Recovered is deferred by functions that a goroutine of the broker calls. It handles a panic.
	Recovered(ctx context.Context)
	// ShortOfMemory reports whether the connection holds more than its share while memory is short. The mutex is held.
	ShortOfMemory() bool
	// Committed is told what was committed. The mutex is held.
	Committed(work *fsm.Transaction)
	// CountSettled is told what the broker has settled outside of a commit. The mutex is not held.
	CountSettled(settlements []fsm.Settlement, codes []fsm.Code)
}

// Broker has the methods of amqp.Broker that transactions call; the same rules apply to them.
type Broker interface {
	Check(at fsm.EntityRef, locks []fsm.LockID, done func([]fsm.Code))
	Settle(at fsm.EntityRef, settlements []fsm.Settlement, done func([]fsm.Code))
	Transact(tx fsm.Transaction, done func(fsm.Code))
}
