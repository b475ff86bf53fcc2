package transaction

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
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

// busyConnection makes calls at once, and may be short of memory.
type busyConnection struct {
	idleConnection
	short bool
}

func (*busyConnection) Later(call func())     { call() }
func (c *busyConnection) ShortOfMemory() bool { return c.short }

// A declare above the share of memory waits. It is refused after DeclareWithin, or opened then if there is memory again, or
// when another transaction ends.
func TestDeclareWaitsForMemory(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		again, ends bool
		took        time.Duration
	}{"refused": {took: DeclareWithin}, "memory again": {again: true, took: DeclareWithin}, "another one ends": {again: true, ends: true, took: time.Second}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				conn := new(busyConnection)
				all := NewSet(conn, nil)
				all.Declare(t.Context(), "other", ID{1}, func(refusal.Cause) {})
				conn.short = true
				began, answer := time.Now(), make(chan refusal.Cause, 1)
				if !all.Declare(t.Context(), t, ID{2}, func(cause refusal.Cause) { answer <- cause }) {
					t.Fatal("the declare does not wait")
				}
				<-time.After(time.Second)
				conn.Lock()
				conn.short = !c.again
				if c.ends {
					all.RollbackOf("other")
				}
				conn.Unlock()
				cause := <-answer
				if opened := cause.Condition == ""; opened != c.again {
					t.Errorf("%+v", cause)
				}
				if !c.again && (cause.Condition != wire.ConditionResourceLimitExceeded || !strings.Contains(cause.Text, "Use another client, or fewer concurrent calls.")) {
					t.Errorf("refused with %+v", cause)
				}
				if took := time.Since(began); took != c.took {
					t.Errorf("answered after %v, want %v", took, c.took)
				}
			})
		})
	}
}

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
