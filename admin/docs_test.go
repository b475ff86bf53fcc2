package admin

import (
	"fmt"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/document"
)

// TestDocsListEveryProblem checks that the reference lists the status and the name of every code.
func TestDocsListEveryProblem(t *testing.T) {
	t.Parallel()
	var rows strings.Builder
	rows.WriteString("| code | HTTP status | `code` in the answer |\n|---|---|---|\n")
	for code := fsm.OK + 1; ; code++ {
		if strings.HasPrefix(code.String(), "code ") {
			break // behind the last one
		}
		a := statusOf(code)
		fmt.Fprintf(&rows, "| %s | %d | `%s` |\n", code, a.status, a.name)
	}
	document.Section(t, "../docs/errors.md", "http", rows.String())
}
