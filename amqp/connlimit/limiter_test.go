package connlimit

import (
	"errors"
	"net"
	"slices"
	"testing"
)

// harness adds connections by name and records which were evicted.
type harness struct {
	t       *testing.T
	limiter *Limiter
	evicted []string
}

func (h *harness) add(name, ip string) *Conn {
	h.t.Helper()
	c, err := h.limiter.Add(&net.TCPAddr{IP: net.ParseIP(ip)}, func() { h.evicted = append(h.evicted, name) })
	if err != nil {
		h.t.Fatalf("add %s: %v", name, err)
	}
	return c
}

func (h *harness) refuse(want error, ip string) {
	h.t.Helper()
	_, err := h.limiter.Add(&net.TCPAddr{IP: net.ParseIP(ip)}, func() { h.t.Error("a refused connection was evicted") })
	if !errors.Is(err, want) {
		h.t.Fatalf("add from %s: %v, want %v", ip, err, want)
	}
}

func (h *harness) wantEvicted(names ...string) {
	h.t.Helper()
	if !slices.Equal(h.evicted, names) {
		h.t.Fatalf("evicted %v, want %v", h.evicted, names)
	}
}

const greedy, modest, other = "192.0.2.1", "192.0.2.2", "192.0.2.3"

func TestTheOldestConnectionOfTheLargestSourceIsEvicted(t *testing.T) {
	t.Parallel()
	h := &harness{t: t, limiter: New(3, 0)}
	first := h.add("modest", modest)
	h.add("greedy 1", greedy)
	h.add("greedy 2", greedy)
	h.add("other", other)
	h.wantEvicted("greedy 1")
	h.add("modest 2", modest) // now it is modest that has the most
	h.wantEvicted("greedy 1", "modest")
	if first.Remove() {
		t.Error("an evicted connection was removed again")
	}
	if n, sources := h.limiter.Len(), h.limiter.Sources(); n != 3 || sources != 3 {
		t.Errorf("%d connections of %d sources, want 3 of 3", n, sources)
	}
}

func TestSourcesWithEquallyManyConnectionsLoseTheOldest(t *testing.T) {
	t.Parallel()
	h := &harness{t: t, limiter: New(2, 0)}
	h.add("greedy", greedy)
	h.add("modest", modest)
	h.add("other", other)
	h.wantEvicted("greedy")
}

func TestActiveConnectionsAreEvictedLastAndTheNewestFirst(t *testing.T) {
	t.Parallel()
	h := &harness{t: t, limiter: New(4, 0)}
	busy := []*Conn{h.add("busy 1", greedy), h.add("busy 2", greedy)}
	h.add("idle", greedy)
	for _, c := range busy {
		c.SetActive(true)
	}
	h.add("modest", modest).SetActive(true)
	h.add("modest 2", modest).SetActive(true)
	h.wantEvicted("idle")
	h.add("other", other)
	h.wantEvicted("idle", "modest 2") // as many as greedy has, and newer
}

func TestANewConnectionDoesNotReplaceActiveOnesOfItsSource(t *testing.T) {
	t.Parallel()
	h := &harness{t: t, limiter: New(2, 0)}
	h.add("busy 1", greedy).SetActive(true)
	h.add("busy 2", greedy).SetActive(true)
	h.refuse(ErrTotal, greedy)
	h.add("modest", modest)
	h.wantEvicted("busy 2")
}

func TestProtectedConnectionsAreNeverEvicted(t *testing.T) {
	t.Parallel()
	h := &harness{t: t, limiter: New(3, 0)}
	h.add("protected 1", greedy).Protect()
	h.add("protected 2", greedy).Protect()
	h.add("modest", modest)
	h.add("other", other) // one of each source may be evicted: the oldest is
	h.wantEvicted("modest")
	last := h.add("last", other)
	h.wantEvicted("modest", "other")
	last.Protect()
	last.Protect()
	h.refuse(ErrTotal, modest)
	last.Remove()
	h.add("modest again", modest)
}

func TestOneSourceHasAtMostItsShare(t *testing.T) {
	t.Parallel()
	h := &harness{t: t, limiter: New(10, 2)}
	first := h.add("1", "2001:db8::1")
	h.add("2", "2001:db8::2:1").Protect() // of the same /64, and protected ones count
	h.refuse(ErrPerSource, "2001:db8::3")
	h.add("elsewhere", "2001:db8:0:1::1")
	first.Remove()
	h.add("3", "2001:db8::3")
	for range 3 {
		if _, err := h.limiter.Add(&net.UnixAddr{}, nil); err != nil {
			t.Errorf("a connection without an address was refused: %v", err)
		}
	}
}

func TestAConnectionIsCountedForTheClientBehindTheProxy(t *testing.T) {
	t.Parallel()
	h := &harness{t: t, limiter: New(3, 0)}
	const proxy = "192.0.2.9"
	h.add("modest", proxy).SetSource(&net.TCPAddr{IP: net.ParseIP(modest)})
	for _, name := range []string{"greedy 1", "greedy 2", "greedy 3"} {
		h.add(name, proxy).SetSource(&net.TCPAddr{IP: net.ParseIP(greedy)})
	}
	h.wantEvicted("greedy 1")
}

func TestNothingIsRememberedOfClosedConnections(t *testing.T) {
	t.Parallel()
	h := &harness{t: t, limiter: New(3, 0)}
	removed, protected := h.add("removed", greedy), h.add("protected", modest)
	protected.Protect()
	h.add("evicted", other)
	if !removed.Remove() || removed.Remove() {
		t.Error("a connection was not removed once")
	}
	removed.Protect()
	removed.SetSource(&net.TCPAddr{IP: net.ParseIP(modest)})
	h.limiter.EvictAll()
	h.wantEvicted("evicted")
	protected.Remove()
	if n, sources, evictable := h.limiter.Len(), len(h.limiter.sources), h.limiter.evictable.Len(); n != 0 || sources != 0 || evictable != 0 {
		t.Errorf("%d connections, %d sources, %d to evict remain", n, sources, evictable)
	}
}
