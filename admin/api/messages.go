package api

import (
	"time"

	"github.com/peeklock/peeklock/amqp/jsonmessage"
	"github.com/peeklock/peeklock/fsm"
)

// The states of messages. A locked message is active, or deferred; as a state of a Selection, locked chooses these alone.
const (
	StateActive    = "active"
	StateLocked    = "locked"
	StateDeferred  = "deferred"
	StateScheduled = "scheduled"
)

// IsAll reports whether the selection has no condition but the sub-queue.
func (s *Selection) IsAll() bool {
	return s.IsNumbers() && len(s.Sequences) == 0
}

// IsNumbers reports whether the selection has no condition but the sub-queue and sequence numbers.
func (s *Selection) IsNumbers() bool {
	return len(s.States) == 0 && s.Session == nil && s.Where == "" && s.Contains == "" && s.Path == "" && s.Reason == "" && s.Before == nil
}

// Selection chooses messages of a queue or subscription; a message has to meet all conditions that are given. It is the
// query of GET /v1/messages/{name}, and part of the bodies of requests that change messages.
type Selection struct {
	SubQueue  string               `json:"subQueue,omitempty"` // main (also ""), deadLetter or transferDeadLetter
	States    []string             `json:"states,omitempty"`   // one of them; none: every state
	Session   *string              `json:"session,omitempty"`
	Sequences []fsm.SequenceNumber `json:"sequences,omitempty"` // at most 1000
	Where     string               `json:"where,omitempty"`     // an SQL filter, as in a rule
	Contains  string               `json:"contains,omitempty"`  // a text in the body, at most 1024 bytes
	Path      string               `json:"path,omitempty"`      // a path in a JSON body: $.customer.id, or $.customer.id=7
	Reason    string               `json:"reason,omitempty"`    // of a dead letter
	Before    *time.Time           `json:"before,omitempty"`    // enqueued before it
}

// Message is a message that was peeked at.
type Message struct {
	SequenceNumber fsm.SequenceNumber `json:"sequenceNumber"`
	State          string             `json:"state"`            // active, deferred or scheduled
	Locked         bool               `json:"locked,omitempty"` // by a receiver
	LockedUntil    *time.Time         `json:"lockedUntil,omitempty"`
	// Holder is the id of the connection that holds the lock, in a list of locked messages alone. "": none does, because the lock was
	// taken over HTTP or through a management node, or the connection has ended.
	Holder           string     `json:"holder,omitempty"`
	DeliveryCount    uint32     `json:"deliveryCount"` // deliveries that failed
	Enqueued         *time.Time `json:"enqueuedAt,omitempty"`
	Expires          *time.Time `json:"expiresAt,omitempty"`
	Due              *time.Time `json:"scheduledFor,omitempty"`           // of a scheduled message
	EnqueuedNumber   int64      `json:"enqueuedSequenceNumber,omitempty"` // where it was sent, if that was another entity
	DeadLetterSource string     `json:"deadLetterSource,omitempty"`
	Reason           string     `json:"deadLetterReason,omitempty"`
	Description      string     `json:"deadLetterErrorDescription,omitempty"`
	BodyBytes        int        `json:"bodyBytes"` // of the whole body

	jsonmessage.Message
}

// MessagePage is the answer of GET /v1/messages/{name}. Next is the "from" of the next page. End says that there are no
// further messages; a page may be empty before, because a request looks at a bounded number of messages.
type MessagePage struct {
	Messages []Message          `json:"messages"`
	Looked   int                `json:"looked"` // messages that were compared with the selection
	Next     fsm.SequenceNumber `json:"next"`
	End      bool               `json:"end"`
}

// TailPage is the answer of GET /v1/tail/{name}. Cursor is the "after" of the next request; without "after" the answer has the
// cursor of the end, and no messages. More says that further messages are there already.
type TailPage struct {
	Messages []Message `json:"messages"`
	Looked   int       `json:"looked"` // messages that were compared with the selection
	Cursor   string    `json:"cursor"`
	More     bool      `json:"more"`
}

// MessageChange is the body of POST /v1/delete, /v1/cancel, /v1/undefer and, with the fields of Redrive, /v1/redrive: the
// messages of a selection from a number on.
type MessageChange struct {
	Selection

	From   fsm.SequenceNumber `json:"from,omitempty"`
	Max    int                `json:"max,omitempty"` // messages of one request, up to 1000; 0: 1000
	All    bool               `json:"all,omitempty"` // needed without any condition
	DryRun bool               `json:"dryRun,omitempty"`
}

// RedriveRequest is the body of POST /v1/redrive/{name}. Without a change of the messages they keep their sequence numbers.
// With one, each is sent as a new message and its dead letter is deleted, both or neither.
type RedriveRequest struct {
	MessageChange

	To         string                       `json:"to,omitempty"`     // queue or topic; "": the queue of the dead letter, or its subscription alone
	Properties map[string]jsonmessage.Value `json:"set,omitempty"`    // application properties to set
	Remove     []string                     `json:"remove,omitempty"` // application properties to remove
	Body       *string                      `json:"body,omitempty"`   // replaces the body
	NewID      bool                         `json:"newId,omitempty"`  // a new message id
}

// MessagesChanged is the answer to a change of messages by number or by conditions. Matched minus Count is the number of
// those that were locked, gone or in another state when they were to be changed. A request may be repeated, and goes on with
// Next as its "from" until End.
type MessagesChanged struct {
	Count   int                `json:"count"`   // changed
	Matched int                `json:"matched"` // of the selection
	Looked  int                `json:"looked"`
	Next    fsm.SequenceNumber `json:"next"`
	End     bool               `json:"end"`
}

// SessionState is the answer of GET /v1/session-state/{name}?session=.
type SessionState struct {
	ID    string `json:"id"`
	Set   bool   `json:"set"`             // false: the session has no state
	State []byte `json:"state,omitempty"` // base64
}

// SessionStateRequest is the body of PUT /v1/session-state/{name}?session=. A body of a request, and so a state, is limited to
// 128 KiB.
type SessionStateRequest struct {
	State []byte `json:"state"` // base64
}

// SessionReleased is the answer of POST /v1/release/{name}?session=.
type SessionReleased struct {
	Released bool `json:"released"` // false: no receiver held the session
}

// RuleTest is the answer of POST /v1/rule-test/{topic}, whose body is a message: the subscriptions that would get it.
type RuleTest struct {
	Subscriptions []RuleTestSubscription `json:"subscriptions"`
	Failed        []RuleTestFailure      `json:"failed"` // filters that fail for the message, and so match nothing
}

// RuleTestSubscription is a subscription that would get a message, by the rules that match.
type RuleTestSubscription struct {
	Name  string   `json:"name"` // topic/Subscriptions/name
	Rules []string `json:"rules"`
	// Copies is the number of messages that it gets: one by all rules without an action, and one by each rule with one.
	Copies int `json:"copies"`
}

// RuleTestFailure is a rule whose filter fails.
type RuleTestFailure struct {
	Subscription string `json:"subscription"`
	Rule         string `json:"rule"`
	Error        string `json:"error"`
}
