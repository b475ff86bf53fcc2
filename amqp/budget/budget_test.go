package budget

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

const limit = 256 << 20

// shared is the number of bytes that n authenticated connections share.
func shared(b *Budget) int64 { return b.capacity(&b.authenticated) }

// client is an account with the levels that were reported to it.
type client struct {
	*Account
	told []Level
}

func open(b *Budget, owner Owner) *client {
	c := &client{}
	c.Account = b.Open(func(l Level) { c.told = append(c.told, l) })
	c.Assign(owner)
	return c
}

func (c *client) hold(bytes int64) { c.Set(bytes + freeBytes) }

func key(name string) Owner { return Owner{Namespace: 1, Key: name} }

func check(t *testing.T, b *Budget, want map[*client]Level) {
	t.Helper()
	for c, level := range want {
		if got := c.Level(); got != level {
			t.Errorf("%v with %d bytes of %d: level %d, want %d", c.share.owner, c.reserved, shared(b), got, level)
		}
	}
}

// As use rises, the budget first stops credit, then refuses sends, then evicts the largest account. Only
// accounts that exceed their part are affected.
func TestRestrictionsRiseWithUse(t *testing.T) {
	t.Parallel()
	b := New(limit)
	greedy, honest, small := open(b, key("a")), open(b, key("b")), open(b, key("b"))
	all := shared(b)
	honest.hold(all / 10)
	small.hold(all / 100)
	for _, step := range []struct {
		percent int64
		want    Level
	}{{50, Unrestricted}, {65, NoCredit}, {80, Busy}, {90, Evicted}} {
		greedy.hold(all * step.percent / 100)
		check(t, b, map[*client]Level{greedy: step.want, honest: Unrestricted, small: Unrestricted})
	}
	if !slices.Equal(greedy.told, []Level{NoCredit, Busy, Evicted}) || len(honest.told)+len(small.told) != 0 {
		t.Errorf("told %v, %v, %v", greedy.told, honest.told, small.told)
	}
	if f := b.Stats(); f.Evictions != 1 || f.Restricted != 1 || f.Accounts != 3 || f.Limit != limit {
		t.Errorf("stats %+v", f)
	}
	greedy.Close()
	greedy.Close() // a second Close has no effect
	honest.Close()
	small.Close()
	if f := b.Stats(); f.Used != 0 || f.Restricted != 0 || f.Accounts != 0 {
		t.Errorf("stats at the end %+v", f)
	}
}

// An account that releases its excess becomes unrestricted at once, and so do all accounts when memory
// suffices again.
func TestReturnedBytesLiftRestrictions(t *testing.T) {
	t.Parallel()
	b := New(limit)
	one, other := open(b, key("a")), open(b, key("b"))
	all := shared(b)
	one.hold(all * 36 / 100)
	other.hold(all * 36 / 100)
	check(t, b, map[*client]Level{one: NoCredit, other: NoCredit})
	one.hold(all * 29 / 100)
	check(t, b, map[*client]Level{one: Unrestricted})
	if b.short.Load() == (other.Level() == Unrestricted) {
		t.Errorf("tight %v and the other on level %d", b.short.Load(), other.Level())
	}
	one.hold(0)
	check(t, b, map[*client]Level{one: Unrestricted, other: Unrestricted})
	if f := b.Stats(); f.Restricted != 0 || b.short.Load() {
		t.Errorf("stats %+v, tight %v", f, b.short.Load())
	}
	if other.Fair() < 0 {
		t.Errorf("fair share %d", other.Fair())
	}
}

// More connections do not increase the part of a key: another key with one connection gets as much as they get
// together.
func TestFairShareIsByOwner(t *testing.T) {
	t.Parallel()
	b := New(limit)
	crowd := make([]*client, 100)
	for i := range crowd {
		crowd[i] = open(b, Owner{Namespace: 2, Key: "same"})
	}
	honest := open(b, Owner{Namespace: 1, Key: "same"})
	all := shared(b)
	honest.hold(all * 28 / 100)
	for _, c := range crowd {
		c.hold(all * 60 / 100 / int64(len(crowd)))
	}
	check(t, b, map[*client]Level{honest: Unrestricted, crowd[99]: Busy})
	for _, c := range crowd {
		c.hold(all * 90 / 100 / int64(len(crowd)))
	}
	check(t, b, map[*client]Level{honest: Unrestricted})
	if !slices.ContainsFunc(crowd, func(c *client) bool { return c.Level() == Evicted }) {
		t.Error("nobody of the crowd was ended")
	}
}

// The connections of one key divide its part in the same way.
func TestFairShareIsByConnectionWithinAnOwner(t *testing.T) {
	t.Parallel()
	b := New(limit)
	greedy := open(b, key("a"))
	honest := make([]*client, 20)
	for i := range honest {
		honest[i] = open(b, key("a"))
		honest[i].hold(1 << 20)
	}
	greedy.hold(shared(b))
	check(t, b, map[*client]Level{greedy: Evicted})
	for _, c := range honest {
		check(t, b, map[*client]Level{c: Unrestricted})
	}
}

// The accounts that are not evicted stay below the limit, however many connections hold too much.
func TestEvictionsKeepTheRestBelowTheLimit(t *testing.T) {
	t.Parallel()
	b := New(limit)
	all := shared(b)
	clients := make([]*client, 1000)
	held := int64(0)
	for i := range clients {
		clients[i] = open(b, key(fmt.Sprint(i%7)))
		clients[i].hold(all / 200)
		held = 0
		for _, c := range clients[:i+1] {
			if c.Level() != Evicted {
				held += c.reserved
			}
		}
		if held > all {
			t.Fatalf("%d of %d bytes are held by %d clients that may stay", held, all, i+1)
		}
	}
	if held < all/2 {
		t.Errorf("%d of %d bytes are left: too many were ended", held, all)
	}
}

// Unauthenticated connections share a pool of their own: of those with too much, the oldest are evicted first,
// and the others are not affected.
func TestUnauthenticatedConnectionsShareAPool(t *testing.T) {
	t.Parallel()
	b := New(limit)
	honest := open(b, key("a"))
	honest.hold(shared(b) / 2)
	pool := b.capacity(&b.unauthenticated)
	var unauthenticated []*client
	for range 20 {
		c := &client{}
		c.Account = b.Open(func(l Level) { c.told = append(c.told, l) })
		unauthenticated = append(unauthenticated, c)
	}
	for _, c := range unauthenticated[1:19] {
		c.hold(pool / 18)
	}
	last := unauthenticated[19]
	last.hold(pool / 10)
	check(t, b, map[*client]Level{honest: Unrestricted, unauthenticated[0]: Unrestricted, unauthenticated[1]: Evicted})
	if last.Level() == Evicted {
		t.Error("the latest is ended for those before it")
	}
	if got := b.Stats().Unauthenticated; got < pool {
		t.Errorf("%d bytes unauthenticated, %d are held", got, pool)
	}
	last.Assign(key("b"))
	check(t, b, map[*client]Level{last: Unrestricted})
	unauthenticated[1].Assign(key("c")) // the account is already evicted
	check(t, b, map[*client]Level{unauthenticated[1]: Evicted})
	for _, c := range append(unauthenticated, honest) {
		c.Close()
	}
	if f := b.Stats(); f.Used != 0 || f.Unauthenticated != 0 || f.Restricted != 0 {
		t.Errorf("stats at the end %+v", f)
	}
}

// The common case touches no shared state: a connection that stays within its reserved bytes is not counted
// again.
func TestSetRarelyReserves(t *testing.T) {
	t.Parallel()
	b := New(limit)
	c := open(b, key("a"))
	changes, last := 0, int64(0)
	for i := range 10_000 {
		c.hold(int64(1<<20 + i%400<<10)) // the bytes held vary by 400 KiB
		if c.reserved != last {
			changes, last = changes+1, c.reserved
		}
	}
	if most := 10 + 400<<10/int(b.chunk); changes > most {
		t.Errorf("reserved %d times, %d at most", changes, most)
	}
	c.hold(1 << 10)
	c.Trim(freeBytes)
	if c.reserved != 0 {
		t.Errorf("%d bytes are reserved for nothing", c.reserved)
	}
}

// An idle connection costs only its fixed cost, however many there are.
func TestIdleConnectionCostsItsFixedCost(t *testing.T) {
	t.Parallel()
	b := New(BytesMin)
	for range 20_000 {
		b.Open(func(l Level) { t.Errorf("level %d", l) }).Set(freeBytes)
	}
	f := b.Stats()
	if f.Used != 20_000*ConnectionBytes || f.Unauthenticated != 0 || shared(b) < BytesMin/100*(100-UnauthenticatedPercent-connectionsPercentMax) {
		t.Errorf("stats %+v, %d to share", f, shared(b))
	}
}

func TestNilAccountCountsNothing(t *testing.T) {
	t.Parallel()
	var a *Account
	a.Set(1 << 40)
	a.Trim(0)
	a.Assign(key("a"))
	a.Close()
	if a.Level() != Unrestricted {
		t.Error("restricted")
	}
}

// The result of fill matches the definition for random amounts.
func TestFillMatchesItsDefinition(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		held := make([]int64, 1+r.IntN(20))
		sum := int64(0)
		for i := range held {
			held[i] = r.Int64N(1 << (1 + r.IntN(30)))
			sum += held[i]
		}
		bytes := r.Int64N(1<<30) + 1
		level := fill(bytes, len(held), slices.Values(held))
		cut := int64(0)
		for _, h := range held {
			cut += min(h, level)
		}
		switch {
		case cut > bytes:
			t.Fatalf("seed %d: cut to %d they are %d, more than %d", seed, level, cut, bytes)
		case sum > bytes && cut < bytes-int64(len(held)):
			t.Fatalf("seed %d: cut to %d they are %d, less than %d", seed, level, cut, bytes)
		case sum > bytes && !slices.ContainsFunc(held, func(h int64) bool { return h > level }):
			t.Fatalf("seed %d: nobody is above %d", seed, level)
		}
	}
}

// With random clients, the sums always equal the sums of the parts, and no account below a fair part is
// restricted.
func TestSumsMatchTheAccounts(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 7))
	b := New(BytesMin)
	var clients []*client
	for range 20_000 {
		switch n := r.IntN(10); {
		case n == 0 || len(clients) == 0:
			c := &client{}
			c.Account = b.Open(func(l Level) { c.told = append(c.told, l) })
			clients = append(clients, c)
		case n == 1:
			i := r.IntN(len(clients))
			clients[i].Close()
			clients = slices.Delete(clients, i, i+1)
		case n == 2:
			clients[r.IntN(len(clients))].Assign(Owner{uint32(r.IntN(3)), fmt.Sprint(r.IntN(3))})
		default:
			clients[r.IntN(len(clients))].hold(r.Int64N(b.limit / 20))
		}
		used, restricted := int64(0), 0
		for _, c := range clients {
			used += c.reserved
			if c.Level() != Unrestricted {
				restricted++
			}
		}
		if b.authenticated.used+b.unauthenticated.used != used || b.accounts != len(clients) || b.Stats().Restricted != restricted {
			t.Fatalf("used %d+%d, accounts %d, %+v: the parts are %d, %d, restricted %d",
				b.authenticated.used, b.unauthenticated.used, b.accounts, b.Stats(), used, len(clients), restricted)
		}
	}
	for _, c := range clients {
		c.Close()
	}
	if len(b.authenticated.shares)+len(b.unauthenticated.shares) != 0 || b.Stats().Used != 0 {
		t.Errorf("something is left: %+v", b.Stats())
	}
}

// Many goroutines use accounts concurrently, for the race detector.
func TestAccountsAreSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	b := New(BytesMin)
	var group sync.WaitGroup
	for i := range 16 {
		group.Go(func() {
			for n := range 500 {
				a := b.Open(func(Level) {})
				a.Assign(key(fmt.Sprint(i % 4)))
				for range 10 {
					a.Set(int64(n*i) << 10)
					_ = a.Level() + Level(a.Fair())
				}
				a.Close()
			}
		})
	}
	group.Wait()
	if f := b.Stats(); f.Used != 0 || f.Restricted != 0 || b.short.Load() {
		t.Errorf("stats at the end %+v", f)
	}
}

// Set within the bytes that are reserved takes no lock and allocates nothing: with the lock of the Budget held, it goes on.
//
//nolint:paralleltest // it counts allocations
func TestSetNeedsNoLockAndNoMemory(t *testing.T) {
	budget := New(limit)
	a := budget.Open(func(Level) {})
	a.Set(freeBytes + 10<<10) // reserves a chunk
	budget.mu.Lock()
	defer budget.mu.Unlock()
	if n := testing.AllocsPerRun(1000, func() {
		a.Set(freeBytes + 4<<10)
		a.Set(freeBytes + 10<<10)
		_ = a.Level()
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// BenchmarkSet measures the cost of Set per answer to a client: the bytes held rise by one message at a time
// and are released together.
func BenchmarkSet(b *testing.B) {
	budget := New(limit)
	a := budget.Open(func(Level) {})
	b.ReportAllocs()
	for i := range b.N {
		a.Set(int64(i%500) * 1536)
	}
}

// BenchmarkReview measures the division of the budget among 20,000 connections.
func BenchmarkReview(b *testing.B) {
	budget := New(limit)
	for i := range 20_000 {
		a := budget.Open(func(Level) {})
		a.Assign(key(fmt.Sprint(i % 100)))
		a.Set(freeBytes + int64(i))
	}
	for b.Loop() {
		budget.authenticated.restrict(budget.authenticated.used)
	}
}
