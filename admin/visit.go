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

// need is what a route asks of its callers. Who is trusted, unsigned, may do all.
type need uint8

const (
	needKey       need = iota + 1 // any key that is good
	needEntity                    // Manage on the entity that the request is about
	needNamespace                 // Manage on the whole namespace
	needOperator                  // a key that is good for the cluster itself
)

// visit is what is known of a request that was let in. It lives as long as its request and
// belongs to the goroutine of that.
type visit struct {
	namespace fsm.NamespaceID
	through   fsm.NamespaceID // what the host selects, where another namespace is named; else 0
	who       string          // the key or subject, or what trusted says
	local     bool            // let in without a key
	kind      string          // of what a change turned out to be about; "": as the route says
	rule      string          // its rule, where the body names it
}

type visitKey struct{}

// visitOf is the visit of a request that admit let in.
func visitOf(r *http.Request) *visit {
	if v, ok := r.Context().Value(visitKey{}).(*visit); ok {
		return v
	}
	return &visit{namespace: fsm.DefaultNamespace}
}

// in is the namespace that a request is about.
func (s *Server) in(r *http.Request) Space { return s.config.Control.In(visitOf(r).namespace) }

// admit finds the namespace of a request and says whether its caller may have what the route
// needs; entity is what it is about, "" the namespace. The request that it returns knows
// both.
func (s *Server) admit(r *http.Request, n need, entity string) (*http.Request, error) {
	v := &visit{}
	r = r.WithContext(context.WithValue(r.Context(), visitKey{}, v))
	if r.Header.Get("Authorization") == "" && s.trusted(r) == "" { // before anybody is asked anything
		return r, fmt.Errorf("%w: sign with a key (header Authorization: SharedAccessSignature), or come through the control socket in the member's data folder", fsm.Unauthorized)
	}
	missing, err := s.choose(r, v)
	if err != nil {
		return r, err
	}
	if missing != nil {
		n = needOperator // or keys of one namespace would find out the names of others
	}
	if n == needEntity && entity == "" {
		n = needNamespace
	}
	if err := s.permit(r, v, n, entity); err != nil {
		return r, err
	}
	return r, missing
}

// choose sets the namespace of a visit: the one that is named, else the one of the host name by
// which the client knows us. One that is named and is not there is missing; then it is the
// default one that says who may know that.
func (s *Server) choose(r *http.Request, v *visit) (missing, err error) {
	query := r.URL.Query()
	if isATOM(r) || !query.Has(namespaceParameter) {
		v.namespace = s.config.Control.NamespaceByHost(r.Host)
		return nil, nil //nolint:nilnil // neither missing nor failed
	}
	v.through = s.config.Control.NamespaceByHost(r.Host)
	name := query.Get(namespaceParameter)
	if err := checkNamespaceName(name); err != nil {
		return nil, err
	}
	namespace, err := s.config.Control.Namespace(r.Context(), name)
	if errors.Is(err, fsm.EntityNotFound) {
		v.namespace = fsm.DefaultNamespace
		return namingNamespace(name, err), nil
	}
	v.namespace = namespace.ID
	return nil, err
}

// client is who the Authority is asked about.
func (s *Server) client(r *http.Request) auth.Client {
	v := visitOf(r)
	from := auth.Client{Namespace: v.namespace, Through: v.through}
	if address, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		from.Peer = net.TCPAddrFromAddrPort(address)
	}
	return from
}

// permit says whether the caller may. A signature that is given must be right, of those who
// need none as well: a wrong key should not look as if it worked.
func (s *Server) permit(r *http.Request, v *visit, n need, entity string) error {
	given := r.Header.Get("Authorization")
	if given == "" { // or admit had refused
		v.who, v.local = s.trusted(r), true
		return nil
	}
	kind, token := credential(given)
	grant, err := s.authenticate(r, kind, token, targets(r, n, entity))
	if err != nil {
		if isATOM(r) && errors.Is(err, fsm.InvalidArgument) {
			// To clients it is 401 that tells them to look at their credentials.
			err = fmt.Errorf("%w: %s", fsm.Unauthorized, err.Error()) // as text, so that its code is not found
		}
		return err
	}
	v.who = grant.Name
	if err := enough(grant, n); err != nil {
		s.rightMissing(r, v, err)
		return err
	}
	return nil
}

// targets are the names of what a request is about. Clients sign the URL that they see or, as for AMQP,
// the entity. In the control API a URL stands for no entity: a queue may be called v1/queues.
func targets(r *http.Request, n need, entity string) []auth.Target {
	path, err := auth.TargetPath(r.URL.Path)
	if err != nil {
		path = "" // nothing is there, which whoever may use the whole namespace is told
	}
	name := fsm.PathKey(entity)
	url := auth.Target{Path: path}
	if isATOM(r) {
		url.Entity = fsm.EntityPath(name)
		return []auth.Target{url}
	}
	if entity != "" && (n == needEntity || n == needKey) {
		return []auth.Target{auth.TargetOf(name), url}
	}
	return []auth.Target{url}
}

// enough says whether a grant is what a route needs.
func enough(grant auth.Grant, n need) error {
	switch {
	case n == needKey:
		return nil
	case n == needOperator && !grant.Operator:
		return fmt.Errorf("%w: this is about the whole cluster and wants an operator's key: one that the members are configured with", fsm.Unauthorized)
	case grant.Rights&fsm.Manage != fsm.Manage:
		return fmt.Errorf("%w: the key does not have the right to manage", fsm.Unauthorized)
	case grant.OfEntity && n != needEntity:
		return fmt.Errorf("%w: this is about the whole namespace, and the key is good for one entity", fsm.Unauthorized)
	}
	return nil
}

// credential takes an Authorization header apart. The Go administration client sends a JWT
// without the word before it.
func credential(header string) (kind, token string) {
	if word, rest, found := strings.Cut(header, " "); found && strings.EqualFold(word, "Bearer") {
		return auth.KindJWT, strings.TrimSpace(rest)
	}
	if !strings.ContainsAny(header, " &=") && strings.Count(header, ".") == 2 {
		return auth.KindJWT, header
	}
	return auth.KindSAS, header
}
