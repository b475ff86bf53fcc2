package admin

import (
	"net/http"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// requestContext describes an admitted request. It belongs to the goroutine of the request.
type requestContext struct {
	namespace      fsm.NamespaceID
	hostNamespace  fsm.NamespaceID // the namespace that the host selects, if the request names another one; otherwise 0
	keyNamespace   fsm.NamespaceID // where keys are looked up, if the caller's key has a namespace of its own; otherwise 0
	caller         string          // the name of the key, the subject of the JWT, or the result of trustedCaller
	trusted        bool            // admitted without a key
	operator       bool            // the caller is an operator: trusted, or with a key of the cluster itself
	namesNamespace bool            // the request names its namespace
	expires        time.Time       // of the credential; zero: never
	valid          func() bool     // whether the key is still valid; nil: always
	kind           string          // kind of the changed entity, if the route does not determine it; otherwise ""
	count          int             // messages that the request has changed
	rule           string          // the changed rule, if the body names it
}

type requestContextKey struct{}

// contextOf returns the requestContext of an admitted request.
func contextOf(r *http.Request) *requestContext {
	if v, ok := r.Context().Value(requestContextKey{}).(*requestContext); ok {
		return v
	}
	return &requestContext{namespace: fsm.DefaultNamespace}
}
