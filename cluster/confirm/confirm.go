package confirm

import (
	"context"
	"sync"
	"time"
)

// The times of a confirmation.
const (
	// StartWaitMax is how long requests of a member that starts wait for the leader of the catalog. Later requests do not wait.
	StartWaitMax = 5 * time.Second
	// ValidFor is how long a confirmation is valid: a member that is cut off from the leader of the catalog accepts a revoked key
	// for at most as long.
	ValidFor = 10 * time.Minute

	repeatAfter = time.Minute // ten questions in ValidFor, each of which is a heartbeat to a quorum
	askTimeout  = 2 * time.Second
	askPause    = 100 * time.Millisecond // after a question that failed
)

// Config is what a Catalog needs of its member.
type Config struct {
	// Ask asks the leader of the catalog for the index that it has applied, after a quorum has confirmed that it leads.
	Ask func(ctx context.Context) (uint64, error)
	// Applied returns the index that this member's replica has applied, 0 without a replica.
	Applied func() uint64
	// Changed returns a channel that is closed when the replica has applied more.
	Changed func() <-chan struct{}
}

// Catalog tells whether this member's replica of the catalog is confirmed. A nil Catalog counts as confirmed, for tests of
// packages that do not restart.
type Catalog struct {
	config Config
	opened time.Time

	mu          sync.Mutex
	confirmedAt time.Time     // when the question of the newest confirmation was asked; zero: never
	first       chan struct{} // closed at the first confirmation
}

// New returns a Catalog that is not confirmed. Run must run.
func New(config Config) *Catalog {
	return &Catalog{config: config, opened: time.Now(), first: make(chan struct{})}
}

// Run asks the leader again and again until ctx ends.
func (c *Catalog) Run(ctx context.Context) {
	for {
		pause := repeatAfter
		if !c.confirm(ctx) {
			pause = askPause
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// confirm asks once, and waits until the replica has applied the index of the answer.
func (c *Catalog) confirm(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	asked := time.Now()
	index, err := c.config.Ask(ctx)
	if err != nil {
		return false
	}
	for {
		changed := c.config.Changed()
		if c.config.Applied() >= index {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.confirmedAt.IsZero() {
		close(c.first)
	}
	c.confirmedAt = asked
	return true
}

// IsConfirmed reports whether the replica has, within the last ValidFor, been as new as the catalog's leader. It does not block.
func (c *Catalog) IsConfirmed() bool {
	if c == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.confirmedAt.IsZero() && time.Since(c.confirmedAt) < ValidFor
}

// Await is IsConfirmed, but waits for the first confirmation until ctx ends or StartWaitMax has passed since New.
func (c *Catalog) Await(ctx context.Context) bool {
	if c.IsConfirmed() {
		return true
	}
	timer := time.NewTimer(StartWaitMax - time.Since(c.opened))
	defer timer.Stop()
	select {
	case <-c.first:
	case <-timer.C:
	case <-ctx.Done():
	}
	return c.IsConfirmed()
}
