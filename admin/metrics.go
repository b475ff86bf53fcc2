package admin

import "net/http"

// metrics answers who watches members. What is open is for callers who give no credential and
// need one; who gives one gets the whole or a refusal, never less than was asked for.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	if s.config.MetricsOpen != nil && r.Header.Get("Authorization") == "" && s.trusted(r) == "" {
		s.config.MetricsOpen.ServeHTTP(w, r)
		return
	}
	r, err := s.admit(r, needOperator, "")
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	s.config.Metrics.ServeHTTP(w, r)
}
