package metrics

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/peeklock/peeklock/amqp"
	"github.com/peeklock/peeklock/cluster"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// kind is the type of a family, in the terms of Prometheus.
type kind string

// The kinds.
const (
	gauge     kind = "gauge"
	counter   kind = "counter"
	histogram kind = "histogram"
)

// emit and emitTimes send one sample with the values of its labels.
type (
	emit      func(value float64, labels ...string)
	emitTimes func(times partition.Durations, labels ...string)
)

// family describes one metric completely.
type family struct {
	name        string
	kind        kind
	labels      []string
	help        string
	read        func(p *statsSnapshot, to emit)      // of gauges and counters
	times       func(p *statsSnapshot, to emitTimes) // of histograms
	entityNames bool                                 // shows the names of entities

	desc *prometheus.Desc
}

// sample returns a gauge or counter without labels.
func sample(name string, k kind, help string, read func(*statsSnapshot) float64) family {
	return family{name: name, kind: k, help: help, read: func(p *statsSnapshot, to emit) { to(read(p)) }}
}

// perPartition returns a family with one sample for each replica of this member.
func perPartition(name string, k kind, help string, read func(*cluster.PartitionStats) float64) family {
	return family{name: name, kind: k, labels: []string{"partition"}, help: help, read: func(p *statsSnapshot, to emit) {
		for i := range p.node.Partitions {
			part := &p.node.Partitions[i]
			to(read(part), partitionLabel(part.ID))
		}
	}}
}

// collect sends the samples of the family.
func (f *family) collect(p *statsSnapshot, to chan<- prometheus.Metric) {
	switch f.kind {
	case histogram:
		f.times(p, func(d partition.Durations, labels ...string) {
			sanitizeLabels(labels)
			within := make(map[float64]uint64, len(d.Within))
			for i, n := range d.Within {
				within[partition.Bound(i).Seconds()] = n
			}
			to <- prometheus.MustNewConstHistogram(f.desc, d.Count, d.Sum.Seconds(), within, labels...)
		})
	case gauge, counter:
		value := prometheus.GaugeValue
		if f.kind == counter {
			value = prometheus.CounterValue
		}
		f.read(p, func(v float64, labels ...string) {
			sanitizeLabels(labels)
			to <- prometheus.MustNewConstMetric(f.desc, value, v, labels...)
		})
	}
}

// sanitizeLabels replaces invalid UTF-8, which Prometheus refuses: one invalid label would make the whole scrape
// fail.
func sanitizeLabels(labels []string) {
	for i := range labels {
		labels[i] = strings.ToValidUTF8(labels[i], "\uFFFD")
	}
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func partitionLabel(id fsm.PartitionID) string { return strconv.FormatUint(uint64(id), 10) }

// statsSnapshot holds the stats of a member at one point in time.
type statsSnapshot struct {
	at             time.Time
	name, version  string
	ready          bool
	node           cluster.Stats
	gateway        amqp.Stats
	hasGateway     bool
	consumers      []ofEntity
	throttled      []ofEntity
	connectionsMax int // that the gateway accepts
	expiries       map[string]time.Time
	memory         Memory
	hasMemory      bool
}

// ofEntity is a number that a gateway knows of an entity.
type ofEntity struct {
	namespace, kind, entity string
	count                   float64
}

// Memory is the memory of the process, in bytes.
type Memory struct {
	Limit    int64 // of the process
	Index    int64 // index of waiting messages, without bodies, as measured by the last cycle of the garbage collector
	IndexMax int64 // above it, sends are refused
}
