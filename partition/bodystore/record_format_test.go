package bodystore

import (
	"fmt"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/golden"
)

// TestRecordKeepsItsBytes verifies the bytes of the record of a body.
func TestRecordKeepsItsBytes(t *testing.T) {
	t.Parallel()
	owner := fsm.Owner{Address: fsm.Address{Entity: 300, Sub: fsm.DeadLetterQueue}, Sequence: 1 << 40}
	written := fmt.Appendf(nil, "record: %x\n", appendRecord(nil, owner, []byte("body")))
	owner.Patch = true
	written = fmt.Appendf(written, "record of patches: %x\n", appendRecord(nil, owner, []byte("patches")))
	golden.Compare(t, "testdata/record.golden", written)
}
