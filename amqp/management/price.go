package management

import (
	"math"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// The prices of operations, and the bounds of their responses. A price is a product where the work is one: of messages and
// the properties that each of them gets, of a page and the entries before it that are skipped.

// Price is what a request costs before it is performed.
type Price struct {
	Work         int // units, besides those of a request and without its response
	LargestBytes int // of its response
	PaidBytes    int // of its response that are paid before it is performed; the rest is paid when it is known
	StoredBytes  int // that the broker is asked to store, beyond the request itself
}

// PriceOf returns the price of a request; the zero Price for an unknown operation.
func PriceOf(operation string, at *fsm.EntityRef, request any) (p Price) {
	row := table[operation]
	body, _ := request.(wire.Map)
	if row.work != nil {
		p.Work = row.work(at, body)
	}
	if row.largest != nil {
		p.LargestBytes = row.largest(at, body)
		switch {
		case operation == PeekOperation: // which nearly always gets all that it asks for
			p.PaidBytes = p.LargestBytes
		case row.waits: // the broker reads something of unknown size
			p.PaidBytes = min(p.LargestBytes, paidBytesMax)
		}
	}
	if row.stores != nil {
		p.StoredBytes = row.stores(body)
	}
	return p
}

// Costs in units of work, in addition to that of a request.
const (
	FetchCost = 25 // FetchAtOnceMax deferred messages: one log entry
	// StoredUnitBytes are the bytes of properties, once for each message of an update-disposition, that cost a unit; a
	// request costs at most StoredUnitsMax for them.
	StoredUnitBytes = 1 << 10
	StoredUnitsMax  = 20_000
	ItemsPerUnit    = 16   // lock tokens, scheduled messages to cancel, or messages of a batch delete
	skippedPerUnit  = 1000 // sessions or rules before a page
	skippedMax      = 1 << 21
	addRuleCost     = 25 // an entry in the log, and a rule that is parsed and compiled at each replica
	removeRuleCost  = 5
	setStateCost    = 5 // an entry in the log
	listCost        = 10
	paidBytesMax    = 64 << 10
)

// Bytes of the parts of responses.
const (
	timeBytes   = 32 // a time in an array, as a value and encoded
	numberBytes = 24 // a sequence number, in the same way
	nameBytes   = 16 // the name of a session, besides its characters
)

func renewWork(_ *fsm.EntityRef, body wire.Map) int {
	return countOf(body.Get("lock-tokens")) / ItemsPerUnit
}

func renewBytes(_ *fsm.EntityRef, body wire.Map) int {
	return countOf(body.Get("lock-tokens")) * timeBytes
}

func cancelWork(_ *fsm.EntityRef, body wire.Map) int {
	return countOf(body.Get("sequence-numbers")) / ItemsPerUnit
}

// peekBytes are those of the largest response to a peek. The reader of a connection stops while its requests count more
// than it may have in progress, so a connection peeks a few batches at a time, or one when memory is short.
func peekBytes(at *fsm.EntityRef, body wire.Map) int {
	count, _ := message.IntegerOf(body.Get("message-count"))
	return int(min(max(0, min(count, PeekMessagesMax))*int64(at.Settings.MaxMessageBytes), PeekBytesMax))
}

// dispositionWork charges the product of messages and properties.
func dispositionWork(_ *fsm.EntityRef, body wire.Map) int {
	return countOf(body.Get("lock-tokens"))/ItemsPerUnit + min(StoredUnitsMax, dispositionBytes(body)/StoredUnitBytes)
}

// dispositionBytes are those that all messages of an update-disposition store.
func dispositionBytes(body wire.Map) int {
	properties, _ := body.Get("properties-to-modify").(wire.Map)
	encoded, _ := message.EncodeProperties(properties) // one that cannot be encoded is refused
	each := len(encoded) + len(message.ReasonText(body.Get("deadletter-reason"))) + len(message.ReasonText(body.Get("deadletter-description")))
	return countOf(body.Get("lock-tokens")) * each
}

func deferredWork(at *fsm.EntityRef, body wire.Map) int {
	atOnce := FetchedAtOnce(at)
	return (countOf(body.Get("sequence-numbers")) + atOnce - 1) / atOnce * FetchCost
}

// deferredBytes are those of the messages that are fetched until the response has FetchBytesMax. The last batch is counted
// when it is there.
func deferredBytes(at *fsm.EntityRef, body wire.Map) int {
	largest := int64(at.Settings.MaxMessageBytes)
	return int(min(int64(countOf(body.Get("sequence-numbers")))*largest, FetchBytesMax))
}

func scheduleWork(_ *fsm.EntityRef, body wire.Map) int {
	return countOf(body.Get("messages")) / ItemsPerUnit
}

func scheduleBytes(_ *fsm.EntityRef, body wire.Map) int {
	return countOf(body.Get("messages")) * numberBytes
}

func batchDeleteWork(_ *fsm.EntityRef, body wire.Map) int {
	most, _ := message.IntegerOf(body.Get(MessageCountKey))
	return int(max(0, min(most, PurgeMessagesMax))) / ItemsPerUnit
}

// stateBytes are those of the largest state of a session, which is as large as a message may be.
func stateBytes(at *fsm.EntityRef, _ wire.Map) int { return int(at.Settings.MaxMessageBytes) }

func setStateWork(_ *fsm.EntityRef, body wire.Map) int {
	state, _ := body.Get("session-state").([]byte)
	return setStateCost + len(state)/StoredUnitBytes
}

func sessionsBytes(_ *fsm.EntityRef, body wire.Map) int {
	top, _ := message.IntegerOf(body.Get("top"))
	return int(max(0, min(top, sessionsAtOnce))) * (bytesPerNameMost + nameBytes)
}

// rulesBytes are those of one page of long rules. Further ones are counted when they are there: nearly all rules are short.
func rulesBytes(_ *fsm.EntityRef, body wire.Map) int {
	top, _ := integerOr(body.Get("top"), math.MaxInt32)
	return int(min(max(0, top)*fsm.RuleBytesMax, rulesPageBytes))
}

// listWork charges the entries that are skipped.
func listWork(_ *fsm.EntityRef, body wire.Map) int {
	skip, _ := message.IntegerOf(body.Get("skip"))
	return listCost + int(max(0, min(skip, skippedMax)))/skippedPerUnit
}

// addRuleWork charges the bytes of a rule, which every replica parses and keeps in memory.
func addRuleWork(_ *fsm.EntityRef, body wire.Map) int {
	return addRuleCost + sizeOf(body)/512
}

func removeRuleWork(*fsm.EntityRef, wire.Map) int { return removeRuleCost }

// sizeOf returns the bytes of the texts and binaries in a value.
func sizeOf(v any) (bytes int) {
	switch v := v.(type) {
	case string:
		return len(v)
	case wire.Symbol:
		return len(v)
	case []byte:
		return len(v)
	case []any:
		for i := range v {
			bytes += sizeOf(v[i])
		}
	case wire.Map:
		for i := range v {
			bytes += sizeOf(v[i].Key) + sizeOf(v[i].Value)
		}
	case wire.Described:
		return sizeOf(v.Value)
	}
	return bytes
}

// countOf returns the number of elements of a list in a request, at most TokensMax: longer ones are refused.
func countOf(v any) int {
	if array, ok := v.(wire.Array); ok {
		v = array.Values
	}
	switch values := v.(type) {
	case []wire.UUID:
		return min(len(values), TokensMax)
	case []int64:
		return min(len(values), TokensMax)
	case []any:
		return min(len(values), TokensMax)
	}
	return 1
}
