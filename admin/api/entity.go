package api

import (
	"time"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

// Queue is the JSON form of a queue.
type Queue struct {
	Name string `json:"name"` // as spelled at creation
	entity.Settings
	Partition fsm.PartitionID `json:"partition"`
	Version   uint64          `json:"version"` // incremented by every change of the settings
	Created   time.Time       `json:"createdAt"`
	Updated   time.Time       `json:"updatedAt"`
	Counts    *Counts         `json:"counts,omitempty"` // nil: not requested
}

// Counts are the messages of a queue or subscription by state, and the bytes of all its sub-queues.
type Counts struct {
	Active     uint64 `json:"active"` // ready and locked
	Locked     uint64 `json:"locked"`
	Deferred   uint64 `json:"deferred"`
	Scheduled  uint64 `json:"scheduled"` // not yet enqueued, or delayed after a failed delivery
	DeadLetter uint64 `json:"deadLetter"`
	Bytes      uint64 `json:"bytes"`
	// Transfer counts messages that wait to be forwarded or are being forwarded, which no other field counts;
	// TransferDeadLetter those that could not be forwarded.
	Transfer           uint64 `json:"transfer"`
	TransferDeadLetter uint64 `json:"transferDeadLetter"`
}

// PurgeRequest is the body of POST /v1/purge/{name}.
type PurgeRequest struct {
	SubQueue string     `json:"subQueue,omitempty"` // main (default), deadLetter or transferDeadLetter
	Before   *time.Time `json:"before,omitempty"`   // only messages enqueued before it
	Max      int        `json:"max,omitempty"`      // 1 to 4000, the default
}

// Affected is the answer of a purge or redrive: how many messages were deleted or moved.
type Affected struct {
	Count int `json:"count"`
}

// QueuePage is one page of the list of queues. Next is the "after" of the next page, empty at the end.
type QueuePage struct {
	Queues []Queue `json:"queues"`
	Next   string  `json:"next,omitempty"`
}

// Endpoint are the addresses of one member for clients.
type Endpoint struct {
	Name  string `json:"name"`
	State string `json:"state"` // alive, suspect, dead, left
	AMQP  string `json:"amqp"`  // host:port
	HTTP  string `json:"http"`  // host:port
}

// Endpoints lists the members, living ones first.
type Endpoints struct {
	Members    []Endpoint `json:"members"`
	RequireTLS bool       `json:"requireTLS,omitempty"` // the AMQP addresses accept TLS only
}

// Health is the answer of GET /health, word for word the official emulator's.
type Health struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

// Problem is the body of every answer other than 2xx.
type Problem struct {
	Code       string `json:"code"` // stable, for programs
	Message    string `json:"message"`
	TrackingID string `json:"trackingId"` // also in the log of the member that answered
}

// Check is one check of a member's health. Its text is public, so it names no entity.
type Check struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Text string `json:"text"`
}

// Checks is the answer of GET /readyz and /livez.
type Checks struct {
	Health
	Checks []Check `json:"checks,omitempty"` // with ?verbose
}

// Session is the JSON form of a session of a queue or subscription.
type Session struct {
	ID       string     `json:"id"` // "" is a valid id
	Messages uint64     `json:"messages"`
	Ready    uint64     `json:"ready"`                    // of those
	Until    *time.Time `json:"lockedUntil,omitempty"`    // nil: not locked
	Bytes    uint64     `json:"stateBytes"`               // 0 also for an empty state
	Updated  *time.Time `json:"stateUpdatedAt,omitempty"` // nil: no state
}

// SessionPage is one page of the list of sessions, in a stable order. Next is the "skip" of the next page, 0 at the end.
// Sessions that begin or end meanwhile may be missing or appear twice.
type SessionPage struct {
	Sessions []Session `json:"sessions"`
	Next     int       `json:"next,omitempty"`
}
