package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/peeklock/peeklock/admin"
	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/admin/console"
	"github.com/peeklock/peeklock/admin/dataplane"
	"github.com/peeklock/peeklock/admin/inspect"
	"github.com/peeklock/peeklock/amqp"
	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/cluster"
	"github.com/peeklock/peeklock/cluster/client"
	"github.com/peeklock/peeklock/cluster/health"
	"github.com/peeklock/peeklock/cmd/broker"
	"github.com/peeklock/peeklock/cmd/listen"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/audit"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

// member is one complete member of a cluster: the node that stores messages, with the gateway and the control API.
type member struct {
	cluster cluster.Config
	node    *cluster.Node
	ring    *auth.Keyring
	port    *listen.Port // accepts the connections of both servers
	gateway *amqp.Server
	admin   *admin.Server
	ready   atomic.Bool
	started chan struct{} // closed once the member is ready for the first time
	// connectionsMax is the number of client connections that the gateway accepts.
	connectionsMax int
	stop           context.CancelFunc // ends the wait for readiness
	waiting        sync.WaitGroup
}

// memberParts configures a member. The listeners are already bound, so that a port in use is found before any data
// is changed.
type memberParts struct {
	cluster cluster.Config
	amqp    net.Listener
	admin   net.Listener
	also    []net.Listener // additional listeners; every listener serves every protocol
	tls     *tls.Config    // nil: no TLS
	ca      []byte         // is answered at /ca.pem; nil: nothing is
	// requireTLS refuses clients without TLS.
	requireTLS bool
	// trustLoopback treats callers from loopback as operators, and exempts them from TLS.
	trustLoopback bool
	// trustAll treats callers of the control API from everywhere as operators.
	trustAll bool
	// operations are further operations of the control API; nil: none.
	operations func(*member) map[string]func(*http.Request) (any, error)
	// ownNamespace returns the function of the keyring of that name; nil: none.
	ownNamespace func(*member) func(context.Context, string) (fsm.NamespaceID, func() bool, error)
	// socket is the path of the control socket; "": there is none.
	socket    string
	proxyFrom []netip.Prefix // networks of proxies that report client addresses
	console   console.Mode
	signIn    console.SignIn
	origins   []string    // hosts whose web pages may connect
	auth      auth.Config // without Rules, which come from the node
	// gate, if set, keeps the member from reporting that it is ready until it is closed.
	gate    <-chan struct{}
	metrics metricsParts
	tracer  trace.Tracer // nil: no tracing
	// connectionsPerAddress limits the AMQP connections of one address; 0: no limit. A low memory limit reduces
	// it, unless the operator has set it.
	connectionsPerAddress        int
	connectionsPerAddressIsGiven bool
	processors                   int // that the process may use
	// memory divides the memory of the process; nil: only the defaults of the packages limit it.
	memory *memoryGuard
	audit  *slog.Logger // of security decisions
	// recentAudit keeps the newest lines of audit; nil: openMember keeps them.
	recentAudit *audit.Recent
	logger      *slog.Logger
}

// listeners returns all listeners of the member.
func (p memberParts) listeners() []net.Listener {
	return slices.DeleteFunc(append([]net.Listener{p.amqp, p.admin}, p.also...), func(l net.Listener) bool { return l == nil })
}

// openPort opens one port over all listeners.
func (p memberParts) openPort(ctx context.Context) (*listen.Port, error) {
	config := listen.DefaultConfig()
	config.Listeners = p.listeners()
	config.TLS, config.RequireTLS, config.Origins = p.tls, p.requireTLS, p.origins
	config.TrustLoopback, config.ProxyFrom = p.trustLoopback, p.proxyFrom
	config.Logger = p.logger.With("component", "listen")
	return listen.Open(ctx, config)
}

// closeListeners closes the listeners after another failure, whose error is reported; errors of closing are not.
func (p memberParts) closeListeners() {
	for _, l := range p.listeners() {
		_ = l.Close()
	}
}

// openMember starts a member. It answers clients at once; until it is ready, it tells them to retry (server-busy).
// It takes over the listeners, even when it fails.
func openMember(ctx context.Context, p memberParts) (*member, error) {
	m := &member{cluster: p.cluster, started: make(chan struct{})}
	var err error
	p.cluster.Reread = message.Reread // only the gateway can parse the stored messages that are forwarded
	if m.node, err = cluster.Open(ctx, p.cluster); err != nil {
		p.closeListeners()
		return nil, err
	}
	if m.port, err = p.openPort(ctx); err != nil {
		p.closeListeners()
		return nil, errors.Join(err, m.close(ctx))
	}
	if p.recentAudit == nil {
		p.recentAudit = audit.NewRecent(p.audit.Handler())
		p.audit = slog.New(p.recentAudit)
	}
	m.node.ServeAudit(func(q topology.AuditQuery) []topology.AuditEvent { return p.recentAudit.Before(p.cluster.Name, q) })
	p.auth.Rules, p.auth.Audit = accessRules{m.node.Router()}, p.audit
	if p.ownNamespace != nil {
		p.auth.OwnNamespace = p.ownNamespace(m)
	}
	ring, err := auth.New(p.auth)
	if err != nil {
		p.closeListeners()
		return nil, errors.Join(err, m.close(ctx))
	}
	m.ring = ring
	gateway := amqp.DefaultConfig()
	gateway.Listener = m.port.AMQP()
	gateway.Broker = broker.Broker{Router: m.node.Router()}
	gateway.Authorizer = authorizer{ring}
	gateway.Logger = p.logger.With("component", "amqp")
	gateway.Audit = p.audit
	gateway.Tracer = p.tracer
	gateway.Slow, gateway.SlowAfter = p.cluster.Slow, p.cluster.SlowAfter
	gateway.ContainerID = p.cluster.Name
	gateway.Version = p.cluster.Version
	gateway.ConnectionsPerPeerMax = p.connectionsPerAddress
	gateway.Processors = p.processors
	gateway.BusyReason, gateway.QuotaReason = m.node.BusyReason, m.node.QuotaReason
	if p.memory != nil {
		gateway.MemoryBytesMax, gateway.ConnectionsMax = p.memory.plan.gateway, p.memory.plan.connections
		gateway.ConnectionsPerPeerMax = p.memory.plan.perAddress(p.connectionsPerAddress, p.connectionsPerAddressIsGiven)
	}
	m.connectionsMax = gateway.ConnectionsMax
	if m.gateway, err = amqp.Open(ctx, gateway); err != nil {
		p.closeListeners()
		return nil, errors.Join(err, m.close(ctx))
	}
	m.node.ServeClients(m.gateway)
	if p.memory != nil {
		p.memory.watch(m)
	}
	if m.admin, err = p.openAdmin(ctx, m, ring); err != nil {
		p.closeListeners()
		return nil, errors.Join(err, m.close(ctx))
	}
	waitCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	m.stop = stop
	m.waiting.Go(func() {
		m.awaitReady(waitCtx, p.gate)
		if m.ready.Load() {
			search := shortKeySearch{from: accessCatalog{m.node.Router()}, logger: p.logger}
			search.run(waitCtx)
		}
	})
	return m, nil
}

// openAdmin opens the control API on the client port and on the control socket. At this time the data directory
// belongs to this process, so a socket in it is not that of another member.
func (p memberParts) openAdmin(ctx context.Context, m *member, ring *auth.Keyring) (*admin.Server, error) {
	finder := inspect.New(broker.Broker{Router: m.node.Router()})
	finder.LockHolders = m.node.Operator().LockHolders
	messages := dataplane.Config{Broker: messageBroker{broker.Broker{Router: m.node.Router()}}, Authority: ring, Logger: p.logger.With("component", "messages"), Accounts: m.gateway.Accounts(), QuotaReason: m.node.QuotaReason, Throttled: m.gateway.CountThrottled}
	api := admin.Config{
		Messages:        dataplane.New(messages),
		Finder:          finder,
		Listener:        m.port.HTTP(),
		Control:         control{m.node.Router(), m.node.Operator()},
		Authority:       ring,
		Accounts:        m.gateway.Accounts(),
		Audit:           p.audit,
		Ready:           m.isReady,
		TrackChanges:    client.TrackChanges,
		NamespaceUsage:  m.node.NamespaceUsage,
		NamespaceShares: m.node.NamespaceHoldings,
		QuotaReason:     m.node.QuotaReason,
		ReadinessChecks: m.readiness,
		LivenessChecks:  m.liveness,
		Logger:          p.logger.With("component", "admin"),
		Slow:            p.cluster.Slow,
		SlowAfter:       p.cluster.SlowAfter,
		TrustLoopback:   p.trustLoopback,
		TrustAll:        p.trustAll,
		CA:              p.ca,
		Console:         p.console,
		ConsoleSignIn:   p.signIn,
		RequireTLS:      p.requireTLS,
	}
	_, api.ControlPort, _ = net.SplitHostPort(p.cluster.HTTPAddr)
	_, api.ClientPort, _ = net.SplitHostPort(p.cluster.AMQPAddr)
	if p.operations != nil {
		api.Operations = p.operations(m)
	}
	var err error
	if err = p.showMetrics(m, &api); err != nil {
		return nil, err
	}
	if p.socket != "" {
		if api.Local.Listener, err = listenSocket(ctx, p.socket); err != nil {
			return nil, err
		}
		api.Local.Endpoint = reachableAddress(p.cluster.AMQPAddr)
	}
	server, err := admin.Open(ctx, api)
	if err != nil && api.Local.Listener != nil {
		err = errors.Join(err, api.Local.Listener.Close())
	}
	return server, err
}

// reachableAddress returns an address that clients can use, or "" for one that only means to listen on all
// addresses.
func reachableAddress(address string) string {
	host, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err != nil || host == "" || ip != nil && ip.IsUnspecified() {
		return ""
	}
	return address
}

// awaitReady waits until the node is ready and the gate is open: a client that waits for /health may use the
// entities that the configuration lists.
func (m *member) awaitReady(ctx context.Context, gate <-chan struct{}) {
	if m.node.Ready(ctx) != nil {
		return
	}
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return
		}
	}
	m.ready.Store(true)
	close(m.started)
}

// isReady reports whether the member should receive clients: it has started, and still has everything that clients
// need.
func (m *member) isReady() bool {
	return m.ready.Load() && !slices.ContainsFunc(m.node.Readiness(), func(c health.Check) bool { return !c.OK })
}

// readiness returns the readiness checks, one for each part.
func (m *member) readiness() []api.Check {
	start := api.Check{Name: "start", OK: m.ready.Load(), Text: "done"}
	if !start.OK {
		start.Text = "replicas are opened, leaders found and the configuration applied; or the member is leaving"
	}
	return append([]api.Check{start}, toChecks(m.node.Readiness())...)
}

func (m *member) liveness() []api.Check { return toChecks(m.node.Liveness()) }

func toChecks(from []health.Check) []api.Check {
	out := make([]api.Check, len(from))
	for i, c := range from {
		out[i] = api.Check(c)
	}
	return out
}

// close closes the listeners for clients first and the storage last.
func (m *member) close(ctx context.Context) error {
	m.ready.Store(false)
	if m.stop != nil {
		m.stop()
	}
	m.waiting.Wait()
	var all []error
	if m.admin != nil {
		m.admin.CloseStreams() // pages reconnect to another member while the others drain here
	}
	if m.gateway != nil {
		all = append(all, m.gateway.Close(ctx))
	}
	if m.admin != nil {
		all = append(all, m.admin.Close(ctx))
	}
	if m.port != nil {
		all = append(all, m.port.Close(ctx))
	}
	return errors.Join(append(all, m.node.Close(ctx))...)
}

// closeTimeMax is how long members may take for an orderly shutdown: to transfer leadership, close connections and
// sync.
const closeTimeMax = 15 * time.Second

// closeMembers closes members at the same time: one after another, each would transfer its leaderships to one that
// closes next.
func closeMembers(ctx context.Context, members []*member) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeMax)
	defer cancel()
	errs := make([]error, len(members))
	var group sync.WaitGroup
	for i, m := range members {
		if m != nil {
			group.Go(func() { errs[i] = m.close(ctx) })
		}
	}
	group.Wait()
	return errors.Join(errs...)
}

// connectionString is the connection string for Service Bus clients, in the form of the official emulator.
func connectionString(address, keyName, key string) string {
	return fmt.Sprintf("Endpoint=sb://%s;SharedAccessKeyName=%s;SharedAccessKey=%s;UseDevelopmentEmulator=true", address, keyName, key)
}
