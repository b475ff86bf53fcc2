package auth

import (
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// The kinds of token that clients name in put-token.
const (
	KindSAS = "servicebus.windows.net:sastoken"
	KindJWT = "jwt"
)

// Grant is the result of a verification: rights, and where they are valid.
type Grant struct {
	Rights fsm.Rights
	// Namespace and Path are where the grant is valid: there and below (fsm.PathAbove), and nowhere
	// else. Path is as that of a Target; "" is the whole namespace. Callers that store the grant
	// use these two and never parse the audience again.
	Namespace fsm.NamespaceID
	Path      string
	// OwnNamespace: Namespace comes from Config.OwnNamespace, and is not that of the Client.
	OwnNamespace bool
	Expires      time.Time // zero: never
	// Still reports whether the credential is still valid: its rule may have been removed, or its
	// secret changed. nil: it cannot be revoked. Cheap; may be called from any goroutine.
	Valid func() bool
	// Operator: valid for the cluster itself, not only for a namespace.
	Operator bool
	// Name is the access rule or the subject of the JWT, for the audit log.
	Name string
	// OfEntity says that the grant comes from an access rule of the entity that Path is at or
	// below, and is valid for that entity only, not for the namespace.
	EntityOnly bool
	// Configured says that the grant comes from a key in the configuration of the member.
	Configured bool
	// isStored says that the grant comes from an access rule of the cluster, not from the configuration.
	isStored bool
}

// Client is the client whose credential is verified.
type Client struct {
	Namespace fsm.NamespaceID
	Peer      net.Addr // nil: failures are not counted
	// Release, when not nil, is called before a call waits, perhaps several times: the caller
	// gives back there what other requests need, such as its place among the requests in flight.
	Release func()
	// Host is the host that the client asks for, without port; "" when it is not known.
	Host string
	// HostNamespace is the namespace that the host of the request selects, where the request names another
	// one; else 0. Operators may sign for that host.
	HostNamespace fsm.NamespaceID
}

// ExpiredTokenError refuses a token whose time is over, in the words of the service, which clients search for. It
// wraps fsm.Unauthorized.
type ExpiredTokenError struct {
	Expired time.Time // end of the token
	Now     time.Time // time of the check
}

// Error begins with the code of the service.
func (e *ExpiredTokenError) Error() string {
	return fmt.Sprintf("ExpiredToken: The token is expired. Expiration time: '%s', Current time: '%s'.",
		e.Expired.UTC().Format(http.TimeFormat), e.Now.UTC().Format(http.TimeFormat))
}

// ExpiredAt returns the end of the token.
func (e *ExpiredTokenError) ExpiredAt() time.Time { return e.Expired }

// Unwrap returns fsm.Unauthorized.
func (*ExpiredTokenError) Unwrap() error { return fsm.Unauthorized }
