// Package histogram counts durations in fixed buckets, without locks.
//
// Packages partition, raftlog and cluster observe durations in a [Histogram]; the metrics of the
// process read [Durations]. It knows nothing about metrics formats.
package histogram
