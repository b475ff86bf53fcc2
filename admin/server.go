package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"sync"

	"github.com/peeklock/peeklock/admin/connection"
	"github.com/peeklock/peeklock/admin/console"
	"github.com/peeklock/peeklock/admin/dataplane"
	"github.com/peeklock/peeklock/admin/operation"
	"github.com/peeklock/peeklock/amqp/work"
)

// Server serves both APIs until it is closed. It is safe for concurrent use.
type Server struct {
	*core
	http      *http.Server
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
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &Server{stop: stop, core: &core{
		config: c, requests: make(chan struct{}, requestsMax), localRequests: make(chan struct{}, requestsMax),
		work:    work.NewShared(work.NewLimiter(workPerSecondPerProcessor*runtime.GOMAXPROCS(0), workPerSecondPerProcessor*runtime.GOMAXPROCS(0)/workBurstsPerSecond)),
		streams: newStreams(c.Control),
		onClose: func(call func()) func() bool { return context.AfterFunc(life, call) },
	}}
	s.http = &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: headerWaitMax,
		ReadTimeout:       requestReadMax,
		WriteTimeout:      responseWriteMax,
		IdleTimeout:       idleMax,
		MaxHeaderBytes:    connection.HeaderBytesMax,
		ErrorLog:          slog.NewLogLogger(c.Logger.Handler(), slog.LevelDebug),
		ConnContext:       connection.WithOrigin,
		ConnState:         connection.State,
	}
	s.accept(context.WithoutCancel(ctx), connection.Limit(c.Listener, connectionsMax, false))
	if c.Local.Listener != nil {
		s.accept(context.WithoutCancel(ctx), connection.Limit(c.Local.Listener, connectionsMax, true))
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

// CloseStreams ends the streams of events, and refuses further ones: their viewers go to another member.
func (s *Server) CloseStreams() { s.streams.close() }

// Close stops accepting, lets requests in flight end until ctx is done, and then closes their connections. It may be called
// again, and then waits for the same end.
func (s *Server) Close(ctx context.Context) error {
	s.closing.Do(func() {
		s.streams.close()
		s.stop() // otherwise a backup would use up the time that remains to transfer leaderships
		if s.http.Shutdown(ctx) == nil {
			return
		}
		if err := s.http.Close(); err != nil {
			s.closeErr = fmt.Errorf("close control listener: %w", err)
		}
	})
	s.accepting.Wait()
	s.streams.running.Wait()
	return s.closeErr
}

// handler serves both APIs, health and metrics.
func (s *Server) handler() http.Handler {
	control, service, health := &controlAPI{s.core}, newServiceAPI(s.core), &healthAPI{s.core}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", unlimited(health.health))
	mux.HandleFunc("GET /livez", unlimited(health.livez))
	mux.HandleFunc("GET /readyz", unlimited(health.readyz))
	if s.config.Metrics != nil {
		mux.Handle("GET /metrics", s.guard(http.HandlerFunc(health.metrics)))
	}
	mux.Handle("/", s.guard(control.handler()))
	json, atom := control.rejectUncleanPaths(mux), s.guard(http.HandlerFunc(service.serveATOM))
	root := s.guard(http.HandlerFunc(listedServices))
	operations := s.guard(http.HandlerFunc(s.serveOperation))
	messages := s.sameSite(http.HandlerFunc(s.serveMessages))
	page := s.serveConsole(console.Handler(s.config.Console, s.config.ConsoleSignIn))
	return s.limitUnauthenticated(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case s.config.Console != console.Off && isConsole(r):
			page.ServeHTTP(w, r)
		case s.config.Console != console.Off && asksForPage(r):
			http.Redirect(w, r, console.Path, http.StatusFound)
		case s.config.Operations[r.Method+" "+r.URL.Path] != nil:
			operations.ServeHTTP(w, r)
		case s.config.CA != nil && r.URL.Path == "/ca.pem" && r.Method == http.MethodGet:
			s.certificate(w, r)
		case s.config.Messages != nil && dataplane.Claims(r):
			messages.ServeHTTP(w, r)
		case r.URL.Path == "/" && r.Method == http.MethodGet:
			root.ServeHTTP(w, r)
		case isATOM(r):
			atom.ServeHTTP(w, r)
		default:
			json.ServeHTTP(w, r)
		}
	}))
}

// certificate is GET /ca.pem.
func (s *core) certificate(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/x-pem-file")
	_, _ = w.Write(s.config.CA)
}

// serveOperation serves one of Config.Operations.
func (s *core) serveOperation(w http.ResponseWriter, r *http.Request) {
	r, err := s.admit(r, operation.OperatorOnly, "")
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	name := r.Method + " " + r.URL.Path
	result, err := s.config.Operations[name](r)
	s.auditChange(r, auditedChange{operation: name, kind: "member"}, err)
	switch {
	case err != nil:
		s.writeProblem(w, r, err)
	case result == nil:
		w.WriteHeader(http.StatusNoContent)
	default:
		s.writeJSON(w, r, http.StatusOK, result)
	}
}

// serveConsole serves the console over TLS, and without TLS to browsers on this machine only: a page over plain HTTP could be
// changed on its way, and would have the key of whoever signs in. With TrustAll a browser may come through the
// published port of a container, so its address says nothing, and the host that it names decides.
func (s *core) serveConsole(page http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if connection.IsSecure(r) || fromLoopback(r) || s.config.TrustAll && connection.IsLoopbackHost(r.Host) {
			page.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		http.Error(w, "The console is served over HTTPS, and over HTTP to a browser on the member's own machine (http://localhost). "+
			"Give the member a certificate (settings tls_cert and tls_key) and open https://, or forward a port: ssh -L 5300:localhost:5300 MEMBER.", http.StatusForbidden)
	}
}
