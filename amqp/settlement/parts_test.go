package settlement

import (
	"slices"
	"testing"

	"github.com/peeklock/peeklock/fsm"
)

// What one call of the broker stores is bounded, whatever a client names, and every settlement gets its code.
func TestInPartsBoundsWhatACallStores(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ count, bytes, calls int }{
		{1, 0, 1}, {4096, 0, 1}, {4096, 62 << 10, 1024}, {4096, 100, 2}, {2, 1 << 20, 2}, {4000, 64, 1}, {0, 0, 1},
	} {
		settlements := make([]fsm.Settlement, c.count)
		want := make([]fsm.Code, c.count)
		properties := make([]byte, c.bytes)
		for i := range settlements {
			settlements[i] = fsm.Settlement{Lock: fsm.LockID{Sequence: fsm.SequenceNumber(i)}, Verb: fsm.Abandon, Properties: properties}
			want[i] = fsm.Code(i % 5)
		}
		calls := 0
		var got []fsm.Code
		InParts(settlements, func(part []fsm.Settlement, done func([]fsm.Code)) {
			calls++
			if stored := len(part) * c.bytes; stored > PartBytesMax && len(part) > 1 {
				t.Errorf("%+v: a call stores %d bytes", c, stored)
			}
			codes := make([]fsm.Code, len(part))
			for i, s := range part {
				codes[i] = fsm.Code(s.Lock.Sequence % 5)
			}
			done(codes)
		}, func(codes []fsm.Code) { got = codes })
		if calls != c.calls || !slices.Equal(got, want) {
			t.Errorf("%+v: %d calls, %d codes", c, calls, len(got))
		}
	}
}
