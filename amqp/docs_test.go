package amqp

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/document"
)

const errorsDocument = "../docs/errors.md"

// TestDocsListEveryError checks that the reference shows what clients get for every code, and explains every
// condition in the table: its section says what the texts say.
func TestDocsListEveryError(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(errorsDocument)
	if err != nil {
		t.Fatal(err)
	}
	var rows strings.Builder
	rows.WriteString("| code | condition | management status | advice of the text |\n|---|---|---|---|\n")
	for code := fsm.OK + 1; ; code++ {
		if strings.HasPrefix(code.String(), "code ") {
			break // behind the last one
		}
		v := refusal.ReplyOf(code)
		fmt.Fprintf(&rows, "| %s | `%s` | %d | %s |\n", code, v.Condition, v.Status, v.Retry.Advice())
		if !strings.Contains(string(content), "### `"+string(v.Condition)+"`\n") {
			t.Errorf("%s has no section on %s, which clients get for %q", errorsDocument, v.Condition, code)
		}
	}
	for _, condition := range []wire.Symbol{
		wire.ConditionDecodeError, wire.ConditionInvalidField, wire.ConditionArgumentOutOfRange, wire.ConditionConnectionForced,
		wire.ConditionDetachForced, wire.ConditionStolen, wire.ConditionTransferLimitExceeded,
		wire.ConditionTransactionUnknownID, wire.ConditionTransactionRollback, wire.ConditionTransactionTimeout,
	} {
		if !strings.Contains(string(content), "### `"+string(condition)+"`\n") {
			t.Errorf("%s has no section on %s", errorsDocument, condition)
		}
	}
	document.Section(t, errorsDocument, "amqp", rows.String())
}

// TestDocsListEveryPerformative checks that the limits show what each frame requires and costs.
func TestDocsListEveryPerformative(t *testing.T) {
	t.Parallel()
	var rows strings.Builder
	rows.WriteString("| frame | requires | units, in addition to those of any frame |\n|---|---|---|\n")
	for _, row := range performatives {
		price := row.price
		if row.units > 0 {
			price = fmt.Sprint(row.units)
		}
		fmt.Fprintf(&rows, "| %s | %s | %s |\n", row.name, row.right, cmp.Or(price, "none"))
	}
	document.Section(t, "../docs/limits.md", "frames", rows.String())
}
