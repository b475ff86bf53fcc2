package admin

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/peeklock/peeklock/fsm"
)

// guard lets a request through to the API when there is room. Who may do what is for
// admit, which knows the route.
func (s *Server) guard(next http.Handler) http.Handler {
	// A page in the operator's browser is on loopback too. It can send requests, but
	// browsers say on whose behalf.
	crossSite := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case s.requests <- struct{}{}:
			defer func() { <-s.requests }()
		default:
			s.refuse(w, r, fmt.Errorf("%w: %d requests are under way", fsm.ServerBusy, requestsMax))
			return
		}
		if err := crossSite.Check(r); err != nil {
			s.refuse(w, r, fmt.Errorf("%w: a page of another site cannot use this API", fsm.NotAllowed))
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeMax)
		defer cancel()
		r = r.WithContext(ctx)
		r.Body = http.MaxBytesReader(w, r.Body, bodyBytesMax)
		next.ServeHTTP(w, r)
	})
}

// fromLoopback says whether the request comes from this machine and was meant for it.
// The host must be a loopback name too: otherwise a site whose DNS name is pointed at
// 127.0.0.1 would be "same origin" to a browser and could read the answers.
func fromLoopback(r *http.Request) bool {
	remote, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil || !net.ParseIP(remote).IsLoopback() {
		return false
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || net.ParseIP(host).IsLoopback()
}
