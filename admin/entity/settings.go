package entity

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

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

// DefaultSettings are the settings of an entity that is created without any.
func DefaultSettings(kind fsm.EntityKind) fsm.EntitySettings {
	s := fsm.DefaultSettings()
	s.LockDuration = fsm.Millis(lockDurationDefault.Milliseconds())
	s.MaxDeliveryCount = deliveryCountDefault
	s.MaxMessageBytes = messageBytesDefault
	s.DeadLetterOnFilterErrors = kind == fsm.SubscriptionEntity
	return s
}

// SettingNames lists the settings of a kind, for the text of an error.
func SettingNames(kind fsm.EntityKind) string {
	var names []string
	for i := range table {
		if table[i].Has(kind) {
			names = append(names, table[i].Name)
		}
	}
	return strings.Join(names, ", ")
}

// ApplyTo returns old with the settings that are given, checked. A setting that exceeds a limit of the
// namespace may stay. Errors wrap fsm.InvalidArgument.
func (s *Settings) ApplyTo(kind fsm.EntityKind, old fsm.EntitySettings, l Limits) (fsm.EntitySettings, error) {
	l.LockDuration = max(l.LockDuration, time.Duration(FromMillis(old.LockDuration)))
	l.MessageBytes = max(l.MessageBytes, old.MaxMessageBytes)
	err := s.checkKind(kind)
	if err == nil {
		err = s.Check(l)
	}
	if err == nil {
		s.StoreIn(&old)
		err = s.completeRetryDelays(&old)
	}
	if err != nil {
		return old, fmt.Errorf("%w: %w", fsm.InvalidArgument, err)
	}
	return old, nil
}

// Check returns an error that names the setting for the first given value that limits do not allow.
func (s *Settings) Check(l Limits) error {
	for i := range table {
		if err := table[i].Check(s, l); err != nil {
			return fmt.Errorf("%s %w", table[i].nameFor(s), err)
		}
	}
	return nil
}

// StoreIn stores the settings that are given. It does not check them.
func (s *Settings) StoreIn(stored *fsm.EntitySettings) {
	for i := range table {
		table[i].store(s, stored)
	}
	s.ReadBack.storeIn(stored, s)
}

// checkKind refuses settings that the kind does not have: they must not look as if they worked.
func (s *Settings) checkKind(kind fsm.EntityKind) error {
	for i := range table {
		name := table[i].nameFor(s)
		if !table[i].IsGiven(s) || table[i].Has(kind) {
			continue
		}
		switch kind {
		case fsm.TopicEntity:
			return fmt.Errorf("%s is a setting of subscriptions, not of their topic", name)
		case fsm.SubscriptionEntity:
			return fmt.Errorf("%s is a setting of the topic, not of its subscriptions", name)
		case fsm.QueueEntity:
			return fmt.Errorf("%s is a setting of subscriptions, not of queues", name)
		}
	}
	return nil
}

// completeRetryDelays sets the delay that is not given: the state machine needs both or none.
func (s *Settings) completeRetryDelays(q *fsm.EntitySettings) error {
	switch {
	case q.RetryDelay == 0 && s.RetryDelayMax != nil && q.RetryDelayMax > 0:
		return errors.New("retryDelayMax needs a retryDelay above 0")
	case q.RetryDelay == 0:
		q.RetryDelayMax = 0
	case s.RetryDelayMax == nil && (q.RetryDelayMax == 0 || q.RetryDelayMax < q.RetryDelay):
		q.RetryDelayMax = max(q.RetryDelay, fsm.Millis(retryDelayMaxDefault.Milliseconds()))
	case q.RetryDelayMax < q.RetryDelay:
		return errors.New("retryDelayMax is at least retryDelay")
	}
	return nil
}

// DescribeSettings returns the settings that the kind has.
func DescribeSettings(kind fsm.EntityKind, settings fsm.EntitySettings) Settings {
	settings = settings.WithDefaults()
	var s Settings
	for i := range table {
		if table[i].Has(kind) {
			table[i].show(&settings, &s)
		}
	}
	return s
}

// SettingByElement returns the setting of an ATOM element, nil when there is none.
func SettingByElement(element string) *Setting {
	i := slices.IndexFunc(table, func(s Setting) bool { return s.Element == element && element != "" })
	if i < 0 {
		return nil
	}
	return &table[i]
}

// Limits are the largest values that a namespace allows in the settings of its entities.
type Limits struct {
	MessageBytes uint32
	LockDuration time.Duration
}

// LimitsOf returns the limits of a namespace. Where it sets none, they are those of the cloud.
func LimitsOf(s fsm.NamespaceSettings) Limits {
	return Limits{
		MessageBytes: cmp.Or(s.MessageBytesMax, messageBytesMax),
		LockDuration: cmp.Or(time.Duration(FromMillis(s.LockDurationMax)), LockDurationMax),
	}
}

// MaxLimits are the limits of a namespace of the largest tier.
func MaxLimits() Limits {
	return Limits{MessageBytes: TierMessageBytesMax, LockDuration: TierLockDurationMax}
}

// Clamp lowers settings to what the namespace allows.
func (l Limits) Clamp(s fsm.EntitySettings) fsm.EntitySettings {
	s.MaxMessageBytes = min(s.MaxMessageBytes, l.MessageBytes)
	s.LockDuration = min(s.LockDuration, fsm.Millis(l.LockDuration.Milliseconds()))
	return s
}
