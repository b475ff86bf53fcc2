package bench

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
)

// Limits of a benchmark with sessions.
const (
	benchSessionsMax     = 1 << 20
	benchLastCountersMax = 1 << 24         // senders times sessions: 8 bytes each
	benchAcceptMax       = 2 * time.Second // one wait for the next session
)

// benchSessions has the flags of bench for sessions, and the state to check the order within sessions. Without
// these flags, messages have no session.
//
// Message c of a sender belongs to session c mod sessions of its queue. A receiver accepts the
// next session, receives its messages, settles them and releases the session.
type benchSessions struct {
	sessions     int
	names        []string
	lastCounters [][]atomic.Uint64 // by sender, then session: the last received counter plus one
}

func (b *benchSessions) flags(cmd *cobra.Command) {
	cmd.Flags().IntVar(&b.sessions, "sessions", 0, "distribute the messages of each queue over this many sessions; receivers accept one after the other")
}

func (b *benchSessions) check(o *benchOptions) error {
	switch {
	case b.sessions < 0 || b.sessions > benchSessionsMax:
		return cli.Usagef("--sessions is 0 to %d, not %d", benchSessionsMax, b.sessions)
	case b.sessions > 0 && o.topic.subscriptions > 0:
		return cli.Usagef("give --sessions or --topic, not both")
	case b.sessions > 0 && o.receiveAndDelete:
		return cli.Usagef("give --sessions or --delete, not both: messages in flight when a session is released would be lost")
	case o.sends() && b.sessions*o.senders > benchLastCountersMax:
		return cli.Usagef("%d senders with %d sessions are too many to follow: at most %d together", o.senders, b.sessions, benchLastCountersMax)
	}
	return nil
}

// prepare creates the session names and the counters.
func (b *benchSessions) prepare(senders int) {
	b.names = make([]string, b.sessions)
	for i := range b.names {
		b.names[i] = "session-" + strconv.Itoa(i)
	}
	b.lastCounters = make([][]atomic.Uint64, senders)
	for i := range b.lastCounters {
		b.lastCounters[i] = make([]atomic.Uint64, b.sessions)
	}
}

// setSession assigns the message with this counter to its session.
func (b *benchSessions) setSession(m *amqp.Message, counter uint64) {
	if b.sessions > 0 {
		m.Properties = &amqp.MessageProperties{GroupID: &b.names[counter%uint64(b.sessions)]}
	}
}

// ordered records the first arrival of a message and reports whether it came after all messages that the same
// sender had sent to the session before. A session has one holder, so arrivals do not overlap.
func (b *benchSessions) ordered(s messageHeader) bool {
	if b.sessions == 0 || int(s.sender) >= len(b.lastCounters) {
		return true
	}
	last := &b.lastCounters[s.sender][s.counter%uint64(b.sessions)]
	if last.Load() > s.counter+1 {
		return false
	}
	last.Store(s.counter + 1)
	return true
}

// benchGroups has the counts of session use.
type benchGroups struct {
	Sessions   int    `json:"sessions"` // in each queue
	Accepted   uint64 `json:"accepted"` // how often a receiver accepted a session
	Misordered uint64 `json:"misordered"`
}
