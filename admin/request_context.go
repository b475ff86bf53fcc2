package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/fsm"
)

// namespaceParameter chooses a namespace by name in the control API, before the Host header.
const namespaceParameter = "namespace"

// What the audit log calls callers who need no key.
const (
	socketName   = "control socket"
	loopbackName = "loopback"
)

// requiredAccess is what a route asks of its callers. Who is trusted, unsigned, may do all.
type requiredAccess uint8

const (
	anyKey          requiredAccess = iota + 1 // any key that is good
	manageEntity                              // Manage on the entity that the request is about
	manageNamespace                           // Manage on the whole namespace
	operatorOnly                              // a key that is good for the cluster itself
)

// requestContext is what is known of a request that was let in. It lives as long as its request and
// belongs to the goroutine of that.
type requestContext struct {
	namespace     fsm.NamespaceID
	hostNamespace fsm.NamespaceID // what the host selects, where another namespace is named; else 0
	caller        string          // the key or subject, or what trusted says
	trusted       bool            // let in without a key
	kind          string          // of what a change turned out to be about; "": as the route says
	rule          string          // its rule, where the body names it
}

type requestContextKey struct{}

// contextOf is the visit of a request that admit let in.
func contextOf(r *http.Request) *requestContext {
	if v, ok := r.Context().Value(requestContextKey{}).(*requestContext); ok {
		return v
	}
	return &requestContext{namespace: fsm.DefaultNamespace}
}

// namespace is the namespace that a request is about.
func (s *Server) namespace(r *http.Request) NamespaceView {
	return s.config.Control.In(contextOf(r).namespace)
}

// admit finds the namespace of a request and says whether its caller may have what the route
// needs; entity is what it is about, "" the namespace. The request that it returns knows
// both.
func (s *Server) admit(r *http.Request, n requiredAccess, entityName string) (*http.Request, error) {
	v := &requestContext{}
	r = r.WithContext(context.WithValue(r.Context(), requestContextKey{}, v))
	if r.Header.Get("Authorization") == "" && s.trustedCaller(r) == "" { // before anybody is asked anything
		return r, fmt.Errorf("%w: sign with a key (header Authorization: SharedAccessSignature), or come through the control socket in the member's data folder", fsm.Unauthorized)
	}
	missing, err := s.selectNamespace(r, v)
	if err != nil {
		return r, err
	}
	if missing != nil {
		n = operatorOnly // or keys of one namespace would find out the names of others
	}
	if n == manageEntity && entityName == "" {
		n = manageNamespace
	}
	if err := s.authorize(r, v, n, entityName); err != nil {
		return r, err
	}
	return r, missing
}

// selectNamespace sets the namespace of a visit: the one that is named, else the one of the host name by
// which the client knows us. One that is named and is not there is missing; then it is the
// default one that says who may know that.
func (s *Server) selectNamespace(r *http.Request, v *requestContext) (missing, err error) {
	query := r.URL.Query()
	if isATOM(r) || !query.Has(namespaceParameter) {
		v.namespace = s.config.Control.NamespaceByHost(r.Host)
		return nil, nil //nolint:nilnil // neither missing nor failed
	}
	v.hostNamespace = s.config.Control.NamespaceByHost(r.Host)
	name := query.Get(namespaceParameter)
	if err := checkNamespaceName(name); err != nil {
		return nil, err
	}
	namespace, err := s.config.Control.Namespace(r.Context(), name)
	if errors.Is(err, fsm.EntityNotFound) {
		v.namespace = fsm.DefaultNamespace
		return withNamespaceName(name, err), nil
	}
	v.namespace = namespace.ID
	return nil, err
}

// authClient is who the Authority is asked about.
func (s *Server) authClient(r *http.Request) auth.Client {
	v := contextOf(r)
	from := auth.Client{Namespace: v.namespace, HostNamespace: v.hostNamespace}
	if address, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		from.Peer = net.TCPAddrFromAddrPort(address)
	}
	return from
}

// authorize says whether the caller may. A signature that is given must be right, of those who
// need none as well: a wrong key should not look as if it worked.
func (s *Server) authorize(r *http.Request, v *requestContext, n requiredAccess, entityName string) error {
	given := r.Header.Get("Authorization")
	if given == "" { // or admit had refused
		v.caller, v.trusted = s.trustedCaller(r), true
		return nil
	}
	kind, token := parseAuthorization(given)
	grant, err := s.authenticate(r, kind, token, targets(r, n, entityName))
	if err != nil {
		if isATOM(r) && errors.Is(err, fsm.InvalidArgument) {
			// To clients it is 401 that tells them to look at their credentials.
			err = fmt.Errorf("%w: %s", fsm.Unauthorized, err.Error()) // as text, so that its code is not found
		}
		return err
	}
	v.caller = grant.Name
	if err := checkGrant(grant, n); err != nil {
		s.auditMissingRight(r, v, err)
		return err
	}
	return nil
}

// targets are the names of what a request is about. Clients sign the URL that they see or, as for AMQP,
// the entity. In the control API a URL stands for no entity: a queue may be called v1/queues.
func targets(r *http.Request, n requiredAccess, entityName string) []auth.Target {
	path, err := auth.TargetPath(r.URL.Path)
	if err != nil {
		path = "" // nothing is there, which whoever may use the whole namespace is told
	}
	name := fsm.PathKey(entityName)
	url := auth.Target{Path: path}
	if isATOM(r) {
		url.Entity = fsm.EntityPath(name)
		return []auth.Target{url}
	}
	if entityName != "" && (n == manageEntity || n == anyKey) {
		return []auth.Target{auth.TargetOf(name), url}
	}
	return []auth.Target{url}
}

// checkGrant says whether a grant is what a route needs.
func checkGrant(grant auth.Grant, n requiredAccess) error {
	switch {
	case n == anyKey:
		return nil
	case n == operatorOnly && !grant.Operator:
		return fmt.Errorf("%w: this is about the whole cluster and wants an operator's key: one that the members are configured with", fsm.Unauthorized)
	case grant.Rights&fsm.Manage != fsm.Manage:
		return fmt.Errorf("%w: the key does not have the right to manage", fsm.Unauthorized)
	case grant.EntityOnly && n != manageEntity:
		return fmt.Errorf("%w: this is about the whole namespace, and the key is good for one entity", fsm.Unauthorized)
	}
	return nil
}

// parseAuthorization takes an Authorization header apart. The Go administration client sends a JWT
// without the word before it.
func parseAuthorization(header string) (kind, token string) {
	if word, rest, found := strings.Cut(header, " "); found && strings.EqualFold(word, "Bearer") {
		return auth.KindJWT, strings.TrimSpace(rest)
	}
	if !strings.ContainsAny(header, " &=") && strings.Count(header, ".") == 2 {
		return auth.KindJWT, header
	}
	return auth.KindSAS, header
}
