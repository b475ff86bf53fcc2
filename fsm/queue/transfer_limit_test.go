package queue

import (
	"bytes"
	"slices"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// TestTransferRespectsQuotas: the quotas of an entity apply to every message that is forwarded to
// it.
func TestTransferRespectsQuotas(t *testing.T) {
	t.Parallel()
	q := New(noBodies{})
	apply := testApply(q)
	settings := fsm.DefaultSettings()
	settings.RequiresDuplicateDetection, settings.RequiresSession = true, true
	apply(1, fsm.PutEntity{Entity: 1, Version: 1, Settings: settings})
	transfer := func(serial uint64, ids ...string) []fsm.Code {
		c := fsm.TransferMessages{Entity: 1, Serial: serial, Source: fsm.Outbox{Partition: 2, Address: fsm.Address{Entity: 2}}}
		for i, id := range ids {
			m := fsm.Transferred{Message: fsm.Message{ID: id, Session: id, HasSession: true}, Hops: 1, Number: fsm.SequenceNumber(i + 1)}
			c.Messages = append(c.Messages, m)
		}
		return apply(1, c).Codes
	}
	x := q.byID[1]
	transfer(1, "z")
	x.window.tail = x.window.head + windowIDsMax // as if
	if codes := transfer(2, "a", "z", "b"); !slices.Equal(codes, []fsm.Code{fsm.QuotaExceeded, fsm.OK, fsm.QuotaExceeded}) {
		t.Errorf("ids: %v", codes)
	}
	x.window.tail = x.window.head + 1
	x.sessions.count = sessionsMax - 1 // as if
	if codes := transfer(3, "a", "b", "a"); !slices.Equal(codes, []fsm.Code{fsm.OK, fsm.QuotaExceeded, fsm.OK}) {
		t.Errorf("sessions: %v", codes)
	}
	x.sessions.count = 2
	if codes := transfer(4, "b"); !slices.Equal(codes, []fsm.Code{fsm.OK}) || q.Messages() != 3 {
		t.Errorf("below the limit again: %v, %d messages", codes, q.Messages())
	}
}

// TestFormerEpochsAreBounded: a destination knows the last formerEpochsMax former epochs of a source,
// also after it was restored from an image, and forgets those before.
func TestFormerEpochsAreBounded(t *testing.T) {
	t.Parallel()
	q := New(noBodies{})
	apply := testApply(q)
	apply(1, fsm.PutEntity{Entity: 1, Version: 1, Settings: fsm.DefaultSettings()})
	batch := func(epoch uint64) fsm.TransferMessages {
		return fsm.TransferMessages{
			Entity: 1, Epoch: epoch, Serial: 1, Source: fsm.Outbox{Partition: 2, Address: fsm.Address{Entity: 2}},
			Messages: []fsm.Transferred{{Message: fsm.Message{}, Hops: 1, Number: 1}},
		}
	}
	const last = formerEpochsMax + 3
	for epoch := uint64(1); epoch <= last; epoch++ {
		apply(1, batch(epoch))
	}
	var image bytes.Buffer
	kit.Must(q.Image().WriteTo(&image))(t)
	if q = New(noBodies{}); q.Restore(&image) != nil {
		t.Fatal("the image is refused")
	}
	if n := len(q.byID[1].sourceBatches.list[0].former); n != formerEpochsMax {
		t.Errorf("%d epochs are remembered", n)
	}
	for epoch := uint64(1); epoch <= last; epoch++ {
		want := fsm.OK
		switch {
		case epoch == last: // again
		case epoch >= last-formerEpochsMax:
			want = fsm.Stale
		default:
			continue // it would be accepted
		}
		if res := q.Apply(oneTime(fsm.Env{Index: 100 + epoch, Now: 1}), fsm.AppendCommand(nil, fsm.Header{}, batch(epoch))); res.Code != want {
			t.Errorf("epoch %d of %d: %v", epoch, last, res.Code)
		}
	}
}
