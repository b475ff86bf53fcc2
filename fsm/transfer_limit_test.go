package fsm

import (
	"slices"
	"testing"
)

// TestTransferRespectsQuotas: the quotas of an entity apply to every message that is forwarded to
// it.
func TestTransferRespectsQuotas(t *testing.T) {
	t.Parallel()
	q := NewQueues(noBodies{})
	apply := testApply(q)
	settings := DefaultSettings()
	settings.RequiresDuplicateDetection, settings.RequiresSession = true, true
	apply(1, PutEntity{Entity: 1, Version: 1, Settings: settings})
	transfer := func(serial uint64, ids ...string) []Code {
		c := TransferMessages{Entity: 1, Serial: serial, Source: Outbox{Partition: 2, Address: Address{Entity: 2}}}
		for _, id := range ids {
			m := Transferred{Message: Message{ID: id, Session: id, HasSession: true}, Hops: 1}
			c.Messages = append(c.Messages, m)
		}
		return apply(1, c).Codes
	}
	x := q.byID[1]
	transfer(1, "z")
	x.window.tail = x.window.head + windowIDsMax // as if
	if codes := transfer(2, "a", "z", "b"); !slices.Equal(codes, []Code{QuotaExceeded, OK, QuotaExceeded}) {
		t.Errorf("ids: %v", codes)
	}
	x.window.tail = x.window.head + 1
	x.sessions.count = sessionsMax - 1 // as if
	if codes := transfer(3, "a", "b", "a"); !slices.Equal(codes, []Code{OK, QuotaExceeded, OK}) {
		t.Errorf("sessions: %v", codes)
	}
	x.sessions.count = 2
	if codes := transfer(4, "b"); !slices.Equal(codes, []Code{OK}) || q.Messages() != 3 {
		t.Errorf("below the limit again: %v, %d messages", codes, q.Messages())
	}
}
