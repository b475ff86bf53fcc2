package cluster

import (
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// A busy queue without a backlog comes before an idle one with messages, and what was shown once stays for an hour.
func TestShownEntitiesKeepTheirPlaces(t *testing.T) {
	t.Parallel()
	now := time.Now()
	entity := func(name string, active uint64, used time.Duration) *shardedEntity {
		r := &shardedEntity{EntityStats: EntityStats{Name: name, Counts: fsm.Counts{Active: active}}}
		if used != 0 {
			r.LastUse = fsm.Instant(now.Add(-used).UnixMilli())
		}
		return r
	}
	var shown *shownEntities
	first := func(candidates ...*shardedEntity) string {
		w := entityScan{max: 1, top: candidates}
		for _, r := range w.top {
			r.rank = shown.rank(&r.EntityStats, now)
		}
		w.keepTop()
		shown = shown.next([]EntityStats{w.top[0].EntityStats}, now)
		return w.top[0].Name
	}
	for i, step := range []struct {
		candidates []*shardedEntity
		after      time.Duration
		want       string
	}{
		{[]*shardedEntity{entity("idle", 9, 2*time.Hour), entity("deep", 10, 0)}, 0, "deep"},
		{[]*shardedEntity{entity("busy", 0, time.Minute), entity("deep", 10, 0)}, shownFor - time.Second, "deep"},
		{[]*shardedEntity{entity("busy", 0, -shownFor), entity("deep", 10, 0)}, time.Second, "busy"},
		{[]*shardedEntity{entity("idle", 9, 0), entity("busy", 0, 0)}, shownFor - time.Second, "busy"},
		{[]*shardedEntity{entity("idle", 9, 0), entity("other", 8, 0)}, 0, "idle"},
	} {
		now = now.Add(step.after)
		if got := first(step.candidates...); got != step.want {
			t.Errorf("step %d shows %s, want %s", i, got, step.want)
		}
	}
}
