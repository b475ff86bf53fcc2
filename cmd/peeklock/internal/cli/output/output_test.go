package output

import (
	"errors"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/test/kit"
)

// A body comes from another party: it must not reach the terminal as commands.
func TestControlCharactersAreEscaped(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain \u00e4": "plain \u00e4", "\x1b[2Jx": `\x1b[2Jx`, "a\nb": `a\x0ab`, "\u009b": `\x9b`, "123456789012": "1234567890...",
	} {
		if got := Printable(text, 10); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// Nor may a field: rules and metadata come from other parties, too. JSON shows all of it.
func TestFieldsAreEscaped(t *testing.T) {
	t.Parallel()
	value := map[string]string{"a": "\x1b[2J", "b": strings.Repeat("x", FieldCharactersMax+1)}
	var table, whole kit.LogLines
	if err := errors.Join((&Output{w: &table, form: "table"}).Fields(value), (&Output{w: &whole, form: "json"}).Fields(value)); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", FieldCharactersMax)
	if got := table.String(); !strings.Contains(got, `\x1b[2J`) || !strings.Contains(got, long+"...") {
		t.Error(got)
	}
	if got := whole.String(); !strings.Contains(got, long+"x") {
		t.Error(got)
	}
}

// On a terminal, the bar is drawn on standard error until its end; elsewhere nothing is drawn.
func TestMeterIsDrawnOnATerminalOnly(t *testing.T) {
	t.Parallel()
	for _, interactive := range []bool{true, false} {
		var errs kit.LogLines
		m := NewMeter(cli.Process{Err: &errs, Interactive: interactive}, "purging orders", 10)
		m.Add(10)
		m.End(false)
		if got := errs.String(); interactive != strings.Contains(got, "purging orders ... done! [10") || !interactive && got != "" {
			t.Errorf("interactive %t: %q", interactive, got)
		}
	}
	// A meter without work ends, too.
	NewMeter(cli.Process{Err: &kit.LogLines{}, Interactive: true}, "nothing", 0).End(true)
}
