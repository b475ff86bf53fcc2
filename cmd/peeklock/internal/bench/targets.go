package bench

import (
	"context"
	"sync"
	"time"
)

// askInterval is the shortest time between two questions for addresses.
const askInterval = 2 * time.Second

// targets are the addresses to which clients connect. Members that restart may get other addresses, so they are asked for
// again when a connection fails. It is safe for concurrent use.
type targets struct {
	ask    func(ctx context.Context) ([]string, error)
	spread bool // the clients use all addresses; otherwise they use the first one

	mu    sync.Mutex
	list  []string // replaced as a whole, never changed in place
	asked time.Time
}

// at returns the address for the client with an index; a client that reconnects increments its index.
func (t *targets) at(index int) string {
	used := t.used()
	return used[index%len(used)]
}

// used returns the addresses that clients use. The result must not be changed.
func (t *targets) used() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.spread {
		return t.list[:1:1]
	}
	return t.list
}

// failed asks for the addresses again after a connection has failed, unless another client did so just before.
func (t *targets) failed(ctx context.Context) {
	t.mu.Lock()
	early := time.Since(t.asked) < askInterval
	if !early {
		t.asked = time.Now()
	}
	t.mu.Unlock()
	if early {
		return
	}
	list, err := t.ask(ctx)
	if err != nil || len(list) == 0 {
		return // those that were known may work again
	}
	t.mu.Lock()
	t.list = list
	t.mu.Unlock()
}
