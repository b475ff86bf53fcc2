package main

import (
	"time"

	"github.com/peeklock/peeklock/admin"
	"github.com/peeklock/peeklock/admin/condition"
	"github.com/peeklock/peeklock/cmd/metrics"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
)

// metricsParts has the settings of /metrics; the zero value turns it off.
type metricsParts struct {
	access   string
	entities int
}

// showMetrics gives the server the handlers of /metrics, for operators and for all other callers, and the conditions that the metrics show.
func (p memberParts) showMetrics(m *member, api *admin.Config) error {
	subject := "member " + p.cluster.Name
	if p.metrics.access == "" || p.metrics.access == config.MetricsOff {
		api.Examine = func() (f condition.Findings) {
			f.Add(condition.NotExamined, subject, "the setting metrics is off")
			return f
		}
		return nil
	}
	collector, err := metrics.New(metrics.Config{
		Name: p.cluster.Name, Version: p.cluster.Version,
		Node: m.node.Stats, Gateway: m.gateway.Stats, Ready: m.isReady,
		Consumers: m.gateway.Consumers, Throttled: m.gateway.Throttled, NamespaceName: m.node.Router().NamespaceName,
		ConnectionsMax: m.connectionsMax, Expiries: p.expiries, Memory: p.memory.statsFunc(),
		Entities: p.metrics.entities, Logger: p.logger.With("component", "metrics"),
	})
	if err != nil {
		return err
	}
	if api.Metrics, err = collector.Handler(true); err != nil {
		return err
	}
	nameless, err := collector.Handler(false)
	if err != nil {
		return err
	}
	switch p.metrics.access {
	case config.MetricsAll:
		api.PublicMetrics = api.Metrics
	case config.MetricsOpen:
		api.PublicMetrics = nameless
	}
	api.Examine = func() condition.Findings {
		found, _ := condition.OfMetrics(subject, time.Now(), metrics.Text(nameless))
		return found
	}
	return nil
}
