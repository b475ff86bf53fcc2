package auth

import (
	"context"
	"fmt"
	"hash/maphash"
	"net"
	"net/netip"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"github.com/peeklock/peeklock/amqp/connlimit"
	"github.com/peeklock/peeklock/fsm"
)

// Limits of what the limiter itself holds. A delayed answer holds a goroutine (8 KiB) and the
// request (a token, 64 KiB at most), so all of them together hold less than 40 MiB; the tokens
// (32 KiB at most) that wait for keys of the identity provider take no more.
const (
	clientsMax              = 10_000          // remembered; the least recently active one is evicted
	namesPerClientMax       = 16              // key names with a count of their own; the others share one
	delayedPerClientMax     = 32              // delayed answers at a time; further failures are answered at once
	delayedMax              = 512             // the same of all clients together
	keyWaitersPerClientMax  = 256             // tokens that wait for keys at a time; further ones are refused as busy
	keyWaitersMax           = 1024            // the same of all clients together
	verificationQueueMax    = 1024            // credentials of one client that wait to be verified
	verificationWaitTimeMax = 5 * time.Second // of one credential in that queue
	delayMin                = 50 * time.Millisecond
)

// TooManyFailuresError refuses a wrong credential of a client that failed too often. It
// wraps fsm.ServerBusy, on which clients retry.
type TooManyFailuresError struct {
	// After is the time until the next failure is answered as a failure again.
	After time.Duration
}

// Error tells the client how long to wait.
func (e *TooManyFailuresError) Error() string {
	return fmt.Sprintf("%s: too many failed logins from this address: wait %s and use a valid key", fsm.ServerBusy.Error(), e.After.Round(time.Millisecond))
}

// Unwrap returns fsm.ServerBusy.
func (*TooManyFailuresError) Unwrap() error { return fsm.ServerBusy }

// waitKind is the reason why a request waits. Delayed answers and tokens that need newer keys
// are counted apart, so that neither uses up the places of the other.
type waitKind uint8

const (
	delayedAnswer waitKind = iota // to a failure
	awaitingKeys                  // a token that needs keys which are not known yet
	waitKinds
)

// max is how many of a kind there may be at a time, of one client and of all.
func (k waitKind) max() (perClient, all int) {
	if k == awaitingKeys {
		return keyWaitersPerClientMax, keyWaitersMax
	}
	return delayedPerClientMax, delayedMax
}

// limiter counts failed logins by client and key name and computes how long their answers are
// delayed. It also limits how many credentials of a client are verified at a time, and how many
// of its requests wait. It is safe for concurrent use.
type limiter struct {
	limits Limits
	now    func() time.Time
	seed   maphash.Seed

	mu      sync.Mutex // guards what follows, and the fields of each origin
	clients *lru.Cache[netip.Addr, *clientState]
	waiting [waitKinds]int
}

// clientState holds the counts of one client. When it is evicted while requests of the client are in
// flight, they finish with it; new requests are counted by a new origin.
type clientState struct {
	verifying chan struct{} // one token for each verification under way
	queued    int           // credentials that wait for that
	waiting   [waitKinds]int
	failures  map[uint64]*rate.Limiter
}

func newLimiter(limits Limits, now func() time.Time) *limiter {
	origins, err := lru.New[netip.Addr, *clientState](clientsMax)
	if err != nil {
		panic(err) // clientsMax is positive
	}
	return &limiter{limits: limits, now: now, seed: maphash.MakeSeed(), clients: origins}
}

// client is the one of an address, nil for an address that is not counted. Loopback addresses are counted like
// others, since no count refuses a valid credential. mu is held.
func (l *limiter) client(peer net.Addr) *clientState {
	source := connlimit.Source(peer)
	if !source.IsValid() {
		return nil
	}
	o, found := l.clients.Get(source)
	if !found {
		o = &clientState{verifying: make(chan struct{}, l.limits.VerificationsMax), failures: make(map[uint64]*rate.Limiter)}
		l.clients.Add(source, o)
	}
	return o
}

// acquireVerification waits until a credential of the client may be verified; the caller calls release
// when that is done. Errors wrap fsm.ServerBusy.
func (l *limiter) acquireVerification(ctx context.Context, peer net.Addr) (release func(), err error) {
	l.mu.Lock()
	o := l.client(peer)
	if o == nil {
		l.mu.Unlock()
		return func() {}, nil
	}
	release = func() { <-o.verifying }
	select {
	case o.verifying <- struct{}{}:
		l.mu.Unlock()
		return release, nil
	default:
	}
	if o.queued >= verificationQueueMax {
		l.mu.Unlock()
		return nil, fmt.Errorf("%w: %d logins from this address wait to be verified: try again", fsm.ServerBusy, verificationQueueMax)
	}
	o.queued++
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		o.queued--
		l.mu.Unlock()
	}()
	timer := time.NewTimer(verificationWaitTimeMax)
	defer timer.Stop()
	select {
	case o.verifying <- struct{}{}:
		return release, nil
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil, fmt.Errorf("%w: too many logins from this address are being verified: try again", fsm.ServerBusy)
}

// recordFailure counts a failure and returns the delay of its answer. tooMany is nil unless the
// client failed too often with keys of this name. Failures without an address are not counted.
func (l *limiter) recordFailure(peer net.Addr, namespace fsm.NamespaceID, name string) (delay time.Duration, tooMany *TooManyFailuresError) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.client(peer)
	if o == nil {
		return 0, nil
	}
	now := l.now()
	bucket := l.bucket(o, namespace, name, now)
	if !bucket.AllowN(now, 1) {
		missing := (1 - bucket.TokensAt(now)) / float64(bucket.Limit())
		return l.limits.DelayMax, &TooManyFailuresError{After: time.Duration(missing * float64(time.Second))}
	}
	delay = delayMin
	for failures := float64(l.limits.FailuresMax) - bucket.TokensAt(now); failures > 1 && delay < l.limits.DelayMax; failures-- {
		delay *= 2
	}
	return min(delay, l.limits.DelayMax), nil
}

// bucket returns the token bucket of failures that a client has left with keys of a name. Names
// beyond the first namesPerClientMax share one bucket. mu is held.
func (l *limiter) bucket(o *clientState, namespace fsm.NamespaceID, name string, now time.Time) *rate.Limiter {
	var h maphash.Hash
	h.SetSeed(l.seed)
	maphash.WriteComparable(&h, namespace)
	_, _ = h.WriteString(name) // never fails
	id := h.Sum64()
	if _, found := o.failures[id]; !found && len(o.failures) >= namesPerClientMax {
		for other, bucket := range o.failures {
			if bucket.TokensAt(now) >= float64(l.limits.FailuresMax) {
				delete(o.failures, other)
			}
		}
		if len(o.failures) >= namesPerClientMax {
			id = 0
		}
	}
	bucket, found := o.failures[id]
	if !found {
		bucket = rate.NewLimiter(rate.Limit(float64(l.limits.FailuresPerMinute)/60), l.limits.FailuresMax)
		o.failures[id] = bucket
	}
	return bucket
}

// acquireWait reserves a place for a request that waits, and returns false when there is none. The
// caller calls release when the wait is over.
func (l *limiter) acquireWait(peer net.Addr, kind waitKind) (release func(), ok bool) {
	perClient, all := kind.max()
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.client(peer)
	if o == nil {
		o = &clientState{} // counts for the process alone
	}
	if o.waiting[kind] >= perClient || l.waiting[kind] >= all {
		return nil, false
	}
	o.waiting[kind]++
	l.waiting[kind]++
	return func() {
		l.mu.Lock()
		o.waiting[kind]--
		l.waiting[kind]--
		l.mu.Unlock()
	}, true
}
