package judge

import (
	"sync"
	"time"
)

// Rules are rules of one subscription that clients add and remove while messages are sent. Each selects the messages of one
// colour.
type Rules struct {
	mu  sync.Mutex
	all []*Rule
}

// Rule is when a rule existed. Zero times have not come.
type Rule struct {
	of        *Rules
	colour    int64
	addBegun  time.Time // before, it did not exist
	added     time.Time // it certainly existed
	dropBegun time.Time // until here
	goneAt    time.Time // since then, it certainly does not exist
}

// Add notes a rule before it is added.
func (r *Rules) Add(colour int64) *Rule {
	r.mu.Lock()
	defer r.mu.Unlock()
	added := &Rule{of: r, colour: colour, addBegun: time.Now()}
	r.all = append(r.all, added)
	return added
}

// Added notes that the rule was added.
func (r *Rule) Added() { r.note(&r.added) }

// Drops notes that the rule is going to be removed.
func (r *Rule) Drops() { r.note(&r.dropBegun) }

// Dropped notes that the rule is gone.
func (r *Rule) Dropped() { r.note(&r.goneAt) }

func (r *Rule) note(at *time.Time) {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	*at = time.Now()
}

// WasAdded reports whether a client has heard that the rule was added.
func (r *Rule) WasAdded() bool {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	return !r.added.IsZero()
}

// Expect says whether a message of a colour must arrive at the subscription.
func (r *Rules) Expect(m *Sent, colour int64) Expectation {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := Never
	for _, one := range r.all {
		if one.colour != colour || !one.goneAt.IsZero() && one.goneAt.Before(m.Begun) || !m.Ended.IsZero() && m.Ended.Before(one.addBegun) {
			continue
		}
		if m.IsAccepted && !one.added.IsZero() && one.added.Before(m.Begun) && (one.dropBegun.IsZero() || m.Ended.Before(one.dropBegun)) {
			return Must
		}
		found = May
	}
	return found
}
