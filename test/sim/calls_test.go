package sim

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/test/history"
	"github.com/peeklock/peeklock/test/sim/judge"
	"github.com/peeklock/peeklock/test/sim/simfs"
	"github.com/peeklock/peeklock/test/sim/simplan"
)

// The simulation goes on only when the member whose call failed has been looked at, also if no member runs then.
func TestFailedCallIsRepairedBeforeTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{log: slog.New(slog.DiscardHandler)}
		m := &member{world: w, process: new(process)}
		w.members = []*member{m}
		plan := &simplan.Plan{Call: &simplan.FailedCall{Number: 1, Class: simplan.IOError}}
		c := newCalls(w, plan)
		w.calls = c
		c.start()
		fails := c.intercept(m)
		for c.failed == nil { // the stack of the call is not known before
			if failure := fails(simfs.CallOpen, dataFolder+"/f"); failure.Err != nil {
				break
			}
			c.fail.Stack, c.fail.Number = c.made[0].Stack, len(c.made)+1
		}
		m.set(nil)
		begun := time.Now()
		w.repairs.Wait()
		if waited := time.Since(begun); waited < repairAfter {
			t.Errorf("the failed call was repaired after %v, want %v", waited, repairAfter)
		}
		c.compare()
		if len(w.found) != 1 || !strings.Contains(w.found[0], errNoMember.Error()) {
			t.Errorf("while no member runs, the comparison finds %q", w.found)
		}
	})
}

// A pause counts until the senders end: afterwards nothing is sent until the cluster has been repaired.
func TestPausesOfSendersEndWithThem(t *testing.T) {
	t.Parallel()
	s, begun := new(judge.Stream), time.Unix(1_000_000_000, 0)
	for _, second := range []int{1, 3, 4, 20} {
		s.Add(history.Event{Kind: history.SendAccepted, At: begun.Add(time.Duration(second) * time.Second)})
	}
	if got, want := gaps([]*judge.Stream{s}, begun, 6*time.Second), []float64{1, 2, 2, 2, 2, 2}; !slices.Equal(got, want) {
		t.Errorf("got pauses %v, want %v", got, want)
	}
}

// Bytes that cannot be read may keep no member from starting; a write that fails may.
func TestUnreadableBytesKeepNoMemberFromStarting(t *testing.T) {
	t.Parallel()
	for call, found := range map[string]int{simfs.CallRead: 1, simfs.CallWrite: 0} {
		c := newCalls(new(world), &simplan.Plan{Call: &simplan.FailedCall{Class: simplan.IOError}})
		c.failed = &Call{Name: call}
		c.addNote(refusedStart + "open journal")
		if got := c.outcome(new(Report)).Findings; len(got) != found {
			t.Errorf("%s: got findings %q, want %d", call, got, found)
		}
	}
}
