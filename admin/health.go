package admin

import (
	"net/http"
	"strings"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/operation"
	"github.com/peeklock/peeklock/amqp/account"
)

// healthAPI serves health and metrics.
type healthAPI struct{ *core }

// health answers as the official emulator does, in the words that its repository documents, so that scripts which wait for
// it work.
func (s *healthAPI) health(w http.ResponseWriter, r *http.Request) {
	if !s.config.Ready() {
		s.writeJSON(w, r, http.StatusServiceUnavailable, api.Health{Status: "unhealthy", Message: "Service not available. Please try after some time."})
		return
	}
	s.writeJSON(w, r, http.StatusOK, api.Health{Status: "healthy", Message: "Service is healthy."})
}

// livez reports whether the process works, or is stuck so that a restart would help.
func (s *healthAPI) livez(w http.ResponseWriter, r *http.Request) {
	checks := runChecks(s.config.LivenessChecks)
	answer := api.Checks{Health: api.Health{Status: "alive", Message: "The process answers."}}
	code := http.StatusOK
	if bad := failedChecks(checks); len(bad) > 0 {
		answer.Health, code = api.Health{Status: "stuck", Message: "Stuck: " + strings.Join(bad, ", ") + "."}, http.StatusServiceUnavailable
	}
	s.writeHealth(w, r, code, answer, checks)
}

// readyz reports whether clients should be sent to this member, as /health does, and on demand the reasons.
func (s *healthAPI) readyz(w http.ResponseWriter, r *http.Request) {
	ready, checks := s.config.Ready(), runChecks(s.config.ReadinessChecks)
	answer := api.Checks{Health: api.Health{Status: "healthy", Message: "Service is healthy."}}
	code := http.StatusOK
	if !ready {
		answer.Health, code = api.Health{Status: "unhealthy", Message: "Service is starting."}, http.StatusServiceUnavailable
		if bad := failedChecks(checks); len(bad) > 0 {
			answer.Message = "Not ready: " + strings.Join(bad, ", ") + "."
		}
	}
	s.writeHealth(w, r, code, answer, checks)
}

func (s *healthAPI) writeHealth(w http.ResponseWriter, r *http.Request, code int, answer api.Checks, checks []api.Check) {
	if r.URL.Query().Has("verbose") {
		answer.Checks = checks
	}
	s.writeJSON(w, r, code, answer)
}

func runChecks(checks func() []api.Check) []api.Check {
	if checks == nil {
		return nil
	}
	return checks()
}

// failedChecks returns the names of the checks that are not OK.
func failedChecks(checks []api.Check) (names []string) {
	for _, c := range checks {
		if !c.OK {
			names = append(names, c.Name)
		}
	}
	return names
}

// metrics is GET /metrics. Callers without a credential that need one get the public metrics; a caller that gives a
// credential gets all metrics or a refusal, never less than it asked for.
func (s *healthAPI) metrics(w http.ResponseWriter, r *http.Request) {
	if s.config.PublicMetrics != nil && r.Header.Get("Authorization") == "" && s.trustedCaller(r) == "" {
		if err := s.charge(r, account.Owner{Key: "address " + sourceOf(r)}, publicWorkPerSecond, publicWorkBurst); err != nil {
			s.writeProblem(w, r, err)
			return
		}
		s.config.PublicMetrics.ServeHTTP(w, r)
		return
	}
	r, err := s.admit(r, operation.ReadCluster, "")
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	s.config.Metrics.ServeHTTP(w, r)
}
