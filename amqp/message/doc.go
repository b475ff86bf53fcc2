// Package message converts AMQP messages to the payloads that are stored, and payloads to the messages
// that receivers get. The gateway (amqp) calls it for every send and every delivery; the forwarder of the
// cluster layer calls Reread. It does no input or output, keeps no state, and does not decide which
// messages a queue accepts.
//
//   - Parse and ParseBatch check every section of a message to the last byte and return the payload
//     (payloadVersion describes its layout) and the attributes that the state machine uses: id, time to
//     live, session, partition key. AppendWithID adds an id to messages that have none.
//   - AppendDelivery encodes the message that a receiver gets: it writes a new header and new annotations,
//     applies patches, and copies everything else.
//   - RuleReader extracts the properties that rules of a topic see; FilterValue and EncodeFilterValue
//     convert between values on the wire and values of the rule language.
//   - EncodeProperties and SplitDeadLetter read the changes that a settlement makes.
//
// Invariants:
//
//   - A payload never changes. Changes are patches beside it, applied at each delivery and peek.
//   - Every client library can decode a message that Parse accepts: types and sizes are checked.
//   - Rules see the properties of a message that a receiver would see.
//   - Errors about a message are *Error, whose text can be shown to the client.
package message
