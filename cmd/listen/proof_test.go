package listen

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"
	"github.com/coder/websocket"

	"github.com/peeklock/peeklock/amqp"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// certificateBroker is a broker with one queue in every namespace, and an Authorizer that accepts one certificate. It records
// what it is asked. Every other call panics.
type certificateBroker struct {
	amqp.Broker
	amqp.Authorizer
	mu    sync.Mutex
	hosts []string
	peers []net.Addr
}

func (d *certificateBroker) Namespace(_ context.Context, host string) (fsm.NamespaceID, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hosts = append(d.hosts, host)
	return fsm.DefaultNamespace, nil
}

func (*certificateBroker) Changes() <-chan struct{}              { return nil }
func (*certificateBroker) Deleted([]fsm.EntityID) []fsm.EntityID { return nil }

func (*certificateBroker) Resolve(_ context.Context, _ fsm.NamespaceID, path string) (fsm.EntityRef, error) {
	return fsm.EntityRef{Entity: fsm.Entity{ID: 1, Name: path, Settings: fsm.EntitySettings{MaxMessageBytes: 1 << 20}}}, nil
}

func (d *certificateBroker) Certificate(_ context.Context, from amqp.Client, c *x509.Certificate) (amqp.Grant, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.peers = append(d.peers, from.Peer)
	if c.Subject.CommonName != "sender" {
		return amqp.Grant{}, fmt.Errorf("no rule of that name: %w", fsm.Unauthorized)
	}
	return amqp.Grant{Rights: fsm.Send, Expires: c.NotAfter}, nil
}

// A client certificate reaches the gateway through the port, in TLS and in WebSocket over TLS, and gives the
// access of its rule.
func TestSASLExternalWorksThroughThePort(t *testing.T) {
	t.Parallel()
	files, trusted := development(t)
	clients := newIssuer(t, "clients")
	pool := x509.NewCertPool()
	pool.AddCert(clients.cert)
	port := DefaultConfig()
	port.Listeners = []net.Listener{listenLoopback(t)}
	port.TLS = load(t, files).TLS()
	port.TLS.ClientCAs, port.TLS.ClientAuth = pool, tls.VerifyClientCertIfGiven
	p := kit.Must(Open(t.Context(), port))(t)
	d := &certificateBroker{}
	config := amqp.DefaultConfig()
	config.Listener, config.Broker, config.Authorizer = p.AMQP(), d, d
	gateway := kit.Must(amqp.Open(t.Context(), config))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		defer cancel()
		if err := errors.Join(gateway.Close(ctx), p.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
	r := &rig{p, p.AMQP().Addr().String()}
	for _, c := range []struct {
		way, certificate string
		login, attach    bool
	}{
		{"tls", "sender", true, true},
		{"wss", "sender", true, true},
		{"tls", "other", false, true},
		{"wss", "other", false, true},
		{"tls", "", true, false},
		{"plain", "", true, false},
	} {
		secure := trusted.Clone()
		if c.certificate != "" {
			secure.Certificates = []tls.Certificate{clients.sign(t, c.certificate, x509.ExtKeyUsageClientAuth)}
		}
		login, attach := r.external(t, c.way, secure)
		var refused *goamqp.Error
		if (login == nil) != c.login || (attach == nil) != c.attach || attach != nil && !errors.As(attach, &refused) {
			t.Errorf("%s with the certificate %q: login %v, attach %v", c.way, c.certificate, login, attach)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	seen := make(map[string]bool)
	for _, host := range d.hosts {
		seen[host] = true
	}
	if !seen["localhost"] || !seen["orders.localhost:5671"] {
		t.Errorf("asked about the hosts %v: want that of TLS and that of open", d.hosts)
	}
	for _, peer := range d.peers { // limits by address depend on it
		if _, ok := peer.(*net.TCPAddr); !ok {
			t.Errorf("peer %T %v", peer, peer)
		}
	}
}

// external authenticates with EXTERNAL over one of the transports and, if that succeeds, attaches a sender.
func (r *rig) external(t *testing.T, way string, secure *tls.Config) (login, attach error) {
	t.Helper()
	var conn net.Conn = r.dial(t)
	switch way {
	case "tls":
		conn = tls.Client(conn, secure)
	case "wss":
		ws := kit.Must(r.ws(t, "wss", webSocketPath, subprotocolCloud, "", secure))(t)
		conn = websocket.NetConn(t.Context(), ws, websocket.MessageBinary)
	}
	client, err := goamqp.NewConn(t.Context(), conn, &goamqp.ConnOptions{SASLType: goamqp.SASLTypeExternal(""), HostName: "orders.localhost:5671"})
	if err != nil {
		return err, nil
	}
	defer client.Close()
	session := kit.Must(client.NewSession(t.Context(), nil))(t)
	_, err = session.NewSender(t.Context(), "orders", nil)
	return nil, err
}
