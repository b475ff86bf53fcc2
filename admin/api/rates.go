package api

import "github.com/peeklock/peeklock/topology"

// Rates is the answer of GET /v1/rates and GET /v1/rates/{name}; the latter has at most one entity, with samples.
type Rates struct {
	Entities     []topology.EntityRates `json:"entities"`
	Total        *topology.EntityRates  `json:"total,omitempty"` // of the namespace, with samples, if it is asked for
	EverySeconds int                    `json:"everySeconds"`    // time between two samples
}
