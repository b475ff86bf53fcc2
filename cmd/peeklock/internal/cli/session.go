package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/spf13/pflag"

	"github.com/peeklock/peeklock/admin"
)

// Properties of an attach that concern sessions (docs/service-bus-protocol.md#accepting-a-session).
const (
	sessionFilter   = "com.microsoft:session-filter"
	acceptTimeout   = "com.microsoft:timeout"
	acceptCondition = "com.microsoft:timeout" // no session became available in time
	sessionsPage    = 1000                    // sessions per request
)

// acceptTimeMax is how long an answer may take in addition to the wait time.
const acceptTimeMax = 10 * time.Second

// sessions lists up to count sessions, 0 for all.
func sessions(ctx context.Context, c *Client, name string, count int) ([]admin.Session, error) {
	all := []admin.Session{}
	for {
		most := sessionsPage
		if count > 0 {
			most = min(most, count-len(all))
		}
		var page admin.SessionPage
		path := namePath("/v1/sessions/", name) + fmt.Sprintf("?max=%d&skip=%d", most, len(all))
		if err := c.Call(ctx, http.MethodGet, path, nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Sessions...)
		if page.Next == 0 || len(all) == count {
			return all, nil
		}
	}
}

func timeText(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05.000")
}

// stateText distinguishes a missing state from an empty one.
func stateText(s *admin.Session) string {
	if s.Updated == nil {
		return "-"
	}
	return BytesText(s.Bytes)
}

// sessionFlag is the name of a session. "" is a valid name, so the flag records whether it was given.
type sessionFlag struct{ to **string }

var _ pflag.Value = sessionFlag{}

// Set implements pflag.Value.
func (s sessionFlag) Set(text string) error {
	*s.to = &text
	return nil
}

// String returns the current value.
func (s sessionFlag) String() string {
	if s.to == nil || *s.to == nil {
		return ""
	}
	return **s.to
}

// Type implements pflag.Value.
func (s sessionFlag) Type() string { return "name" }

// chosenSession has the flags of receive that select a session.
type chosenSession struct {
	session *string
	next    bool
}

func (s *chosenSession) flags(f *pflag.FlagSet) {
	f.Var(sessionFlag{&s.session}, "session", "accept this session and receive its messages")
	f.BoolVar(&s.next, "next-session", false, "accept the next session that has messages and is not locked by a receiver")
}

func (s *chosenSession) wanted() bool { return s.session != nil || s.next }

func (s *chosenSession) check(o *subQueue) error {
	switch {
	case s.session != nil && s.next:
		return Usagef("give --session or --next-session, not both")
	case s.wanted() && (o.deadLetters || o.transfer):
		return Usagef("dead letters have no sessions: leave out --session and --next-session")
	}
	return nil
}

// AcceptSession attaches a receiver that holds the named session, or the next available one if session is nil. It
// returns ErrNoMessage if none becomes available in time. Closing the link releases the session.
func (d *AMQPSession) AcceptSession(ctx context.Context, source string, credit int32, receiveAndDelete bool, session *string, wait time.Duration) (*amqp.Receiver, error) {
	ctx, cancel := context.WithTimeout(ctx, wait+acceptTimeMax)
	defer cancel()
	options := receiverOptions(credit, receiveAndDelete)
	var name any // a nil pointer in an interface would not be nil
	if session != nil {
		name = *session
	}
	options.Filters = []amqp.LinkFilter{amqp.NewLinkFilter(sessionFilter, 0, name)}
	options.Properties = map[string]any{acceptTimeout: uint32(max(wait.Milliseconds(), 1))}
	receiver, err := d.Session.NewReceiver(ctx, source, options)
	var answer *amqp.Error
	if errors.As(err, &answer) && answer.Condition == acceptCondition {
		return nil, ErrNoMessage
	}
	return receiver, err
}

// SessionOf returns the name of the session that a receiver holds.
func SessionOf(r *amqp.Receiver) string {
	name, _ := r.LinkSourceFilterValue(sessionFilter).(string)
	return name
}

// listSessions prints up to count sessions.
func listSessions(i invocation, count int) error {
	if count < 0 {
		return Usagef("--count is 0 or more")
	}
	sessions, err := sessions(i.ctx, i.client, i.args[0], count)
	if err != nil {
		return notTopic(i.ctx, i.client, i.args[0], err)
	}
	rows := make([][]any, len(sessions))
	for at := range sessions {
		s := &sessions[at]
		rows[at] = []any{Printable(strconv.Quote(s.ID), 60), s.Messages, s.Ready, timeText(s.Until), stateText(s)}
	}
	return i.out.Rows(sessions, []any{"session", "messages", "ready", "held until (UTC)", "state"}, rows)
}
