package audit

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/peeklock/peeklock/amqp/connlimit"
)

// Limits of refusals in the audit log, so that a client that guesses keys cannot fill the disk.
const (
	// RefusalsMax is how many refusals of one client are logged in a minute (refusalsEvery); the others are counted.
	RefusalsMax   = 10
	refusalsEvery = time.Minute
	clientsMax    = 10_000 // clients with a count of their own; further clients share one
)

// isRefusal reports whether a client can cause this event of the audit log without any right.
func isRefusal(event string) bool { return event == "login_refused" || event == "right_missing" }

// refusalLimiter is a slog.Handler for the audit log that passes RefusalsMax refusals of each client
// per refusalsEvery, and then logs how many it omitted. It passes all other events.
type refusalLimiter struct {
	to    slog.Handler
	state *refusalCounts
}

// refusalCounts is shared by a handler and the handlers derived from it with WithAttrs and WithGroup.
type refusalCounts struct {
	to  slog.Handler // for the lines with the numbers of omitted refusals
	now func() time.Time

	mu      sync.Mutex
	clients map[string]*refusalCount
	timer   *time.Timer // calls logOmitted; nil: no line was omitted
	closed  bool
}

// refusalCount counts the refusals of one client since a point in time.
type refusalCount struct {
	since          time.Time
	lines, omitted int
}

func newRefusalLimiter(to slog.Handler, now func() time.Time) *refusalLimiter {
	return &refusalLimiter{to, &refusalCounts{to: to, now: now, clients: make(map[string]*refusalCount)}}
}

// close logs the numbers of omitted lines. Lines omitted later are not reported.
func (h *refusalLimiter) close() {
	h.state.mu.Lock()
	h.state.closed = true
	if h.state.timer != nil {
		h.state.timer.Stop()
	}
	h.state.mu.Unlock()
	h.state.logOmitted(true)
}

// pass counts a line of a client and reports whether it may be written.
func (c *refusalCounts) pass(client string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, count := c.now(), c.clients[client]
	if count == nil {
		if len(c.clients) >= clientsMax {
			c.forget(now)
		}
		if len(c.clients) >= clientsMax {
			client = ""
		}
		if count = c.clients[client]; count == nil {
			count = &refusalCount{since: now}
			c.clients[client] = count
		}
	}
	if count.omitted == 0 && now.Sub(count.since) >= refusalsEvery {
		*count = refusalCount{since: now}
	}
	if count.lines < RefusalsMax {
		count.lines++
		return true
	}
	count.omitted++
	if c.timer == nil && !c.closed {
		c.timer = time.AfterFunc(refusalsEvery, func() { c.logOmitted(false) })
	}
	return false
}

// forget removes clients whose interval has ended. The caller holds mu.
func (c *refusalCounts) forget(now time.Time) {
	for client, count := range c.clients {
		if count.omitted == 0 && now.Sub(count.since) >= refusalsEvery {
			delete(c.clients, client)
		}
	}
}

// logOmitted writes a line for each client with omitted lines, and removes the client. Unless all is set, it
// leaves clients whose interval has not ended for the next call.
func (c *refusalCounts) logOmitted(all bool) {
	c.mu.Lock()
	now, left := c.now(), false
	omitted := make(map[string]int)
	for client, count := range c.clients {
		switch {
		case count.omitted == 0:
		case all || now.Sub(count.since) >= refusalsEvery:
			omitted[client] = count.omitted
			delete(c.clients, client)
		default:
			left = true
		}
	}
	c.timer = nil
	if left && !c.closed {
		c.timer = time.AfterFunc(refusalsEvery, func() { c.logOmitted(false) })
	}
	c.mu.Unlock()
	for client, count := range omitted {
		if client == "" {
			client = "others"
		}
		r := slog.NewRecord(now, slog.LevelWarn, "audit", 0)
		r.AddAttrs(slog.String("event", "refusals_omitted"), slog.String("client", client), slog.Int("count", count))
		_ = c.to.Handle(context.Background(), r) // slog ignores errors of handlers, too
	}
}

// clientOf returns the client that an address belongs to: the IPv4 address, or the /64 of IPv6.
func clientOf(peer string) string {
	at, err := netip.ParseAddrPort(peer)
	if err != nil {
		return peer
	}
	source := connlimit.SourceOfIP(at.Addr())
	if source.Is4() {
		return source.String()
	}
	return netip.PrefixFrom(source, connlimit.IPv6PrefixBits).String()
}

// Enabled implements slog.Handler.
func (h *refusalLimiter) Enabled(ctx context.Context, level slog.Level) bool {
	return h.to.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *refusalLimiter) Handle(ctx context.Context, r slog.Record) error {
	var event, peer string
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "event":
			event = a.Value.String()
		case "peer":
			peer = a.Value.String()
		}
		return event == "" || peer == ""
	})
	if isRefusal(event) && !h.state.pass(clientOf(peer)) { //nolint:contextcheck // the lines that it writes later belong to no request
		return nil
	}
	return h.to.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *refusalLimiter) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &refusalLimiter{h.to.WithAttrs(attrs), h.state}
}

// WithGroup implements slog.Handler.
func (h *refusalLimiter) WithGroup(name string) slog.Handler {
	return &refusalLimiter{h.to.WithGroup(name), h.state}
}
