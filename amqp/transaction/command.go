package transaction

import (
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/peeklock/peeklock/amqp/wire"
)

// Capabilities of the coordinator (part 4, 4.5.7): several transactions in a session, and one transaction over
// several sessions of a connection.
const (
	localTransactions    = wire.Symbol("amqp:local-transactions")
	sessionsHaveSeveral  = wire.Symbol("amqp:multi-txns-per-ssn")
	severalSessionsShare = wire.Symbol("amqp:multi-ssns-per-txn")
)

// Coordinator returns the target with which the gateway answers an attach to its coordinator.
func Coordinator() *wire.Coordinator {
	return &wire.Coordinator{Capabilities: []wire.Symbol{localTransactions, sessionsHaveSeveral, severalSessionsShare}}
}

// ID identifies a transaction: 16 random bytes.
type ID [16]byte

// IDOf reads the id that a peer sent; nil if the gateway cannot have issued it. [Set.Find] finds no transaction for nil.
func IDOf(b []byte) *ID {
	if len(b) != len(ID{}) {
		return nil
	}
	id := ID(b)
	return &id
}

func (id ID) String() string { return hex.EncodeToString(id[:]) }

var errCommand = errors.New("it is neither declare nor discharge")

// ParseCommand reads a message to the coordinator: *wire.Declare or *wire.Discharge. The result may refer to
// payload.
func ParseCommand(payload []byte) (any, error) {
	var command any
	for rest := payload; len(rest) > 0; {
		kind, value, _, after, err := wire.NextSection(rest)
		if err != nil {
			return nil, fmt.Errorf("command: %w", err)
		}
		rest = after
		if kind != wire.SectionValue {
			continue
		}
		if command, _, err = wire.DecodeValue(value); err != nil {
			return nil, fmt.Errorf("command: %w", err)
		}
	}
	switch command.(type) {
	case *wire.Declare, *wire.Discharge:
		return command, nil
	}
	return nil, fmt.Errorf("command: %w", errCommand)
}
