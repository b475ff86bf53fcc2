package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/fsm"
)

// namespaceParameter chooses a namespace by name in the control API, before the Host header.
const namespaceParameter = "namespace"

// loopbackName is what the audit log calls callers who need no key.
const loopbackName = "loopback"

// need is what a route asks of its callers. Who asks from this machine, unsigned, may do all.
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
	who       string // the key or subject, or loopbackName
	local     bool   // let in without a key
	kind      string // of what a change turned out to be about; "": as the route says
	rule      string // its rule, where the body names it
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
	if r.Header.Get("Authorization") == "" && !fromLoopback(r) { // before anybody is asked anything
		return r, fmt.Errorf("%w: callers from other machines sign with a key (header Authorization: SharedAccessSignature)", fsm.Unauthorized)
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
	from := auth.Client{Namespace: visitOf(r).namespace}
	if address, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		from.Peer = net.TCPAddrFromAddrPort(address)
	}
	return from
}

// permit says whether the caller may. A signature that is given must be right, on loopback as
// well: a wrong key should not look as if it worked.
func (s *Server) permit(r *http.Request, v *visit, n need, entity string) error {
	given := r.Header.Get("Authorization")
	if given == "" { // from loopback, or admit had refused
		v.who, v.local = loopbackName, true
		return nil
	}
	// Clients sign the URL they see, or the entity as they do for AMQP; only host and path
	// are compared (auth).
	base := "http://" + r.Host
	audiences := []string{base + r.URL.Path, base + r.URL.EscapedPath()}
	atom := isATOM(r)
	if !atom && entity != "" && (n == needEntity || n == needKey) {
		audiences = append([]string{base + "/" + entity}, audiences...)
	}
	kind, token := credential(given)
	audience, found := covered(kind, token, audiences)
	if !found {
		audience = audiences[0]
	}
	grant, err := s.config.Authority.Token(r.Context(), s.client(r), kind, token, audience)
	if err != nil {
		if atom && errors.Is(err, fsm.InvalidArgument) {
			// To clients it is 401 that tells them to look at their credentials.
			err = fmt.Errorf("%w: %s", fsm.Unauthorized, err.Error()) // as text, so that its code is not found
		}
		return err
	}
	v.who = grant.Name
	// A key of one entity counts where the audience was that entity. In the control API the
	// URL is not: a queue may be called v1/queues.
	its := n == needEntity && (atom || audience == audiences[0])
	if err := enough(grant, n, its); err != nil {
		s.rightMissing(r, v, err)
		return err
	}
	return nil
}

// enough says whether a grant is what a route needs; its: the grant was asked for the very
// entity.
func enough(grant auth.Grant, n need, its bool) error {
	switch {
	case n == needKey:
		return nil
	case n == needOperator && !grant.Operator:
		return fmt.Errorf("%w: this is about the whole cluster and wants an operator's key: one that the members are configured with", fsm.Unauthorized)
	case grant.Rights&fsm.Manage != fsm.Manage:
		return fmt.Errorf("%w: the key does not have the right to manage", fsm.Unauthorized)
	case grant.OfEntity && !its:
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

// covered finds the first audience that a token says to be for. What a token says is not
// believed here: it only chooses which name of one thing the Authority is asked about, since a
// wrong question would count as a failed login. A JWT is for everything.
func covered(kind, token string, audiences []string) (string, bool) {
	if kind == auth.KindJWT {
		return audiences[0], true
	}
	signed := ""
	for field := range strings.SplitSeq(strings.TrimPrefix(token, "SharedAccessSignature "), "&") {
		if text, found := strings.CutPrefix(field, "sr="); found {
			if decoded, err := url.QueryUnescape(text); err == nil {
				signed = decoded
			}
		}
	}
	for _, audience := range audiences {
		if auth.Under(audience, signed) {
			return audience, true
		}
	}
	return "", false
}
