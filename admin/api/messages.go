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
	SequenceNumber   fsm.SequenceNumber `json:"sequenceNumber"`
	State            string             `json:"state"`            // active, deferred or scheduled
	Locked           bool               `json:"locked,omitempty"` // by a receiver
	LockedUntil      *time.Time         `json:"lockedUntil,omitempty"`
	DeliveryCount    uint32             `json:"deliveryCount"` // deliveries that failed
	Enqueued         *time.Time         `json:"enqueuedAt,omitempty"`
	Expires          *time.Time         `json:"expiresAt,omitempty"`
	Due              *time.Time         `json:"scheduledFor,omitempty"`           // of a scheduled message
	EnqueuedNumber   int64              `json:"enqueuedSequenceNumber,omitempty"` // where it was sent, if that was another entity
	DeadLetterSource string             `json:"deadLetterSource,omitempty"`
	Reason           string             `json:"deadLetterReason,omitempty"`
	Description      string             `json:"deadLetterErrorDescription,omitempty"`
	BodyBytes        int                `json:"bodyBytes"` // of the whole body

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
