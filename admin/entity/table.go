package entity

import (
	"fmt"
	"slices"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// How an operator raises a maximum that the namespace sets.
const (
	lockWayOut = "; maxLockDuration of the namespace (peeklock namespace update --max-lock-duration) raises the limit, up to 24h"
	sizeWayOut = "; maxMessageBytes of the namespace (peeklock namespace update --max-message-bytes) raises the limit, up to 104857600 bytes"
)

// Table returns all settings of entities, in the order in which errors list them. Callers must not change it.
func Table() []Setting { return table }

var table = newTable() //nolint:gochecknoglobals // never changed

func newTable() []Setting {
	return slices.Concat(deliverySettings(), sendSettings(), commonSettings(), retentionSettings())
}

// deliverySettings are those of entities that messages are received from.
func deliverySettings() []Setting {
	kinds := []fsm.EntityKind{fsm.QueueEntity, fsm.SubscriptionEntity}
	return []Setting{
		{
			Name: "lockDuration", Element: "LockDuration", Flag: "lock-duration", Kinds: kinds,
			help: "time that a receiver holds the lock of a message",
			value: durationUpTo(func(g *Settings) **Duration { return &g.LockDuration }, func(s *fsm.EntitySettings) *fsm.Millis { return &s.LockDuration },
				LockDurationMin, LockDurationMax, func(l Limits) time.Duration { return l.LockDuration }, lockWayOut),
		},
		{
			Name: "maxDeliveryCount", Element: "MaxDeliveryCount", Flag: "max-delivery-count", Kinds: kinds,
			help: "deliveries after which a message is dead-lettered; above 65535: never",
			value: number(func(g *Settings) **uint32 { return &g.MaxDeliveryCount }, func(s *fsm.EntitySettings) *uint32 { return &s.MaxDeliveryCount },
				1, deliveryCountMax, 1),
		},
		{
			Name: "deadLetteringOnMessageExpiration", Element: "DeadLetteringOnMessageExpiration", Flag: "dead-letter-on-expiry", Kinds: kinds,
			help:  "dead-letter expired messages instead of dropping them",
			value: boolean(func(g *Settings) **bool { return &g.DeadLetteringOnMessageExpiration }, func(s *fsm.EntitySettings) *bool { return &s.DeadLetterOnExpiry }),
		},
		{
			Name: "forwardTo", Element: "ForwardTo", Flag: "forward-to", Kinds: kinds, Destination: true,
			help:  "forward all messages to this queue or topic; '' ends forwarding",
			value: destination(func(g *Settings) **string { return &g.ForwardTo }, func(s *fsm.EntitySettings) *string { return &s.ForwardTo }),
		},
		{
			Name: "forwardDeadLetteredMessagesTo", Element: "ForwardDeadLetteredMessagesTo", Flag: "forward-dead-letters-to", Kinds: kinds, Destination: true,
			help:  "forward all dead letters to this queue or topic; '' ends forwarding",
			value: destination(func(g *Settings) **string { return &g.ForwardDeadLetteredMessagesTo }, func(s *fsm.EntitySettings) *string { return &s.ForwardDeadLettersTo }),
		},
		{
			Name: "requiresSession", Element: "RequiresSession", Flag: "requires-session", Kinds: kinds, Fixed: true,
			help:  "deliver messages by session",
			value: boolean(func(g *Settings) **bool { return &g.RequiresSession }, func(s *fsm.EntitySettings) *bool { return &s.RequiresSession }),
		},
	}
}

// retentionSettings are further settings of such entities, which the service does not have.
func retentionSettings() []Setting {
	kinds := []fsm.EntityKind{fsm.QueueEntity, fsm.SubscriptionEntity}
	return []Setting{
		{
			Name: "deadLetterTimeToLive", Flag: "dead-letter-ttl", Kinds: kinds,
			help: "time that dead letters are kept",
			value: duration(func(g *Settings) **Duration { return &g.DeadLetterTimeToLive }, func(s *fsm.EntitySettings) *fsm.Millis { return &s.DeadLetterTimeToLive },
				deadLetterLifeMin, Forever),
		},
		{
			Name: "retryDelay", Flag: "retry-delay", Kinds: kinds,
			help: "delay before a message is delivered again after a failed delivery, doubled after each further one",
			value: duration(func(g *Settings) **Duration { return &g.RetryDelay }, func(s *fsm.EntitySettings) *fsm.Millis { return &s.RetryDelay },
				0, retryDelayLongest),
		},
		{
			Name: "retryDelayMax", Flag: "retry-delay-max", Kinds: kinds,
			help: "longest retry delay", defaultText: "10m, or the retry delay if longer",
			value: duration(func(g *Settings) **Duration { return &g.RetryDelayMax }, func(s *fsm.EntitySettings) *fsm.Millis { return &s.RetryDelayMax },
				0, retryDelayLongest),
		},
	}
}

// sendSettings are those of entities that messages are sent to.
func sendSettings() []Setting {
	kinds := []fsm.EntityKind{fsm.QueueEntity, fsm.TopicEntity}
	return []Setting{
		{
			Name: "maxMessageBytes", Element: "MaxMessageSizeInKilobytes", Flag: "max-message-bytes", Kinds: kinds,
			help:  "size of the largest accepted message",
			value: messageBytes(),
		},
		{
			Name: "requiresDuplicateDetection", Element: "RequiresDuplicateDetection", Flag: "duplicate-detection", Kinds: kinds, Fixed: true,
			help:  "drop messages whose message id was received before",
			value: boolean(func(g *Settings) **bool { return &g.RequiresDuplicateDetection }, func(s *fsm.EntitySettings) *bool { return &s.RequiresDuplicateDetection }),
		},
		{
			Name: "duplicateDetectionHistoryTimeWindow", Element: "DuplicateDetectionHistoryTimeWindow", Flag: "duplicate-window", Kinds: kinds,
			help: "time that message ids are remembered",
			value: duration(func(g *Settings) **Duration { return &g.DuplicateDetectionHistoryTimeWindow }, func(s *fsm.EntitySettings) *fsm.Millis { return &s.DuplicateWindow },
				DuplicateWindowMin, duplicateWindowMax),
		},
		{
			Name: "maxSizeInMegabytes", Element: "MaxSizeInMegabytes", Flag: "max-size-mb", Kinds: kinds,
			help: "capacity of the %s in MiB",
			value: number(func(g *Settings) **uint32 { return &g.MaxSizeInMegabytes }, func(s *fsm.EntitySettings) *uint64 { return &s.MaxBytes },
				1, megabytesMax, 1<<20),
		},
		{
			Name: "enablePartitioning", Element: "EnablePartitioning", Flag: "partitioned", Kinds: kinds, Fixed: true,
			help:  "spread the %s over several partitions",
			value: boolean(func(g *Settings) **bool { return &g.EnablePartitioning }, func(s *fsm.EntitySettings) *bool { return &s.EnablePartitioning }),
		},
	}
}

// commonSettings are those of all entities, and the one of subscriptions alone.
func commonSettings() []Setting {
	kinds := []fsm.EntityKind{fsm.QueueEntity, fsm.TopicEntity, fsm.SubscriptionEntity}
	return []Setting{
		{
			Name: "defaultMessageTimeToLive", Element: "DefaultMessageTimeToLive", Flag: "default-ttl", Kinds: kinds,
			help: "time to live of messages that have none, and the maximum for all others",
			value: duration(func(g *Settings) **Duration { return &g.DefaultMessageTimeToLive }, func(s *fsm.EntitySettings) *fsm.Millis { return &s.DefaultTimeToLive },
				timeToLiveMin, Forever),
		},
		{
			Name: "autoDeleteOnIdle", Element: "AutoDeleteOnIdle", Flag: "auto-delete-on-idle", Kinds: kinds,
			help: "delete the %s after this time without use",
			value: duration(func(g *Settings) **Duration { return &g.AutoDeleteOnIdle }, func(s *fsm.EntitySettings) *fsm.Millis { return &s.AutoDeleteOnIdle },
				autoDeleteMin, Forever),
		},
		{
			Name: "status", Element: "Status", Flag: "status", Kinds: kinds, Choices: statusNames(),
			help:  "operations that clients may use",
			value: status(func(g *Settings) **string { return &g.Status }, func(s *fsm.EntitySettings) *fsm.EntityStatus { return &s.Status }),
		},
		{
			Name: "userMetadata", Element: "UserMetadata", Flag: "user-metadata", Kinds: kinds, Verbatim: true,
			help:  "any text, at most 1024 bytes",
			value: userMetadata(),
		},
		{
			Name: "deadLetteringOnFilterEvaluationExceptions", Element: "DeadLetteringOnFilterEvaluationExceptions", Flag: "dead-letter-on-filter-errors",
			Kinds: []fsm.EntityKind{fsm.SubscriptionEntity},
			help:  "dead-letter messages for which a rule fails",
			value: boolean(func(g *Settings) **bool { return &g.DeadLetteringOnFilterEvaluationExceptions }, func(s *fsm.EntitySettings) *bool { return &s.DeadLetterOnFilterErrors }),
		},
	}
}

// messageBytes is the size in bytes; the service's API has KiB.
func messageBytes() value {
	v := numberUpTo(func(g *Settings) **uint32 { return &g.MaxMessageBytes }, func(s *fsm.EntitySettings) *uint32 { return &s.MaxMessageBytes },
		MessageBytesMin, messageBytesMax, 1, func(l Limits) uint32 { return l.MessageBytes }, sizeWayOut)
	v.name, v.parse, v.parseElement = "bytes", parseBytes32, parseKilobytes
	v.formatElement = func(n uint32) string { return v.format(n / 1024) }
	return v
}

func userMetadata() value {
	return text(func(g *Settings) **string { return &g.UserMetadata }, func(s *fsm.EntitySettings) *string { return &s.UserMetadata },
		UserMetadataBytesMax, fmt.Sprintf("at most %d bytes long", UserMetadataBytesMax))
}
