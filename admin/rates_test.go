package admin

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/topology"
)

// The list has the busiest entities first and no samples; one entity has them.
func TestRates(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	for path, want := range map[string][]string{
		"/v1/rates": {"busy", "quiet"}, "/v1/rates?max=1": {"busy"}, "/v1/rates?total=true": {"busy", "quiet"}, "/v1/rates/quiet": {"quiet"}, "/v1/rates/topic/Subscriptions/none": {},
	} {
		status, body := s.request("GET", path, "", nil)
		var got api.Rates
		if err := json.Unmarshal([]byte(body), &got); err != nil || status != http.StatusOK || len(got.Entities) != len(want) || got.EverySeconds != topology.RatesEvery {
			t.Errorf("%s: %d %s (%v), want %v", path, status, body, err, want)
			continue
		}
		if (got.Total != nil && len(got.Total.Samples) == 1) != (path == "/v1/rates?total=true") {
			t.Errorf("%s: total %+v", path, got.Total)
		}
		for i := range want {
			if e := &got.Entities[i]; e.Name != want[i] || (len(e.Samples) > 0) != (path == "/v1/rates/quiet") {
				t.Errorf("%s: entity %d is %+v, want %s", path, i, e, want[i])
			}
		}
	}
	for _, path := range []string{"/v1/rates?max=0", "/v1/rates?max=1001", "/v1/rates?kind=queue", "/v1/rates/quiet?max=1"} {
		if status, body := s.request("GET", path, "", nil); status != http.StatusBadRequest {
			t.Errorf("%s: %d %s, want 400", path, status, body)
		}
	}
}
