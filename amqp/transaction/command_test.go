package transaction

import (
	"bytes"
	"testing"

	"github.com/peeklock/peeklock/amqp/wire"
)

// command encodes a message with a command.
func command(value any) []byte {
	return wire.AppendValue(wire.AppendSectionDescriptor(nil, wire.SectionValue), value)
}

func FuzzCommand(f *testing.F) {
	f.Add(command(&wire.Declare{}))
	f.Add(command(&wire.Discharge{TxnID: make([]byte, 16), Fail: true}))
	f.Add([]byte{0, 0x53, 0x77, 0, 0x53, 0x31, 0x45})
	f.Fuzz(func(t *testing.T, b []byte) {
		parsed, err := ParseCommand(b)
		if err != nil {
			return
		}
		again, err := ParseCommand(command(parsed))
		if err != nil {
			t.Fatalf("%+v is written so that it cannot be read: %v", parsed, err)
		}
		one, isDischarge := parsed.(*wire.Discharge)
		other, still := again.(*wire.Discharge)
		if isDischarge != still || isDischarge && (one.Fail != other.Fail || !bytes.Equal(one.TxnID, other.TxnID)) {
			t.Fatalf("%+v became %+v", parsed, again)
		}
	})
}
