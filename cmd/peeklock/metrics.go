package main

import (
	"net/http"

	"github.com/peeklock/peeklock/cmd/metrics"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
)

// metricsParts has the settings of /metrics; the zero value turns it off.
type metricsParts struct {
	access   string
	entities int
}

// handlers returns the handlers of /metrics: for operators, and for all other callers.
func (p memberParts) handlers(m *member) (whole, others http.Handler, err error) {
	if p.metrics.access == "" || p.metrics.access == config.MetricsOff {
		return nil, nil, nil
	}
	collector, err := metrics.New(metrics.Config{
		Name: p.cluster.Name, Version: p.cluster.Version,
		Node: m.node.Stats, Gateway: m.gateway.Stats, Ready: m.isReady,
		Consumers: m.gateway.Consumers, NamespaceName: m.node.Router().NamespaceName,
		ConnectionsMax: m.connectionsMax, Expiries: p.expiries, Memory: p.memory.statsFunc(),
		Entities: p.metrics.entities, Logger: p.logger.With("component", "metrics"),
	})
	if err != nil {
		return nil, nil, err
	}
	if whole, err = collector.Handler(true); err != nil {
		return nil, nil, err
	}
	switch p.metrics.access {
	case config.MetricsAll:
		others = whole
	case config.MetricsOpen:
		others, err = collector.Handler(false)
	}
	return whole, others, err
}
