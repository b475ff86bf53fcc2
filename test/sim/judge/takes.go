package judge

import (
	"slices"
	"sync"
	"time"

	"github.com/peeklock/peeklock/test/history"
)

// Takes are the requests of receive-and-delete without an answer. Each may have deleted messages that nobody received.
type Takes struct {
	mu         sync.Mutex
	unanswered []take
}

// take is a request without an answer: how many messages it may have deleted at most, and until when.
type take struct {
	until time.Time
	most  int
}

// Add notes a request without an answer, which may delete some messages at most until a time: a leader lets it wait
// although the member that sent it has lost power.
func (t *Takes) Add(most int, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unanswered = append(t.unanswered, take{until, most})
}

// explain leaves out the lost messages that requests without an answer explain: each as many as it asked for, of
// those whose sending had begun before its end.
func (t *Takes) explain(found []history.Violation) []history.Violation {
	t.mu.Lock()
	unanswered := slices.Clone(t.unanswered)
	t.mu.Unlock()
	return slices.DeleteFunc(found, func(v history.Violation) bool {
		by := slices.IndexFunc(unanswered, func(t take) bool { return t.most > 0 && !t.until.Before(v.Events[0].At) })
		if v.Rule != history.RuleLost || by < 0 {
			return false
		}
		unanswered[by].most--
		return true
	})
}
