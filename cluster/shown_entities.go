package cluster

import (
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// shownFor is how long an entity keeps its place in Stats, and how long ago its last use may be to get one before
// entities with more messages. Monitoring systems draw gaps where series come and go.
const shownFor = time.Hour

// entityName identifies an entity in Stats.
type entityName struct{ namespace, name string }

// shownEntities holds when the places of entities in Stats end. It is immutable; nil is empty.
type shownEntities struct{ until map[entityName]time.Time }

// entityRank orders entities in Stats.
type entityRank uint8

// The ranks, first places first.
const (
	rankShown entityRank = iota // has a place
	rankUsed                    // was used in the last hour
	rankIdle
)

// rank returns the rank of an entity.
func (s *shownEntities) rank(e *EntityStats, now time.Time) entityRank {
	switch {
	case s != nil && now.Before(s.until[entityName{e.Namespace, e.Name}]):
		return rankShown
	case e.LastUse != 0 && e.LastUse > fsm.Instant(now.Add(-shownFor).UnixMilli()):
		return rankUsed
	}
	return rankIdle
}

// next returns the places after a Stats with these entities. Entities that it did not find, because they were deleted or are
// led by other members now, lose theirs.
func (s *shownEntities) next(shown []EntityStats, now time.Time) *shownEntities {
	if len(shown) == 0 {
		return s
	}
	next := &shownEntities{until: make(map[entityName]time.Time, len(shown))}
	for i := range shown {
		name := entityName{shown[i].Namespace, shown[i].Name}
		until := now.Add(shownFor)
		if s != nil && now.Before(s.until[name]) {
			until = s.until[name]
		}
		next.until[name] = until
	}
	return next
}
