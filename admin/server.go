package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/fsm"
)

// Limits of the listener. Together they bound the memory that clients can occupy: 512 connections with 16 KiB of headers
// and 128 KiB of body each, 128 requests in flight.
const (
	connectionsMax   = 512
	requestsMax      = 128 // in flight; further ones are refused with ServerBusy
	headerBytesMax   = 16 * 1024
	bodyBytesMax     = 128 * 1024 // the largest rule is 64 KiB without the JSON
	headerWaitMax    = 5 * time.Second
	requestReadMax   = 10 * time.Second
	requestTimeMax   = 30 * time.Second // in which Control must answer
	responseWriteMax = 45 * time.Second // requestTimeMax and the time to write
	idleMax          = 2 * time.Minute
)

// Authority verifies credentials. [auth.Keyring] implements it. Errors wrap fsm.Unauthorized, InvalidArgument or
// ServerBusy.
type Authority interface {
	TokenFor(ctx context.Context, from auth.Client, kind, token string, targets ...auth.Target) (auth.Grant, error)
}

// Config of a server. Listener, Control, Authority, Ready and Logger are required.
type Config struct {
	Listener  net.Listener // closed by the server
	Local     Local        // the zero value: no local listener
	Control   Control
	Authority Authority
	Ready     func() bool // reports whether clients should be sent to this member; for /readyz and /health
	// TrackChanges returns a context for Control, and a function that reports whether Control may have changed
	// something with it: after that, ServerBusy is answered as Timeout, so that no client repeats what was done.
	// nil: Control answers ServerBusy only before its first change.
	TrackChanges func(context.Context) (tracked context.Context, changed func() bool)
	// TrustLoopback accepts unsigned requests from this machine as requests of an operator. Every relay of
	// connections on this machine is then trusted too.
	TrustLoopback bool
	// RequireTLS is shown to clients: the AMQP addresses of members accept TLS only.
	RequireTLS bool
	// ReadinessChecks are the parts of Ready, and further facts for /readyz?verbose; /livez fails while one of
	// LivenessChecks is not OK. Neither function may block. nil: no checks.
	ReadinessChecks, LivenessChecks func() []api.Check
	Logger                          *slog.Logger
	// Slow logs requests that took SlowAfter or longer, except backups; nil or 0: none.
	Slow      *slog.Logger
	SlowAfter time.Duration
	Audit     *slog.Logger // changes with their callers, and missing rights; nil: Logger
	// Metrics serves /metrics to operators and to callers that need no key; nil: /metrics does not exist.
	// PublicMetrics serves it to other callers without a credential; nil: they are refused.
	Metrics, PublicMetrics http.Handler
}

// Local is the access of operators on this machine, without a key.
type Local struct {
	Listener net.Listener // reachable only by operators, such as a Unix socket; closed by the server
	// Endpoint is the host:port in the connection strings that answers contain, because clients cannot use the
	// address of Listener; "": answers contain no connection strings.
	Endpoint string
}

// Validate returns an error when a required field is missing.
func (c Config) Validate() error {
	if c.Listener == nil || c.Control == nil || c.Authority == nil || c.Ready == nil || c.Logger == nil {
		return errors.New("admin: Listener, Control, Authority, Ready and Logger are needed")
	}
	return nil
}

// Server serves both APIs until it is closed. It is safe for concurrent use.
type Server struct {
	config   Config
	http     *http.Server
	requests chan struct{} // one token per request in flight
	// localRequests counts the requests through Local, so that other requests cannot occupy the slots of the
	// operator.
	localRequests chan struct{}
	backups       chan struct{} // one token per backup in flight
	// whenClosing registers a function to be called when closing begins; stop unregisters it.
	onClose   func(call func()) (stop func() bool)
	stop      context.CancelFunc
	accepting sync.WaitGroup // the accept loops
	closing   sync.Once
	closeErr  error
}

// Open starts the server. It uses ctx only while it starts.
func Open(ctx context.Context, c Config) (*Server, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Audit == nil {
		c.Audit = c.Logger
	}
	s := &Server{config: c, requests: make(chan struct{}, requestsMax), localRequests: make(chan struct{}, requestsMax), backups: make(chan struct{}, backupsMax)}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop, s.onClose = stop, func(call func()) func() bool { return context.AfterFunc(life, call) }
	s.http = &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: headerWaitMax,
		ReadTimeout:       requestReadMax,
		WriteTimeout:      responseWriteMax,
		IdleTimeout:       idleMax,
		MaxHeaderBytes:    headerBytesMax,
		ErrorLog:          slog.NewLogLogger(c.Logger.Handler(), slog.LevelDebug),
		ConnContext:       withOrigin,
		ConnState:         connState,
	}
	s.accept(context.WithoutCancel(ctx), limitListener(c.Listener, connectionsMax, false))
	if c.Local.Listener != nil {
		s.accept(context.WithoutCancel(ctx), limitListener(c.Local.Listener, connectionsMax, true))
	}
	return s, nil
}

// accept serves the connections of a listener until the server is closed.
func (s *Server) accept(ctx context.Context, l net.Listener) {
	s.accepting.Go(func() {
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.config.Logger.ErrorContext(ctx, "control listener failed", "error", err.Error())
		}
	})
}

// Close stops accepting, lets requests in flight end until ctx is done, and then closes their connections. It may be called
// again, and then waits for the same end.
func (s *Server) Close(ctx context.Context) error {
	s.closing.Do(func() {
		s.stop() // otherwise a backup would use up the time that remains to transfer leaderships
		if s.http.Shutdown(ctx) == nil {
			return
		}
		if err := s.http.Close(); err != nil {
			s.closeErr = fmt.Errorf("close control listener: %w", err)
		}
	})
	s.accepting.Wait()
	return s.closeErr
}

// route is one operation of the control API.
type route struct {
	need      requiredAccess
	operation string // for the audit log; "": the route changes nothing
	kind      string // of the changed object, for the audit log
	serve     handler
}

// routes returns all operations of the control API. Names of entities may contain slashes, so they end the
// path.
func (s *Server) routes() map[string]route {
	const accessRule, rule, messages, namespace = "access_rule", "rule", "messages", "namespace"
	routes := map[string]route{
		"GET /v1/rules/{name...}":       {manageEntity, "", "", s.getRules},
		"PUT /v1/rules/{name...}":       {manageEntity, "create", rule, s.putRule},
		"DELETE /v1/rules/{name...}":    {manageEntity, "delete", rule, s.deleteRule},
		"POST /v1/purge/{name...}":      {manageEntity, "purge", messages, s.purge},
		"POST /v1/redrive/{name...}":    {manageEntity, "redrive", messages, s.redrive},
		"GET /v1/sessions/{name...}":    {manageEntity, "", "", s.getSessions},
		"GET /v1/status":                {operatorOnly, "", "", s.status},
		"GET /v1/endpoints":             {anyKey, "", "", s.endpoints},
		"GET /v1/namespaces":            {operatorOnly, "", "", s.listNamespaces},
		"GET /v1/namespaces/{name}":     {operatorOnly, "", "", s.showNamespace},
		"PUT /v1/namespaces/{name}":     {operatorOnly, "create", namespace, s.createNamespace},
		"PATCH /v1/namespaces/{name}":   {operatorOnly, "update", namespace, s.updateNamespace},
		"DELETE /v1/namespaces/{name}":  {operatorOnly, "delete", namespace, s.deleteNamespace},
		"GET /v1/access":                {manageNamespace, "", "", s.getAccess},
		"PUT /v1/access":                {manageNamespace, "create", accessRule, s.putAccess},
		"DELETE /v1/access":             {manageNamespace, "delete", accessRule, s.deleteAccess},
		"POST /v1/regenerate":           {manageNamespace, "regenerate", accessRule, s.regenerate},
		"GET /v1/access/{name...}":      {manageEntity, "", "", s.getAccess},
		"PUT /v1/access/{name...}":      {manageEntity, "create", accessRule, s.putAccess},
		"DELETE /v1/access/{name...}":   {manageEntity, "delete", accessRule, s.deleteAccess},
		"POST /v1/regenerate/{name...}": {manageEntity, "regenerate", accessRule, s.regenerate},
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
	maps.Copy(routes, s.operationRoutes())
	return routes
}

// serveRoute returns the handler of a route: it checks access, serves, and writes the audit log.
func (s *Server) serveRoute(to route) http.HandlerFunc {
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
func (s *Server) logSlow(r *http.Request, began time.Time) {
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

// handler serves both APIs, health and metrics.
func (s *Server) handler() http.Handler {
	guarded := http.NewServeMux()
	for pattern, to := range s.routes() {
		guarded.HandleFunc(pattern, s.serveRoute(to))
	}
	guarded.HandleFunc("/", s.routeNotFound(guarded))

	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", s.health)
	mux.HandleFunc("GET /livez", s.livez)
	mux.HandleFunc("GET /readyz", s.readyz)
	if s.config.Metrics != nil {
		mux.Handle("GET /metrics", s.guard(http.HandlerFunc(s.metrics)))
	}
	mux.Handle("/", s.guard(guarded))
	control, service := s.rejectUncleanPaths(mux), s.guard(http.HandlerFunc(s.serveATOM))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isATOM(r) {
			service.ServeHTTP(w, r)
			return
		}
		control.ServeHTTP(w, r)
	})
}

// rejectUncleanPaths refuses a path that net/http would clean and redirect: a PUT of a//b would create the
// queue a/b.
func (s *Server) rejectUncleanPaths(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if clean := path.Clean(r.URL.Path); r.URL.Path != clean && r.URL.Path != clean+"/" {
			s.writeProblem(w, r, fmt.Errorf("%w: %s: a name has no empty part, nor . or .. as one", fsm.InvalidArgument, r.URL.Path))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// routeNotFound answers requests that match no pattern. net/http itself would answer with plain text.
func (s *Server) routeNotFound(routes *http.ServeMux) http.HandlerFunc {
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
