package amqp

import (
	"strings"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// audiencesMax bounds the tokens kept for one connection. An SDK puts one for each
// entity and one for its management node; 500 entities on a connection are many.
const audiencesMax = 1024

// grants is what the tokens put on a connection allow, by audience path in lower
// case. The path "" is the namespace. Owned by the connection's mutex.
type grants map[string]Grant

// put keeps a grant for a path; it replaces an older one for the same path. False
// when there are too many.
func (g grants) put(path string, grant Grant, now time.Time) bool {
	path = strings.ToLower(path)
	if _, known := g[path]; !known && len(g) >= audiencesMax {
		if g.expire(now); len(g) >= audiencesMax {
			return false
		}
	}
	g[path] = grant
	return true
}

// allow says whether the grants at path and above it give right together.
func (g grants) allow(path string, right fsm.Rights, now time.Time) bool {
	path = strings.ToLower(path)
	var have fsm.Rights
	for {
		if grant, ok := g[path]; ok && (grant.Expires.IsZero() || now.Before(grant.Expires)) {
			have |= grant.Rights
		}
		if have&right == right {
			return true
		}
		if path == "" {
			return false
		}
		path = path[:max(0, strings.LastIndexByte(path, '/'))]
	}
}

// expire drops the grants that have run out and says whether there were any.
func (g grants) expire(now time.Time) bool {
	before := len(g)
	for path, grant := range g {
		if !grant.Expires.IsZero() && !now.Before(grant.Expires) {
			delete(g, path)
		}
	}
	return len(g) < before
}

// next is when the next grant runs out; the zero Time when none does.
func (g grants) next() time.Time {
	var first time.Time
	for _, grant := range g {
		if e := grant.Expires; !e.IsZero() && (first.IsZero() || e.Before(first)) {
			first = e
		}
	}
	return first
}
