package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/admin/input"
	"github.com/peeklock/peeklock/admin/operation"
	"github.com/peeklock/peeklock/fsm"
)

// namespace returns the namespace of a request.
func (s *core) namespace(r *http.Request) NamespaceView {
	return s.config.Control.In(contextOf(r).namespace)
}

// admit finds the namespace of a request and checks that its caller has the access that the route requires. entityName is
// the entity of the request, "" for the namespace. The returned request has a requestContext.
func (s *core) admit(r *http.Request, n operation.Right, entityName string) (*http.Request, error) {
	v := &requestContext{}
	r = r.WithContext(context.WithValue(r.Context(), requestContextKey{}, v))
	if r.Header.Get("Authorization") == "" && s.trustedCaller(r) == "" { // checked before anything else
		return r, fmt.Errorf("%w: sign with a key (header Authorization: SharedAccessSignature), or use the control socket in the data folder of the member", fsm.Unauthorized)
	}
	missing, err := s.selectNamespace(r, v)
	if err != nil {
		return r, err
	}
	if missing != nil {
		n = operation.OperatorOnly // otherwise keys of one namespace would reveal the names of others
	}
	if n == operation.ManageEntity && entityName == "" {
		n = operation.ManageNamespace
	}
	if n == operation.ReadEntity && entityName == "" {
		n = operation.ReadNamespace
	}
	if err := s.authorize(r, v, n, entityName); err != nil {
		return r, err
	}
	if err := s.chargeCaller(r, v); err != nil {
		return r, err
	}
	return r, missing
}

// selectNamespace sets the namespace of a request: the named one, otherwise that of the host. missing is the
// error for a named namespace that does not exist; the keys of the default namespace then decide whether the
// caller may learn that.
func (s *core) selectNamespace(r *http.Request, v *requestContext) (missing, err error) {
	query := r.URL.Query()
	if isATOM(r) || !query.Has(input.NamespaceParameter) {
		v.namespace, err = s.config.Control.NamespaceByHost(r.Context(), r.Host)
		return nil, err
	}
	if v.hostNamespace, err = s.config.Control.NamespaceByHost(r.Context(), r.Host); err != nil {
		return nil, err
	}
	v.namesNamespace = true
	name := query.Get(input.NamespaceParameter)
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

// authorize checks the access of the caller. A signature must be valid even if none is required: a wrong key
// must not appear to work.
func (s *core) authorize(r *http.Request, v *requestContext, n operation.Right, entityName string) error {
	given := r.Header.Get("Authorization")
	if given == "" { // otherwise admit would have refused
		v.caller, v.trusted, v.operator = s.trustedCaller(r), true, true
		return nil
	}
	kind, token := parseAuthorization(given)
	grant, err := s.authenticate(r, kind, token, targets(r, n, entityName))
	if err != nil {
		if isATOM(r) && errors.Is(err, fsm.InvalidArgument) {
			// Clients check their credentials only after a 401.
			err = fmt.Errorf("%w: %s", fsm.Unauthorized, err.Error()) // as text, so that its code is not found
		}
		return err
	}
	v.caller, v.operator = grant.Name, grant.Operator
	v.expires, v.valid = grant.Expires, grant.Valid
	if grant.OwnNamespace {
		v.namespace, v.keyNamespace = grant.Namespace, v.namespace
	}
	if err := checkGrant(grant, n); err != nil {
		s.auditMissingRight(r, v, err)
		return &missingRightError{err}
	}
	return nil
}

// targets returns the names of the resource of a request. Clients sign the URL that they see or, as for AMQP,
// the entity. In the control API a URL names no entity: a queue may be named v1/queues.
func targets(r *http.Request, n operation.Right, entityName string) []auth.Target {
	path, err := auth.TargetPath(r.URL.Path)
	if err != nil {
		path = "" // no entity has this path; callers with access to the whole namespace get 404
	}
	name := fsm.PathKey(entityName)
	url := auth.Target{Path: path}
	if isATOM(r) {
		url.Entity = fsm.EntityPath(name)
		return []auth.Target{url}
	}
	if entityName != "" && (n == operation.ManageEntity || n == operation.ReadEntity || n == operation.ListenEntity || n == operation.AnyKey) {
		return []auth.Target{auth.TargetOf(name), url}
	}
	return []auth.Target{url}
}

// checkGrant checks that a grant gives the access that a route requires.
func checkGrant(grant auth.Grant, n operation.Right) error {
	switch {
	case n == operation.AnyKey:
		return nil
	case n == operation.OperatorOnly && !grant.Operator:
		return fmt.Errorf("%w: the operation concerns the whole cluster and needs an operator's key: one that the members are configured with", fsm.Unauthorized)
	case n == operation.ListenEntity:
		if grant.Rights&fsm.Listen == 0 {
			return fmt.Errorf("%w: the key does not have the right to listen", fsm.Unauthorized)
		}
	case n == operation.ReadCluster:
		if !grant.Rights.CanRead() || !grant.Operator && !grant.Configured {
			return fmt.Errorf("%w: the figures of all namespaces need an operator's key, or a configured key with the right to read", fsm.Unauthorized)
		}
		return nil
	case n == operation.ReadEntity || n == operation.ReadNamespace:
		if !grant.Rights.CanRead() {
			return fmt.Errorf("%w: the key does not have the right to read", fsm.Unauthorized)
		}
	case grant.Rights&fsm.Manage != fsm.Manage:
		return fmt.Errorf("%w: the key does not have the right to manage", fsm.Unauthorized)
	}
	if grant.EntityOnly && n != operation.ManageEntity && n != operation.ReadEntity && n != operation.ListenEntity {
		return fmt.Errorf("%w: the operation concerns the whole namespace, and the key is valid for one entity only", fsm.Unauthorized)
	}
	return nil
}

// missingRightError says that a valid credential lacks the right that a request requires.
type missingRightError struct{ reason error }

func (e *missingRightError) Error() string { return e.reason.Error() }
func (e *missingRightError) Unwrap() error { return e.reason }
