package transaction

import (
	"testing"
	"time"

	"github.com/peeklock/peeklock/amqp/wire"
)

func TestExpiredTransactionsMax(t *testing.T) {
	t.Parallel()
	all := NewSet(nil, nil)
	now := time.Now()
	for i := range expiredTransactionsMax + 5 {
		if cause := all.Declare(t, now, ID{byte(i)}); cause.Condition != "" {
			t.Fatal(cause)
		}
		all.Expire(now.Add(Within - 1))
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
