package main

import (
	"net/http"

	"github.com/spf13/pflag"

	"github.com/peeklock/peeklock/cmd/metrics"
)

// The values of the setting metrics: who gets what from /metrics (docs/metrics.md).
const (
	metricsOpen      = "open"      // all but the names of entities for everybody, these for operators
	metricsAll       = "all"       // all for everybody
	metricsOperators = "operators" // all for operators, nothing for others
	metricsOff       = "off"
)

// metricsFlags are those about /metrics.
func metricsFlags(f *pflag.FlagSet) {
	f.String("metrics", "", "what /metrics tells callers without a credential: open (all but the names of entities), all, operators (nothing) or off (default open)")
	f.Int("metrics-entities", 0, "how many entities /metrics shows, those with the most messages; 0 to 10000 (default 1000)")
}

func (s *settings) validateMetrics() error {
	switch s.Metrics {
	case metricsOpen, metricsAll, metricsOperators, metricsOff:
	default:
		return usagef("metrics: %s, %s, %s or %s, not %q", metricsOpen, metricsAll, metricsOperators, metricsOff, s.Metrics)
	}
	if s.MetricsEntities < 0 || s.MetricsEntities > metrics.EntitiesMax {
		return usagef("metrics_entities: 0 to %d, not %d", metrics.EntitiesMax, s.MetricsEntities)
	}
	return nil
}

// metricsParts says what a member tells of itself; the zero value nothing.
type metricsParts struct {
	access   string
	entities int
}

// handlers are those of /metrics: for operators, and for everybody else.
func (p memberParts) handlers(m *member) (whole, others http.Handler, err error) {
	if p.metrics.access == "" || p.metrics.access == metricsOff {
		return nil, nil, nil
	}
	figures, err := metrics.New(metrics.Config{
		Name: p.cluster.Name, Version: p.cluster.Version,
		Node: m.node.Stats, Gateway: m.gateway.Stats, Ready: m.isReady,
		ConnectionsMax: m.connectionsMax, Expiries: p.expiries, Memory: p.memory.statsFunc(),
		Entities: p.metrics.entities, Logger: p.logger.With("room", "metrics"),
	})
	if err != nil {
		return nil, nil, err
	}
	if whole, err = figures.Handler(true); err != nil {
		return nil, nil, err
	}
	switch p.metrics.access {
	case metricsAll:
		others = whole
	case metricsOpen:
		others, err = figures.Handler(false)
	}
	return whole, others, err
}
