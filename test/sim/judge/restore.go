package judge

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/history"
)

// Restoration is what the judges know of a restore. What it may lose and duplicate is stated in docs/operations.md, "What
// a restore loses and duplicates". A nil Restoration is that of a cluster that was not restored.
type Restoration struct {
	At   time.Time // everything before it happened in the cluster that was copied
	Cuts map[fsm.PartitionID]Cut
}

// Cut is a moment between two times, at which a partition was copied.
type Cut struct{ Begun, Ended time.Time }

// parts returns the events before and after the restore.
func (r *Restoration) parts(events []history.Event) [][]history.Event {
	if r == nil {
		return [][]history.Event{events}
	}
	at := slices.IndexFunc(events, func(e history.Event) bool { return e.At.After(r.At) })
	if at < 0 {
		at = len(events)
	}
	return [][]history.Event{events[:at], events[at:]}
}

// newOnly returns the parts of a history, in the second one only the messages whose sending began there.
func (r *Restoration) newOnly(events []history.Event) [][]history.Event {
	parts := r.parts(events)
	if r != nil {
		old := begunIn(parts[0])
		parts[1] = slices.DeleteFunc(slices.Clone(parts[1]), func(e history.Event) bool { return old[e.ID] })
	}
	return parts
}

// begunIn returns the messages whose sending began in a part of a history.
func begunIn(events []history.Event) map[string]bool {
	ids := make(map[string]bool)
	for i := range events {
		if events[i].Kind == history.SendBegun {
			ids[events[i].ID] = true
		}
	}
	return ids
}

// check checks the history of a stream whose cluster was restored.
func (r *Restoration) check(s *Stream, events []history.Event) []history.Violation {
	parts := r.parts(events)
	before, after := parts[0], parts[1]
	found := slices.DeleteFunc(history.Check(before, s.sourceNames()...), func(v history.Violation) bool { return v.Rule == history.RuleLost })
	old := begunIn(before)
	var known []history.Event // of messages that were sent before the restore
	for i := range before {
		if k := before[i].Kind; k == history.SendBegun || k == history.SendRefused {
			known = append(known, before[i])
		}
	}
	for _, v := range history.Check(append(known, after...), s.sourceNames()...) {
		doubles := r.doubles(s.pathTo(v.Entity))
		switch {
		case !old[v.ID], v.Rule == history.RulePhantom:
		case v.Rule == history.RuleLost && isReceived(before, v.ID, v.Entity):
			continue // a sender that did not know heard of it after the restore
		case v.Rule != history.RuleLost && doubles:
			continue
		}
		found = append(found, v)
	}
	for _, from := range s.From {
		if from.At.Sub == fsm.MainQueue {
			found = append(found, r.checkOld(s, from.Name, before, after)...)
		}
	}
	return found
}

// isReceived reports whether a message was received at an entity.
func isReceived(events []history.Event, id, entity string) bool {
	return slices.ContainsFunc(events, func(e history.Event) bool {
		return e.ID == id && e.Entity == entity && (e.Kind == history.Delivered || e.Kind == history.ReceivedAndDeleted)
	})
}

// oldMessage is what happened to a message, at one entity, before the restore.
type oldMessage struct {
	events             []history.Event
	accepted, received time.Time // first time; zero: not
	completed          time.Time // confirmed
	mayBeGone          time.Time // from when on it may be completed
	isBack             bool      // received after the restore
}

// checkOld compares what clients saw at one entity before the restore with what they saw afterwards.
func (r *Restoration) checkOld(s *Stream, entity string, before, after []history.Event) (found []history.Violation) {
	path := s.pathTo(entity)
	first, last := r.Cuts[path[0]], r.Cuts[path[len(path)-1]]
	messages := make(map[string]*oldMessage)
	var order []string
	for i := range before {
		e := &before[i]
		m := messages[e.ID]
		if m == nil {
			m = &oldMessage{}
			messages[e.ID] = m
			order = append(order, e.ID)
		}
		m.note(e, entity)
	}
	for i := range after {
		if e := &after[i]; e.Entity == entity && messages[e.ID] != nil {
			m := messages[e.ID]
			m.events = append(m.events, *e)
			m.isBack = m.isBack || e.Kind == history.Delivered || e.Kind == history.ReceivedAndDeleted
		}
	}
	isBefore := func(at, than time.Time) bool { return !at.IsZero() && at.Before(than) }
	for _, id := range order {
		m := messages[id]
		inCopy := isBefore(m.received, last.Begun) || isBefore(m.accepted, first.Begun) && !r.loses(path)
		switch {
		case inCopy && !m.isBack && (m.mayBeGone.IsZero() || m.mayBeGone.After(last.Ended)):
			found = append(found, history.Violation{Rule: history.RuleLost, ID: id, Entity: entity, Events: m.events})
		case m.isBack && isBefore(m.completed, last.Begun) && !r.doubles(path):
			found = append(found, history.Violation{Rule: history.RuleAfterCompletion, ID: id, Entity: entity, Events: m.events})
		}
	}
	return found
}

// note notes an event before the restore.
func (m *oldMessage) note(e *history.Event, entity string) {
	if e.Entity != "" && e.Entity != entity {
		return
	}
	m.events = append(m.events, *e)
	first := func(at *time.Time) {
		if at.IsZero() {
			*at = e.At
		}
	}
	switch e.Kind { //nolint:exhaustive // the others say nothing
	case history.SendAccepted:
		first(&m.accepted)
	case history.Delivered:
		first(&m.received)
	case history.ReceivedAndDeleted:
		m.mayBeGone = time.Unix(0, 0) // deleted before it arrived
	case history.SettleBegun:
		if e.Note == fmt.Sprint(fsm.Complete) {
			first(&m.mayBeGone)
		}
	case history.Completed:
		first(&m.completed)
	}
}

// pathTo returns the partitions that messages of a stream pass on their way to a source.
func (s *Stream) pathTo(source string) (path []fsm.PartitionID) {
	for _, from := range s.From {
		if from.Name != source {
			continue
		}
		path = append(path, s.To.Partition)
		for at := from.At.Entity; at.ID != s.To.ID; {
			path = slices.Insert(path, 1, at.Partition)
			before := slices.IndexFunc(s.Entities, func(e fsm.Entity) bool { return strings.EqualFold(e.Settings.ForwardTo, at.Name) })
			if before < 0 {
				break // a subscription of the topic, or a client moves the messages
			}
			at = s.Entities[before]
		}
		return path
	}
	return []fsm.PartitionID{s.To.Partition}
}

// loses reports whether messages that crossed between the copies of the partitions of a path may be lost: a
// destination may have been copied before its source.
func (r *Restoration) loses(path []fsm.PartitionID) bool {
	return r.anyHop(path, func(from, to Cut) bool { return to.Begun.Before(from.Ended) })
}

// doubles reports whether such messages may arrive twice: a source may have been copied before its destination.
func (r *Restoration) doubles(path []fsm.PartitionID) bool {
	return r.anyHop(path, func(from, to Cut) bool { return from.Begun.Before(to.Ended) })
}

// anyHop reports whether something is true of two successive partitions of a path.
func (r *Restoration) anyHop(path []fsm.PartitionID, is func(from, to Cut) bool) bool {
	for i := 1; i < len(path); i++ {
		if path[i] != path[i-1] && is(r.Cuts[path[i-1]], r.Cuts[path[i]]) {
			return true
		}
	}
	return false
}
