package login

import (
	"bytes"
	"context"
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
	MechanismCBS       = "MSSBCBS"
	MechanismPlain     = "PLAIN"
	MechanismAnonymous = "ANONYMOUS"
	MechanismExternal  = "EXTERNAL"
)

// Mechanisms returns the mechanisms that the gateway offers.
func Mechanisms() []wire.Symbol {
	return []wire.Symbol{MechanismCBS, MechanismPlain, MechanismAnonymous, MechanismExternal}
}

// ErrOtherNamespace is the error of a host name that selects another namespace than the login was for.
var ErrOtherNamespace = errors.New("the login was for another namespace")

var errProtocol = errors.New("protocol fault in the handshake")

// SASL outcome codes (part 5, 5.3.3.6).
const (
	CodeOK   = 0
	CodeAuth = 1 // the credential is wrong
	CodeTemp = 4 // the credential was not verified, or follows too many failures; a retry may succeed
)

// SelectNamespace assigns the connection to the namespace of a host name, once the name is known: from TLS,
// then SASL, then open. "" selects nothing. It returns ErrOtherNamespace if a login was accepted for a host of another
// namespace.
// The mutex is not held.
func (c *Credentials) SelectNamespace(ctx context.Context, host string) error {
	if host == "" {
		return nil
	}
	chosen, err := c.config.Broker.Namespace(ctx, host)
	if err != nil {
		return fmt.Errorf("select a namespace: %w", err)
	}
	c.config.Conn.Lock()
	defer c.config.Conn.Unlock()
	switch {
	case c.identity.kind == "":
		c.hostNamespace, c.namespace = chosen, chosen
	case chosen != c.hostNamespace:
		c.Audit(ctx, slog.LevelWarn, auditLoginRefused, slog.String("kind", c.identity.kind), slog.String("name", c.identity.name),
			slog.String("reason", "the open names another namespace than the login was for"))
		return ErrOtherNamespace
	}
	return nil
}

// Outcome returns the SASL outcome code for the result of Authenticate: it tells the client whether to try again.
func Outcome(err error) uint8 {
	switch code, known := refusal.CodeOfError(err); {
	case err == nil:
		return CodeOK
	case known && (code == fsm.ServerBusy || code == fsm.Timeout), errors.Is(err, context.DeadlineExceeded):
		return CodeTemp
	}
	return CodeAuth
}

// Authenticate checks a sasl-init. PLAIN and a certificate authenticate the client and prove a right in the
// whole namespace. certificates are the chains that TLS verified. The mutex is not held.
func (c *Credentials) Authenticate(ctx context.Context, init *wire.SASLInit, certificates [][]*x509.Certificate) error {
	switch string(init.Mechanism) {
	case MechanismCBS, MechanismAnonymous:
		return nil
	case MechanismExternal:
		if len(certificates) > 0 && len(certificates[0]) > 0 {
			return c.external(ctx, certificates[0][0])
		}
		return nil
	case MechanismPlain:
		return c.plain(ctx, init.InitialResponse)
	}
	return fmt.Errorf("mechanism %.32q: %w", init.Mechanism, errProtocol)
}

// plain checks a user, which is the name of an access rule, and a password, which is one of its keys.
func (c *Credentials) plain(ctx context.Context, response []byte) error {
	parts := bytes.Split(response, []byte{0}) // authzid, authcid, passwd (RFC 4616)
	if len(parts) != 3 {
		c.Audit(ctx, slog.LevelWarn, auditLoginRefused, slog.String("kind", kindPlain), slog.String("reason", "not a user and a password"))
		return fmt.Errorf("plain response of %d parts: %w", len(parts), errProtocol)
	}
	user := string(parts[1])
	allowed, err := c.config.Authorizer.Password(ctx, c.client(), user, string(parts[2]))
	if err != nil {
		c.config.Log.DebugContext(ctx, "password refused", "user", user, "error", err)
		return fmt.Errorf("sasl plain: %w", err)
	}
	return c.acceptLogin(ctx, grant{allowed, kindPlain, user})
}

// external checks the client certificate that TLS verified.
func (c *Credentials) external(ctx context.Context, certificate *x509.Certificate) error {
	name := certificate.Subject.CommonName
	if c.config.ForeignOrigin {
		c.Audit(ctx, slog.LevelWarn, auditLoginRefused, slog.String("kind", kindExternal), slog.String("name", name), slog.String("reason", "a web page of another host opened the connection"))
		return fmt.Errorf("sasl external from a page of another host: %w", fsm.Unauthorized)
	}
	allowed, err := c.config.Authorizer.Certificate(ctx, c.client(), certificate)
	if err != nil {
		c.config.Log.DebugContext(ctx, "client certificate refused", "name", name, "error", err)
		return fmt.Errorf("sasl external: %w", err)
	}
	return c.acceptLogin(ctx, grant{allowed, kindExternal, name})
}

// acceptLogin makes the credential of a SASL login valid for the namespace, which the Authorizer may have selected by it.
func (c *Credentials) acceptLogin(ctx context.Context, held grant) error {
	c.config.Conn.Lock()
	defer c.config.Conn.Unlock()
	c.identity = identity{held.kind, held.name}
	if held.OwnNamespace {
		c.namespace = held.Namespace
	}
	c.add(ctx, held, time.Now())
	c.Audit(ctx, slog.LevelInfo, auditLogin, slog.String("kind", held.kind), slog.String("name", held.name))
	return nil
}
