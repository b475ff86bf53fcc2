package audit

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/peeklock/peeklock/topology"
)

// Limits of the audit events that a member keeps in memory.
const (
	recentEventsMax = 1000
	recentBytesMax  = 1 << 20 // of all events together; the oldest ones are dropped
	recentTextMax   = 512     // bytes of one field; the rest is cut
)

// Recent is a slog.Handler that passes the events of the audit log on, and keeps the newest ones. Attributes of WithAttrs, which are the
// same for all events of a member, are not kept.
type Recent struct {
	to    slog.Handler
	state *recentEvents
}

// recentEvents is shared by a handler and the handlers derived from it.
type recentEvents struct {
	mu     sync.Mutex
	events []keptEvent // the oldest first
	bytes  int
	number uint64 // of the newest event
}

// keptEvent is an event with its names and values, one after the other.
type keptEvent struct {
	event  topology.AuditEvent // without Fields and Member
	fields []string
	bytes  int
}

// NewRecent returns a handler that passes events on to another one.
func NewRecent(to slog.Handler) *Recent { return &Recent{to, &recentEvents{}} }

// Enabled implements slog.Handler. Events are kept whatever the level of the log is.
func (*Recent) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle implements slog.Handler.
func (h *Recent) Handle(ctx context.Context, r slog.Record) error {
	kept := keptEvent{event: topology.AuditEvent{At: r.Time.UTC()}, bytes: keptEventBytes}
	r.Attrs(func(a slog.Attr) bool {
		text := a.Value.Resolve().String()
		text = strings.ToValidUTF8(text[:min(len(text), recentTextMax)], "")
		if a.Key == "event" {
			kept.event.Event = text
		} else {
			kept.fields = append(kept.fields, a.Key, text)
		}
		kept.bytes += len(text) + keptFieldBytes
		return true
	})
	h.state.keep(kept)
	if !h.to.Enabled(ctx, r.Level) {
		return nil
	}
	return h.to.Handle(ctx, r)
}

// What an event and a field take in memory beside its text.
const (
	keptEventBytes = 128
	keptFieldBytes = 32
)

// keep keeps an event, in place of the oldest ones if there is no space.
func (s *recentEvents) keep(e keptEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number++
	e.event.Number = s.number
	s.events, s.bytes = append(s.events, e), s.bytes+e.bytes
	drop := 0
	for len(s.events)-drop > recentEventsMax || s.bytes > recentBytesMax && drop < len(s.events)-1 {
		s.bytes -= s.events[drop].bytes
		drop++
	}
	s.events = slices.Delete(s.events, 0, drop)
}

// Before returns the events of a member before the cursor of a query, newest first, at most topology.AuditPageMax.
func (h *Recent) Before(member string, q topology.AuditQuery) []topology.AuditEvent {
	s := h.state
	s.mu.Lock()
	defer s.mu.Unlock()
	// By time, because the clock may have been set back.
	ordered := slices.Clone(s.events)
	slices.SortStableFunc(ordered, func(a, b keptEvent) int {
		return cmp.Or(b.event.At.Compare(a.event.At), cmp.Compare(b.event.Number, a.event.Number))
	})
	var list []topology.AuditEvent
	for i := range ordered {
		e := ordered[i].event
		e.Member = member
		if q.Before != nil && !isBefore(&e, q.Before) {
			continue
		}
		if len(list) == min(q.Max, topology.AuditPageMax) {
			break
		}
		e.Fields = make(map[string]string, len(ordered[i].fields)/2)
		for pair := range slices.Chunk(ordered[i].fields, 2) {
			e.Fields[pair[0]] = pair[1]
		}
		list = append(list, e)
	}
	return list
}

// isBefore reports whether an event comes after a cursor in a list with the newest events first.
func isBefore(e *topology.AuditEvent, c *topology.AuditCursor) bool {
	return cmp.Or(e.At.Compare(c.At), strings.Compare(e.Member, c.Member), cmp.Compare(e.Number, c.Number)) < 0
}

// WithAttrs implements slog.Handler.
func (h *Recent) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Recent{h.to.WithAttrs(attrs), h.state}
}

// WithGroup implements slog.Handler.
func (h *Recent) WithGroup(name string) slog.Handler {
	return &Recent{h.to.WithGroup(name), h.state}
}
