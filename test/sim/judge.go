package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/peeklock/peeklock/test/history"
)

// judge reports the promises that a stream has broken. Messages that were not received are lost if the stream was
// drained.
func (s *stream) judge(find func(format string, arguments ...any), drained bool, r *restoration) {
	events := s.Events()
	for _, v := range r.check(s, events) {
		if drained || v.Rule != history.RuleLost {
			find("%v", v)
		}
	}
	for _, found := range s.sessions.found {
		find("two holders of a session: %s", found)
	}
	for _, found := range s.early {
		find("early: %s", found)
	}
	if !s.hasSessions { // the end of a session counts for messages that were locked a moment ago
		for _, found := range checkAttempts(events) {
			find("attempts counted twice: %s", found)
		}
	} else {
		for _, part := range r.newOnly(events) {
			for _, found := range checkOrder(part) {
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
			if most := ended[key] + int(e.At.Sub(begun[e.ID])/(lockDuration-time.Second)); int(e.FailedDeliveries) > most {
				found = append(found, fmt.Sprintf("%s: %d are possible: %v", key, most, e))
			}
		}
	}
	return found
}

// checkOrder finds messages of a session that arrived for the first time before one that was accepted before they
// were sent.
func checkOrder(events []history.Event) (found []string) {
	waiting := make(map[string][]string) // by session: accepted, not delivered yet, in their order
	before := make(map[string][]string)  // by message: those that waited when it was sent
	arrived := make(map[string]bool)
	for i := range events {
		e := &events[i]
		session := e.ID[:strings.LastIndexByte(e.ID, '/')]
		switch e.Kind { //nolint:exhaustive // the others say nothing about order
		case history.SendBegun:
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
				if !arrived[id] {
					found = append(found, fmt.Sprintf("%s arrived before %s", e.ID, id))
				}
			}
		}
	}
	return found
}
