package topology

import "github.com/peeklock/peeklock/fsm"

// Limits of figures.
const (
	FiguresRowsMax    = 6400 // entities that a FiguresQuery names: those that all viewers of a member have on their screens
	FiguresDeepestMax = 10   // entities in each list of Figures
)

// FiguresQuery asks a member for the numbers of messages in the partitions that it leads.
type FiguresQuery struct {
	Namespace fsm.NamespaceID `json:"namespace"`
	Rows      []string        `json:"rows,omitempty"` // names of entities, in any case, at most FiguresRowsMax
}

// Figures are the numbers of messages of a namespace.
type Figures struct {
	Queues        int    `json:"queues"`
	Topics        int    `json:"topics"`
	Subscriptions int    `json:"subscriptions"`
	Total         Depths `json:"total"` // of all entities
	// Deepest are the entities with the most active messages, and DeadLettered those with the most dead letters, the first ones first;
	// at most FiguresDeepestMax, without those that have none.
	Deepest      []EntityFigures `json:"deepest"`
	DeadLettered []EntityFigures `json:"deadLettered"`
	// Rows are the entities of the query, by name. One is missing if it does not exist, or if its partition has no leader that answers.
	Rows []EntityFigures `json:"rows,omitempty"`
}

// EntityFigures are the numbers of messages of a queue, topic or subscription.
type EntityFigures struct {
	Name string `json:"name"` // of a subscription its path
	Kind string `json:"kind"` // queue, topic or subscription
	Depths
}

// Depths are numbers of messages by state, and their bytes, as those of [fsm.Counts].
type Depths struct {
	Active     uint64 `json:"active"` // ready and locked
	Locked     uint64 `json:"locked"`
	Deferred   uint64 `json:"deferred"`
	Scheduled  uint64 `json:"scheduled"`
	DeadLetter uint64 `json:"deadLetter"`
	Bytes      uint64 `json:"bytes"`
}
