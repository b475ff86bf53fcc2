package admin

import "net/http"

// metrics answers who watches members. What is open is for callers who give no credential and
// need one; who gives one gets the whole or a refusal, never less than was asked for.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	if s.config.MetricsOpen != nil && r.Header.Get("Authorization") == "" && s.trusted(r) == "" {
		release, _ := r.Context().Value(slotKey{}).(func())
		s.config.MetricsOpen.ServeHTTP(&answering{w, release}, r)
		return
	}
	r, err := s.admit(r, needOperator, "")
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	s.config.Metrics.ServeHTTP(w, r)
}

// answering gives the slot of a request back when its answer begins: a client that needs no credential
// for it and does not read it keeps nobody out.
type answering struct {
	http.ResponseWriter
	release func()
}

func (a *answering) WriteHeader(status int) {
	a.release()
	a.ResponseWriter.WriteHeader(status)
}

func (a *answering) Write(b []byte) (int, error) {
	a.release()
	return a.ResponseWriter.Write(b)
}
