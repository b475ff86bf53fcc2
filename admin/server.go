package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path"
	"sync"
	"time"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/fsm"
)

// Limits of the listener. Together they bound what clients can make the process hold:
// 512 connections with 16 KiB of headers each, 128 requests with 64 KiB of body each.
const (
	connectionsMax   = 512
	requestsMax      = 128 // under way at once; more are refused with ServerBusy
	headerBytesMax   = 16 * 1024
	bodyBytesMax     = 64 * 1024
	headerWaitMax    = 5 * time.Second
	requestReadMax   = 10 * time.Second
	requestTimeMax   = 30 * time.Second // in which Control must answer
	responseWriteMax = 45 * time.Second // requestTimeMax and the time to write
	idleMax          = 2 * time.Minute
)

// Authority checks keys for callers that are not on loopback. [auth.Keyring] is one.
type Authority interface {
	Token(ctx context.Context, kind, token, audience string) (auth.Grant, error)
}

// Config of a server. All fields are needed.
type Config struct {
	Listener  net.Listener // closed by the server
	Control   Control
	Authority Authority
	Ready     func() bool // may clients be sent here? asked by /readyz and /health
	Logger    *slog.Logger
}

// Validate says what is missing.
func (c Config) Validate() error {
	if c.Listener == nil || c.Control == nil || c.Authority == nil || c.Ready == nil || c.Logger == nil {
		return errors.New("admin: every field of Config is needed")
	}
	return nil
}

// Server answers the control API on one listener until it is closed.
type Server struct {
	config   Config
	http     *http.Server
	requests chan struct{} // one token per request under way
	done     chan struct{} // closed when the accept loop has ended
	closing  sync.Once
	closeErr error
}

// Open starts to answer. The context is only for starting.
func Open(ctx context.Context, c Config) (*Server, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	s := &Server{config: c, requests: make(chan struct{}, requestsMax), done: make(chan struct{})}
	s.http = &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: headerWaitMax,
		ReadTimeout:       requestReadMax,
		WriteTimeout:      responseWriteMax,
		IdleTimeout:       idleMax,
		MaxHeaderBytes:    headerBytesMax,
		ErrorLog:          slog.NewLogLogger(c.Logger.Handler(), slog.LevelDebug),
	}
	ctx = context.WithoutCancel(ctx)
	go func() {
		defer close(s.done)
		if err := s.http.Serve(limit(c.Listener, connectionsMax)); !errors.Is(err, http.ErrServerClosed) {
			c.Logger.ErrorContext(ctx, "control listener ended", "error", err.Error())
		}
	}()
	return s, nil
}

// Close stops to accept, lets requests under way end while ctx lasts, then cuts them
// off. Calling it again waits for the same end.
func (s *Server) Close(ctx context.Context) error {
	s.closing.Do(func() {
		if s.http.Shutdown(ctx) == nil {
			return
		}
		if err := s.http.Close(); err != nil {
			s.closeErr = fmt.Errorf("close control listener: %w", err)
		}
	})
	<-s.done
	return s.closeErr
}

// handler is all routes. Names of queues may hold slashes, so nothing can follow them
// in a path.
func (s *Server) handler() http.Handler {
	guarded := http.NewServeMux()
	for pattern, serve := range map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /v1/queues":              s.listQueues,
		"GET /v1/queues/{name...}":    s.showQueue,
		"PUT /v1/queues/{name...}":    s.createQueue,
		"PATCH /v1/queues/{name...}":  s.updateQueue,
		"DELETE /v1/queues/{name...}": s.deleteQueue,
		"POST /v1/purge/{name...}":    s.purge,
		"POST /v1/redrive/{name...}":  s.redrive,
		"GET /v1/status":              s.status,
		"GET /v1/endpoints":           s.endpoints,
	} {
		guarded.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := serve(w, r); err != nil {
				s.refuse(w, r, err)
			}
		})
	}
	guarded.HandleFunc("/", s.noRoute(guarded))

	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", s.health)
	mux.HandleFunc("GET /livez", s.livez)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("/", s.guard(guarded))
	return s.exact(mux)
}

// exact refuses a path that net/http would tidy up and redirect to: a PUT of a//b would
// make the queue a/b, which nobody asked for.
func (s *Server) exact(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if clean := path.Clean(r.URL.Path); r.URL.Path != clean && r.URL.Path != clean+"/" {
			s.refuse(w, r, fmt.Errorf("%w: %s: a name has no empty part, nor . or .. as one", fsm.InvalidArgument, r.URL.Path))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// noRoute answers what no pattern took. net/http's own answers would be text.
func (s *Server) noRoute(routes *http.ServeMux) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost} {
			other := r.Clone(r.Context())
			other.Method = method
			if _, pattern := routes.Handler(other); pattern != "/" {
				s.refuse(w, r, fmt.Errorf("%w: %s cannot be done to %s", fsm.NotAllowed, r.Method, r.URL.Path))
				return
			}
		}
		s.refuse(w, r, fmt.Errorf("%w: nothing is at %s: the API is below /v1", fsm.EntityNotFound, r.URL.Path))
	}
}

// limit lets at most n connections of the listener be open at once; further ones wait
// in the kernel's queue.
func limit(l net.Listener, n int) net.Listener {
	return &limited{Listener: l, slots: make(chan struct{}, n), closed: make(chan struct{})}
}

type limited struct {
	net.Listener
	slots  chan struct{}
	closed chan struct{}
	once   sync.Once
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &slotted{Conn: conn, free: sync.OnceFunc(func() { <-l.slots })}, nil
}

func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type slotted struct {
	net.Conn
	free func()
}

func (c *slotted) Close() error {
	defer c.free()
	return c.Conn.Close()
}
