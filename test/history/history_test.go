package history

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// at is a moment of the planted histories, in seconds.
func at(seconds int) time.Time { return time.Unix(1_000_000_000+int64(seconds), 0) }

// good is a correct history of one message, every step confirmed.
func good(id string) []Event {
	return []Event{
		{Kind: SendBegun, ID: id, Client: "s", At: at(0)},
		{Kind: SendAccepted, ID: id, Client: "s", At: at(1)},
		{Kind: Delivered, ID: id, Client: "r1", At: at(2), Sequence: 7, LockedUntil: at(32)},
		{Kind: SettleBegun, ID: id, Client: "r1", At: at(3)},
		{Kind: Completed, ID: id, Client: "r1", At: at(4)},
	}
}

// rulesOf runs Check and returns the violated rules by message.
func rulesOf(events []Event) map[string][]string {
	found := map[string][]string{}
	for _, b := range Check(events) {
		found[b.ID] = append(found[b.ID], b.Rule)
	}
	return found
}

func TestCheckAcceptsCorrectHistories(t *testing.T) {
	t.Parallel()
	send := []Event{{Kind: SendBegun, ID: "m", At: at(0)}, {Kind: SendAccepted, ID: "m", At: at(1)}}
	for name, events := range map[string][]Event{
		"a life without trouble": good("m"),
		"a lock that ran out": append(send[:2:2],
			Event{Kind: Delivered, ID: "m", Client: "r1", At: at(2), Sequence: 7, LockedUntil: at(32)},
			Event{Kind: Delivered, ID: "m", Client: "r2", At: at(33), Sequence: 7, FailedDeliveries: 1, LockedUntil: at(63)}),
		"an abandon, then another receiver": append(send[:2:2],
			Event{Kind: Delivered, ID: "m", Client: "r1", At: at(2), Sequence: 7, LockedUntil: at(32)},
			Event{Kind: SettleBegun, ID: "m", Client: "r1", At: at(3)},
			Event{Kind: Delivered, ID: "m", Client: "r2", At: at(4), Sequence: 7, FailedDeliveries: 1, LockedUntil: at(34)}),
		"a completion without an answer, then again": append(send[:2:2],
			Event{Kind: Delivered, ID: "m", Client: "r1", At: at(2), Sequence: 7, LockedUntil: at(32)},
			Event{Kind: SettleBegun, ID: "m", Client: "r1", At: at(3)},
			Event{Kind: SettleFailed, ID: "m", Client: "r1", At: at(9)},
			Event{Kind: Delivered, ID: "m", Client: "r2", At: at(33), Sequence: 7, FailedDeliveries: 1, LockedUntil: at(63)}),
		"a send without an answer that was stored": {
			{Kind: SendBegun, ID: "m", At: at(0)},
			{Kind: SendUnknown, ID: "m", At: at(1)},
			{Kind: Delivered, ID: "m", Client: "r1", At: at(2), Sequence: 7, LockedUntil: at(32)},
		},
		"a send without an answer that was not stored": {
			{Kind: SendBegun, ID: "m", At: at(0)},
			{Kind: SendUnknown, ID: "m", At: at(1)},
		},
		"a delivery before the sender hears of its send": {
			{Kind: SendBegun, ID: "m", At: at(0)},
			{Kind: ReceivedAndDeleted, ID: "m", Client: "r1", At: at(1), Sequence: 7},
			{Kind: SendAccepted, ID: "m", At: at(2)},
		},
	} {
		if found := rulesOf(events); len(found) != 0 {
			t.Errorf("%s: reported %v", name, found)
		}
	}
}

func TestCheckCatchesPlantedBugs(t *testing.T) {
	t.Parallel()
	for rule, plant := range map[string]func([]Event) []Event{
		RuleLost: func(h []Event) []Event { return h[:2] },
		RuleAfterCompletion: func(h []Event) []Event {
			return append(h, Event{Kind: Delivered, ID: "m", Client: "r2", At: at(40), Sequence: 7, LockedUntil: at(70)})
		},
		RuleStoredTwice: func(h []Event) []Event {
			return append(h[:4], Event{Kind: Delivered, ID: "m", Client: "r2", At: at(40), Sequence: 8, LockedUntil: at(70)})
		},
		RuleTwoHolders: func(h []Event) []Event {
			return append(h[:3], Event{Kind: Delivered, ID: "m", Client: "r2", At: at(31), Sequence: 7, LockedUntil: at(61)})
		},
		RuleFailedDeliveriesFell: func(h []Event) []Event {
			h[2].FailedDeliveries = 2
			return append(h[:4], Event{Kind: Delivered, ID: "m", Client: "r2", At: at(40), Sequence: 7, FailedDeliveries: 1, LockedUntil: at(70)})
		},
		RuleCompletedTwice: func(h []Event) []Event {
			return append(h, Event{Kind: Completed, ID: "m", Client: "r2", At: at(40)})
		},
		RulePhantom: func(h []Event) []Event { return h[1:] },
	} {
		events := append(plant(good("m")), good("innocent")...)
		if diff := cmp.Diff(map[string][]string{"m": {rule}}, rulesOf(events)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", rule, diff)
		}
	}
}

func TestCheckCatchesVariantsOfPlantedBugs(t *testing.T) {
	t.Parallel()
	taken := good("m")[:2:2]
	taken = append(taken, Event{Kind: ReceivedAndDeleted, ID: "m", Client: "r1", At: at(2), Sequence: 7})
	for name, c := range map[string]struct {
		events []Event
		rule   string
	}{
		"taken twice": {append(taken, taken[2]), RuleAfterCompletion},
		"refused and yet delivered": {[]Event{
			{Kind: SendBegun, ID: "m", At: at(0)},
			{Kind: SendRefused, ID: "m", At: at(1)},
			{Kind: ReceivedAndDeleted, ID: "m", At: at(2), Sequence: 7},
		}, RulePhantom},
		"given to another during a renewed lock": {append(good("m")[:3],
			Event{Kind: Renewed, ID: "m", Client: "r1", At: at(20), LockedUntil: at(50)},
			Event{Kind: Delivered, ID: "m", Client: "r2", At: at(40), Sequence: 7, LockedUntil: at(70)}), RuleTwoHolders},
		"given to the same receiver twice": {append(good("m")[:3],
			Event{Kind: Delivered, ID: "m", Client: "r1", At: at(10), Sequence: 7, LockedUntil: at(40)}), RuleTwoHolders},
	} {
		if diff := cmp.Diff(map[string][]string{"m": {c.rule}}, rulesOf(c.events)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}

// copies is a correct history of a message that is delivered at the entities a and b, every step confirmed.
func copies(id string) []Event {
	events := good(id)[:2]
	for n, place := range []string{"a", "b"} {
		events = append(events,
			Event{Kind: Delivered, ID: id, Entity: place, Client: "r1", At: at(2), Sequence: int64(7 + n), EnqueuedSequence: 3, LockedUntil: at(32)},
			Event{Kind: SettleBegun, ID: id, Entity: place, Client: "r1", At: at(3)},
			Event{Kind: Completed, ID: id, Entity: place, Client: "r1", At: at(4)})
	}
	return events
}

func TestCheckCatchesPlantedBugsOfCopies(t *testing.T) {
	t.Parallel()
	type found struct{ Rule, Place string }
	arrival := func(e Event) Event {
		e.Kind, e.ID, e.Client, e.At, e.LockedUntil = Delivered, "m", "r2", at(10), at(40)
		return e
	}
	for name, c := range map[string]struct {
		plant func([]Event) []Event
		want  []found
	}{
		"nothing": {func(h []Event) []Event { return h }, nil},
		"a copy lost": {func(h []Event) []Event {
			return h[:5]
		}, []found{{RuleLost, "b"}}},
		"all copies lost": {func(h []Event) []Event {
			return h[:2]
		}, []found{{RuleLost, "a"}, {RuleLost, "b"}}},
		"a copy doubled": {func(h []Event) []Event {
			return append(h, arrival(Event{Entity: "b", Sequence: 9, EnqueuedSequence: 3}))
		}, []found{{RuleCopiedTwice, "b"}}},
		"a forward doubled": {func(h []Event) []Event { // it came to the topic twice, so at each place
			return append(h, arrival(Event{Entity: "a", Sequence: 9, EnqueuedSequence: 3}), arrival(Event{Entity: "b", Sequence: 10, EnqueuedSequence: 3}))
		}, []found{{RuleCopiedTwice, "a"}, {RuleCopiedTwice, "b"}}},
		"a send doubled": {func(h []Event) []Event {
			return append(h, arrival(Event{Entity: "a", Sequence: 9, EnqueuedSequence: 4}), arrival(Event{Entity: "b", Sequence: 10, EnqueuedSequence: 4}))
		}, []found{{RuleStoredTwice, "a"}, {RuleStoredTwice, "b"}}},
		"a copy after its completion": {func(h []Event) []Event {
			return append(h, arrival(Event{Entity: "a", Sequence: 7, EnqueuedSequence: 3}))
		}, []found{{RuleAfterCompletion, "a"}}},
		"a copy where no rule wants it": {func(h []Event) []Event {
			return append(h, arrival(Event{Entity: "c", Sequence: 1, EnqueuedSequence: 3}))
		}, []found{{RulePhantom, "c"}}},
		"a copy of what was never sent": {func(h []Event) []Event {
			return h[2:5]
		}, []found{{RulePhantom, "a"}}},
		"a copy in two hands": {func(h []Event) []Event {
			return append(h[:3], append([]Event{arrival(Event{Entity: "a", Sequence: 7, EnqueuedSequence: 3})}, h[5:]...)...)
		}, []found{{RuleTwoHolders, "a"}}},
	} {
		events := append(c.plant(copies("m")), copies("innocent")...)
		var got []found
		for _, b := range Check(events, "a", "b") {
			if b.ID != "m" {
				t.Errorf("%s: reported %v", name, b)
				continue
			}
			got = append(got, found{b.Rule, b.Entity})
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}

func TestOpenWantsAnEndAtEachPlace(t *testing.T) {
	t.Parallel()
	events := append(copies("done"), copies("half")[:5]...)
	if diff := cmp.Diff([]string{"half"}, Unfinished(events, "a", "b")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestUnfinishedListsWhatADrainMustDeliver(t *testing.T) {
	t.Parallel()
	events := good("done")
	events = append(events, good("held")[:3]...)
	events = append(events, good("waiting")[:2]...)
	events = append(events, good("unsure")[:1]...)
	if diff := cmp.Diff([]string{"held", "waiting"}, Unfinished(events)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestLogKeepsWhatManyClientsAdd(t *testing.T) {
	t.Parallel()
	const clients, each = 8, 100
	var l Log
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for i := range each {
				l.Add(Event{Kind: SendBegun, ID: fmt.Sprintf("%d-%d", c, i)})
			}
		})
	}
	wg.Wait()
	if n := l.Count(SendBegun); n != clients*each {
		t.Errorf("%d events kept, %d added", n, clients*each)
	}
	for _, e := range l.Events() {
		if e.At.IsZero() {
			t.Fatal("an event has no time")
		}
	}
}

func TestBreachShowsItsTrail(t *testing.T) {
	t.Parallel()
	b := Check(good("m")[:2])
	if len(b) != 1 {
		t.Fatalf("%d breaches, want 1", len(b))
	}
	want := "lost: message m\n    " + at(0).Format("15:04:05.000") + " send begun    s\n    " +
		at(1).Format("15:04:05.000") + " send accepted s"
	if diff := cmp.Diff(want, b[0].String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
