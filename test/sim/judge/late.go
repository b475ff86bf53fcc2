package judge

import (
	"fmt"

	"github.com/peeklock/peeklock/test/history"
)

// place is a message in an entity.
type place struct{ id, entity string }

// lockWatch is what is known of the locks on a message in an entity.
type lockWatch struct {
	sequence map[string]int64  // by client: of the delivery that it got last
	holder   map[int64]string  // by sequence number: the client that got the last delivery
	late     map[string]string // by client that settles a delivery without its lock: the client that has had the lock since
}

// checkLate finds settlements that were accepted although the message had been delivered to another client before the
// settlement began.
func checkLate(events []history.Event) (found []string) {
	watched := make(map[place]*lockWatch)
	for i := range events {
		e := &events[i]
		at := place{e.ID, e.Entity}
		w := watched[at]
		if w == nil {
			w = &lockWatch{make(map[string]int64), make(map[int64]string), make(map[string]string)}
			watched[at] = w
		}
		switch e.Kind { //nolint:exhaustive // the others end no lock
		case history.Delivered:
			w.sequence[e.Client], w.holder[e.Sequence] = e.Sequence, e.Client
			delete(w.late, e.Client)
		case history.SettleBegun:
			if holder := w.holder[w.sequence[e.Client]]; holder != e.Client {
				w.late[e.Client] = holder
			}
		case history.Completed, history.Returned:
			if holder, late := w.late[e.Client]; late {
				found = append(found, fmt.Sprintf("message %s was delivered to %s before the settlement: %v", e.ID, holder, e))
			}
		}
	}
	return found
}
