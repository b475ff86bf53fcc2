package admin

import "net/http"

// metrics is GET /metrics. Callers without a credential that need one get the public metrics; a caller that gives a
// credential gets all metrics or a refusal, never less than it asked for.
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

// slotReleasingWriter releases the slot of a request when its answer begins: a client without a credential that does not
// read the answer does not block others.
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
