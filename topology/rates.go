package topology

import "github.com/peeklock/peeklock/fsm"

// RatesEvery is the time between two samples of an entity, in seconds, and RateSamplesMax their number: an hour.
const (
	RatesEvery     = 10
	RateSamplesMax = 360
)

// RatesQuery asks a member for the rates of the entities of a namespace whose partitions it leads.
type RatesQuery struct {
	Namespace fsm.NamespaceID `json:"namespace"`
	Name      string          `json:"name"`  // of one entity, with samples; "": all, without samples
	Total     bool            `json:"total"` // also the sum of all, with samples, without a name
}

// EntityRates are the rates of a queue, topic or subscription.
type EntityRates struct {
	Name string `json:"name"` // of a subscription its path
	Kind string `json:"kind"` // queue, topic or subscription
	Rates
	// Consumers is the number of links on which clients receive from it, at all members, without browsers.
	Consumers int `json:"consumers"`
	// Samples are those of the last hour, oldest first, one every RatesEvery seconds. The last one is at most RatesEvery seconds old.
	Samples []Sample `json:"samples,omitempty"`
}

// ConsumersMax bounds the entities whose consumers a member reports.
const ConsumersMax = 1000

// Consumers are the links of a member's clients that receive from an entity.
type Consumers struct {
	Namespace fsm.NamespaceID
	Kind      fsm.EntityKind
	Name      string // of a subscription its path
	Links     int
}

// Rates are messages per second, averaged over the last minute, and the messages stored now.
type Rates struct {
	Incoming     float64 `json:"incoming"`
	Outgoing     float64 `json:"outgoing"` // deliveries
	Completed    float64 `json:"completed"`
	Abandoned    float64 `json:"abandoned"`
	DeadLettered float64 `json:"deadLettered"`
	Expired      float64 `json:"expired"`
	Forwarded    float64 `json:"forwarded"`
	Active       uint64  `json:"active"`
	DeadLetter   uint64  `json:"deadLetter"`
}

// Sample is the number of messages by what happened to them in RatesEvery seconds, and of those stored at the end.
type Sample struct {
	Incoming     uint32 `json:"incoming"`
	Outgoing     uint32 `json:"outgoing"` // deliveries
	Completed    uint32 `json:"completed"`
	Abandoned    uint32 `json:"abandoned"`
	DeadLettered uint32 `json:"deadLettered"`
	Expired      uint32 `json:"expired"`
	Forwarded    uint32 `json:"forwarded"`
	Active       uint32 `json:"active"`
	DeadLetter   uint32 `json:"deadLetter"`
}
