package wire_test

import (
	"bytes"
	"fmt"

	"github.com/peeklock/peeklock/amqp/wire"
)

// The example encodes a transfer with a message, reads it back and iterates over its sections.
func Example() {
	message := wire.AppendProperties(nil, &wire.Properties{MessageID: "m1"})
	message = wire.AppendBinary(wire.AppendSectionDescriptor(message, wire.SectionData), []byte("one coffee"))
	id := uint32(0)
	stream := wire.AppendFrame(nil, wire.FrameAMQP, 0, &wire.Transfer{Handle: 3, DeliveryID: &id, DeliveryTag: []byte{1}, Payload: message})

	frame, err := wire.NewReader(bytes.NewReader(stream), 65536).ReadFrame()
	if err != nil {
		fmt.Println(err)
		return
	}
	transfer, ok := frame.Body.(*wire.Transfer)
	if !ok {
		fmt.Printf("%T is not a transfer\n", frame.Body)
		return
	}
	for rest := transfer.Payload; len(rest) > 0; {
		var kind wire.SectionKind
		var value []byte
		if kind, value, _, rest, err = wire.NextSection(rest); err != nil {
			fmt.Println(err)
			return
		}
		switch kind { //nolint:exhaustive // the message has no others
		case wire.SectionProperties:
			properties, err := wire.DecodeProperties(value)
			fmt.Println(properties.MessageID, err)
		case wire.SectionData:
			body, _, err := wire.DecodeValue(value)
			fmt.Printf("%s %v\n", body, err)
		}
	}
	// Output:
	// m1 <nil>
	// one coffee <nil>
}

func ExampleAppendValue() {
	encoded := wire.AppendValue(nil, wire.Map{{Key: "operation", Value: "put-token"}, {Key: "timeout", Value: int32(30)}})
	decoded, rest, err := wire.DecodeValue(encoded)
	fmt.Println(decoded, len(rest), err)
	// Output: [{operation put-token} {timeout 30}] 0 <nil>
}

func ExampleReader_ReadHeader() {
	header := wire.HeaderAMQP()
	got, err := wire.NewReader(bytes.NewReader(header[:]), 512).ReadHeader()
	fmt.Printf("%q %v\n", got[:4], err)
	// Output: "AMQP" <nil>
}
