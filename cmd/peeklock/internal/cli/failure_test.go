package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/spf13/cobra"
)

// TestExitCodes: an interrupt is no error of its own, but never hides that an outcome is unknown, or another error.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		isInterrupted bool
		err           error
		code          int
		text          string
	}{
		{false, nil, ExitDone, ""},
		{false, errors.New("a\n\tb"), ExitRefused, "peeklock: a; b\n"},
		{false, fmt.Errorf("x: %w", Usagef("y")), ExitUsage, "peeklock: x: y\n"},
		{false, Exit(1), 1, ""},
		{true, fmt.Errorf("x: %w", context.Canceled), ExitInterrupted, ""},
		{true, Unknown(fmt.Errorf("x: %w", context.Canceled)), ExitUnknown, "peeklock: x: context canceled\n"},
		{true, Incomplete(context.Canceled), ExitRefused, "peeklock: context canceled\n"},
		{true, errors.New("disk full"), ExitRefused, "peeklock: disk full\n"},
	} {
		root := &cobra.Command{SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error { return c.err }}
		ctx := t.Context()
		if c.isInterrupted {
			ctx = interrupted
		}
		var text bytes.Buffer
		if code := Execute(ctx, Process{Err: &text}, root); code != c.code || text.String() != c.text {
			t.Errorf("%v: code %d, %q; want %d, %q", c.err, code, text.String(), c.code, c.text)
		}
	}
}

func TestSuggestions(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{"jso": "json", "JSON": "json", "tabel": "table", "xml": "", "y": "", "lock-dur": "lock-duration"} {
		if want != "" {
			want = fmt.Sprintf(" (did you mean %q?)", want)
		}
		if got := Nearest(word, []string{"table", "json", "yaml", "lock-duration"}); got != want {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
}

func TestHelpIsWrapped(t *testing.T) {
	t.Parallel()
	long := "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen"
	cmd := &cobra.Command{Long: "short\nlines\n\n" + long + "\n\n  kept " + long}
	WrapHelp(cmd)
	want := "short\nlines\n\none two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen\nseventeen eighteen\n\n  kept " + long
	if cmd.Long != want {
		t.Errorf("%q", cmd.Long)
	}
}
