package admin

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/peeklock/peeklock/admin/inspect"
	"github.com/peeklock/peeklock/fsm"
)

// controlAPI serves the control API: entities, messages, rules, access rules and namespaces, and the operations of
// operators.
type controlAPI struct{ *core }

// route is one operation of the control API.
type route struct {
	need      requiredAccess
	operation string // for the audit log; "": the route changes nothing
	kind      string // of the changed object, for the audit log
	serve     handler
}

// routes returns all operations of the control API. Names of entities may contain slashes, so they end the
// path.
func (s *controlAPI) routes() map[string]route {
	const accessRule, rule, messages, session, namespace = "access_rule", "rule", "messages", "session", "namespace"
	routes := map[string]route{
		"GET /v1/rules/{name...}":            {manageEntity, "", "", s.getRules},
		"PUT /v1/rules/{name...}":            {manageEntity, "create", rule, s.putRule},
		"DELETE /v1/rules/{name...}":         {manageEntity, "delete", rule, s.deleteRule},
		"GET /v1/messages/{name...}":         {listenEntity, "", "", s.peek},
		"POST /v1/purge/{name...}":           {manageEntity, "purge", messages, s.purge},
		"POST /v1/redrive/{name...}":         {manageEntity, "redrive", messages, s.redrive},
		"POST /v1/delete/{name...}":          {manageEntity, "delete", messages, s.change(inspect.Delete)},
		"POST /v1/cancel/{name...}":          {manageEntity, "cancel", messages, s.change(inspect.Cancel)},
		"POST /v1/undefer/{name...}":         {manageEntity, "undefer", messages, s.change(inspect.Undefer)},
		"GET /v1/sessions/{name...}":         {manageEntity, "", "", s.getSessions},
		"GET /v1/session-state/{name...}":    {listenEntity, "", "", s.onSession(s.getSessionState)},
		"PUT /v1/session-state/{name...}":    {manageEntity, "set state", session, s.onSession(s.putSessionState)},
		"DELETE /v1/session-state/{name...}": {manageEntity, "clear state", session, s.onSession(s.deleteSessionState)},
		"POST /v1/release/{name...}":         {manageEntity, "release", session, s.onSession(s.releaseSession)},
		"POST /v1/rule-test/{name...}":       {manageEntity, "", "", s.testRules},
		"GET /v1/endpoints":                  {anyKey, "", "", s.endpoints},
		"GET /v1/namespaces":                 {operatorOnly, "", "", s.listNamespaces},
		"GET /v1/namespaces/{name}":          {operatorOnly, "", "", s.showNamespace},
		"PUT /v1/namespaces/{name}":          {operatorOnly, "create", namespace, s.createNamespace},
		"PATCH /v1/namespaces/{name}":        {operatorOnly, "update", namespace, s.updateNamespace},
		"DELETE /v1/namespaces/{name}":       {operatorOnly, "delete", namespace, s.deleteNamespace},
		"GET /v1/access":                     {manageNamespace, "", "", s.getAccess},
		"PUT /v1/access":                     {manageNamespace, "create", accessRule, s.putAccess},
		"DELETE /v1/access":                  {manageNamespace, "delete", accessRule, s.deleteAccess},
		"POST /v1/regenerate":                {manageNamespace, "regenerate", accessRule, s.regenerate},
		"GET /v1/access/{name...}":           {manageEntity, "", "", s.getAccess},
		"PUT /v1/access/{name...}":           {manageEntity, "create", accessRule, s.putAccess},
		"DELETE /v1/access/{name...}":        {manageEntity, "delete", accessRule, s.deleteAccess},
		"POST /v1/regenerate/{name...}":      {manageEntity, "regenerate", accessRule, s.regenerate},
	}
	for noun, kind := range map[string]fsm.EntityKind{
		"queues": fsm.QueueEntity, "topics": fsm.TopicEntity, "subscriptions": fsm.SubscriptionEntity,
	} {
		all, one, listing := " /v1/"+noun, " /v1/"+noun+"/{name...}", manageNamespace
		if kind == fsm.SubscriptionEntity {
			listing = manageEntity // of their topic
		}
		routes["GET"+all] = route{listing, "", "", s.list(kind)}
		routes["GET"+one] = route{manageEntity, "", "", s.show(kind)}
		routes["PUT"+one] = route{manageNamespace, "create", kind.String(), s.create(kind)}
		routes["PATCH"+one] = route{manageEntity, "update", kind.String(), s.update(kind)}
		routes["DELETE"+one] = route{manageEntity, "delete", kind.String(), s.remove(kind)}
	}
	operator := operatorAPI{s.core, make(chan struct{}, backupsMax)}
	maps.Copy(routes, operator.operationRoutes())
	return routes
}

// serveRoute returns the handler of a route: it checks access, serves, and writes the audit log.
func (s *controlAPI) serveRoute(to route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.config.SlowAfter > 0 && s.config.Slow != nil {
			defer s.logSlow(r, time.Now())
		}
		name, query := r.PathValue("name"), r.URL.Query()
		entityName := cmp.Or(name, query.Get("topic"), query.Get("entity"))
		r, err := s.admit(r, to.need, entityName)
		if err == nil {
			err = to.serve(w, r)
			if to.operation != "" {
				s.auditChange(r, to.auditedChange(r, name), err)
			}
		}
		if err != nil {
			s.writeProblem(w, r, err)
		}
	}
}

// logSlow logs a slow request without the names in its path.
func (s *controlAPI) logSlow(r *http.Request, began time.Time) {
	if took := time.Since(began); took >= s.config.SlowAfter && !strings.HasPrefix(r.URL.Path, "/v1/backup/") {
		s.config.Slow.WarnContext(r.Context(), "slow operation", "operation", "control "+r.Pattern, "took", took, "peer", r.RemoteAddr)
	}
}

// auditedChange returns the description of a request for the audit log.
func (to route) auditedChange(r *http.Request, name string) auditedChange {
	query := r.URL.Query()
	c := auditedChange{operation: to.operation, kind: to.kind, name: name, rule: cmp.Or(query.Get("rule"), query.Get("name"))}
	if c.operation == "create" && query.Has("replace") {
		c.operation = "update"
	}
	return c
}

// handler serves the routes.
func (s *controlAPI) handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, to := range s.routes() {
		mux.HandleFunc(pattern, s.serveRoute(to))
	}
	mux.HandleFunc("/", s.routeNotFound(mux))
	return mux
}

// rejectUncleanPaths refuses a path that net/http would clean and redirect: a PUT of a//b would create the
// queue a/b.
func (s *controlAPI) rejectUncleanPaths(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if clean := path.Clean(r.URL.Path); r.URL.Path != clean && r.URL.Path != clean+"/" {
			s.writeProblem(w, r, fmt.Errorf("%w: %s: a name has no empty part, nor . or .. as one", fsm.InvalidArgument, r.URL.Path))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// routeNotFound answers requests that match no pattern. net/http itself would answer with plain text.
func (s *controlAPI) routeNotFound(routes *http.ServeMux) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, err := s.admit(r, anyKey, ""); err != nil {
			s.writeProblem(w, r, err)
			return
		}
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodPatch} {
			other := r.Clone(r.Context())
			other.Method = method
			if _, pattern := routes.Handler(other); pattern != "/" {
				s.writeProblem(w, r, fmt.Errorf("%w: %s is not possible for %s", fsm.NotAllowed, r.Method, r.URL.Path))
				return
			}
		}
		s.writeProblem(w, r, fmt.Errorf("%w: nothing is at %s: the API is below /v1", fsm.EntityNotFound, r.URL.Path))
	}
}
