package amqp

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/peeklock/peeklock/amqp/login"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// scriptedAuthorizer is an Authorizer that answers as a test requests, and records its callers.
type scriptedAuthorizer struct {
	mu     sync.Mutex
	asked  []Client
	err    error            // refuses every credential
	grants map[string]Grant // by audience, for tokens; by user or common name, for the others
}

func (g *scriptedAuthorizer) answer(from Client, name string) (Grant, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = append(g.asked, from)
	if g.err != nil {
		return Grant{}, g.err
	}
	grant, ok := g.grants[name]
	if !ok {
		return Grant{}, fsm.Unauthorized
	}
	return grant, nil
}

func (g *scriptedAuthorizer) Token(_ context.Context, from Client, _, _, audience string) (Grant, error) {
	grant, err := g.answer(from, audience)
	return authorized(grant, from, audience), err
}

func (g *scriptedAuthorizer) Password(_ context.Context, from Client, user, _ string) (Grant, error) {
	return g.answer(from, user)
}

func (g *scriptedAuthorizer) Certificate(_ context.Context, from Client, c *x509.Certificate) (Grant, error) {
	return g.answer(from, c.Subject.CommonName)
}

// give sets the grant of a name.
func (g *scriptedAuthorizer) give(name string, grant Grant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.grants[name] = grant
}

// through connects a Server to the authorizer.
func (g *scriptedAuthorizer) through(c *Config) { c.Authorizer = g }

// unknown sends everything up to begin with a mechanism that does not authenticate.
func (p *peer) unknown() *peer {
	p.Helper()
	p.open(login.MechanismAnonymous, "")
	p.send(&wire.Begin{IncomingWindow: 5000, OutgoingWindow: 5000})
	expect[*wire.Begin](p)
	return p
}

// elapse waits while only heartbeats are exchanged.
func (p *peer) elapse(d time.Duration) {
	p.Helper()
	for until := time.Now().Add(d); time.Now().Before(until); {
		p.send(nil)
		p.idle(min(time.Until(until), time.Minute))
	}
}

// refusedLink reads the answer to an attach that was refused.
func (p *peer) refusedLink() *wire.Error {
	p.Helper()
	if a := expect[*wire.Attach](p); a.Source != nil && a.Target != nil {
		p.Fatalf("attached: %+v", a)
	}
	d := expect[*wire.Detach](p)
	if !d.Closed || d.Error == nil {
		p.Fatalf("detach %+v", d)
	}
	return d.Error
}

// auditCapture is an audit log that a test reads.
type auditCapture struct{ kit.LogLines }

func (j *auditCapture) into(c *Config) { c.Audit = slog.New(slog.NewJSONHandler(j, nil)) }

// lines returns the lines written so far, without time and level.
func (j *auditCapture) lines(t *testing.T) (lines []map[string]any) {
	t.Helper()
	for line := range strings.SplitSeq(strings.TrimSpace(j.String()), "\n") {
		var m map[string]any
		if line == "" {
			continue
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		delete(m, "time")
		lines = append(lines, m)
	}
	return lines
}

// certified creates an authority, a server that trusts its clients, and certificates for them.
func certified(t *testing.T, names ...string) (server *tls.Config, clients map[string]*tls.Config) {
	t.Helper()
	caKey, ca := sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil, nil)
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	key, cert := sign(t, &x509.Certificate{DNSNames: []string{"*.localhost", "localhost"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, ca, caKey)
	server = &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}},
		ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven,
	}
	clients = map[string]*tls.Config{"": {MinVersion: tls.VersionTLS13, RootCAs: pool, ServerName: "localhost"}}
	for _, name := range names {
		key, cert := sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, ca, caKey)
		clients[name] = clients[""].Clone()
		clients[name].Certificates = []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}
	}
	return server, clients
}

func sign(t *testing.T, template, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*ecdsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if parent == nil {
		parent, parentKey = template, key
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return key, cert
}

// connectTLS adds a TLS connection to a Server. The connection ends with the test.
func connectTLS(t *testing.T, s *Server, server, client *tls.Config) *peer {
	t.Helper()
	ours, theirs := net.Pipe()
	secure := tls.Client(ours, client)
	p := &peer{TB: t, net: secure, reader: wire.NewReader(secure, 1<<20), ended: make(chan struct{})}
	go func() { defer close(p.ended); s.Serve(context.Background(), tls.Server(theirs, server)) }()
	t.Cleanup(func() { _ = ours.Close(); <-p.ended })
	return p
}

// fakeAuthorizer is an Authorizer that knows one access rule.
type fakeAuthorizer struct {
	grant Grant
}

const (
	ruleName = "RootManageSharedAccessKey"
	ruleKey  = "SAS_KEY_VALUE"
)

func (k fakeAuthorizer) Token(_ context.Context, from Client, kind, token, audience string) (Grant, error) {
	if kind != "servicebus.windows.net:sastoken" || !strings.Contains(token, "skn="+ruleName) {
		return Grant{}, errors.New("the token has an invalid signature")
	}
	return authorized(k.grant, from, audience), nil
}

// authorized returns a grant for an audience. Tests of admin/auth cover how audiences are parsed.
func authorized(grant Grant, from Client, audience string) Grant {
	_, path, _ := strings.Cut(audience, "://")
	_, path, _ = strings.Cut(path, "/")
	if !grant.OwnNamespace {
		grant.Namespace = from.Namespace
	}
	grant.Path = fsm.PathKey(path)
	return grant
}

func (k fakeAuthorizer) Password(_ context.Context, _ Client, user, password string) (Grant, error) {
	if user != ruleName || subtle.ConstantTimeCompare([]byte(password), []byte(ruleKey)) != 1 {
		return Grant{}, errors.New("no such rule and key")
	}
	return k.grant, nil
}

func (k fakeAuthorizer) Certificate(context.Context, Client, *x509.Certificate) (Grant, error) {
	return Grant{}, fsm.Unauthorized
}
