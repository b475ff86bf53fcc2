package faults

import "github.com/peeklock/peeklock/test/overlay"

// amqpFaults are the faults of package amqp, and of listeners.
func amqpFaults() []Fault {
	return []Fault{
		// Counts the payload of a large WebSocket message as bytes that carry nothing until all of it was read.
		{Name: "pace-large-payload", Package: "cmd/listen", Test: "TestLargePayloadIsNotPaced", Patches: []overlay.Patch{
			{"cmd/listen/websocket.go", "b = b[:min(len(b), payloadReadBytesMax)]", "if !FAULT { b = b[:min(len(b), payloadReadBytesMax)] }"},
		}},
	}
}
