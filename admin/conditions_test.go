package admin

import (
	"strings"
	"testing"

	"github.com/peeklock/peeklock/admin/condition"
)

// TestConditionsAreThoseOfDoctor: the route shows those of the cluster and of the member together, the most severe first, with what to do, and
// to operators alone.
func TestConditionsAreThoseOfDoctor(t *testing.T) {
	t.Parallel()
	r := newServerWithKeys(t)
	r.server.config.Examine = func() (f condition.Findings) {
		f.Add(condition.DiskStalled, "member c", "a write of the log has taken %.1f s so far", 2.5)
		return f
	}
	status, body := r.request("GET", "/v1/conditions", "", signed("http://localhost/", "root", "root-secret"))
	at := -1
	for _, want := range []string{`"PartitionWithoutLeader"`, `"severity":"critical"`, `"subject":"partition 9"`, `"DiskStalled"`, `"member c"`, "2.5 s", `"MemberAway"`, `"member b"`, condition.Of(condition.MemberAway).Mend[:10]} {
		next := strings.Index(body, want)
		if next < at {
			t.Errorf("%s is at %d, want it behind %d", want, next, at)
		}
		at = next
	}
	if status != 200 {
		t.Errorf("status %d, want 200: %s", status, body)
	}
	if status, body = r.request("GET", "/v1/conditions", "", signed("sb://localhost/", "manager", "m")); status != 401 {
		t.Errorf("the key of a namespace got status %d, want 401: %s", status, body)
	}
}
