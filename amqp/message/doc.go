// Package message turns AMQP messages into the payloads that are stored, and payloads into the messages
// that receivers get. The gateway (amqp) calls it for every send and every delivery; the forwarder of the
// cluster layer calls Reread. It does no input or output, keeps no state, and does not decide which
// messages a queue accepts.
//
//   - Parse and ParseBatch check every section of a message to the last byte and make the payload
//     (payloadVersion describes its layout) and the attributes that the state machine uses: id, time to
//     live, session, partition key. AppendWithID gives an id to messages that come without.
//   - AppendDelivery makes the message that a receiver gets: header and annotations are written anew,
//     patches are applied, and everything else is copied.
//   - RuleReader extracts the properties that rules of a topic see; FilterValue and EncodeFilterValue
//     convert between values on the wire and values of the rule language.
//   - EncodeProperties and SplitDeadLetter read what a settlement changes.
//
// Invariants:
//
//   - A payload never changes. Changes are patches beside it, applied each time a message is shown.
//   - A message that Parse accepts can be decoded by every client library: types and sizes are checked.
//   - Rules see in the properties of a message what a receiver would see.
//   - Errors about a message are *Error, whose text is fit for the client.
package message
