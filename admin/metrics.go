package admin

import "net/http"

// metrics answers who watches members. What is open is for callers who give no credential and
// need one; who gives one gets the whole or a refusal, never less than was asked for.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	if s.config.PublicMetrics != nil && r.Header.Get("Authorization") == "" && s.trustedCaller(r) == "" {
		release, _ := r.Context().Value(releaseSlotKey{}).(func())
		s.config.PublicMetrics.ServeHTTP(&slotReleasingWriter{w, release}, r)
		return
	}
	r, err := s.admit(r, operatorOnly, "")
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	s.config.Metrics.ServeHTTP(w, r)
}

// slotReleasingWriter gives the slot of a request back when its answer begins: a client that needs no credential
// for it and does not read it keeps nobody out.
type slotReleasingWriter struct {
	http.ResponseWriter
	release func()
}

func (a *slotReleasingWriter) WriteHeader(status int) {
	a.release()
	a.ResponseWriter.WriteHeader(status)
}

func (a *slotReleasingWriter) Write(b []byte) (int, error) {
	a.release()
	return a.ResponseWriter.Write(b)
}
