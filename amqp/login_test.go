package amqp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/amqp/login"
	"github.com/peeklock/peeklock/amqp/management"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// beginAt sends the handshake with host names in SASL and open ("-": none), and begin.
func (p *peer) beginAt(mechanism wire.Symbol, response, saslHost, openHost string) {
	p.Helper()
	optional := func(host string) *string {
		if host == "-" {
			return nil
		}
		return &host
	}
	b := []byte(headerSASL)
	b = wire.AppendFrame(b, wire.FrameSASL, 0, &wire.SASLInit{Mechanism: mechanism, InitialResponse: []byte(response), Hostname: optional(saslHost)})
	b = append(b, headerAMQP...)
	b = wire.AppendFrame(b, wire.FrameAMQP, 0, &wire.Open{ContainerID: "test", Hostname: optional(openHost)})
	b = wire.AppendFrame(b, wire.FrameAMQP, 0, &wire.Begin{IncomingWindow: 5000, OutgoingWindow: 5000})
	p.write(b)
	p.header(headerSASL)
	expect[*wire.SASLMechanisms](p)
	if o := expect[*wire.SASLOutcome](p); o.Code != login.CodeOK {
		p.Fatalf("outcome %d", o.Code)
	}
	p.header(headerAMQP)
	expect[*wire.Open](p)
}

// The namespace is determined by the host in open, otherwise in SASL, otherwise in TLS, and otherwise it is
// the default namespace. A client that has proved a right in one namespace is refused in another.
func TestNamespaceOfAConnection(t *testing.T) {
	t.Parallel()
	server, clients := certified(t, "sender")
	const first, second = fsm.DefaultNamespace, secondNamespace
	for _, c := range []struct {
		mechanism       wire.Symbol
		tls, sasl, open string
		proven          fsm.NamespaceID // namespace of the login; 0: there was no login
		want            fsm.NamespaceID // 0: closed
	}{
		{login.MechanismAnonymous, "-", "-", "-", 0, first},
		{login.MechanismAnonymous, "-", "-", "", 0, first},
		{login.MechanismAnonymous, "-", "-", "second.localhost", 0, second},
		{login.MechanismAnonymous, "-", "-", "Second.sb.example.com:5671", 0, second},
		{login.MechanismAnonymous, "-", "-", "127.0.0.1:5672", 0, first},
		{login.MechanismAnonymous, "-", "-", "[::1]:5672", 0, first},
		{login.MechanismAnonymous, "-", "second.localhost", "-", 0, second},
		{login.MechanismAnonymous, "-", "second.localhost", "other.localhost", 0, first},
		{login.MechanismAnonymous, "second.localhost", "-", "-", 0, second},
		{login.MechanismAnonymous, "second.localhost", "", "", 0, second},
		{login.MechanismPlain, "-", "-", "-", first, first},
		{login.MechanismPlain, "-", "-", "localhost", first, first},
		{login.MechanismPlain, "-", "second.localhost", "-", second, second},
		{login.MechanismPlain, "-", "second.localhost:5671", "second.localhost", second, second},
		{login.MechanismPlain, "second.localhost", "-", "second.localhost", second, second},
		{login.MechanismPlain, "second.localhost", "localhost", "localhost", first, first},
		{login.MechanismPlain, "-", "-", "second.localhost", first, 0},
		{login.MechanismPlain, "-", "second.localhost", "localhost", second, 0},
		{login.MechanismExternal, "second.localhost", "-", "second.localhost", second, second},
		{login.MechanismExternal, "second.localhost", "-", "localhost", second, 0},
	} {
		t.Run(fmt.Sprintf("%s %s %s %s", c.mechanism, c.tls, c.sasl, c.open), func(t *testing.T) {
			t.Parallel()
			all := Grant{Rights: fsm.Manage}
			g := &scriptedAuthorizer{grants: map[string]Grant{ruleName: all, "sender": all, "sb://h/": all}}
			var j auditCapture
			s, p := piped(t, newFakeBroker("one").addSecond("two"), g.through, j.into)
			if c.tls != "-" {
				config := clients["sender"].Clone()
				config.ServerName = c.tls
				p = connectTLS(t, s, server, config)
			}
			p.beginAt(c.mechanism, "\x00"+ruleName+"\x00"+ruleKey, c.sasl, c.open)
			if c.want == 0 {
				if e := expect[*wire.Close](p).Error; e == nil || e.Condition != wire.ConditionUnauthorizedAccess {
					t.Errorf("closed with %+v", e)
				}
				if lines := j.lines(t); len(lines) != 2 || lines[1]["event"] != "login_refused" || lines[1]["kind"] != strings.ToLower(string(c.mechanism)) {
					t.Errorf("audit %v", lines)
				}
				p.send(&wire.Close{})
				p.gone()
			} else {
				expect[*wire.Begin](p)
				if c.proven == 0 {
					p.putToken("sb://h/", 202)
				}
				p.sender(0, map[fsm.NamespaceID]string{first: "one", second: "two"}[c.want])
				p.send(&wire.Attach{Name: "x", Handle: 1, Role: wire.RoleSender, Target: &wire.Target{Address: map[fsm.NamespaceID]string{first: "two", second: "one"}[c.want]}})
				if e := p.refusedLink(); e.Condition != wire.ConditionNotFound {
					t.Errorf("the entity of the other namespace: %+v", e)
				}
			}
			asked := c.proven
			if asked == 0 {
				asked = c.want
			}
			if len(g.asked) != 1 || g.asked[0].Namespace != asked || g.asked[0].Peer == nil {
				t.Errorf("asked about %+v, want namespace %d", g.asked, asked)
			}
		})
	}
}

// A certificate authenticates as its rule only with EXTERNAL; EXTERNAL without a certificate does not
// authenticate.
func TestCertificateProvesItsRule(t *testing.T) {
	t.Parallel()
	server, clients := certified(t, "sender", "unknown")
	for _, c := range []struct {
		certificate string
		mechanism   wire.Symbol
		err         error
		code        uint8
		proves      bool
	}{
		{"sender", login.MechanismExternal, nil, login.CodeOK, true},
		{"sender", login.MechanismAnonymous, nil, login.CodeOK, false},
		{"sender", login.MechanismCBS, nil, login.CodeOK, false},
		{"", login.MechanismExternal, nil, login.CodeOK, false},
		{"unknown", login.MechanismExternal, nil, login.CodeAuth, false},
		{"sender", login.MechanismExternal, fmt.Errorf("wait: %w", fsm.ServerBusy), login.CodeTemp, false},
	} {
		t.Run(fmt.Sprint(c.certificate, c.mechanism, c.code), func(t *testing.T) {
			t.Parallel()
			g := &scriptedAuthorizer{grants: map[string]Grant{"sender": {Rights: fsm.Send}}, err: c.err}
			var j auditCapture
			s, _ := piped(t, newFakeBroker("orders"), g.through, j.into)
			p := connectTLS(t, s, server, clients[c.certificate])
			p.write(wire.AppendFrame([]byte(headerSASL), wire.FrameSASL, 0, &wire.SASLInit{Mechanism: c.mechanism}))
			p.header(headerSASL)
			expect[*wire.SASLMechanisms](p)
			if o := expect[*wire.SASLOutcome](p); o.Code != c.code {
				t.Fatalf("outcome %d, want %d", o.Code, c.code)
			}
			if c.code != login.CodeOK {
				if len(j.lines(t)) != 0 {
					t.Errorf("audit %v", j.lines(t))
				}
				return
			}
			p.write([]byte(headerAMQP))
			p.header(headerAMQP)
			p.send(&wire.Open{}, &wire.Begin{IncomingWindow: 100})
			expect[*wire.Open](p)
			expect[*wire.Begin](p)
			p.send(&wire.Attach{Name: "r", Handle: 9, Role: wire.RoleReceiver, Source: &wire.Source{Address: "orders"}})
			if e := p.refusedLink(); e.Condition != wire.ConditionUnauthorizedAccess {
				t.Errorf("Listen: %+v", e)
			}
			lines := j.lines(t)
			if c.proves {
				p.sender(0, "orders")
				if lines[0]["event"] != "login" || lines[0]["kind"] != "external" || lines[0]["name"] != "sender" {
					t.Errorf("audit %v", lines)
				}
			} else if len(lines) != 1 || len(g.asked) != 0 {
				t.Errorf("audit %v, asked %v", lines, g.asked)
			}
		})
	}
}

// pageConn is a connection with a verified certificate that a web page opened.
type pageConn struct {
	net.Conn
	foreign bool
}

func (c pageConn) ForeignOrigin() bool { return c.foreign }

func (pageConn) ConnectionState() tls.ConnectionState {
	return tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{Subject: pkix.Name{CommonName: "sender"}}}}}
}

// A browser adds the certificate of its user for every page, so it proves nothing for pages of other hosts.
func TestCertificateProvesNothingForPagesOfOtherHosts(t *testing.T) {
	t.Parallel()
	for foreign, want := range map[bool]uint8{false: login.CodeOK, true: login.CodeAuth} {
		g := &scriptedAuthorizer{grants: map[string]Grant{"sender": {Rights: fsm.Send}}}
		var j auditCapture
		s, _ := piped(t, newFakeBroker("orders"), g.through, j.into)
		ours, theirs := net.Pipe()
		p := &peer{TB: t, net: ours, reader: wire.NewReader(ours, 1<<20), ended: make(chan struct{})}
		go func() { defer close(p.ended); s.Serve(context.Background(), pageConn{theirs, foreign}) }()
		t.Cleanup(func() { _ = ours.Close(); <-p.ended })
		p.write(wire.AppendFrame([]byte(headerSASL), wire.FrameSASL, 0, &wire.SASLInit{Mechanism: login.MechanismExternal}))
		p.header(headerSASL)
		expect[*wire.SASLMechanisms](p)
		if o := expect[*wire.SASLOutcome](p); o.Code != want {
			t.Errorf("foreign %t: outcome %d, want %d", foreign, o.Code, want)
		}
		if lines := j.lines(t); foreign && (len(lines) != 1 || lines[0]["event"] != "login_refused" || lines[0]["name"] != "sender") {
			t.Errorf("audit %v", lines)
		}
	}
}

// The outcome tells a client whether to try again.
func TestSASLOutcomeTellsWhetherToRetry(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]uint8{
		fsm.Unauthorized:                         login.CodeAuth,
		fsm.InvalidArgument:                      login.CodeAuth,
		errors.New("whatever"):                   login.CodeAuth,
		fmt.Errorf("slowly: %w", fsm.ServerBusy): login.CodeTemp,
		context.DeadlineExceeded:                 login.CodeTemp,
	} {
		_, p := piped(t, newFakeBroker(), (&scriptedAuthorizer{err: err}).through)
		p.write(wire.AppendFrame([]byte(headerSASL), wire.FrameSASL, 0, &wire.SASLInit{Mechanism: login.MechanismPlain, InitialResponse: []byte("\x00u\x00p")}))
		p.header(headerSASL)
		expect[*wire.SASLMechanisms](p)
		if o := expect[*wire.SASLOutcome](p); o.Code != want {
			t.Errorf("%v: outcome %d, want %d", err, o.Code, want)
		}
		p.gone()
	}
}

// Clients distinguish a token that is wrong, one that is malformed and one that was not verified
// (docs/service-bus-protocol.md#put-token-responses).
func TestRefusedTokenGetsItsStatus(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		status int32
	}{
		{fmt.Errorf("the signature does not match: %w", fsm.Unauthorized), 401},
		{errors.New("of no known kind"), 401},
		{fmt.Errorf("it has no expiry: %w", fsm.InvalidArgument), 400},
		{fmt.Errorf("too many failed logins from this address, wait: %w", fsm.ServerBusy), 503},
		{fmt.Errorf("the issuer does not answer: %w", fsm.Timeout), 503},
	} {
		s, p := piped(t, newFakeBroker("orders"), (&scriptedAuthorizer{err: c.err}).through)
		p.unknown().putToken("sb://h/orders", c.status)
		if n := s.Stats().Logins; n != 1 {
			t.Errorf("%d refused logins are counted", n)
		}
	}
}

// The audit log contains names and never secrets.
func TestAuditOfALogin(t *testing.T) {
	t.Parallel()
	var j auditCapture
	p := loggedIn(t, newFakeBroker("orders"), j.into, func(c *Config) { c.Authorizer = fakeAuthorizer{Grant{Rights: fsm.Send}} })
	p.send(&wire.Attach{Name: "r", Handle: 1, Role: wire.RoleReceiver, Source: &wire.Source{Address: "orders"}})
	p.refusedLink()
	p.sender(2, "orders/$management")
	p.receiver(3, "orders/$management")
	p.credit(3, 0, 10)
	askOn(p, 2, 0, management.PeekOperation, nil)
	if r := p.response(); r.properties.Get("statusCode") != int32(401) || !strings.HasPrefix(r.properties.Text("statusDescription"), "Unauthorized access. 'Listen' claim(s) are required to perform this operation. Resource: 'orders/$management'.") {
		t.Errorf("response %+v", r)
	}
	lines := j.lines(t)
	want := []map[string]any{
		{"event": "login", "kind": "plain", "name": ruleName},
		{"event": "right_missing", "kind": "plain", "name": ruleName, "path": "orders", "right": "'Listen'"},
		{"event": "right_missing", "path": "orders/$management", "right": "'Listen'", "operation": management.PeekOperation},
	}
	if len(lines) != len(want) {
		t.Fatalf("audit %v", lines)
	}
	for i := range want {
		for key, value := range want[i] {
			if lines[i][key] != value {
				t.Errorf("line %d: %v, want %s %v", i, lines[i], key, value)
			}
		}
		if lines[i]["msg"] != "audit" || lines[i]["peer"] != "pipe" || lines[i]["namespace"] != float64(fsm.DefaultNamespace) {
			t.Errorf("line %d: %v", i, lines[i])
		}
	}
	if strings.Contains(j.String(), ruleKey) {
		t.Error("the audit log has a secret")
	}
}

// A SASL frame need not be large, and a response without user and password is reported.
func TestSASLFrameBytesMax(t *testing.T) {
	t.Parallel()
	for n, refused := range map[int]bool{saslFrameBytesMax / 2: false, saslFrameBytesMax: true} {
		var j auditCapture
		_, p := piped(t, newFakeBroker(), j.into)
		frame := wire.AppendFrame([]byte(headerSASL), wire.FrameSASL, 0, &wire.SASLInit{Mechanism: login.MechanismPlain, InitialResponse: make([]byte, n)})
		go func() { // the connection may end before all of it is read
			_ = p.net.SetDeadline(time.Now().Add(time.Minute))
			_, _ = p.net.Write(frame)
		}()
		p.header(headerSASL)
		expect[*wire.SASLMechanisms](p)
		if refused {
			p.gone()
			if len(j.lines(t)) != 0 {
				t.Errorf("audit %v", j.lines(t))
			}
			continue
		}
		if o := expect[*wire.SASLOutcome](p); o.Code != login.CodeAuth {
			t.Errorf("outcome %d", o.Code)
		}
		p.gone()
		if lines := j.lines(t); len(lines) != 1 || lines[0]["event"] != "login_refused" {
			t.Errorf("audit %v", lines)
		}
	}
}
