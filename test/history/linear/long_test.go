package linear_test

import (
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/history/linear"
)

// TestLongSessionHistoryIsDecided: locks that end by themselves, releases that may have had no effect, and writes without an answer leave many orders
// open; a write that was lost among them is found in time nevertheless.
func TestLongSessionHistoryIsDecided(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		var requests []linear.SessionRequest
		add := func(kind linear.SessionKind, client string, begun, state int) {
			q := linear.SessionRequest{Kind: kind, Session: "1", Client: client, Begun: at(begun), Ended: at(begun).Add(500 * time.Millisecond), State: state}
			if kind == linear.Accept {
				q.Until = at(begun + 15)
			}
			if kind == linear.Release || kind == linear.Write && state%10 == 9 {
				q.Ended = time.Time{}
			}
			requests = append(requests, q)
		}
		now, state := 0, 0
		for i := range 120 {
			client := string(rune('a' + i%3))
			add(linear.Accept, client, now, 0)
			read := state
			if lost && i == 60 {
				read--
			}
			if state%10 != 9 {
				add(linear.Read, client, now+1, read)
			}
			state++
			add(linear.Write, client, now+2, state)
			add(linear.Use, client, now+3, 0)
			if i%2 == 0 {
				add(linear.Release, client, now+4, 0)
				now += 5
			} else {
				now += 17
			}
		}
		r := linear.Sessions(requests, 10*time.Second)
		if r.Undecided > 0 || (len(r.Found) > 0) != lost {
			t.Errorf("lost %t: %d undecided, %d found", lost, r.Undecided, len(r.Found))
		}
	}
}
