package entity

// Settings of a queue, topic or subscription, as a request gives them and an answer shows them. A setting that is
// nil is kept by PATCH, and gets its default from PUT. [Table] has the ranges and defaults, and says which kind
// of entity has which setting.
type Settings struct {
	LockDuration     *Duration `json:"lockDuration,omitempty"`
	MaxDeliveryCount *uint32   `json:"maxDeliveryCount,omitempty"`
	MaxMessageBytes  *uint32   `json:"maxMessageBytes,omitempty"`

	// DefaultMessageTimeToLive is the time to live of messages that have none, and the maximum for all others.
	DefaultMessageTimeToLive            *Duration `json:"defaultMessageTimeToLive,omitempty"`
	DeadLetteringOnMessageExpiration    *bool     `json:"deadLetteringOnMessageExpiration,omitempty"` // else expired messages are dropped
	RequiresDuplicateDetection          *bool     `json:"requiresDuplicateDetection,omitempty"`
	DuplicateDetectionHistoryTimeWindow *Duration `json:"duplicateDetectionHistoryTimeWindow,omitempty"`
	AutoDeleteOnIdle                    *Duration `json:"autoDeleteOnIdle,omitempty"`
	MaxSizeInMegabytes                  *uint32   `json:"maxSizeInMegabytes,omitempty"` // MiB of payloads
	Status                              *string   `json:"status,omitempty"`             // Active, Disabled, SendDisabled, ReceiveDisabled
	UserMetadata                        *string   `json:"userMetadata,omitempty"`

	// DeadLetteringOnFilterEvaluationExceptions moves a message for which a rule of the subscription fails to its
	// dead-letter queue.
	DeadLetteringOnFilterEvaluationExceptions *bool `json:"deadLetteringOnFilterEvaluationExceptions,omitempty"`
	// ForwardTo names the queue or topic that all messages are forwarded to, and
	// ForwardDeadLetteredMessagesTo that for dead letters; "", the default, keeps them.
	ForwardTo                     *string `json:"forwardTo,omitempty"`
	ForwardDeadLetteredMessagesTo *string `json:"forwardDeadLetteredMessagesTo,omitempty"`
	RequiresSession               *bool   `json:"requiresSession,omitempty"`
	EnablePartitioning            *bool   `json:"enablePartitioning,omitempty"` // spreads a queue or topic over several partitions

	// The service does not have the following settings.

	DeadLetterTimeToLive *Duration `json:"deadLetterTimeToLive,omitempty"`
	// RetryDelay is the delay after the first failed delivery; it doubles up to RetryDelayMax. With 0, the
	// default, a message is available again at once. RetryDelayMax is 10 min by default, or RetryDelay where
	// that is longer.
	RetryDelay    *Duration `json:"retryDelay,omitempty"`
	RetryDelayMax *Duration `json:"retryDelayMax,omitempty"`

	ReadBack ReadBack `json:"-"`

	// InElements says that the client wrote ATOM elements or Config.json: errors name these, in their units.
	InElements bool `json:"-"`
}
