package admin

import "net/http"

// health answers as the official emulator does, so that scripts which wait for it work.
func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	if !s.config.Ready() {
		s.reply(w, r, http.StatusServiceUnavailable, Health{Status: "unhealthy", Message: "Service is starting."})
		return
	}
	s.reply(w, r, http.StatusOK, Health{Status: "healthy", Message: "Service is healthy."})
}

// livez says that the process answers at all: restart it when this fails.
func (s *Server) livez(w http.ResponseWriter, r *http.Request) {
	s.reply(w, r, http.StatusOK, Health{Status: "alive", Message: "The process answers."})
}

// readyz says whether clients should be sent here.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) { s.health(w, r) }
