package rates

import (
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/totals"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/topology"
)

// feed gives a Recorder readings without replicas.
type feed struct {
	*Recorder

	totals map[fsm.EntityID]*totals.Totals
}

func newFeed() *feed {
	return &feed{New(func() map[fsm.PartitionID]*partition.Group { return nil }), map[fsm.EntityID]*totals.Totals{}}
}

// pass takes a sample after so many messages came to each of these entities.
func (f *feed) pass(incoming uint64, ids ...fsm.EntityID) {
	f.begin()
	for _, id := range ids {
		if f.totals[id] == nil {
			f.totals[id] = &totals.Totals{Incoming: 1000}
		}
		f.totals[id].Incoming += incoming
	}
	var page []reading
	for id, all := range f.totals {
		page = append(page, reading{id, *all, all.Incoming, 2})
	}
	f.record(1, page)
	f.finish(1)
	f.forget()
}

// An entity has samples from its first activity on, for an hour; its rates are those of the last minute.
func TestRecorderKeepsAnHour(t *testing.T) {
	t.Parallel()
	f := newFeed()
	f.pass(0, 1, 2) // the totals of before are no activity
	if got := f.Samples(1); len(got) != 0 {
		t.Errorf("%d samples of an entity that has not been active, want none", len(got))
	}
	for range 3 {
		f.pass(30, 1)
	}
	f.pass(0, 1)
	want := []topology.Sample{
		{Incoming: 30, Active: 1030, DeadLetter: 2}, {Incoming: 30, Active: 1060, DeadLetter: 2}, {Incoming: 30, Active: 1090, DeadLetter: 2}, {Active: 1090, DeadLetter: 2},
	}
	if diff := cmp.Diff(want, f.Samples(1)); diff != "" {
		t.Errorf("samples (-want +got):\n%s", diff)
	}
	f.Each(func(id fsm.EntityID, in fsm.PartitionID, now topology.Rates) {
		if want := (topology.Rates{Incoming: 90. / 40, Active: 1090, DeadLetter: 2}); id != 1 || in != 1 || now != want {
			t.Errorf("entity %d in partition %d has rates %+v, want %+v of entity 1", id, in, now, want)
		}
	})
	for range 2 * topology.RateSamplesMax {
		f.pass(1, 1)
	}
	if got := f.Samples(1); len(got) != topology.RateSamplesMax || got[0].Incoming != 1 || got[0].Active >= got[len(got)-1].Active {
		t.Errorf("got %d samples, the first %+v, want an hour in order", len(got), got[0])
	}
	f.totals[1] = &totals.Totals{} // restored from a backup of before
	f.pass(5, 1)
	if got := f.Samples(1); got[len(got)-1].Incoming != 0 {
		t.Errorf("lower totals give a sample of %+v, want 0", got[len(got)-1])
	}
	f.totals[3] = &totals.Totals{} // created since the last sample
	f.pass(7, 3)
	if got := f.Samples(3); len(got) != 1 || got[0].Incoming != 7 {
		t.Errorf("a new entity has the samples %+v, want its first messages", got)
	}
	delete(f.totals, 1)
	delete(f.totals, 3)
	f.pass(0)
	if got := f.Samples(1); got != nil || len(f.series) != 0 {
		t.Errorf("a deleted entity has %d samples, want none", len(got))
	}
}

// The busiest entities have samples, and all that a Recorder keeps stays within its limit.
func TestRecorderIsBounded(t *testing.T) {
	t.Parallel()
	const memoryMax = 16 << 20
	f, idle, busy := newFeed(), []fsm.EntityID{}, []fsm.EntityID{}
	for id := range fsm.EntityID(candidatesMax + EntitiesMax + 10) {
		if id < EntitiesMax {
			busy = append(busy, id+1)
		} else {
			idle = append(idle, id+1)
		}
	}
	f.pass(0, busy...)
	for range 2 {
		f.pass(1000, busy...)
	}
	var before, after runtime.MemStats
	f.pass(1, idle...)
	f.pass(1, idle...)
	for range topology.RateSamplesMax + 2 { // later ones get a place
		f.begin()
		f.record(1, nil)
		for id, c := range f.candidates {
			c.seen = f.ticks
			f.candidates[id] = c
		}
		for _, s := range f.series {
			s.seen = f.ticks
		}
		f.forget()
	}
	if !f.isLossy || len(f.candidates) != 0 {
		t.Errorf("%d candidates after an idle hour without space for all, want none", len(f.candidates))
	}
	f.pass(1, idle...)
	if len(f.series) != EntitiesMax || len(f.candidates) != candidatesMax || f.Samples(busy[0]) == nil {
		t.Errorf("%d series, %d candidates, want %d and %d with the busiest entities", len(f.series), len(f.candidates), EntitiesMax, candidatesMax)
	}
	for range 3 {
		f.pass(90_000, idle[:200]...)
	}
	replaced := 0
	for _, id := range idle[:200] {
		if f.Samples(id) != nil {
			replaced++
		}
	}
	if len(f.series) != EntitiesMax || replaced == 0 || replaced > 3*replacedMax {
		t.Errorf("%d of %d entities that became busier got samples, want some and at most %d", replaced, len(f.series), 3*replacedMax)
	}
	f.totals = nil
	runtime.GC()
	runtime.ReadMemStats(&before)
	runtime.KeepAlive(f)
	f.Recorder = nil
	runtime.GC()
	runtime.ReadMemStats(&after)
	if took := before.HeapAlloc - after.HeapAlloc; took > memoryMax {
		t.Errorf("a full Recorder takes %d bytes, want at most %d", took, memoryMax)
	}
}

// A message that a topic copies to subscriptions is incoming once in the total, and samples of the same age add up.
func TestTotal(t *testing.T) {
	t.Parallel()
	f := newFeed()
	f.pass(0, 1, 2, 3)
	f.pass(10, 1)
	f.pass(10, 1, 2, 3)
	sum := f.Total(func(id fsm.EntityID) (isCounted, isSubscription bool) { return id != 3, id == 2 })
	want := []topology.Sample{{Incoming: 10, Active: 1010, DeadLetter: 2}, {Incoming: 10, Active: 1020 + 1010, DeadLetter: 4}}
	if diff := cmp.Diff(want, sum.Samples); diff != "" || sum.Incoming != 1 {
		t.Errorf("the total has %v incoming a second, want 1; samples (-want +got):\n%s", sum.Incoming, diff)
	}
}

// The shards of an entity add up, newest samples together.
func TestAdd(t *testing.T) {
	t.Parallel()
	a := topology.EntityRates{Name: "q", Rates: topology.Rates{Incoming: 1, Active: 2}, Samples: []topology.Sample{{Incoming: 1}}}
	b := topology.EntityRates{Name: "q", Rates: topology.Rates{Incoming: 2, Active: 3}, Samples: []topology.Sample{{Incoming: 10}, {Incoming: 20}}}
	Add(&a, &b)
	want := topology.EntityRates{Name: "q", Rates: topology.Rates{Incoming: 3, Active: 5}, Samples: []topology.Sample{{Incoming: 10}, {Incoming: 21}}}
	if diff := cmp.Diff(want, a); diff != "" {
		t.Errorf("sum (-want +got):\n%s", diff)
	}
}
