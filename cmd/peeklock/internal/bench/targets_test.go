package bench

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
	"github.com/peeklock/peeklock/test/kit"
)

// Clients find members that have restarted under other addresses, and ask not too often.
func TestFailedConnectionsAskForAddressesAgain(t *testing.T) {
	t.Parallel()
	asked := 0
	answers := []struct {
		list []string
		err  error
	}{{nil, errors.New("no member answers")}, {[]string{"c", "d"}, nil}}
	all := &targets{spread: true, list: []string{"a", "b"}, ask: func(context.Context) ([]string, error) {
		asked++
		return answers[asked-1].list, answers[asked-1].err
	}}
	for _, want := range []string{"b", "d"} {
		all.failed(t.Context())
		all.failed(t.Context()) // at once: not asked
		if got := all.at(3); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		all.asked = time.Now().Add(-askInterval)
	}
	if asked != 2 || !slices.Equal(all.used(), []string{"c", "d"}) {
		t.Error(asked, all.used())
	}
	one := &targets{list: []string{"a", "b"}}
	if one.at(3) != "a" || !slices.Equal(one.used(), []string{"a"}) {
		t.Error(one.at(3), one.used())
	}
}

// A run in which no message was confirmed verifies nothing, and fails.
func TestRunWithoutMessagesFails(t *testing.T) {
	t.Parallel()
	out := kit.Must(output.NewOutput(&bytes.Buffer{}, "json"))(t)
	for _, c := range []struct {
		result benchResult
		fails  bool
	}{
		{benchResult{Send: &benchRate{}}, true},
		{benchResult{Send: &benchRate{}, Verify: benchVerify{Confirmed: 1}}, false},
		{benchResult{Receive: &benchRate{}}, false}, // the queues were empty
	} {
		if err := c.result.report(out); (err != nil) != c.fails {
			t.Errorf("%+v: %v", c.result.Verify, err)
		}
	}
}
