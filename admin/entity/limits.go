package entity

import (
	"cmp"
	"math"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// Limits and defaults of settings. The state machine checks again; the texts of errors are here.
const (
	LockDurationMin      = time.Second     // the service's API takes it, though its portal says 5 s
	LockDurationMax      = 5 * time.Minute // unless the namespace sets another maximum
	lockDurationDefault  = 30 * time.Second
	deliveryCountMax     = math.MaxInt32 // failed deliveries are counted up to 65,535
	deliveryCountDefault = 10
	MessageBytesMin      = 1024
	messageBytesMax      = 1024 * 1024 // unless the namespace sets another maximum
	messageBytesDefault  = 256 * 1024
	timeToLiveMin        = time.Millisecond
	deadLetterLifeMin    = time.Second
	DuplicateWindowMin   = 20 * time.Second
	duplicateWindowMax   = 7 * 24 * time.Hour
	autoDeleteMin        = 5 * time.Minute
	megabytesMax         = 80 * 1024
	UserMetadataBytesMax = 1024
	retryDelayLongest    = 7 * 24 * time.Hour
	retryDelayMaxDefault = 10 * time.Minute // where RetryDelay is given and RetryDelayMax is not

	TierMessageBytesMax = 100 * 1024 * 1024 // the most that a namespace may allow, as in the largest tier
	TierLockDurationMax = 24 * time.Hour    // the same
)

// Limits are the largest values that a namespace allows in the settings of its entities.
type Limits struct {
	MessageBytes uint32
	LockDuration time.Duration
}

// LimitsOf returns the limits of a namespace. Where it sets none, they are those of the cloud.
func LimitsOf(s fsm.NamespaceSettings) Limits {
	return Limits{
		MessageBytes: cmp.Or(s.MessageBytesMax, messageBytesMax),
		LockDuration: cmp.Or(time.Duration(fromMillis(s.LockDurationMax)), LockDurationMax),
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

// DefaultSettings are the settings of an entity that is created without any.
func DefaultSettings(kind fsm.EntityKind) fsm.EntitySettings {
	s := fsm.DefaultSettings()
	s.LockDuration = fsm.Millis(lockDurationDefault.Milliseconds())
	s.MaxDeliveryCount = deliveryCountDefault
	s.MaxMessageBytes = messageBytesDefault
	s.DeadLetterOnFilterErrors = kind == fsm.SubscriptionEntity
	return s
}
