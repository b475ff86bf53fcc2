package admin

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// Queue is a queue as the API shows it.
type Queue struct {
	Name string `json:"name"` // as spelled at creation
	Settings
	Partition fsm.PartitionID `json:"partition"`
	Version   uint64          `json:"version"` // rises with every change of the settings
	Created   time.Time       `json:"createdAt"`
	Updated   time.Time       `json:"updatedAt"`
	Counts    *Counts         `json:"counts,omitempty"` // nil: not asked for
}

// Settings of a queue. A field that is nil is left as it is by PATCH and gets its
// default from PUT.
type Settings struct {
	LockDuration     *Duration `json:"lockDuration,omitempty"`     // 5 s to 5 min; default 30 s
	MaxDeliveryCount *uint32   `json:"maxDeliveryCount,omitempty"` // 1 to 2000; default 10
	MaxMessageBytes  *uint32   `json:"maxMessageBytes,omitempty"`  // 1 KiB to 1 MiB; default 256 KiB
}

// Counts is what a queue holds, in messages, and the bytes of both sub-queues.
type Counts struct {
	Active     uint64 `json:"active"` // ready and locked
	Locked     uint64 `json:"locked"`
	Deferred   uint64 `json:"deferred"`
	DeadLetter uint64 `json:"deadLetter"`
	Bytes      uint64 `json:"bytes"`
}

// QueuePage is one answer of the list. Next is the "after" of the next page, empty at
// the end.
type QueuePage struct {
	Queues []Queue `json:"queues"`
	Next   string  `json:"next,omitempty"`
}

// Endpoint is where one member listens for clients.
type Endpoint struct {
	Name  string `json:"name"`
	State string `json:"state"` // alive, suspect, dead, left
	AMQP  string `json:"amqp"`  // host:port
	HTTP  string `json:"http"`  // host:port
}

// Endpoints lists the members, those that are alive first.
type Endpoints struct {
	Members []Endpoint `json:"members"`
}

// Health is the answer of GET /health, word for word the official emulator's.
type Health struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

// Problem is the body of every answer that is not 2xx.
type Problem struct {
	Code       string `json:"code"` // stable, for programs
	Message    string `json:"message"`
	TrackingID string `json:"trackingId"` // also in the log of the member that answered
}

// Duration is a length of time that reads "30s" or "PT30S" and writes "30s".
type Duration time.Duration

// MarshalJSON writes the form of time.Duration.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON reads text; a bare number is refused, because nobody can tell its unit.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("a duration is text like \"30s\", not %.40s", data)
	}
	parsed, err := ParseDuration(text)
	if err != nil {
		return err
	}
	*d = Duration(parsed)
	return nil
}
