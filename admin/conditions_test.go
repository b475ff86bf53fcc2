package admin

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/condition"
	"github.com/peeklock/peeklock/fsm"
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

// TestListsCountWhatIsServed: with available=true, entities with a partition that has no leader have no counts, and the others do.
func TestListsCountWhatIsServed(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	s.mu.Lock()
	s.entities["waits"] = fsm.Entity{ID: 1, Kind: fsm.QueueEntity, Name: "waits", Partition: 9}
	s.entities["spread"] = fsm.Entity{ID: 2, Kind: fsm.QueueEntity, Name: "spread", Partition: 3, Shards: []fsm.Shard{{Partition: 3, Entity: 2}, {Partition: 9, Entity: 3}}}
	s.entities["served"] = fsm.Entity{ID: 4, Kind: fsm.QueueEntity, Name: "served", Partition: 3}
	s.mu.Unlock()
	for query, want := range map[string]string{"": "served spread waits", "&available=true": "served"} {
		_, body := s.request("GET", "/v1/queues?counts=true"+query, "", nil)
		var page api.QueuePage
		if err := json.Unmarshal([]byte(body), &page); err != nil {
			t.Fatal(err)
		}
		var counted []string
		for _, q := range page.Queues {
			if q.Counts != nil {
				counted = append(counted, q.Name)
			}
		}
		if got := strings.Join(counted, " "); got != want {
			t.Errorf("%s: counts of %q, want those of %q", query, got, want)
		}
	}
}
