package messages

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/entities"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
)

const sessionsPage = 1000 // sessions per request

// sessions lists up to count sessions, 0 for all.
func sessions(ctx context.Context, c *client.Client, name string, count int) ([]api.Session, error) {
	all := []api.Session{}
	for {
		most := sessionsPage
		if count > 0 {
			most = min(most, count-len(all))
		}
		var page api.SessionPage
		path := client.NamePath("/v1/sessions/", name) + fmt.Sprintf("?max=%d&skip=%d", most, len(all))
		if err := c.Call(ctx, http.MethodGet, path, nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Sessions...)
		if page.Next == 0 || len(all) == count {
			return all, nil
		}
	}
}

// stateText distinguishes a missing state from an empty one.
func stateText(s *api.Session) string {
	if s.Updated == nil {
		return "-"
	}
	return output.BytesText(s.Bytes)
}

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
		return cli.Usagef("give --session or --next-session, not both")
	case s.wanted() && (o.deadLetters || o.transfer):
		return cli.Usagef("dead letters have no sessions: leave out --session and --next-session")
	}
	return nil
}

// listSessions prints up to count sessions.
func listSessions(i command.Invocation, count int) error {
	if count < 0 {
		return cli.Usagef("--count is 0 or more")
	}
	sessions, err := sessions(i.Ctx, i.Client, i.Args[0], count)
	if err != nil {
		return entities.NotTopic(i.Ctx, i.Client, i.Args[0], err)
	}
	rows := make([][]any, len(sessions))
	for at := range sessions {
		s := &sessions[at]
		rows[at] = []any{output.Printable(strconv.Quote(s.ID), 60), s.Messages, s.Ready, output.TimeText(s.Until), stateText(s)}
	}
	return i.Out.Rows(sessions, []any{"session", "messages", "ready", "held until (UTC)", "state"}, rows)
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
