package fsm

import (
	"cmp"
	"strings"
	"unicode/utf8"

	"github.com/peeklock/peeklock/fsm/fields"
)

// EntitySettings are the settings of an entity. For a topic only MaxMessageBytes,
// DefaultTimeToLive, the two settings of duplicate detection, AutoDeleteOnIdle, MaxBytes, Status
// and UserMetadata have an effect; for a subscription all but MaxMessageBytes, MaxBytes and the two
// of duplicate detection, which are those of its topic. A zero value that is not valid stands for
// the default, so settings that name few fields are complete.
type EntitySettings struct {
	LockDuration Millis `json:"LockDuration"` // 1 s to 24 h; above 5 min only if the namespace allows it
	// MaxDeliveryCount is the number of failed deliveries after which a message is dead-lettered: 1
	// to 2^31-1. Failed deliveries are counted up to 65,535, so a
	// larger number stands for never.
	MaxDeliveryCount uint32 `json:"MaxDeliveryCount"`
	MaxMessageBytes  uint32 `json:"MaxMessageBytes"` // largest message accepted, as its client sent it

	// DefaultTimeToLive is the time to live of messages that have none of their own, and the
	// maximum for the others (docs/requirements.md#e4). At least 1 ms; the default, Forever, means
	// no expiry.
	DefaultTimeToLive Millis `json:"DefaultTimeToLive"`
	// DeadLetterOnExpiry moves expired messages to the dead-letter queue instead of deleting them
	// (docs/requirements.md#e5).
	DeadLetterOnExpiry bool `json:"DeadLetterOnExpiry"`
	// RequiresDuplicateDetection cannot be changed after creation.
	RequiresDuplicateDetection bool   `json:"RequiresDuplicateDetection"`
	DuplicateWindow            Millis `json:"DuplicateWindow"` // 20 s to 7 days, default 10 min: how long message ids are remembered
	// AutoDeleteOnIdle is the idle time after which the entity is deleted automatically
	// (docs/requirements.md#e7): at least 5 min, default Forever.
	AutoDeleteOnIdle Millis `json:"AutoDeleteOnIdle"`
	// MaxBytes is the maximum size of all payloads of the entity and of what settlements and actions
	// added to its messages, in all sub-queues, for a topic with those of its subscriptions: 1 MiB to 80
	// GiB, default 1 GiB.
	MaxBytes     uint64       `json:"MaxBytes"`
	Status       EntityStatus `json:"Status"`
	UserMetadata string       `json:"UserMetadata"` // UTF-8, at most 1024 bytes

	// DeadLetterOnFilterErrors stores a message for which a rule of this subscription fails in the
	// dead-letter queue. Subscriptions only.
	DeadLetterOnFilterErrors bool `json:"DeadLetterOnFilterErrors"`
	// ForwardTo is the queue or topic to which all messages are forwarded, and ForwardDeadLettersTo
	// the one for dead letters; "" means no forwarding. At most 260 bytes. While one is set, nobody
	// can receive from the sub-queue concerned. Not for topics.
	ForwardTo            string `json:"ForwardTo"`
	ForwardDeadLettersTo string `json:"ForwardDeadLettersTo"`
	// RequiresSession cannot be changed after creation. Not for topics.
	RequiresSession bool `json:"RequiresSession"`
	// EnablePartitioning distributes the entity over up to ShardsMax partitions (Entity.Shards). It
	// cannot be changed after creation. Each shard is an entity of its own for the state machine:
	// MaxBytes and the order of messages apply to each of them. Not for subscriptions, which have
	// the shards of their topic. AutoDeleteOnIdle deletes the whole entity when all shards are idle.
	EnablePartitioning bool `json:"EnablePartitioning"`

	// The following settings do not exist in Azure Service Bus and are off by default.

	// DeadLetterTimeToLive is the time for which dead letters are kept, to the second. At least 1
	// s; default Forever.
	DeadLetterTimeToLive Millis `json:"DeadLetterTimeToLive"`
	// RetryDelay delays redelivery after a failed delivery (abandoned, or the lock expired):
	// RetryDelay after the first, twice as long after each further one, at most RetryDelayMax. Both
	// 0, or 1 ms <= RetryDelay <= RetryDelayMax <= 7 days.
	RetryDelay    Millis `json:"RetryDelay"`
	RetryDelayMax Millis `json:"RetryDelayMax"`

	// The following settings have no effect: clients read back what they gave.

	BatchedOperations Choice `json:"BatchedOperations"`
	Ordering          Choice `json:"Ordering"`
	// ForwardToBase is what a client wrote before the name in ForwardTo: "" or a URL with a slash at
	// its end, at most 300 bytes; ForwardDeadLettersToBase likewise. Both are "" where the name is.
	ForwardToBase            string `json:"ForwardToBase"`
	ForwardDeadLettersToBase string `json:"ForwardDeadLettersToBase"`
	Express                  bool   `json:"Express"`
}

// Choice is a setting that is on or off, or not given, which stands for a default. The numbers are
// part of the log format.
type Choice uint8

// The choices.
const (
	NotChosen Choice = 0
	ChosenOn  Choice = 1
	ChosenOff Choice = 2
)

// Choose returns ChosenOn or ChosenOff.
func Choose(on bool) Choice {
	if on {
		return ChosenOn
	}
	return ChosenOff
}

// IsOn reports whether the setting is on; normal is its default.
func (c Choice) IsOn(normal bool) bool { return c == ChosenOn || c == NotChosen && normal }

// DefaultSettings returns the settings of a queue whose description is empty: a lock of 60 s and 10
// deliveries, as in Azure Service Bus, messages up to 1 MiB without expiry, a window of 10 min if
// duplicates are detected, and 1 GiB in all.
func DefaultSettings() EntitySettings {
	return EntitySettings{
		LockDuration: 60 * 1000, MaxDeliveryCount: 10, MaxMessageBytes: 1 << 20,
		DefaultTimeToLive: Forever, DuplicateWindow: 10 * 60 * 1000, AutoDeleteOnIdle: Forever,
		MaxBytes: 1 << 30, DeadLetterTimeToLive: Forever,
	}
}

// WithDefaults replaces every zero that stands for a default. The state machines call it before
// they store settings, so stored settings are complete.
func (s EntitySettings) WithDefaults() EntitySettings {
	d := DefaultSettings()
	s.DefaultTimeToLive = cmp.Or(s.DefaultTimeToLive, d.DefaultTimeToLive)
	s.DuplicateWindow = cmp.Or(s.DuplicateWindow, d.DuplicateWindow)
	s.AutoDeleteOnIdle = cmp.Or(s.AutoDeleteOnIdle, d.AutoDeleteOnIdle)
	s.MaxBytes = cmp.Or(s.MaxBytes, d.MaxBytes)
	s.DeadLetterTimeToLive = cmp.Or(s.DeadLetterTimeToLive, d.DeadLetterTimeToLive)
	return s
}

// Validate returns InvalidArgument, as an error, unless every field is in the range that
// [EntitySettings] documents, or is a zero that stands for the default.
func (s EntitySettings) Validate() error {
	s = s.WithDefaults()
	if s.LockDuration < lockDurationMin || s.LockDuration > lockDurationMax ||
		s.MaxDeliveryCount < 1 || s.MaxDeliveryCount > deliveryCountMax ||
		s.MaxMessageBytes < messageBytesFloor || s.MaxMessageBytes > MessageBytesMax ||
		!s.validTimes() || !s.validDelays() ||
		s.MaxBytes < QueueBytesMin || s.MaxBytes > queueBytesMax || s.Status > ReceiveDisabled ||
		len(s.UserMetadata) > UserMetadataBytesMax || !utf8.ValidString(s.UserMetadata) || !s.validForwarding() ||
		s.BatchedOperations > ChosenOff || s.Ordering > ChosenOff {
		return InvalidArgument
	}
	return nil
}

func (s EntitySettings) validTimes() bool {
	return s.DefaultTimeToLive > 0 && s.DefaultTimeToLive <= Forever &&
		s.DuplicateWindow >= DuplicateWindowMin && s.DuplicateWindow <= duplicateWindowMax &&
		s.AutoDeleteOnIdle >= AutoDeleteMin && s.AutoDeleteOnIdle <= Forever &&
		s.DeadLetterTimeToLive >= deadLetterLifeMin && s.DeadLetterTimeToLive <= Forever
}

func (s EntitySettings) validForwarding() bool {
	return len(s.ForwardTo) <= EntityNameBytesMax && len(s.ForwardDeadLettersTo) <= EntityNameBytesMax &&
		utf8.ValidString(s.ForwardTo) && utf8.ValidString(s.ForwardDeadLettersTo) && (s.ForwardTo == "" || !s.RequiresSession) &&
		validBase(s.ForwardToBase, s.ForwardTo) && validBase(s.ForwardDeadLettersToBase, s.ForwardDeadLettersTo)
}

// validBase reports whether a client can have written base before the name of a destination.
func validBase(base, name string) bool {
	return base == "" || name != "" && len(base) <= DestinationBaseBytesMax && strings.HasSuffix(base, "/") && utf8.ValidString(base)
}

// ValidFor reports whether an entity of that kind can have these settings.
func (s EntitySettings) ValidFor(kind EntityKind) bool {
	switch kind {
	case TopicEntity:
		return s.Validate() == nil && s.ForwardTo == "" && s.ForwardDeadLettersTo == "" && !s.RequiresSession
	case SubscriptionEntity:
		return s.Validate() == nil && !s.EnablePartitioning
	case QueueEntity:
	}
	return s.Validate() == nil
}

func (s EntitySettings) validDelays() bool {
	if s.RetryDelay == 0 {
		return s.RetryDelayMax == 0
	}
	return s.RetryDelay > 0 && s.RetryDelay <= s.RetryDelayMax && s.RetryDelayMax <= DelayMax
}

// CanChangeTo reports whether settings can be changed to others: three of them cannot change.
func (s EntitySettings) CanChangeTo(to *EntitySettings) bool {
	return s.RequiresDuplicateDetection == to.RequiresDuplicateDetection && s.RequiresSession == to.RequiresSession &&
		s.EnablePartitioning == to.EnablePartitioning
}

// settingsVersion is the first byte of encoded settings: new settings change this number and not
// that of the command or image that contains them.
const settingsVersion byte = 0xB1

// Fields lists the fields of the record for the codec.
func (s *EntitySettings) Fields(x *fields.Codec) {
	fields.Version(x, settingsVersion)
	fields.Int64(x, &s.LockDuration)
	fields.Uint32(x, &s.MaxDeliveryCount)
	fields.Uint32(x, &s.MaxMessageBytes)
	fields.Flags(x, &s.DeadLetterOnExpiry, &s.RequiresDuplicateDetection, &s.DeadLetterOnFilterErrors, &s.RequiresSession, &s.EnablePartitioning, &s.Express)
	fields.Uint8(x, &s.Status)
	fields.Int64(x, &s.DefaultTimeToLive)
	fields.Int64(x, &s.DuplicateWindow)
	fields.Int64(x, &s.AutoDeleteOnIdle)
	fields.Uint64(x, &s.MaxBytes)
	fields.Text(x, &s.UserMetadata)
	fields.Int64(x, &s.DeadLetterTimeToLive)
	fields.Int64(x, &s.RetryDelay)
	fields.Int64(x, &s.RetryDelayMax)
	fields.Text(x, &s.ForwardTo)
	fields.Text(x, &s.ForwardDeadLettersTo)
	fields.Uint8(x, &s.BatchedOperations)
	fields.Uint8(x, &s.Ordering)
	fields.Text(x, &s.ForwardToBase)
	fields.Text(x, &s.ForwardDeadLettersToBase)
}
