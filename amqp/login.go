package amqp

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// SASL mechanisms, in the order of the cloud service. .NET uses only MSSBCBS; with MSSBCBS and with ANONYMOUS
// a client authenticates by a token on $cbs. With EXTERNAL it does so if it has no certificate: some clients
// choose EXTERNAL merely because it is offered.
const (
	mechanismCBS       = "MSSBCBS"
	mechanismPlain     = "PLAIN"
	mechanismAnonymous = "ANONYMOUS"
	mechanismExternal  = "EXTERNAL"
)

// SASL outcome codes (part 5, 5.3.3.6).
const (
	saslOK   = 0
	saslAuth = 1 // the credential is wrong
	saslTemp = 4 // the credential was not verified, or follows too many failures; a retry may succeed
)

// tlsState returns the state of TLS; the zero value without TLS. A listener that terminates TLS below a
// connection wraps the connection in a type that has the state.
func (c *conn) tlsState() tls.ConnectionState {
	if t, ok := c.peer.(interface{ ConnectionState() tls.ConnectionState }); ok {
		return t.ConnectionState()
	}
	return tls.ConnectionState{}
}

// selectNamespace assigns the connection to the namespace of a host name, once the name is known: from TLS,
// then SASL, then open. It returns errOtherNamespace if the connection has proved a right for a host of another namespace.
func (c *conn) selectNamespace(ctx context.Context, host string) error {
	if host == "" {
		return nil
	}
	chosen, err := c.config.Broker.Namespace(ctx, host)
	if err != nil {
		return fmt.Errorf("select a namespace: %w", err)
	}
	c.mu.Lock()
	defer c.unlock()
	switch {
	case c.login.kind == "":
		c.hostNamespace, c.namespace = chosen, chosen
	case chosen != c.hostNamespace:
		return errOtherNamespace
	}
	return nil
}

// sasl runs the security layer (part 5, 5.3.2): mechanisms, init, outcome.
func (c *conn) sasl(ctx context.Context) error {
	c.sendRaw(wire.AppendFrame([]byte(headerSASL), wire.FrameSASL, 0, &wire.SASLMechanisms{
		Mechanisms: []wire.Symbol{mechanismCBS, mechanismPlain, mechanismAnonymous, mechanismExternal},
	}))
	c.reader.SetMaxFrame(saslFrameBytesMax)
	frame, err := c.reader.ReadFrame()
	c.reader.SetMaxFrame(frameBytesMax)
	if err != nil {
		return fmt.Errorf("read sasl-init: %w", err)
	}
	init, ok := frame.Body.(*wire.SASLInit)
	if !ok || frame.Type != wire.FrameSASL {
		return fmt.Errorf("%T instead of sasl-init: %w", frame.Body, errProtocol)
	}
	var refused error
	if init.Hostname != nil {
		refused = c.selectNamespace(ctx, *init.Hostname)
	}
	if refused == nil {
		refused = c.authenticate(ctx, init)
	}
	if refused != nil {
		c.totals.logins.Add(1)
	}
	c.sendRaw(wire.AppendFrame(nil, wire.FrameSASL, 0, &wire.SASLOutcome{Code: outcomeCode(refused)}))
	return refused
}

// outcomeCode tells the client whether to try again.
func outcomeCode(err error) uint8 {
	switch code, known := refusal.CodeOfError(err); {
	case err == nil:
		return saslOK
	case known && (code == fsm.ServerBusy || code == fsm.Timeout), errors.Is(err, context.DeadlineExceeded):
		return saslTemp
	}
	return saslAuth
}

// authenticate checks a sasl-init. PLAIN and a certificate authenticate the client and prove a right in the
// whole namespace.
func (c *conn) authenticate(ctx context.Context, init *wire.SASLInit) error {
	ctx, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	switch string(init.Mechanism) {
	case mechanismCBS, mechanismAnonymous:
		return nil
	case mechanismExternal:
		if chains := c.tlsState().VerifiedChains; len(chains) > 0 && len(chains[0]) > 0 {
			return c.external(ctx, chains[0][0])
		}
		return nil
	case mechanismPlain:
		return c.plain(ctx, init.InitialResponse)
	}
	return fmt.Errorf("mechanism %.32q: %w", init.Mechanism, errProtocol)
}

// plain checks a user, which is the name of an access rule, and a password, which is one of its keys.
func (c *conn) plain(ctx context.Context, response []byte) error {
	parts := bytes.Split(response, []byte{0}) // authzid, authcid, passwd (RFC 4616)
	if len(parts) != 3 {
		c.audit(ctx, slog.LevelWarn, auditLoginRefused, slog.String("kind", kindPlain), slog.String("reason", "not a user and a password"))
		return fmt.Errorf("plain response of %d parts: %w", len(parts), errProtocol)
	}
	user := string(parts[1])
	allowed, err := c.config.Authorizer.Password(ctx, c.client(), user, string(parts[2]))
	if err != nil {
		c.log.DebugContext(ctx, "password refused", "user", user, "error", err)
		return fmt.Errorf("sasl plain: %w", err)
	}
	return c.acceptLogin(ctx, grant{allowed, kindPlain, user})
}

// external checks the client certificate that TLS verified.
func (c *conn) external(ctx context.Context, certificate *x509.Certificate) error {
	name := certificate.Subject.CommonName
	allowed, err := c.config.Authorizer.Certificate(ctx, c.client(), certificate)
	if err != nil {
		c.log.DebugContext(ctx, "client certificate refused", "name", name, "error", err)
		return fmt.Errorf("sasl external: %w", err)
	}
	return c.acceptLogin(ctx, grant{allowed, kindExternal, name})
}

// acceptLogin makes the credential of a SASL login valid for the namespace, which the Authorizer may have selected by it.
func (c *conn) acceptLogin(ctx context.Context, held grant) error {
	c.mu.Lock()
	defer c.unlock()
	c.login = login{held.kind, held.name}
	if held.OwnNamespace {
		c.namespace = held.Namespace
	}
	c.addGrant(ctx, held, time.Now())
	c.audit(ctx, slog.LevelInfo, auditLogin, slog.String("kind", held.kind), slog.String("name", held.name))
	return nil
}
