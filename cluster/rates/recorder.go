package rates

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/totals"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/topology"
)

// Limits of a Recorder. A series is 13 KB, so EntitiesMax of them take 11.4 MiB, and candidates 3 MiB at most.
const (
	// EntitiesMax is the number of entities, or shards, with samples.
	EntitiesMax = 900
	// candidatesMax bounds the other entities whose totals are compared with those of the sample before.
	candidatesMax = 8192
	pageEntities  = 256 // entities read under one lock of a state machine
	scoreSamples  = 64  // samples after which activity counts a third for the choice of entities
	replacedMax   = 32  // entities that lose their samples to busier ones in one sample
)

// Recorder keeps samples of entities. Its zero value is not usable.
type Recorder struct {
	groups func() map[fsm.PartitionID]*partition.Group

	mu         sync.Mutex
	ticks      uint64 // samples taken so far
	series     map[fsm.EntityID]*series
	candidates map[fsm.EntityID]candidate // entities without samples that were ever active
	isLossy    bool                       // candidates did not have space for all of them
	scanned    map[fsm.PartitionID]uint64 // ticks at which partitions were read completely
	replaced   int                        // entities that lost their samples in the current sample
	least      uint64                     // lowest score when it began
}

// series holds the samples of an entity in a ring. Sample t is at t modulo RateSamplesMax.
type series struct {
	samples   [topology.RateSamplesMax]topology.Sample
	partition fsm.PartitionID
	last      totals.Totals // at the last sample
	first     uint64        // tick of the first sample
	seen      uint64        // tick of the last sample
	score     uint64        // decaying sum of activity
}

// candidate is an entity without samples.
type candidate struct {
	last    totals.Totals
	seen    uint64 // tick at which it was found
	changed uint64 // tick at which it was active
}

// New returns a Recorder of the replicas that groups returns.
func New(groups func() map[fsm.PartitionID]*partition.Group) *Recorder {
	return &Recorder{
		groups: groups, series: make(map[fsm.EntityID]*series), candidates: make(map[fsm.EntityID]candidate), scanned: make(map[fsm.PartitionID]uint64),
	}
}

// Run takes samples until the context ends.
func (r *Recorder) Run(ctx context.Context) {
	ticker := time.NewTicker(topology.RatesEvery * time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			r.sampleAll()
		}
	}
}

// reading is what is read of an entity.
type reading struct {
	id                 fsm.EntityID
	totals             totals.Totals
	active, deadLetter uint64
}

// sampleAll takes one sample of all entities.
func (r *Recorder) sampleAll() {
	r.begin()
	page := make([]reading, 0, pageEntities)
	for id, group := range r.groups() {
		for after, done := fsm.EntityID(0), false; !done; {
			page, done = page[:0], true
			group.View(func(m partition.Machine) {
				if queues := raftgroup.Queues(m); queues != nil {
					after, done = queues.EachTotals(after, pageEntities, func(id fsm.EntityID, all *totals.Totals, active, deadLetter uint64) {
						page = append(page, reading{id, *all, active, deadLetter})
					})
				}
			})
			r.record(id, page)
		}
		r.finish(id)
	}
	r.forget()
}

// begin begins a sample.
func (r *Recorder) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ticks++
	r.replaced = 0
	_, r.least = r.leastActive()
}

// record adds readings of one partition to the samples.
func (r *Recorder) record(id fsm.PartitionID, page []reading) {
	r.mu.Lock()
	defer r.mu.Unlock()
	hadAll := !r.isLossy && r.ticks > 1 && r.scanned[id] == r.ticks-1
	for i := range page {
		x := &page[i]
		if s := r.series[x.id]; s != nil {
			s.add(r.ticks, x)
		} else if last, score, admitted := r.consider(x, hadAll); admitted {
			s := &series{partition: id, last: last, first: r.ticks, score: score}
			s.add(r.ticks, x)
			r.series[x.id] = s
			delete(r.candidates, x.id)
		}
	}
}

// finish ends the readings of a partition in the current sample.
func (r *Recorder) finish(id fsm.PartitionID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scanned[id] = r.ticks
}

// consider reports whether an entity gets samples, from which totals on and with which score: it was active since the last sample, and there
// is space, or it was twice as active as the least active entity with samples, which loses them. hadAll means that an unknown entity was
// not active before the last sample.
func (r *Recorder) consider(x *reading, hadAll bool) (last totals.Totals, score uint64, admitted bool) {
	now := activity(&x.totals)
	c, known := r.candidates[x.id]
	last = c.last
	before := activity(&last)
	switch {
	case !known && now == 0:
		return last, 0, false
	case !known && len(r.candidates) >= candidatesMax:
		r.isLossy = true
		return last, 0, false
	case now != before:
		c.changed = r.ticks
	}
	c.last, c.seen = x.totals, r.ticks
	r.candidates[x.id] = c
	if !known && !hadAll || now <= before {
		return last, 0, false
	}
	score = (now - before) * scoreSamples // what it has if it stays as active
	if len(r.series) < EntitiesMax {
		return last, score, true
	}
	if r.replaced == replacedMax || score <= 2*r.least {
		return last, 0, false // at little cost: there may be many candidates
	}
	id, least := r.leastActive()
	if score <= 2*least {
		return last, 0, false
	}
	r.replaced++
	delete(r.series, id)
	return last, score, true
}

// leastActive returns the entity with the lowest score.
func (r *Recorder) leastActive() (id fsm.EntityID, score uint64) {
	score = math.MaxUint64
	for other, s := range r.series {
		if s.score < score {
			id, score = other, s.score
		}
	}
	return id, score
}

// forget removes what the current sample did not find: entities that were deleted, or have no replica here any more. If there
// is no space for all candidates, it also removes those that were not active for an hour.
func (r *Recorder) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, s := range r.series {
		if s.seen != r.ticks {
			delete(r.series, id)
		}
	}
	for id, c := range r.candidates {
		if c.seen != r.ticks || r.isLossy && c.changed+topology.RateSamplesMax < r.ticks {
			delete(r.candidates, id)
		}
	}
	for id, tick := range r.scanned {
		if tick != r.ticks {
			delete(r.scanned, id)
		}
	}
}

// activity returns a number that rises with everything that senders and receivers do.
func activity(t *totals.Totals) uint64 {
	return t.Incoming + t.Outgoing + t.Completed + t.Duplicates + t.Expired + t.Forwarded + t.AllDeadLettered()
}

// add adds a sample.
func (s *series) add(tick uint64, x *reading) {
	last, next := &s.last, &x.totals
	s.samples[tick%topology.RateSamplesMax] = topology.Sample{
		Incoming:     since(last.Incoming, next.Incoming),
		Outgoing:     since(last.Outgoing, next.Outgoing),
		Completed:    since(last.Completed, next.Completed),
		Abandoned:    since(last.Abandoned, next.Abandoned),
		DeadLettered: since(last.AllDeadLettered(), next.AllDeadLettered()),
		Expired:      since(last.Expired, next.Expired),
		Forwarded:    since(last.Forwarded, next.Forwarded),
		Active:       saturate(x.active),
		DeadLetter:   saturate(x.deadLetter),
	}
	s.score += activity(next) - min(activity(next), activity(last)) - s.score/scoreSamples
	s.last, s.seen = *next, tick
}

// since returns the difference of two totals, 0 after a restore of older ones.
func since(last, next uint64) uint32 { return saturate(next - min(last, next)) }

func saturate(n uint64) uint32 { return uint32(min(n, math.MaxUint32)) }

// Each calls visit with the partition and the current rates of each entity, under the lock of the Recorder: visit must not block.
func (r *Recorder) Each(visit func(id fsm.EntityID, in fsm.PartitionID, now topology.Rates)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, s := range r.series {
		visit(id, s.partition, Of(s.newest(recentSamples)))
	}
}

// Samples returns the samples of an entity, oldest first; none if it has not been active.
func (r *Recorder) Samples(id fsm.EntityID) []topology.Sample {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.series[id]; s != nil {
		return s.newest(topology.RateSamplesMax)
	}
	return nil
}

// newest returns the newest samples, at most most, oldest first.
func (s *series) newest(most uint64) []topology.Sample {
	first := s.firstOf(most)
	samples := make([]topology.Sample, 0, s.seen+1-first)
	for tick := first; tick <= s.seen; tick++ {
		samples = append(samples, s.samples[tick%topology.RateSamplesMax])
	}
	return samples
}

// firstOf returns the tick of the first of the newest samples, at most most.
func (s *series) firstOf(most uint64) uint64 { return max(s.first, s.seen+1-min(s.seen+1, most)) }

// Total returns the sum of the samples of the entities that counts names, newest samples together. A message that is copied to
// subscriptions is incoming once: at the topic.
func (r *Recorder) Total(counts func(id fsm.EntityID) (isCounted, isSubscription bool)) (sum topology.EntityRates) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var samples [topology.RateSamplesMax]topology.Sample
	length := 0
	for id, s := range r.series {
		isCounted, isSubscription := counts(id)
		if !isCounted {
			continue
		}
		for tick := s.firstOf(topology.RateSamplesMax); tick <= s.seen; tick++ {
			age := int(s.seen - tick)
			length = max(length, age+1)
			sample := s.samples[tick%topology.RateSamplesMax]
			if isSubscription {
				sample.Incoming = 0
			}
			addSample(&samples[len(samples)-1-age], &sample)
		}
	}
	sum.Samples = slices.Clone(samples[len(samples)-length:])
	sum.Rates = Of(sum.Samples)
	return sum
}
