package budget

import (
	"cmp"
	"iter"
	"slices"
	"sync/atomic"
)

// Thresholds of the Budget, in percent of the bytes that a pool can share.
const (
	// CreditPercent is the threshold above which accounts that exceed their fair share get no more credit,
	// until the sum of all accounts is below ReliefPercent again. Fair shares are computed from ReliefPercent.
	CreditPercent = 70
	ReliefPercent = 60
	// BusyPercent is the threshold above which sends of accounts that exceed their fair share are refused.
	BusyPercent = 85
	// EvictPercent is the threshold above which the largest accounts are closed.
	EvictPercent = 95
	// UnauthenticatedPercent is the part of the limit for unauthenticated connections.
	UnauthenticatedPercent = 6
	// connectionsPercentMax is the largest part of the limit that the fixed costs of connections may subtract:
	// the number of connections is limited elsewhere, and some bytes must remain to be shared.
	connectionsPercentMax = 50
)

// Level is the degree of restriction of an account. Each level includes those below it.
type Level int32

// Levels of restriction.
const (
	Unrestricted Level = iota
	NoCredit           // the account gets no new credit, and is read no faster than its messages are stored
	Busy               // the sends of the account are refused
	Evicted            // the account is being closed
)

// Owner is the party that an account belongs to. The connections of one owner divide its share.
type Owner struct {
	Namespace uint32
	Key       string
}

// fillRoundsMax bounds the search for a fair share. After that many rounds the result is slightly too low,
// which restricts more accounts than necessary and never fewer.
const fillRoundsMax = 32

// pool is a part of the budget with the accounts that share it. The mutex of the Budget guards it.
type pool struct {
	shares     map[Owner]*share
	accounts   int
	used       int64
	reviewed   int64 // value of used at the last review; 0: no account is restricted
	restricted int   // accounts above Unrestricted
	// oldest selects the oldest of the accounts above their fair share for eviction instead of the largest.
	// Honest connections authenticate and leave the pool of unauthenticated connections within milliseconds.
	oldest bool
}

// share is the sum of what the accounts of one owner hold.
type share struct {
	owner    Owner
	accounts map[*holding]struct{}
	used     int64
}

// holding is what one account holds, and how far it is restricted.
type holding struct {
	changed func(Level)
	level   atomic.Int32
	fair    atomic.Int64

	// The caller of Account.Set writes reserved under the mutex of the Budget and may read it without that mutex. The
	// mutex of the Budget guards the fields below.
	reserved int64
	pool     *pool
	share    *share
	serial   uint64
}

func (h *holding) current() Level { return Level(h.level.Load()) }

// set changes the level and calls changed. The caller holds the mutex of the Budget.
func (h *holding) set(level Level) {
	if Level(h.level.Swap(int32(level))) != level {
		h.changed(level)
	}
}

func newPool() pool { return pool{shares: make(map[Owner]*share)} }

func (p *pool) add(a *holding, owner Owner) {
	s := p.shares[owner]
	if s == nil {
		s = &share{owner: owner, accounts: make(map[*holding]struct{})}
		p.shares[owner] = s
	}
	s.accounts[a] = struct{}{}
	a.pool, a.share = p, s
	s.used += a.reserved
	p.used += a.reserved
	p.accounts++
}

func (p *pool) remove(a *holding) {
	s := a.share
	s.used -= a.reserved
	p.used -= a.reserved
	p.accounts--
	if delete(s.accounts, a); len(s.accounts) == 0 {
		delete(p.shares, s.owner)
	}
	if a.current() != Unrestricted {
		p.restricted--
	}
}

// relieve lifts all restrictions. Accounts that were evicted stay evicted.
func (p *pool) relieve() {
	p.restricted = 0
	for _, s := range p.shares {
		for a := range s.accounts {
			if a.current() == Evicted {
				p.restricted++
				continue
			}
			a.set(Unrestricted)
		}
	}
}

// restrict sets the level of every account for a capacity in bytes and returns the number of accounts that it
// evicted.
func (p *pool) restrict(capacity int64) (ended int) {
	credit := p.fairShares(capacity / 100 * ReliefPercent)
	var busy fairShares
	if limit := capacity / 100 * BusyPercent; p.used > limit {
		busy = p.fairShares(limit)
	}
	p.restricted = 0
	leaving := int64(0)
	for _, s := range p.shares {
		for a := range s.accounts {
			fair := credit.of(s)
			a.fair.Store(fair)
			switch {
			case a.current() == Evicted:
				leaving += a.reserved
			case a.reserved <= fair:
				a.set(Unrestricted)
				continue
			case a.reserved > busy.of(s):
				a.set(Busy)
			default:
				a.set(NoCredit)
			}
			p.restricted++
		}
	}
	if limit := capacity / 100 * EvictPercent; p.used-leaving > limit {
		ended = p.evict(p.used-leaving-limit, p.fairShares(limit))
	}
	return ended
}

// evict evicts accounts above their fair share until the evicted accounts hold at least the given number of
// bytes.
func (p *pool) evict(bytes int64, fair fairShares) (ended int) {
	var greedy []*holding
	for _, s := range p.shares {
		for a := range s.accounts {
			if a.current() != Evicted && a.reserved > fair.of(s) {
				greedy = append(greedy, a)
			}
		}
	}
	slices.SortFunc(greedy, p.order)
	for _, a := range greedy {
		if bytes <= 0 {
			break
		}
		if a.current() == Unrestricted {
			p.restricted++
		}
		bytes -= a.reserved
		a.set(Evicted)
		ended++
	}
	return ended
}

// order compares two accounts and places the one to evict first at the front: the largest account of the
// largest owner, or the oldest account in a pool with oldest set.
func (p *pool) order(a, b *holding) int {
	if p.oldest {
		return cmp.Compare(a.serial, b.serial)
	}
	return cmp.Or(cmp.Compare(b.share.used, a.share.used), cmp.Compare(b.reserved, a.reserved), cmp.Compare(a.serial, b.serial))
}

// fairShares maps each owner above its share to the number of bytes that one of its accounts may hold.
// Accounts of other owners have no limit. It may be nil.
type fairShares map[*share]int64

const unlimited = int64(1) << 62

func (f fairShares) of(s *share) int64 {
	if fair, ok := f[s]; ok {
		return fair
	}
	return unlimited
}

// fairShares divides bytes among the owners, and the part of an owner with too much among its accounts.
func (p *pool) fairShares(bytes int64) fairShares {
	each := fill(bytes, len(p.shares), func(yield func(int64) bool) {
		for _, s := range p.shares {
			if !yield(s.used) {
				return
			}
		}
	})
	fair := make(fairShares)
	for _, s := range p.shares {
		if s.used > each {
			fair[s] = fill(each, len(s.accounts), s.reserved)
		}
	}
	return fair
}

// reserved iterates over the reserved bytes of the accounts.
func (s *share) reserved(yield func(int64) bool) {
	for a := range s.accounts {
		if !yield(a.reserved) {
			return
		}
	}
}

// fill computes the max-min fair share: the limit to apply to each of n amounts so that their sum is at most
// bytes. Amounts below the limit are not reduced.
func fill(bytes int64, n int, held iter.Seq[int64]) int64 {
	if n == 0 {
		return bytes
	}
	level := bytes / int64(n)
	for range fillRoundsMax {
		below, above := int64(0), int64(0)
		for h := range held {
			if h <= level {
				below += h
			} else {
				above++
			}
		}
		if above == 0 {
			return level
		}
		next := (bytes - below) / above
		if next <= level {
			return level
		}
		level = next
	}
	return level
}
