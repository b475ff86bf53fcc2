package entities

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/client"
	"github.com/peeklock/peeklock/cluster/confirm"
	"github.com/peeklock/peeklock/cluster/query"
	"github.com/peeklock/peeklock/fsm"
)

// Manager creates, changes, describes and deletes entities and namespaces. Its methods are safe for concurrent use.
type Manager struct {
	*client.Clients

	transport client.Transport
	replicas  query.Replicas
	confirmed *confirm.Catalog // nil: always
	log       *slog.Logger
	now       func() time.Time // the clock of messages
	activity  activityLimiter

	mu         sync.Mutex
	recreating map[fsm.EntityID][]func(bool)
	closed     bool
}

// New makes a Manager with clients of its own. Run must run while it is used.
func New(c *client.Config) *Manager {
	return &Manager{
		Clients: client.New(c), transport: c.Transport, confirmed: c.Confirmed, log: c.Logger, now: c.Now,
		replicas:   query.Replicas{Local: c.Transport.LocalReplica},
		recreating: make(map[fsm.EntityID][]func(bool)),
	}
}

// Run ends overdue requests and reports activity until ctx ends.
func (r *Manager) Run(ctx context.Context) { r.Clients.Run(ctx, r.ReportActivity) }

// Close ends all requests: with ServerBusy if they were certainly not applied, with Timeout otherwise.
func (r *Manager) Close() {
	r.mu.Lock()
	r.closed = true
	recreating := r.recreating
	r.recreating = make(map[fsm.EntityID][]func(bool))
	r.mu.Unlock()
	r.Clients.Close()
	for _, waiters := range recreating {
		for _, done := range waiters {
			done(false)
		}
	}
}

// lookup finds an entity at the catalog's leader.
func (r *Manager) lookup(ctx context.Context, q EntityQuery) (fsm.Entity, error) {
	return FindEntity.At(ctx, r, q)
}
