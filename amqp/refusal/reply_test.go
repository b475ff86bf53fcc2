package refusal

import (
	"strings"
	"testing"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// Every text contains advice, in sentences.
func TestRefusalTextsSayWhatToDo(t *testing.T) {
	t.Parallel()
	for code := fsm.OK + 1; code <= fsm.NamespaceFull; code++ {
		for _, v := range []Reply{ReplyOf(code), ReplyOf(code).WithEntity("orders"), SettleReplyOf(code)} {
			if !strings.HasSuffix(v.Text, ".") || strings.Count(v.Text, ". ") == 0 && v.Retry != RetryLater {
				t.Errorf("%v: %q", code, v.Text)
			}
			if s := v.ForSettlement(); s.Condition == "" || s.Condition == wire.ConditionServerBusy || s.Condition == wire.ConditionTimeout || s.Condition == wire.ConditionInternalError {
				t.Errorf("%v: a settlement is refused with %s", code, s.Condition)
			}
		}
	}
}
