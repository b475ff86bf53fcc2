package topology

import "time"

// AuditPageMax is the number of events of one AuditPage.
const AuditPageMax = 500

// AuditQuery selects events of one member: those before a cursor, newest first.
type AuditQuery struct {
	Before *AuditCursor `json:"before,omitempty"` // nil: the newest
	Max    int          `json:"max"`              // 1 to AuditPageMax
}

// AuditCursor is the place of an event among those of all members: they are ordered by time, member and number.
type AuditCursor struct {
	At     time.Time `json:"at"`
	Member string    `json:"member"` // name
	Number uint64    `json:"number"`
}

// AuditPage is a part of the newest events, newest first.
type AuditPage struct {
	Events      []AuditEvent `json:"events"`
	Next        string       `json:"next,omitempty"`        // the "after" of the next page; "": there are no more
	Unreachable []string     `json:"unreachable,omitempty"` // members that did not answer: their events are missing
}

// AuditEvent is a line of the audit log of a member.
type AuditEvent struct {
	At     time.Time `json:"at"`
	Member string    `json:"member"` // name
	Number uint64    `json:"number"` // of the event since the member started
	Event  string    `json:"event"`  // admin_change, right_missing, login_refused and so on
	// Fields are what the line says, by name, such as who, peer, operation, kind, name, namespace and outcome.
	Fields map[string]string `json:"fields"`
}
