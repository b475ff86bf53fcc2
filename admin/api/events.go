package api

import (
	"time"

	"github.com/peeklock/peeklock/admin/condition"
	"github.com/peeklock/peeklock/topology"
)

// Event is a line of GET /v1/events: what a viewer of the cluster sees at a time.
type Event struct {
	At      time.Time        `json:"at"`
	Figures topology.Figures `json:"figures"` // without rows
	// Rates are those of the namespace and of its busiest entities. They are in the first line, and in one line of ten.
	Rates *Rates `json:"rates,omitempty"`
	// Cluster is for operators. It is in the first line, and in one line of five.
	Cluster *EventCluster `json:"cluster,omitempty"`
	// End says why this line is the last one; "": it is not. EndExpired and EndRevoked mean that the viewer must sign in again, EndClosing that
	// another member serves it.
	End string `json:"end,omitempty"`
	// Rows are the entities that the viewer named, by name. One is missing if it does not exist, or while its partition has no leader.
	Rows []EventRow `json:"rows"`
}

// The values of Event.End.
const (
	EndExpired = "expired" // the credential
	EndRevoked = "revoked" // the key
	EndClosing = "closing" // the member
)

// EventCluster is the state of the cluster as the answering member sees it.
type EventCluster struct {
	Members    []topology.Member   `json:"members"`
	Partitions int                 `json:"partitions"`
	Conditions []condition.Finding `json:"conditions"` // the most severe first
}

// EventRow is a queue, topic or subscription with its rates, in messages per second averaged over the last minute.
type EventRow struct {
	topology.EntityFigures
	Incoming  float64 `json:"incoming"`
	Outgoing  float64 `json:"outgoing"` // deliveries
	Completed float64 `json:"completed"`
	Consumers int     `json:"consumers"` // links on which clients receive from it, at all members
}
