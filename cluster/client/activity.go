package client

import (
	"time"
)

const (
	// ActivityEvery is the minimum time between two reports of activity that leaves no entry in
	// the log, per entity: a tenth of the shortest AutoDeleteOnIdle, so that nine may be lost.
	ActivityEvery = 30 * time.Second
	// ActivityEntitiesMax bounds the entities whose activity is remembered.
	ActivityEntitiesMax = 65536
)
