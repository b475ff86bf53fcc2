package account

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Resource is something that owners hold and give back.
type Resource uint8

// Resources.
const (
	Requests     Resource = iota // requests to nodes over AMQP that are in progress
	AnswerBytes                  // bytes that the answers to these requests may take while they are built
	SettledBytes                 // bytes of settlements that are not stored yet, each message counted with its properties
	HTTPRequests                 // requests of the administration over HTTP, until their answer begins
	HTTPMessages                 // requests over HTTP that send or settle messages
	HTTPPolls                    // requests over HTTP that wait for messages
	HTTPBytes                    // bytes of the bodies and answers of HTTP that are held
	Scans                        // requests over HTTP that look at messages
	ScanBytes                    // bytes of messages that these requests may hold
	Links                        // links over AMQP
	resourceCount
)

// String returns the name of the resource in texts for clients.
func (r Resource) String() string {
	return [resourceCount]string{
		"requests in progress", "bytes of answers that are being built", "bytes of settlements in progress",
		"HTTP requests in progress", "HTTP requests about messages in progress", "HTTP requests that wait for messages", "bytes of HTTP requests and answers",
		"requests that look at messages", "bytes of messages that they look at", "links",
	}[r]
}

// Capacities are the amounts of all resources that all owners share, in the unit of each resource.
type Capacities [resourceCount]int64

// For returns the capacities of a member whose connections share so many bytes of memory.
func For(memory int64) Capacities {
	return Capacities{
		Requests: requestsMax, AnswerBytes: memory / 4, SettledBytes: memory / 8,
		HTTPRequests: HTTPRequestsMax, HTTPMessages: HTTPMessagesMax, HTTPPolls: HTTPPollsMax, HTTPBytes: memory / 8,
		Scans: ScansMax, ScanBytes: memory / 8, Links: linksOfAllMax,
	}
}

// Capacities that do not depend on memory.
const (
	requestsMax     = 65_536 // requests to nodes in progress
	HTTPRequestsMax = 128    // requests of the administration in progress
	HTTPMessagesMax = 128    // requests that send or settle messages
	HTTPPollsMax    = 256    // requests that wait for messages
	ScansMax        = 4      // requests that look at messages
	linksOfAllMax   = 1 << 18
)

// Owner is the client whose requests an account counts.
type Owner struct {
	Namespace uint32
	Key       string // name of a key or subject of a token; for a client without either, its address
}

// Accounts has the accounts of all owners. Its methods may be called from any goroutine.
type Accounts struct {
	capacities Capacities
	used       [resourceCount]atomic.Int64

	mu       sync.Mutex
	accounts map[Owner]*Account
}

// New returns Accounts without owners.
func New(c Capacities) *Accounts {
	return &Accounts{capacities: c, accounts: make(map[Owner]*Account)}
}

// Used returns how much of a resource all owners hold.
func (s *Accounts) Used(r Resource) int64 {
	if s == nil {
		return 0
	}
	return s.used[r].Load()
}

// Free returns how much of a resource is free, which is the most that one owner may hold.
func (s *Accounts) Free(r Resource) int64 {
	if s == nil {
		return 0
	}
	return max(0, s.capacities[r]-s.used[r].Load())
}

// HeldBy returns what all owners of a namespace hold, by Resource.
func (s *Accounts) HeldBy(namespace uint32) (held [resourceCount]int64) {
	if s == nil {
		return held
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for owner, a := range s.accounts {
		if owner.Namespace == namespace {
			for r := range held {
				held[r] += a.held[r].Load()
			}
		}
	}
	return held
}

// Account counts what one owner holds. Its methods may be called from any goroutine. A nil *Account counts nothing and
// refuses nothing.
type Account struct {
	all   *Accounts
	owner Owner
	users int // guarded by all.mu
	held  [resourceCount]atomic.Int64
}

// Open returns the account of an owner until Close. Open of nil Accounts returns a nil *Account.
func (s *Accounts) Open(of Owner) *Account {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.accounts[of]
	if a == nil {
		a = &Account{all: s, owner: of}
		s.accounts[of] = a
	}
	a.users++
	return a
}

// Close ends one use of the account. What was taken and is not released yet may be released later.
func (a *Account) Close() {
	if a == nil {
		return
	}
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	if a.users--; a.users == 0 {
		delete(a.all.accounts, a.owner)
	}
}

// Take takes n of a resource, or returns false if the owner would then hold more than is free. An owner that
// holds nothing of the resource always gets what it asks for while something is free, so that no single request is
// too large.
func (a *Account) Take(r Resource, n int64) bool {
	if a == nil || n <= 0 {
		return true
	}
	held, used := a.held[r].Add(n), a.all.used[r].Add(n)
	if capacity := a.all.capacities[r]; held <= capacity-used || held == n && used-n < capacity {
		return true
	}
	a.Release(r, n)
	return false
}

// Add takes n of a resource in any case; a negative n is released. It is for what cannot be refused any longer.
func (a *Account) Add(r Resource, n int64) {
	if a == nil {
		return
	}
	a.held[r].Add(n)
	a.all.used[r].Add(n)
}

// Release gives back what Take or Add took. It never fails.
func (a *Account) Release(r Resource, n int64) { a.Add(r, -n) }

// Held returns how much of a resource the owner holds.
func (a *Account) Held(r Resource) int64 {
	if a == nil {
		return 0
	}
	return a.held[r].Load()
}

// Capacity returns how much of a resource all owners together may hold.
func (a *Account) Capacity(r Resource) int64 {
	if a == nil {
		return 0
	}
	return a.all.capacities[r]
}

// retryEvery is the interval at which Wait tries again.
const retryEvery = 20 * time.Millisecond

// Wait is Take, but tries again until ctx or within ends. It must not be called by a goroutine that others wait for.
func (a *Account) Wait(ctx context.Context, r Resource, n int64, within time.Duration) bool {
	if a.Take(r, n) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(retryEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
			if a.Take(r, n) {
				return true
			}
		}
	}
}

// Refusal returns the text of a refusal: the resource, what the owner holds of it, and what all can hold.
func (a *Account) Refusal(r Resource) string {
	if a == nil {
		return ""
	}
	return fmt.Sprintf("Requests of this key hold %d %s at this member. All keys together may hold %d, and each at most as much as is free. Wait for answers, read them, and try again",
		a.Held(r), r, a.all.capacities[r])
}
