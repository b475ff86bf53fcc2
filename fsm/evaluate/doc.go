// Package evaluate evaluates rules and selectors with messages. [Message] is a message as the rules of a topic see
// it, which fsm/queue uses for each message that is sent to a topic; [Selector] evaluates one filter for callers
// outside of a state machine.
//
// The package holds no entity, lock or queue: it knows only fsm and fsm/filter. Its types are not safe for
// concurrent use.
package evaluate
