package login

import (
	"context"
	"crypto/x509"
	"net"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// Grant describes the rights that a credential gives on a connection, and for which paths.
type Grant struct {
	Rights fsm.Rights
	// Namespace and Path define the scope: the entity at Path, in the form of fsm.PathKey, and the paths below
	// it (fsm.PathAbove). "" is the whole namespace. Namespace is that of the Client, except with OwnNamespace: then the
	// first credential of a connection moves it there, and those for other namespaces are refused from then on.
	Namespace    fsm.NamespaceID
	OwnNamespace bool
	Path         string
	// OfEntity says that it rests on an access rule of one entity: then Path is never "".
	OfEntity bool
	Expires  time.Time // zero: never
	// Name is the access rule or the subject of the credential. The connections of one name share one part of
	// the memory budget.
	Name string
	// Valid reports whether the credential is still valid: its rule may have been removed, or its key
	// regenerated. nil: always. It must be cheap, and may be called from any goroutine.
	Valid func() bool
}

// Authorizer checks credentials. Its methods may be called from any goroutine and do not block for long.
// Errors describe the fault in words that can be shown to the client; they wrap fsm.Unauthorized,
// fsm.InvalidArgument (the credential cannot be read), or fsm.ServerBusy if the address of the client has
// failed too often recently. The error of an expired token has a method ExpiredAt() time.Time and is shown to
// the client as it is, because clients search for the words of the service in it.
type Authorizer interface {
	// Token checks a put-token: kind is "servicebus.windows.net:sastoken" or "jwt", audience is the URI that
	// the client names. The gateway does not parse it: the Grant defines the scope.
	Token(ctx context.Context, from Client, kind, token, audience string) (Grant, error)
	// Password checks SASL PLAIN: the name of an access rule and a key.
	Password(ctx context.Context, from Client, user, password string) (Grant, error)
	// Certificate checks SASL EXTERNAL: the certificate of the client, which TLS verified against the
	// authorities for clients.
	Certificate(ctx context.Context, from Client, certificate *x509.Certificate) (Grant, error)
}

// Client is the client that presents a credential.
type Client struct {
	Namespace fsm.NamespaceID // that the host name selects
	Peer      net.Addr
}
