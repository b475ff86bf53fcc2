package judge

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/peeklock/peeklock/test/history"
)

// Judge reports the promises that a stream has broken. Messages that were not received are lost if the stream was
// drained, and r is nil unless the cluster was restored. All clients have ended.
func (s *Stream) Judge(find func(format string, arguments ...any), drained bool, r *Restoration) {
	events := s.Events()
	if r != nil && s.IsExact {
		events, drained, r = r.parts(events)[0], false, nil
	}
	for _, v := range s.check(events, r) {
		if drained || v.Rule != history.RuleLost {
			find("%v", v)
		}
	}
	names := s.sourceNames()
	for i := range events {
		if e := &events[i]; e.Kind == history.Delivered && !slices.Contains(names, e.Entity) {
			find("unexpected copy: %v", e)
		}
	}
	s.mu.Lock()
	for _, found := range s.found {
		find("%s", found)
	}
	s.mu.Unlock()
	if s.Purges != nil && drained {
		for _, found := range s.Purges.check(events) {
			find("purge: %s", found)
		}
	}
	if !s.HasSessions { // the end of a session counts for messages that were locked a moment ago
		for _, found := range checkAttempts(events) {
			find("attempts counted twice: %s", found)
		}
	} else {
		for _, found := range s.Sessions.found {
			find("session: %s", found)
		}
		for _, part := range r.newOnly(events) {
			for _, found := range checkOrder(part, s.Sessions) {
				find("order in a session: %s", found)
			}
		}
	}
	for _, part := range r.newOnly(events) {
		for _, found := range checkLate(part) {
			find("late settlement accepted: %s", found)
		}
	}
}

// check checks the history of each message at each source.
func (s *Stream) check(events []history.Event, r *Restoration) (found []history.Violation) {
	if r != nil {
		return r.check(s, events)
	}
	sent := sentMessages(events)
	for _, name := range s.sourceNames() {
		found = append(found, history.Check(s.expected(events, sent, name), name)...)
	}
	if s.Takes != nil {
		return s.Takes.explain(found)
	}
	return found
}

// sentMessages returns what the senders know of each message.
func sentMessages(events []history.Event) map[string]*Sent {
	sent := make(map[string]*Sent)
	for i := range events {
		switch e := &events[i]; e.Kind { //nolint:exhaustive // the others are of receivers
		case history.SendBegun:
			sent[e.ID] = &Sent{ID: e.ID, Begun: e.At}
		case history.SendAccepted:
			sent[e.ID].Ended, sent[e.ID].IsAccepted = e.At, true
		case history.SendRefused:
			sent[e.ID].Ended = e.At
		}
	}
	return sent
}

// expected returns the events that concern one source: a message that need not arrive there is one whose sender does
// not know whether it was stored, and one that must not arrive is one that was refused.
func (s *Stream) expected(events []history.Event, sent map[string]*Sent, source string) []history.Event {
	var kept []history.Event
	for _, e := range events {
		if e.Entity != source && e.Entity != "" {
			continue
		}
		if m := sent[e.ID]; s.Expect != nil && e.Kind == history.SendAccepted && m != nil {
			switch s.Expect(m, source) {
			case Must:
			case May:
				e.Kind = history.SendUnknown
			case Never:
				e.Kind = history.SendRefused
			}
		}
		kept = append(kept, e)
	}
	return kept
}

// checkAttempts finds messages with more failed deliveries than abandoned deliveries and ended locks can explain: a
// lock ends once in a lock duration at most.
func checkAttempts(events []history.Event) (found []string) {
	begun := make(map[string]time.Time) // by message
	ended := make(map[string]int)       // by message and entity: settlements that may have ended a lock
	for i := range events {
		e := &events[i]
		key := e.ID + " " + e.Entity
		switch e.Kind { //nolint:exhaustive // the others count nothing
		case history.SendBegun:
			begun[e.ID] = e.At
		case history.SettleBegun:
			ended[key]++
		case history.Delivered:
			if most := ended[key] + int(e.At.Sub(begun[e.ID])/(LockDuration-time.Second)); int(e.FailedDeliveries) > most {
				found = append(found, fmt.Sprintf("%s: %d are possible: %v", key, most, e))
			}
		}
	}
	return found
}

// checkOrder finds messages of a session that arrived for the first time before one that was accepted before they
// were sent, and that no former holder of the session may have had then.
func checkOrder(events []history.Event, sessions *Sessions) (found []string) {
	waiting := make(map[string][]string) // by session: accepted, not delivered yet, in their order
	before := make(map[string][]string)  // by message: those that waited when it was sent
	begun := make(map[string]time.Time)  // by message
	arrived := make(map[string]bool)
	for i := range events {
		e := &events[i]
		session := e.ID[:strings.LastIndexByte(e.ID, '/')]
		switch e.Kind { //nolint:exhaustive // the others say nothing about order
		case history.SendBegun:
			begun[e.ID] = e.At
			before[e.ID] = append([]string(nil), waiting[session]...)
		case history.SendAccepted:
			if !arrived[e.ID] {
				waiting[session] = append(waiting[session], e.ID)
			}
		case history.Delivered:
			if arrived[e.ID] {
				continue
			}
			arrived[e.ID] = true
			kept := waiting[session][:0:0]
			for _, id := range waiting[session] {
				if id != e.ID {
					kept = append(kept, id)
				}
			}
			waiting[session] = kept
			for _, id := range before[e.ID] {
				if name := session[strings.LastIndexByte(session, '/')+1:]; !arrived[id] && !sessions.overtakes(name, e.At, begun[id]) {
					found = append(found, fmt.Sprintf("%s arrived before %s", e.ID, id))
				}
			}
		}
	}
	return found
}
