package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/peeklock/peeklock/admin"
	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/amqp"
	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/cluster"
	"github.com/peeklock/peeklock/cmd/listen"
)

// member is one member of a cluster, whole: the node that stores, the gateway and the
// control API in front of it.
type member struct {
	node    *cluster.Node
	port    *listen.Port // in front of the two servers
	gateway *amqp.Server
	admin   *admin.Server
	ready   atomic.Bool
	// connectionsMax is the number of client connections that the gateway accepts.
	connectionsMax int
	stop           context.CancelFunc // of the wait for readiness
	waiting        sync.WaitGroup
}

// memberParts is what a member is made of. The listeners are bound already, so that a
// port that is taken is known before any data is touched.
type memberParts struct {
	cluster cluster.Config
	amqp    net.Listener
	admin   net.Listener
	also    []net.Listener // further ones; every listener serves every protocol
	tls     *tls.Config    // nil: no TLS
	// requireTLS refuses clients without TLS.
	requireTLS bool
	// trustLoopback treats callers from loopback as operators, and exempts them from TLS.
	trustLoopback bool
	// socket is the path of the control socket; "": there is none.
	socket    string
	proxyFrom []netip.Prefix // networks of proxies that tell the address of clients
	origins   []string       // hosts whose web pages may connect
	auth      auth.Config    // without Rules, which are the node's
	// gate, when set, keeps the member from calling itself ready until it is closed.
	gate    <-chan struct{}
	metrics metricsParts
	tracer  trace.Tracer // nil: nothing is traced
	// connectionsPerAddress bounds the AMQP connections of one address; 0: no limit. It may be lowered for want
	// of memory unless the operator has given it.
	connectionsPerAddress        int
	connectionsPerAddressIsGiven bool
	// memory divides that of the process; nil: only the defaults of the packages limit it.
	memory *memoryGuard
	audit  *slog.Logger // of security decisions
	logger *slog.Logger
}

// listeners are those that are there.
func (p memberParts) listeners() []net.Listener {
	return slices.DeleteFunc(append([]net.Listener{p.amqp, p.admin}, p.also...), func(l net.Listener) bool { return l == nil })
}

// openPort puts the listeners behind one port.
func (p memberParts) openPort(ctx context.Context) (*listen.Port, error) {
	config := listen.DefaultConfig()
	config.Listeners = p.listeners()
	config.TLS, config.RequireTLS, config.Origins = p.tls, p.requireTLS, p.origins
	config.TrustLoopback, config.ProxyFrom = p.trustLoopback, p.proxyFrom
	config.Logger = p.logger.With("component", "listen")
	return listen.Open(ctx, config)
}

// closeListeners gives the listeners back, on the way out of a failure that is worth telling;
// what closing says is not.
func (p memberParts) closeListeners() {
	for _, l := range p.listeners() {
		_ = l.Close()
	}
}

// openMember starts a member. It answers clients at once; until it is ready they are
// told to come back (server-busy). The listeners are the member's, also when it fails.
func openMember(ctx context.Context, p memberParts) (*member, error) {
	m := &member{}
	var err error
	p.cluster.Reread = message.Reread // only the gateway can read the stored messages that are forwarded
	if m.node, err = cluster.Open(ctx, p.cluster); err != nil {
		p.closeListeners()
		return nil, err
	}
	if m.port, err = p.openPort(ctx); err != nil {
		p.closeListeners()
		return nil, errors.Join(err, m.close(ctx))
	}
	p.auth.Rules, p.auth.Audit = accessRules{m.node.Router()}, p.audit
	ring, err := auth.New(p.auth)
	if err != nil {
		p.closeListeners()
		return nil, errors.Join(err, m.close(ctx))
	}
	gateway := amqp.DefaultConfig()
	gateway.Listener = m.port.AMQP()
	gateway.Broker = broker{m.node.Router()}
	gateway.Authorizer = authorizer{ring}
	gateway.Logger = p.logger.With("component", "amqp")
	gateway.Audit = p.audit
	gateway.Tracer = p.tracer
	gateway.Slow, gateway.SlowAfter = p.cluster.Slow, p.cluster.SlowAfter
	gateway.ContainerID = p.cluster.Name
	gateway.Version = p.cluster.Version
	gateway.ConnectionsPerPeerMax = p.connectionsPerAddress
	gateway.BusyReason = m.node.BusyReason
	if p.memory != nil {
		gateway.MemoryBytesMax, gateway.ConnectionsMax = p.memory.plan.gateway, p.memory.plan.connections
		gateway.ConnectionsPerPeerMax = p.memory.plan.perAddress(p.connectionsPerAddress, p.connectionsPerAddressIsGiven)
	}
	m.connectionsMax = gateway.ConnectionsMax
	if m.gateway, err = amqp.Open(ctx, gateway); err != nil {
		p.closeListeners()
		return nil, errors.Join(err, m.close(ctx))
	}
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

// openAdmin opens the control API, on the port of clients and on the control socket. The data
// folder is this process's own by now, so a socket in it is no other member's.
func (p memberParts) openAdmin(ctx context.Context, m *member, ring *auth.Keyring) (*admin.Server, error) {
	api := admin.Config{
		Listener:        m.port.HTTP(),
		Control:         control{m.node.Router(), m.node.Operator()},
		Authority:       ring,
		Audit:           p.audit,
		Ready:           m.isReady,
		ReadinessChecks: m.readiness,
		LivenessChecks:  m.liveness,
		Logger:          p.logger.With("component", "admin"),
		Slow:            p.cluster.Slow,
		SlowAfter:       p.cluster.SlowAfter,
		TrustLoopback:   p.trustLoopback,
		RequireTLS:      p.requireTLS,
	}
	var err error
	if api.Metrics, api.PublicMetrics, err = p.handlers(m); err != nil {
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

// reachableAddress is an address that clients can be told, "" for one that only says to listen
// everywhere.
func reachableAddress(address string) string {
	host, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err != nil || host == "" || ip != nil && ip.IsUnspecified() {
		return ""
	}
	return address
}

// awaitReady is ready when the node is and the gate is open: a client that waits for /health may use
// what the configuration lists.
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
}

// isReady reports whether clients should be sent here: the member has started, and has not lost since what
// they need of it.
func (m *member) isReady() bool {
	return m.ready.Load() && !slices.ContainsFunc(m.node.Readiness(), func(c cluster.Check) bool { return !c.OK })
}

// readiness is that part by part.
func (m *member) readiness() []admin.Check {
	start := admin.Check{Name: "start", OK: m.ready.Load(), Text: "done"}
	if !start.OK {
		start.Text = "replicas are opened, leaders found and the configuration applied; or the member is leaving"
	}
	return append([]admin.Check{start}, toChecks(m.node.Readiness())...)
}

func (m *member) liveness() []admin.Check { return toChecks(m.node.Liveness()) }

func toChecks(from []cluster.Check) []admin.Check {
	out := make([]admin.Check, len(from))
	for i, c := range from {
		out[i] = admin.Check(c)
	}
	return out
}

// close closes the client side first and the storage last.
func (m *member) close(ctx context.Context) error {
	m.ready.Store(false)
	if m.stop != nil {
		m.stop()
	}
	m.waiting.Wait()
	var all []error
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

// closeTimeMax is how long members take to leave in order: hand over leadership, end
// their connections, sync.
const closeTimeMax = 15 * time.Second

// closeMembers closes members at the same time: one after the other, each would hand its
// leaderships to one that closes next.
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
