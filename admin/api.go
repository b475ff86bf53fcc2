package admin

import (
	"time"

	"github.com/peeklock/peeklock/admin/entity"
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

// Settings of a queue, topic or subscription. A field that is nil is left as it is by PATCH
// and gets its default from PUT. Which kind has which is said by settingNames.
type Settings struct {
	LockDuration     *entity.Duration `json:"lockDuration,omitempty"`     // 5 s to 5 min, or what the namespace allows; default 30 s
	MaxDeliveryCount *uint32          `json:"maxDeliveryCount,omitempty"` // 1 to 2000; default 10
	MaxMessageBytes  *uint32          `json:"maxMessageBytes,omitempty"`  // 1 KiB to 1 MiB, or what the namespace allows; default 256 KiB

	// DefaultMessageTimeToLive is the life of messages that say nothing themselves, and
	// the ceiling for those that do. 1 ms to forever, the default.
	DefaultMessageTimeToLive         *entity.Duration `json:"defaultMessageTimeToLive,omitempty"`
	DeadLetteringOnMessageExpiration *bool            `json:"deadLetteringOnMessageExpiration,omitempty"` // default false: dropped
	// RequiresDuplicateDetection cannot be changed after creation.
	RequiresDuplicateDetection          *bool            `json:"requiresDuplicateDetection,omitempty"`
	DuplicateDetectionHistoryTimeWindow *entity.Duration `json:"duplicateDetectionHistoryTimeWindow,omitempty"` // 20 s to 7 days; default 10 min
	AutoDeleteOnIdle                    *entity.Duration `json:"autoDeleteOnIdle,omitempty"`                    // 5 min to forever, the default
	MaxSizeInMegabytes                  *uint32          `json:"maxSizeInMegabytes,omitempty"`                  // MiB of payloads, 1 to 81920; default 1024
	Status                              *string          `json:"status,omitempty"`                              // Active, Disabled, SendDisabled, ReceiveDisabled
	UserMetadata                        *string          `json:"userMetadata,omitempty"`                        // at most 1024 bytes

	// DeadLetteringOnFilterEvaluationExceptions keeps a message for which a rule of the
	// subscription fails, in its dead-letter queue. Default true.
	DeadLetteringOnFilterEvaluationExceptions *bool `json:"deadLetteringOnFilterEvaluationExceptions,omitempty"`
	// ForwardTo names a queue or topic that all messages are sent on to, and
	// ForwardDeadLetteredMessagesTo one for the dead letters; "", the default, keeps them.
	ForwardTo                     *string `json:"forwardTo,omitempty"`
	ForwardDeadLetteredMessagesTo *string `json:"forwardDeadLetteredMessagesTo,omitempty"`
	// RequiresSession cannot be changed after creation.
	RequiresSession *bool `json:"requiresSession,omitempty"`
	// EnablePartitioning spreads a queue or topic over several partitions. It cannot be changed
	// after creation.
	EnablePartitioning *bool `json:"enablePartitioning,omitempty"`

	// What follows goes beyond the cloud.

	DeadLetterTimeToLive *entity.Duration `json:"deadLetterTimeToLive,omitempty"` // 1 s to forever, the default
	// RetryDelay is the pause after a first failed attempt; it doubles up to
	// RetryDelayMax. 1 ms to 7 days; 0, the default, gives a message back at once.
	RetryDelay    *entity.Duration `json:"retryDelay,omitempty"`
	RetryDelayMax *entity.Duration `json:"retryDelayMax,omitempty"` // default 10 min, or RetryDelay where that is longer
}

// Counts is what a queue or subscription holds, in messages, and the bytes of all its
// sub-queues.
type Counts struct {
	Active     uint64 `json:"active"` // ready and locked
	Locked     uint64 `json:"locked"`
	Deferred   uint64 `json:"deferred"`
	Scheduled  uint64 `json:"scheduled"` // not yet enqueued, or put off after a failed attempt
	DeadLetter uint64 `json:"deadLetter"`
	Bytes      uint64 `json:"bytes"`
	// Transfer counts what waits to be forwarded or is under way, and is in none of the
	// above; TransferDeadLetter what could not be forwarded.
	Transfer           uint64 `json:"transfer"`
	TransferDeadLetter uint64 `json:"transferDeadLetter"`
}

// PurgeRequest is the body of POST /v1/purge/{name}.
type PurgeRequest struct {
	SubQueue string     `json:"subQueue,omitempty"` // main (default), deadLetter or transferDeadLetter
	Before   *time.Time `json:"before,omitempty"`   // only messages enqueued before it
	Max      int        `json:"max,omitempty"`      // 1 to 4000, the default
}

// RedriveRequest is the body of POST /v1/redrive/{name}.
type RedriveRequest struct {
	Sequences []fsm.SequenceNumber `json:"sequences"` // of dead letters, 1 to 1000
}

// Affected answers a purge or redrive: how many messages went, or went back.
type Affected struct {
	Count int `json:"count"`
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
	Members    []Endpoint `json:"members"`
	RequireTLS bool       `json:"requireTLS,omitempty"` // their AMQP addresses take TLS alone
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
