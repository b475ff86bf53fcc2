package budget

import (
	"sync"
	"sync/atomic"
)

const (
	// BytesMin is the smallest limit: fewer bytes cannot hold one large message.
	BytesMin = 16 << 20
	// ConnectionBytes is the fixed cost of an idle connection: two stacks, small buffers, its
	// entries in maps. It is subtracted from the bytes that are shared.
	ConnectionBytes = 16 << 10
	// freeBytes is the part of an account that its fixed cost covers: a connection that is being opened, or
	// that waits with a few links, uses none of the shared bytes.
	freeBytes = 16 << 10

	chunkBytesMin = 4 << 10
	chunkBytesMax = 64 << 10
	chunksPerPool = 1 << 14 // minimum number of chunks in the limit; chunkBytesMin and chunkBytesMax take precedence

	// reviewsPerPool limits the work of computing fair shares: a pool is reviewed again when the bytes held
	// have changed by 1/reviewsPerPool of its capacity.
	reviewsPerPool = 64
)

// Stats is the state of a Budget at one moment, in bytes unless stated otherwise.
type Stats struct {
	Limit int64
	// Used is the number of bytes that accounts have reserved, plus the fixed costs of connections. It is at
	// most twice what accounts hold, and only a little more than that near the limit.
	Used            int64
	Unauthenticated int64  // part of Used that unauthenticated connections hold
	Accounts        int    // accounts that are open
	Restricted      int    // accounts with a level above Unrestricted
	Evictions       uint64 // accounts evicted since the Budget was created
}

// Budget is a number of bytes and the accounts that share it. Its methods, and those of different accounts,
// may be called from any goroutine.
type Budget struct {
	limit int64
	chunk int64
	short atomic.Bool // a pool is above its threshold: accounts reserve no more than they need

	mu              sync.Mutex
	accounts        int
	serial          uint64
	authenticated   pool
	unauthenticated pool
	evictions       uint64
}

// New returns a Budget of the given number of bytes, at least BytesMin.
func New(bytes int64) *Budget {
	bytes = max(bytes, BytesMin)
	b := &Budget{limit: bytes, chunk: min(chunkBytesMax, max(chunkBytesMin, bytes/chunksPerPool))}
	b.authenticated, b.unauthenticated = newPool(), newPool()
	b.unauthenticated.oldest = true
	return b
}

// Account counts the bytes that one connection holds. Set, Trim and Close must be called by one goroutine at a
// time (the gateway holds the mutex of the connection); the other methods may be called concurrently. A nil
// *Account counts nothing and is never restricted.
type Account struct {
	holding

	budget *Budget
}

// Open adds the account of an unauthenticated connection. The Budget calls changed when the level of the
// account changes, from any goroutine and with its mutex held: changed must neither block nor call the Budget.
func (b *Budget) Open(changed func(Level)) *Account {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.accounts++
	b.serial++
	a := &Account{budget: b, holding: holding{changed: changed, serial: b.serial}}
	b.unauthenticated.add(&a.holding, Owner{})
	return a
}

// Assign moves the account to an owner after its connection has authenticated.
func (a *Account) Assign(to Owner) {
	if a == nil {
		return
	}
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.share == nil {
		return
	}
	a.pool.remove(&a.holding)
	b.authenticated.add(&a.holding, to)
	if a.current() == Evicted {
		b.authenticated.restricted++
	} else {
		a.set(Unrestricted)
	}
	b.review(&b.unauthenticated)
	b.review(&b.authenticated)
}

// Set records how many bytes the connection holds now. It only compares two numbers unless that is more than
// the account has reserved, or much less.
func (a *Account) Set(bytes int64) {
	if a == nil {
		return
	}
	bytes = max(0, bytes-freeBytes)
	b := a.budget
	chunk, spare := b.chunk, b.chunk
	if !b.short.Load() {
		spare += a.reserved / 2 // the bytes held rise and fall with every answer
	}
	if bytes > a.reserved || bytes < a.reserved-spare {
		a.reserve((bytes + chunk - 1) / chunk * chunk)
	}
}

// Trim releases the spare bytes that Set keeps reserved.
func (a *Account) Trim(bytes int64) {
	if a == nil {
		return
	}
	chunk := a.budget.chunk
	if bytes = (max(0, bytes-freeBytes) + chunk - 1) / chunk * chunk; bytes < a.reserved {
		a.reserve(bytes)
	}
}

func (a *Account) reserve(bytes int64) {
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.share == nil { // closed
		return
	}
	a.share.used += bytes - a.reserved
	a.pool.used += bytes - a.reserved
	a.reserved = bytes
	if level := a.current(); level != Unrestricted && level != Evicted && bytes <= a.fair.Load() {
		a.set(Unrestricted)
		a.pool.restricted--
	}
	b.review(a.pool)
}

// Close releases all bytes of the account. It may be called more than once.
func (a *Account) Close() {
	if a == nil {
		return
	}
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.share == nil {
		return
	}
	was := a.pool
	was.remove(&a.holding)
	a.share, a.reserved = nil, 0
	b.accounts--
	b.review(was)
}

// Level returns the current level of the account. It is one atomic load.
func (a *Account) Level() Level {
	if a == nil {
		return Unrestricted
	}
	return a.current()
}

// Fair returns how many bytes the account may hold without being restricted. The number is valid only while
// the account is restricted.
func (a *Account) Fair() int64 { return a.fair.Load() + freeBytes }

// Stats returns the current stats.
func (b *Budget) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Stats{
		Limit: b.limit, Used: b.authenticated.used + b.unauthenticated.used + b.fixed(), Unauthenticated: b.unauthenticated.used,
		Accounts: b.accounts, Restricted: b.authenticated.restricted + b.unauthenticated.restricted, Evictions: b.evictions,
	}
}

// fixed returns the fixed costs of all connections, in bytes.
func (b *Budget) fixed() int64 { return int64(b.accounts) * ConnectionBytes }

// capacity returns the number of bytes that a pool can share.
func (b *Budget) capacity(p *pool) int64 {
	unauthenticated := b.limit / 100 * UnauthenticatedPercent
	if p == &b.unauthenticated {
		return unauthenticated
	}
	return b.limit - unauthenticated - min(b.fixed(), b.limit/100*connectionsPercentMax)
}

// review recomputes the levels of a pool's accounts if they may have changed. The caller holds the mutex of
// the Budget.
func (b *Budget) review(p *pool) {
	capacity := b.capacity(p)
	tight := p.reviewed > 0
	switch changed := p.used - p.reviewed; {
	case p.used <= capacity/100*ReliefPercent, !tight && p.used <= capacity/100*CreditPercent:
		if p.restricted > 0 {
			p.relieve()
		}
		p.reviewed = 0
	case !tight || max(changed, -changed) >= capacity/reviewsPerPool:
		p.reviewed = p.used
		b.evictions += uint64(p.restrict(capacity))
	}
	if now := b.authenticated.reviewed > 0 || b.unauthenticated.reviewed > 0; now != b.short.Load() {
		b.short.Store(now)
	}
}
