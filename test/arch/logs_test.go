package arch

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/types"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// sharedLogMessages maps messages that several places log to the reason.
func sharedLogMessages() map[string]string {
	return map[string]string{
		"audit":          "the attribute event says what happened",
		"slow operation": "the attribute operation says which",

		"failed to encode stored message": "the attribute path says of which entity; deliveries, peeks and fetches encode messages",
		"failed to stop raft":             "at the end of a replica, and when raft got stuck and is reopened",
	}
}

// logLine is one call that writes a log message.
type logLine struct {
	at, message string
	withError   bool // it has the attribute error
}

// logLines returns the calls of slog.Logger in a package, outside its tests. sloglint checks that messages are constant;
// other calls are not lines.
func logLines(p *packages.Package) (found []logLine) {
	for _, file := range p.Syntax {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			message := messageArgument(p.TypesInfo, call)
			if message < 0 || message >= len(call.Args) {
				return true
			}
			at := p.Fset.Position(call.Pos())
			line := logLine{at: fmt.Sprintf("%s:%d", filepath.Base(at.Filename), at.Line)}
			if line.message, ok = constantText(p.TypesInfo, call.Args[message]); !ok {
				return true
			}
			for _, argument := range call.Args[message+1:] {
				key, _ := constantText(p.TypesInfo, argument)
				line.withError = line.withError || key == "error"
			}
			found = append(found, line)
			return true
		})
	}
	return found
}

// messageArgument returns the position of the message among the arguments of a call of slog.Logger, and -1 for all
// other calls.
func messageArgument(info *types.Info, call *ast.CallExpr) int {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return -1
	}
	f, ok := info.Uses[selector.Sel].(*types.Func)
	if !ok || f.Pkg() == nil || f.Pkg().Path() != "log/slog" {
		return -1
	}
	switch f.Name() {
	case "Debug", "Info", "Warn", "Error":
		return 0
	case "DebugContext", "InfoContext", "WarnContext", "ErrorContext":
		return 1
	case "Log", "LogAttrs", "NewRecord":
		return 2
	}
	return -1
}

func constantText(info *types.Info, e ast.Expr) (string, bool) {
	value := info.Types[e].Value
	if value == nil || value.Kind() != constant.String {
		return "", false
	}
	return constant.StringVal(value), true
}

var (
	failureWords = regexp.MustCompile(`^(failed to|could not) |\b(failed|refused|lost|ended|stopped|halted|aborted|rejected|closed|timed out|broke off|deferred)\b`)
	pastWords    = regexp.MustCompile(`^(failed to|could not) |\b(\w+ed|became|began|found|gave|held|left|lost|met|read|sent|shut|took|was|were|went|wrote)\b`)
)

// logMistake describes what is wrong with a line, or returns "".
func logMistake(line logLine) string {
	switch {
	case sharedLogMessages()[line.message] != "":
		return ""
	case line.message != strings.TrimSpace(line.message) || line.message == "" || strings.HasSuffix(line.message, "."):
		return "a message has no full stop and no blanks around it"
	case !pastWords.MatchString(line.message):
		return `a message is an event in the past, or begins with "failed to" or "could not"`
	case line.withError && !failureWords.MatchString(line.message):
		return "a line with an error says that something failed"
	}
	return ""
}

// TestLogMessagesAreEvents checks that a message alone tells an operator what happened and whether it failed.
func TestLogMessagesAreEvents(t *testing.T) {
	t.Parallel()
	places := map[string][]string{}
	total := 0
	for name, p := range loadPackages(t) {
		lines := logLines(p)
		if strings.HasPrefix(name, "test/") {
			continue
		}
		total += len(lines)
		for _, line := range lines {
			if mistake := logMistake(line); mistake != "" {
				t.Errorf("%s/%s: %q: %s", name, line.at, line.message, mistake)
			}
			places[line.message] = append(places[line.message], name+"/"+line.at)
		}
	}
	if total < 20 {
		t.Errorf("only %d lines found: the test looks at the wrong place", total)
	}
	for message, at := range places {
		if len(at) > 1 && sharedLogMessages()[message] == "" {
			t.Errorf("%q is logged from %d places: %s", message, len(at), strings.Join(at, ", "))
		}
	}
}

// TestLogMistakesAreFound checks that the rules above reject bad messages.
func TestLogMistakesAreFound(t *testing.T) {
	t.Parallel()
	for _, line := range []logLine{
		{message: "opens replica"}, {message: "replica opened."}, {message: "open replica", withError: true}, {message: "replica opened", withError: true},
	} {
		if logMistake(line) == "" {
			t.Errorf("%+v is accepted", line)
		}
	}
	for _, line := range []logLine{
		{message: "replica opened"}, {message: "failed to open replica", withError: true}, {message: "connection refused", withError: true},
	} {
		if mistake := logMistake(line); mistake != "" {
			t.Errorf("%+v: %s", line, mistake)
		}
	}
}
