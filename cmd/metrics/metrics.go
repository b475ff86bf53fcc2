package metrics

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/peeklock/peeklock/amqp"
	"github.com/peeklock/peeklock/cluster"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

// Limits of scrapes.
const (
	// EntitiesDefault is the default number of entities that a member shows.
	EntitiesDefault = 1000
	// EntitiesMax is the largest number of entities that a member can show, with 23 series each. A scrape of so many
	// takes 0.4 s of CPU time (BenchmarkScrapeOfManyEntities).
	EntitiesMax   = 3000
	scrapeTimeMax = 10 * time.Second
)

// Config configures the sources of the stats. Node, Ready and Logger are required.
type Config struct {
	Name    string // of the member
	Version string // of the binary
	Node    func(entities int) cluster.Stats
	Gateway func() amqp.Stats // nil: no stats of the gateway
	// Consumers counts the receiving links of the gateway by entity, and Throttled the requests that it refused as busy; nil: not
	// exported. NamespaceName returns the name of a namespace, "" if the member does not know it.
	Consumers     func() []topology.Consumers
	Throttled     func() []amqp.Throttled
	NamespaceName func(fsm.NamespaceID) string
	Ready         func() bool
	// ConnectionsMax is the number of client connections that the gateway accepts; 0: not exported.
	ConnectionsMax int
	// Expiries returns when certificates expire, by the peers that see them: clients, members. It may be nil.
	Expiries func() map[string]time.Time
	// Memory returns the memory limits and use of the process; nil: not exported.
	Memory func() Memory
	// Entities is the number of entities shown, 0 to EntitiesMax; cluster.Stats says which.
	Entities int
	Logger   *slog.Logger
}

// Validate returns an error that names what is missing.
func (c *Config) Validate() error {
	switch {
	case c.Node == nil || c.Ready == nil || c.Logger == nil:
		return errors.New("metrics: Node, Ready and Logger are needed")
	case (c.Consumers == nil) != (c.NamespaceName == nil), (c.Consumers == nil) != (c.Throttled == nil):
		return errors.New("metrics: Consumers, Throttled and NamespaceName are needed together")
	case c.Entities < 0 || c.Entities > EntitiesMax:
		return fmt.Errorf("metrics: %d entities: must be 0 to %d", c.Entities, EntitiesMax)
	}
	return nil
}

// Collector exports the stats of one member. It is safe for concurrent use.
type Collector struct {
	config   Config
	families []family

	mu   sync.Mutex
	last *statsSnapshot
}

// New prepares the collection; it reads no stats before the first scrape.
func New(c Config) (*Collector, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &Collector{config: c, families: families()}, nil
}

// snapshot returns the last snapshot if it is recent, otherwise a new one: any number of scrapers causes at most
// one collection per second.
func (m *Collector) snapshot() *statsSnapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last != nil && time.Since(m.last.at) < snapshotEvery {
		return m.last
	}
	p := &statsSnapshot{
		name: m.config.Name, version: m.config.Version, ready: m.config.Ready(),
		node: m.config.Node(m.config.Entities),
	}
	if m.config.Gateway != nil {
		p.gateway, p.hasGateway = m.config.Gateway(), true
	}
	if m.config.Consumers != nil {
		p.consumers, p.throttled = m.consumers(), m.throttled()
	}
	p.connectionsMax = m.config.ConnectionsMax
	if m.config.Expiries != nil {
		p.expiries = m.config.Expiries()
	}
	if m.config.Memory != nil {
		p.memory, p.hasMemory = m.config.Memory(), true
	}
	p.at = time.Now()
	m.last = p
	return p
}

// handlerCollector is a prometheus.Collector for one kind of caller.
type handlerCollector struct {
	member      *Collector
	entityNames bool
}

// Describe implements prometheus.Collector.
func (v handlerCollector) Describe(to chan<- *prometheus.Desc) {
	for i := range v.member.families {
		if f := &v.member.families[i]; v.entityNames || !f.entityNames {
			to <- f.desc
		}
	}
}

// Collect implements prometheus.Collector.
func (v handlerCollector) Collect(to chan<- prometheus.Metric) {
	p := v.member.snapshot()
	for i := range v.member.families {
		if f := &v.member.families[i]; v.entityNames || !f.entityNames {
			f.collect(p, to)
		}
	}
}

// Handler serves scrapes of these metrics and those of the Go runtime and the process. names says whether they
// include the names of entities.
func (m *Collector) Handler(names bool) (http.Handler, error) {
	registry := prometheus.NewPedanticRegistry()
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		handlerCollector{member: m, entityNames: names},
	} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return newCache(promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog:      slog.NewLogLogger(m.config.Logger.Handler(), slog.LevelWarn),
		ErrorHandling: promhttp.ContinueOnError,
		Timeout:       scrapeTimeMax,
	})), nil
}
