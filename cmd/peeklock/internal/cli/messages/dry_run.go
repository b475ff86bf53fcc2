package messages

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/entities"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
)

// wouldReach returns the kind of the queue or topic that messages would be sent to. It is an error if that takes none.
func wouldReach(i command.Invocation, name string) (kind string, err error) {
	var found struct {
		Status *string `json:"status"`
	}
	kind, err = "queue", i.Client.Call(i.Ctx, http.MethodGet, entities.QueuePath(name), nil, &found)
	if client.IsNotFound(err) {
		kind = "topic"
		if failed := i.Client.Call(i.Ctx, http.MethodGet, entities.TopicPath(name), nil, &found); failed == nil || !client.IsNotFound(failed) {
			err = failed
		}
	}
	if status := output.TextOf(found.Status); err == nil && (status == "Disabled" || status == "SendDisabled") {
		err = fmt.Errorf("%s %s takes no messages: its status is %s", kind, name, status)
	}
	return kind, err
}

// wouldSend counts the messages that would be sent.
func wouldSend(i command.Invocation, o *sendOptions) (command.Would, error) {
	queue, bodies := i.Args[0], i.Args[1:]
	at, later, err := o.check(queue, bodies)
	if err != nil {
		return command.Would{}, err
	}
	kind, err := wouldReach(i, queue)
	if err != nil {
		return command.Would{}, err
	}
	count, bytes := 0, 0
	for body, err := range o.bodies(i.Client.In, bodies) {
		if err != nil {
			return command.Would{}, err
		}
		count, bytes = count+1, bytes+len(body)
	}
	if later {
		return command.Wouldf("schedule %d messages with %d bytes in %s %s for %s", count, bytes, kind, queue, at.Format(time.RFC3339Nano))
	}
	return command.Wouldf("send %d messages with %d bytes to %s %s", count, bytes, kind, queue)
}

// wouldLoad counts the lines that would be loaded.
func wouldLoad(i command.Invocation, o *loadOptions) (command.Would, error) {
	l, file, err := newLoader(i, o)
	if err != nil {
		return command.Would{}, err
	}
	defer func() { _ = file.Close() }()
	target := "the namespace of the connection string"
	if o.connection == "" {
		if target, err = wouldReach(i, i.Args[0]); err != nil {
			return command.Would{}, err
		}
	}
	lines := 0
	for in := bufio.NewReaderSize(file, 1<<20); ; lines++ {
		_, err := readLine(in)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return command.Would{}, fmt.Errorf("read %s: %w", o.file, err)
		}
	}
	pending := ""
	if n := l.progress.Sending - l.progress.Done; n > 0 {
		pending = fmt.Sprintf("; the answer to %d of them is unknown", n)
	}
	return command.Wouldf("load %d messages of %s, from line %d on, into %s (%s)%s", max(0, lines-l.progress.Done), o.file, l.progress.Done+1, i.Args[0], target, pending)
}

// heldSession returns the session that the second argument names, without anything if it has no messages and no state.
func heldSession(i command.Invocation) (api.Session, error) {
	all, err := sessions(i.Ctx, i.Client, i.Args[0], 0)
	if err != nil {
		return api.Session{}, entities.NotTopic(i.Ctx, i.Client, i.Args[0], err)
	}
	for _, s := range all {
		if s.ID == i.Args[1] {
			return s, nil
		}
	}
	return api.Session{ID: i.Args[1]}, nil
}

// wouldSetState says how long the state of a session is and would be.
func wouldSetState(i command.Invocation, file string) (command.Would, error) {
	state, err := givenState(i.Args, file)
	if err != nil {
		return command.Would{}, err
	}
	s, err := heldSession(i)
	if err != nil {
		return command.Would{}, err
	}
	return command.Wouldf("replace the state of session %q (%s) by %s", s.ID, stateText(&s), output.BytesText(uint64(len(state))))
}

// wouldClearState says whether a session has a state.
func wouldClearState(i command.Invocation) (command.Would, error) {
	s, err := heldSession(i)
	switch {
	case err != nil:
		return command.Would{}, err
	case s.Updated == nil:
		return command.Wouldf("change nothing: session %q has no state", s.ID)
	}
	return command.Wouldf("remove the state of session %q (%s)", s.ID, stateText(&s))
}

// wouldEndLock says until when a receiver holds a session.
func wouldEndLock(i command.Invocation) (command.Would, error) {
	s, err := heldSession(i)
	switch {
	case err != nil:
		return command.Would{}, err
	case s.Until == nil:
		return command.Wouldf("change nothing: no receiver holds session %q", s.ID)
	}
	return command.Wouldf("end the lock of session %q, which is held until %s UTC", s.ID, output.TimeText(s.Until))
}

// givenState returns the state that the third argument or a file has.
func givenState(args []string, file string) ([]byte, error) {
	switch {
	case (len(args) == 3) == (file != ""):
		return nil, cli.Usagef("give the state, or --file")
	case file != "":
		content, err := os.ReadFile(file) //nolint:gosec // the user names the file
		if err != nil {
			return nil, cli.Usage(err)
		}
		return content, nil
	}
	return []byte(args[2]), nil
}
