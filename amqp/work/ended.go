package work

import (
	"net/netip"
	"time"
)

// Owner is the party that the accounts of consecutive connections belong to.
type Owner struct {
	Source    netip.Addr // of the client, or of its network
	Namespace uint32
	Key       string // the name of the credential; "" before there is one
}

// endedAccountsMax is the number of ended accounts whose buckets are kept; further ones are forgotten. A limiter that
// lets n times the rate of an account pass leaves few more than n buckets that are not full, so peers do not reach it.
const endedAccountsMax = 16384

// sweepInterval is the least time between two searches for buckets that are full again.
const sweepInterval = time.Second

// endedAccounts holds what ended accounts have left of their burst, until it is full again. The next account of the
// same owner begins with it: a client that connects again has no second burst.
type endedAccounts struct {
	buckets map[Owner][]bucket // by owner, the last that ended last
	count   int                // of all buckets
	swept   time.Time
}

// put keeps the bucket of an account that ends.
func (e *endedAccounts) put(owner Owner, b bucket) {
	if b.refill(); b.isFull() {
		return
	}
	if e.count >= endedAccountsMax {
		e.sweep(b.filled)
	}
	if e.count >= endedAccountsMax {
		return
	}
	if e.buckets == nil {
		e.buckets = make(map[Owner][]bucket)
	}
	e.buckets[owner] = append(e.buckets[owner], b)
	e.count++
}

// take removes the bucket of the account of an owner that ended last.
func (e *endedAccounts) take(owner Owner) (b bucket, found bool) {
	all := e.buckets[owner]
	if len(all) == 0 {
		return b, false
	}
	last := len(all) - 1
	b, e.count = all[last], e.count-1
	if last == 0 {
		delete(e.buckets, owner)
	} else {
		e.buckets[owner] = all[:last]
	}
	return b, true
}

// sweep forgets the buckets that are full again.
func (e *endedAccounts) sweep(now time.Time) {
	if now.Sub(e.swept) < sweepInterval {
		return
	}
	e.swept, e.count = now, 0
	for owner, all := range e.buckets {
		kept := all[:0]
		for _, b := range all {
			if b.refill(); !b.isFull() {
				kept = append(kept, b)
			}
		}
		if e.buckets[owner] = kept; len(kept) == 0 {
			delete(e.buckets, owner)
		}
		e.count += len(kept)
	}
}
