package rates

import (
	"github.com/peeklock/peeklock/topology"
)

// recentSamples are averaged for current rates: a minute.
const recentSamples = 60 / topology.RatesEvery

// Of returns the rates at the end of samples.
func Of(samples []topology.Sample) (r topology.Rates) {
	recent := samples[max(0, len(samples)-recentSamples):]
	if len(recent) == 0 {
		return r
	}
	for i := range recent {
		s := &recent[i]
		r.Incoming += float64(s.Incoming)
		r.Outgoing += float64(s.Outgoing)
		r.Completed += float64(s.Completed)
		r.Abandoned += float64(s.Abandoned)
		r.DeadLettered += float64(s.DeadLettered)
		r.Expired += float64(s.Expired)
		r.Forwarded += float64(s.Forwarded)
	}
	seconds := float64(len(recent) * topology.RatesEvery)
	for _, rate := range []*float64{&r.Incoming, &r.Outgoing, &r.Completed, &r.Abandoned, &r.DeadLettered, &r.Expired, &r.Forwarded} {
		*rate /= seconds
	}
	last := &recent[len(recent)-1]
	r.Active, r.DeadLetter = uint64(last.Active), uint64(last.DeadLetter)
	return r
}

// Add adds the rates and samples of another shard of the same entity, or its consumers at another member. The ends of both series are less than one sample apart.
func Add(a, b *topology.EntityRates) {
	a.Incoming += b.Incoming
	a.Outgoing += b.Outgoing
	a.Completed += b.Completed
	a.Abandoned += b.Abandoned
	a.DeadLettered += b.DeadLettered
	a.Expired += b.Expired
	a.Forwarded += b.Forwarded
	a.Active += b.Active
	a.DeadLetter += b.DeadLetter
	a.Consumers += b.Consumers
	long, short := a.Samples, b.Samples
	if len(long) < len(short) {
		long, short = short, long
	}
	later := long[len(long)-len(short):]
	for i := range short {
		addSample(&later[i], &short[i])
	}
	a.Samples = long
}

// addSample adds y to x.
func addSample(x, y *topology.Sample) {
	x.Incoming += y.Incoming
	x.Outgoing += y.Outgoing
	x.Completed += y.Completed
	x.Abandoned += y.Abandoned
	x.DeadLettered += y.DeadLettered
	x.Expired += y.Expired
	x.Forwarded += y.Forwarded
	x.Active += y.Active
	x.DeadLetter += y.DeadLetter
}
