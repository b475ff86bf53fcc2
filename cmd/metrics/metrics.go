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
)

// The limits of scrapes.
const (
	// EntitiesDefault is how many entities a member shows unless told otherwise.
	EntitiesDefault = 1000
	// EntitiesMax is how many it may be told to show: ten series each.
	EntitiesMax   = 10_000
	snapshotEvery = time.Second // a younger snapshot is used again
	scrapesMax    = 4           // at once; more are answered 503
	scrapeTimeMax = 10 * time.Second
)

// Config says where the stats come from. Node, Ready and Logger are needed.
type Config struct {
	Name    string // of the member
	Version string // of the binary
	Node    func(entities int) cluster.Stats
	Gateway func() amqp.Stats // nil: no stats of the gateway
	Ready   func() bool
	// ConnectionsMax is how many connections of clients the gateway takes; 0: it is not told.
	ConnectionsMax int
	// Expiries tells when certificates expire, by the peers that see them: clients, members. It may be nil.
	Expiries func() map[string]time.Time
	// Memory tells how much the process may use, and uses; nil: it is not told.
	Memory func() Memory
	// Entities is how many entities are shown, 0 to EntitiesMax: those with the most messages.
	Entities int
	Logger   *slog.Logger
}

// Memory is that of the process, in bytes.
type Memory struct {
	Limit    int64 // that it may use
	Index    int64 // what waits in queues and belongs to it, without bodies, as the collector last found it
	IndexMax int64 // above which sends are refused
}

// Validate says what is missing.
func (c *Config) Validate() error {
	switch {
	case c.Node == nil || c.Ready == nil || c.Logger == nil:
		return errors.New("metrics: Node, Ready and Logger are needed")
	case c.Entities < 0 || c.Entities > EntitiesMax:
		return fmt.Errorf("metrics: %d entities: must be 0 to %d", c.Entities, EntitiesMax)
	}
	return nil
}

// Collector exports the stats of one member. It may be used by any number of goroutines.
type Collector struct {
	config   Config
	families []family

	mu   sync.Mutex
	last *statsSnapshot
}

// statsSnapshot is a member at one moment.
type statsSnapshot struct {
	at             time.Time
	name, version  string
	ready          bool
	node           cluster.Stats
	gateway        amqp.Stats
	hasGateway     bool
	connectionsMax int // that the gateway takes
	expiries       map[string]time.Time
	memory         Memory
	hasMemory      bool
}

// New prepares the collection; nothing is asked before the first scrape.
func New(c Config) (*Collector, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &Collector{config: c, families: families()}, nil
}

// snapshot takes a picture, or gives the last one when it is young: several who scrape, or one who
// does it without end, cost no more than one a second.
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

// handlerCollector is the member as one kind of caller sees it. It implements prometheus.Collector.
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

// Handler answers scrapes, with those of the Go runtime and the process. names says whether the
// names of entities are told.
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
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(m.config.Logger.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: scrapesMax,
		Timeout:             scrapeTimeMax,
	}), nil
}
