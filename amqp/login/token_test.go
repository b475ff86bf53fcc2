package login

import (
	"fmt"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// A client that has to wait learns why.
func TestRefusedTokenHasTheReasonToWait(t *testing.T) {
	t.Parallel()
	reply := tokenRefused(fmt.Errorf("too many failed logins: %w", fsm.ServerBusy))
	if reply.Condition != wire.ConditionServerBusy || reply.Retry != refusal.RetryLater || !strings.Contains(reply.Text, "too many failed logins") {
		t.Errorf("%+v", reply)
	}
}
