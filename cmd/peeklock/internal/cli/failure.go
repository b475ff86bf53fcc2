package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit codes. They are part of the interface, because scripts depend on them.
const (
	ExitDone    = 0
	ExitRefused = 1 // the cluster or the machine refused; nothing was done
	ExitUsage   = 2 // the command line or configuration is wrong
	ExitUnknown = 3 // the outcome is unknown
	ExitDiffers = 4 // diff: the namespace differs from the file
	// ExitInterrupted is the code after Ctrl-C if nothing is left undone that the user has to know of: that of a shell.
	ExitInterrupted = 130
)

// exitError ends a command with an exit code whose reason its output has.
type exitError struct{ code int }

// Error is never printed.
func (e exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// Exit returns an error that ends a command with an exit code and without a further line.
func Exit(code int) error { return exitError{code} }

// UsageError is a mistake on the command line or in the configuration.
type UsageError struct{ error }

// Unwrap lets errors.Is and errors.As see the cause.
func (e UsageError) Unwrap() error { return e.error }

// unknownError is the error of a request whose answer did not arrive.
type unknownError struct{ error }

// Unwrap lets errors.Is and errors.As see the cause.
func (e unknownError) Unwrap() error { return e.error }

// Unknown marks the error of a change as one after which it is unknown whether the change was made.
func Unknown(err error) error { return unknownError{err} }

// IsUnknown reports whether err was marked with [Unknown].
func IsUnknown(err error) bool { return errors.As(err, new(unknownError)) }

// IsUsage reports whether err is a usage error.
func IsUsage(err error) bool { return errors.As(err, new(UsageError)) }

// incompleteError is an error that the user has to know of, also after an interrupt.
type incompleteError struct{ error }

// Unwrap lets errors.Is and errors.As see the cause.
func (e incompleteError) Unwrap() error { return e.error }

// Incomplete marks an error after which something is left that the user has to know of, such as an incomplete backup: it is printed
// also if an interrupt caused it.
func Incomplete(err error) error { return incompleteError{err} }

// Usage marks an error as a usage error.
func Usage(err error) error { return UsageError{err} }

// Usagef formats a usage error.
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// failure is an error as -o json prints it on standard error.
type failure struct {
	Code       string `json:"code"`                 // of the member, else Usage, Unknown, Interrupted or Failed
	Message    string `json:"message"`              // as in the table format
	TrackingID string `json:"trackingId,omitempty"` // of the request, which the log of the member has
	ExitCode   int    `json:"exitCode"`
}

// coded is an error with the code and the tracking id of a member's answer.
type coded interface {
	error
	ProblemCode() (code, trackingID string)
}

// exitCode returns the exit code for an error.
func exitCode(ctx context.Context, err error) int {
	var exit exitError
	switch {
	case err == nil:
		return ExitDone
	case errors.As(err, &exit):
		return exit.code
	case IsUsage(err):
		return ExitUsage
	case IsUnknown(err):
		return ExitUnknown
	case ctx.Err() != nil && errors.Is(err, context.Canceled) && !errors.As(err, new(incompleteError)):
		return ExitInterrupted
	}
	return ExitRefused
}

// printFailure prints an error as one line: of text, or of JSON.
func printFailure(w io.Writer, err error, code int, asJSON bool) {
	if !asJSON {
		if code != ExitInterrupted { // the user knows
			_, _ = fmt.Fprintf(w, "peeklock: %s\n", oneLine(err))
		}
		return
	}
	f := failure{Message: oneLine(err), ExitCode: code, Code: "Failed"}
	switch code {
	case ExitUsage:
		f.Code = "Usage"
	case ExitUnknown:
		f.Code = "Unknown"
	case ExitInterrupted:
		f.Code = "Interrupted"
	}
	var c coded
	if errors.As(err, &c) {
		f.Code, f.TrackingID = c.ProblemCode()
	}
	body, failed := json.Marshal(f)
	if failed != nil {
		body = []byte(`{"code":"Failed","message":"the error cannot be encoded"}`)
	}
	_, _ = fmt.Fprintf(w, "%s\n", body)
}

// oneLine joins the lines of an error into one.
func oneLine(err error) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(err.Error(), "\n", "; ")), " ")
}

// wantsJSON reports whether a command line asks for JSON, also if it could not be parsed.
func wantsJSON(args []string) bool {
	for at, arg := range args {
		switch {
		case arg == "--":
			return false
		case arg == "--output=json", arg == "-o=json", arg == "-ojson":
			return true
		case (arg == "-o" || arg == "--output") && at+1 < len(args) && args[at+1] == "json":
			return true
		}
	}
	return false
}

// nearestMax is the number of letters by which a suggestion may differ.
const nearestMax = 2

// Nearest returns " (did you mean X?)" with the candidate that is most similar to a word, or "" if none is.
func Nearest(word string, candidates []string) string {
	best, least := "", nearestMax+1
	for _, candidate := range slices.Sorted(slices.Values(candidates)) {
		d := distance(strings.ToLower(word), strings.ToLower(candidate))
		if len(word) >= 4 && strings.HasPrefix(candidate, word) {
			d = min(d, nearestMax)
		}
		if d < least && 2*d <= len(word) {
			best, least = candidate, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
}

// distance returns the number of letters to insert, remove or replace to make b of a.
func distance(a, b string) int {
	if len(a) > 100 || len(b) > 100 {
		return nearestMax + 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// FlagError says which flag has which wrong value, and adds a suggestion to the error of an unknown flag.
func FlagError(cmd *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		flag, cause := invalid.GetFlag(), invalid.Unwrap()
		var syntax *strconv.NumError
		if !errors.As(cause, &syntax) {
			return Usagef("--%s: %w", flag.Name, cause)
		}
		want := "a whole number"
		if flag.Value.Type() == "bool" {
			want = "true or false"
		}
		if errors.Is(cause, strconv.ErrRange) {
			want = "in the range of this flag"
		}
		return Usagef("--%s: %.100q is not %s", flag.Name, invalid.GetValue(), want)
	}
	name, unknown := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !unknown {
		return Usage(err)
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return Usagef("%w%s", err, Nearest(name, names))
}
