package work

import (
	"context"
	"sync"
)

// Shared has one account for each owner of requests that come without a connection of their own, such as those over HTTP:
// however many requests an owner has in progress, they have one rate and one burst. It has as many accounts as there are
// owners with requests; of those that have ended, the Limiter keeps what is left of their burst. All methods may be called
// from any goroutine.
type Shared struct {
	limiter *Limiter

	mu       sync.Mutex
	accounts map[Owner]*SharedAccount
}

// NewShared returns a Shared without accounts.
func NewShared(l *Limiter) *Shared {
	return &Shared{limiter: l, accounts: make(map[Owner]*SharedAccount)}
}

// SharedAccount limits all requests of one owner together. Its methods may be called from any goroutine. A nil *SharedAccount
// has no limit.
type SharedAccount struct {
	all   *Shared
	users int // guarded by all.mu

	mu      sync.Mutex
	account Account // mu guards its bucket
}

// Open returns the account of an owner until Close, as Limiter.Open does.
func (s *Shared) Open(owner Owner, perSecond, burst int) *SharedAccount {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.accounts[owner]
	if a == nil {
		a = &SharedAccount{all: s, account: s.limiter.Open(owner, perSecond, burst)}
		s.accounts[owner] = a
	}
	a.users++
	return a
}

// Close ends one use of the account.
func (a *SharedAccount) Close() {
	if a == nil {
		return
	}
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	if a.users--; a.users == 0 {
		delete(a.all.accounts, a.account.owner)
		a.account.Close()
	}
}

// Wait waits until work of cost units may begin, as Account.Wait does.
func (a *SharedAccount) Wait(ctx context.Context, stop <-chan struct{}, cost int) {
	if a == nil {
		return
	}
	a.mu.Lock()
	delay := a.account.charge(cost)
	a.mu.Unlock()
	a.account.wait(ctx, stop, delay, cost)
}
