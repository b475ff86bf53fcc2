package admin

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/admin/connection"
	"github.com/peeklock/peeklock/amqp/account"
	"github.com/peeklock/peeklock/amqp/connlimit"
	"github.com/peeklock/peeklock/amqp/work"
	"github.com/peeklock/peeklock/fsm"
)

// Names of callers without a key in the audit log.
const (
	socketName   = "control socket"
	loopbackName = "loopback"
	anyoneName   = "anyone"
)

// guard limits the requests in flight, their size and their time. admit checks the access of the caller, since it knows
// the route.
func (s *core) guard(next http.Handler) http.Handler {
	return s.sameSite(s.limit(next))
}

// sameSite refuses requests of web pages of other sites. A page in the operator's browser is on loopback, too; it can send
// requests, but browsers name the site that makes them.
func (s *core) sameSite(next http.Handler) http.Handler {
	crossSite := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := crossSite.Check(r); err != nil {
			s.writeProblem(w, r, fmt.Errorf("%w: a web page of another site cannot use this API", fsm.NotAllowed))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// exemptKey is the key of a bool: limitUnauthenticated does not limit the request.
type exemptKey struct{}

// setExempt exempts a request from limitUnauthenticated: its caller is known, or it needs no limit.
func setExempt(r *http.Request) {
	if exempt, ok := r.Context().Value(exemptKey{}).(*bool); ok {
		*exempt = true
	}
}

// limitUnauthenticated delays the answers to requests that no key pays for, by address: refused requests, such as those of web pages,
// and files of the console. Each costs little, but a connection can carry tens of thousands per second.
func (s *core) limitUnauthenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		exempt := false
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), exemptKey{}, &exempt)))
		if exempt || connection.IsLocal(r) {
			return
		}
		address := s.work.Open(work.Owner{Key: "unauthenticated " + sourceOf(r)}, unauthenticatedWorkPerSecond, unauthenticatedWorkBurst)
		defer address.Close()
		address.Wait(r.Context(), nil, unauthenticatedCost)
	})
}

// unlimited serves requests that need no limit.
func unlimited(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		setExempt(r)
		next(w, r)
	}
}

// limit limits the requests in flight, their size and their time.
func (s *core) limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests := s.requests
		if connection.IsLocal(r) {
			requests = s.localRequests
		}
		held, ok := acquireSlot(requests)
		if !ok {
			s.writeProblem(w, r, fmt.Errorf("%w: %d requests are in flight: try again", fsm.ServerBusy, requestsMax))
			return
		}
		answer := &answerWriter{ResponseWriter: w, core: s, slot: held, request: r}
		defer func() { held.finish(answer.bytes) }() //nolint:contextcheck // nothing in it waits
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeMax)
		defer cancel()
		if s.config.TrackChanges != nil {
			var changed func() bool
			ctx, changed = s.config.TrackChanges(ctx)
			ctx = context.WithValue(ctx, changedKey{}, changed)
		}
		r = r.WithContext(context.WithValue(ctx, slotKey{}, held))
		if r.Body != http.NoBody {
			r.Body = &bufferedBody{ReadCloser: http.MaxBytesReader(w, r.Body, bodyBytesMax), ctx: ctx, slot: held, length: r.ContentLength}
		}
		next.ServeHTTP(answer, r)
		answer.end()
	})
}

// changedKey is the key of the function that reports whether the request may have changed something.
type changedKey struct{}

// mayHaveChanged reports whether a request that changes things may have changed something already. A request that
// reads may complete an interrupted change of others; it can be repeated.
func mayHaveChanged(r *http.Request) bool {
	changed, ok := r.Context().Value(changedKey{}).(func() bool)
	return ok && r.Method != http.MethodGet && r.Method != http.MethodHead && changed()
}

// slotKey is the key of the slot of a request.
type slotKey struct{}

// slotOf returns the slot of a request, nil for one that is not limited.
func slotOf(r *http.Request) *slot {
	held, _ := r.Context().Value(slotKey{}).(*slot)
	return held
}

// charge makes a request one of an owner, and waits until the owner may request what the request costs. Errors wrap fsm.ServerBusy.
func (s *core) charge(r *http.Request, owner account.Owner, perSecond, burst int) error {
	setExempt(r)
	held := slotOf(r)
	if held == nil {
		return nil
	}
	by := work.Owner{Namespace: owner.Namespace, Key: owner.Key} // from wherever they come
	if err := held.assign(s.config.Accounts.Open(owner), s.work.Open(by, perSecond, burst)); err != nil {
		return err
	}
	return held.pay(r.Context(), costOf(r))
}

// sourceOf returns the address of a client, or its network, as limits count it.
func sourceOf(r *http.Request) string {
	if address, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		return connlimit.Source(net.TCPAddrFromAddrPort(address)).String()
	}
	return hostName(r.RemoteAddr)
}

// chargeCaller charges a request to its caller; that of an operator without a key is not limited.
func (s *core) chargeCaller(r *http.Request, v *requestContext) error {
	if v.trusted {
		setExempt(r)
		return nil
	}
	return s.charge(r, account.Owner{Namespace: uint32(cmp.Or(v.keyNamespace, v.namespace)), Key: v.caller}, workPerSecond, workBurst)
}

// costOf returns the units of work of a request, without its answer.
func costOf(r *http.Request) int {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return readCost
	}
	return writeCost
}

// chargePage charges a page of so many entities or rules that a list reads. Errors wrap fsm.ServerBusy.
func chargePage(r *http.Request, entries int) error {
	if held := slotOf(r); held != nil && held.account != nil {
		return held.pay(r.Context(), entries/entriesPerUnit)
	}
	return nil
}

// expect charges the work of a request, and counts the bytes of its answer for its owner from now on. Errors wrap fsm.ServerBusy.
func expect(r *http.Request, units, answerBytes int) error {
	held := slotOf(r)
	if held == nil || held.account == nil {
		return nil
	}
	if units > 0 {
		if err := held.pay(r.Context(), units); err != nil {
			return err
		}
	}
	return held.reserve(r.Context(), int64(answerBytes))
}

// chargeLater charges work that is known only when it is done to the next request of the owner.
func chargeLater(r *http.Request, units int) {
	if held := slotOf(r); held != nil {
		held.due += units
	}
}

// authenticate has the Authority verify a credential. A request whose answer is delayed releases its slot first, so that
// failures do not block other requests, and is answered when the server closes.
func (s *core) authenticate(r *http.Request, kind, token string, targets []auth.Target) (auth.Grant, error) {
	from := s.authClient(r)
	if held := slotOf(r); held != nil {
		from.Release = held.release
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	stop := s.onClose(cancel)
	defer stop()
	return s.config.Authority.TokenFor(ctx, from, kind, token, targets...)
}

// trustedCaller returns the name of a caller that needs no key for the audit log, "" for all others.
func (s *core) trustedCaller(r *http.Request) string {
	switch {
	case connection.IsLocal(r):
		return socketName
	case s.config.TrustLoopback && fromLoopback(r):
		return loopbackName
	case s.config.TrustAll:
		return anyoneName
	}
	return ""
}

// fromLoopback reports whether the request comes from this machine and is addressed to it. An address from a PROXY
// header does not prove that.
func fromLoopback(r *http.Request) bool {
	remote, _, err := net.SplitHostPort(r.RemoteAddr)
	return err == nil && net.ParseIP(remote).IsLoopback() && !connection.IsProxied(r) && connection.IsLoopbackHost(r.Host)
}

// hostName returns a Host header without its port.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return host
}

// authClient describes the client of a request for the Authority.
func (s *core) authClient(r *http.Request) auth.Client {
	v := contextOf(r)
	from := auth.Client{Namespace: cmp.Or(v.keyNamespace, v.namespace), Host: hostName(r.Host), HostNamespace: v.hostNamespace}
	if address, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		from.Peer = net.TCPAddrFromAddrPort(address)
	}
	return from
}

// parseAuthorization splits an Authorization header. The Go administration client sends a JWT without the
// scheme before it.
func parseAuthorization(header string) (kind, token string) {
	if word, rest, found := strings.Cut(header, " "); found && strings.EqualFold(word, "Bearer") {
		return auth.KindJWT, strings.TrimSpace(rest)
	}
	if !strings.ContainsAny(header, " &=") && strings.Count(header, ".") == 2 {
		return auth.KindJWT, header
	}
	return auth.KindSAS, header
}
