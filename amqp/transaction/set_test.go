package transaction

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// idleConnection makes no calls.
type idleConnection struct{ sync.Mutex }

func (*idleConnection) Later(func())               {}
func (*idleConnection) Recovered(context.Context)  {}
func (*idleConnection) Committed(*fsm.Transaction) {}
func (*idleConnection) ShortOfMemory() bool        { return false }

func (*idleConnection) CountSettled([]fsm.Settlement, []fsm.Code) {}

func TestExpiredTransactionsMax(t *testing.T) {
	t.Parallel()
	all := NewSet(&idleConnection{}, nil)
	for i := range expiredTransactionsMax + 5 {
		before := time.Now()
		if all.Declare(t.Context(), t, ID{byte(i), byte(i >> 8)}, func(refusal.Cause) {}) {
			t.Fatal("the declare waits")
		}
		now := time.Now()
		all.Expire(before.Add(Within - 1))
		if len(all.open) != 1 {
			t.Fatal("too early")
		}
		all.Expire(now.Add(Within))
	}
	if len(all.expired) != expiredTransactionsMax || len(all.open) != 0 {
		t.Errorf("%d remembered, %d open", len(all.expired), len(all.open))
	}
	_, first := all.Find(&ID{4})
	_, last := all.Find(&ID{5})
	if first.Condition != wire.ConditionTransactionUnknownID || last.Condition != wire.ConditionTransactionTimeout {
		t.Errorf("%v, %v", first, last)
	}
}
