package messages

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"unicode/utf8"

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

// sessionState is the answer of session state.
type sessionState struct {
	Session string `json:"session"`
	Set     bool   `json:"set"`
	State   string `json:"state,omitempty"`       // if it is text
	Base64  []byte `json:"stateBase64,omitempty"` // if it is not text
}

func sessionPath(i command.Invocation, route string) string {
	return client.NamePath(route, i.Args[0]) + "?session=" + url.QueryEscape(i.Args[1])
}

// showSessionState prints the state of a session.
func showSessionState(i command.Invocation) error {
	var answer api.SessionState
	if err := i.Client.Call(i.Ctx, http.MethodGet, sessionPath(i, "/v1/session-state/"), nil, &answer); err != nil {
		return err
	}
	shown := sessionState{Session: answer.ID, Set: answer.Set}
	if utf8.Valid(answer.State) {
		shown.State = string(answer.State)
	} else {
		shown.Base64 = answer.State
	}
	switch {
	case !i.Out.IsTable():
		return i.Out.Data(shown)
	case !answer.Set:
		return i.Out.Note("the session has no state")
	case shown.Base64 != nil:
		return i.Out.Note("(binary, base64) %s", base64.StdEncoding.EncodeToString(answer.State))
	}
	return i.Out.Note("%s", shown.State)
}

// setSessionState sets the state of a session to the third argument, or to the content of a file.
func setSessionState(i command.Invocation, file string) error {
	state, err := givenState(i.Args, file)
	if err != nil {
		return err
	}
	if err := i.Client.Call(i.Ctx, http.MethodPut, sessionPath(i, "/v1/session-state/"), api.SessionStateRequest{State: state}, nil); err != nil {
		return err
	}
	return i.Out.Note("state of session %s set", strconv.Quote(i.Args[1]))
}

// clearSessionState removes the state of a session.
func clearSessionState(i command.Invocation) error {
	if err := i.Client.Call(i.Ctx, http.MethodDelete, sessionPath(i, "/v1/session-state/"), nil, nil); err != nil {
		return err
	}
	return i.Out.Note("state of session %s cleared", strconv.Quote(i.Args[1]))
}

// endSessionLock ends the lock of the receiver that holds a session.
func endSessionLock(i command.Invocation) error {
	var answer api.SessionReleased
	if err := i.Client.Call(i.Ctx, http.MethodPost, sessionPath(i, "/v1/release/"), nil, &answer); err != nil {
		return err
	}
	if !i.Out.IsTable() {
		return i.Out.Data(answer)
	}
	if !answer.Released {
		return i.Out.Note("no receiver held the session %s", strconv.Quote(i.Args[1]))
	}
	return i.Out.Note("session %s released", strconv.Quote(i.Args[1]))
}
