package fsm

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of settings and of the catalog.
const (
	lockDurationMin       = Millis(5 * 1000)
	lockDurationMax       = Millis(24 * 60 * 60 * 1000) // if the namespace allows it
	lockDurationCloudMax  = Millis(5 * 60 * 1000)       // if the namespace does not set a limit
	deliveryCountMax      = 2000
	messageBytesFloor     = 1
	messageBytesMax       = 100 << 20
	duplicateWindowMin    = Millis(20 * 1000)
	duplicateWindowMax    = Millis(7 * 24 * 60 * 60 * 1000)
	autoDeleteMin         = Millis(5 * 60 * 1000)
	deadLetterLifeMin     = Millis(1000)
	queueBytesMin         = 1 << 20
	queueBytesMax         = 80 << 30
	userMetadataBytesMax  = 1024
	clusterIDBytesMax     = 256
	memberIDBytesMax      = 256
	partitionsMax         = 4096
	partitionReplicaMax   = 16
	partitionHeldMax      = 2 * partitionReplicaMax // replicas of a partition during a move
	membersMax            = 1024                    // members with a record in the catalog, removed ones included
	memberTextBytesMax    = 64                      // name, zone
	memberWeightMax       = 100
	namespacesMax         = 1000
	namespaceNameBytesMax = 50
	namespaceHostsMax     = 16
	hostBytesMax          = 253 // RFC 1035 section 2.3.4, without the trailing dot
	hostLabelBytesMax     = 63
	accessRulesMax        = 12 // of an entity or namespace, as in Azure Service Bus
	accessNameBytesMax    = 256
	accessSecretBytesMax  = 256
	entitiesMax           = 100_000 // entities of a cluster, those being deleted included
	incarnationsMax       = 1024    // remembered incarnations of members, per partition
)

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
		s.MaxMessageBytes < messageBytesFloor || s.MaxMessageBytes > messageBytesMax ||
		!s.validTimes() || !s.validDelays() ||
		s.MaxBytes < queueBytesMin || s.MaxBytes > queueBytesMax || s.Status > ReceiveDisabled ||
		s.EnablePartitioning && s.AutoDeleteOnIdle < Forever ||
		len(s.UserMetadata) > userMetadataBytesMax || !utf8.ValidString(s.UserMetadata) || !s.validForwarding() {
		return InvalidArgument
	}
	return nil
}

func (s EntitySettings) validTimes() bool {
	return s.DefaultTimeToLive > 0 && s.DefaultTimeToLive <= Forever &&
		s.DuplicateWindow >= duplicateWindowMin && s.DuplicateWindow <= duplicateWindowMax &&
		s.AutoDeleteOnIdle >= autoDeleteMin && s.AutoDeleteOnIdle <= Forever &&
		s.DeadLetterTimeToLive >= deadLetterLifeMin && s.DeadLetterTimeToLive <= Forever
}

func (s EntitySettings) validForwarding() bool {
	return len(s.ForwardTo) <= entityNameBytesMax && len(s.ForwardDeadLettersTo) <= entityNameBytesMax &&
		utf8.ValidString(s.ForwardTo) && utf8.ValidString(s.ForwardDeadLettersTo) && (s.ForwardTo == "" || !s.RequiresSession)
}

// validFor reports whether an entity of that kind can have these settings.
func (s EntitySettings) validFor(kind EntityKind) bool {
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
	return s.RetryDelay > 0 && s.RetryDelay <= s.RetryDelayMax && s.RetryDelayMax <= delayMax
}

// Check validates a command against the limits that do not depend on state: OK, InvalidArgument or
// MessageTooLarge. Callers that build a command check it before they encode it; the state machines
// check again.
func Check(c Command) Code {
	switch c := c.(type) {
	case PutEntity:
		return codeIf(c.Entity != 0 && c.Settings.validFor(c.Kind) && validKind(c.Kind, c.Topic, c.Rule))
	case DropEntity:
		return codeIf(c.Entity != 0)
	case SendMessages:
		return checkSend(c)
	case LockMessages:
		return checkLock(c)
	case SettleMessages:
		return checkSettle(c)
	case RenewLocks:
		return checkRenew(c)
	case FetchDeferred:
		return checkFetch(c)
	case CancelScheduled:
		return codeIf(within(len(c.Sequences), commandFetchMax))
	case PurgeMessages:
		return codeIf(within(int(c.Max), commandPurgeMax) && c.Address.valid() && c.Before >= 0)
	case RedriveMessages:
		return codeIf(within(len(c.Sequences), commandRedriveMax))
	case PutRule:
		return codeIf(c.Rule.Validate() == nil)
	case ForwardMessages:
		return codeIf(validForward(&c))
	case TransferMessages:
		return checkTransfer(&c)
	case Transact:
		return checkTransact(&c)
	case AcceptSession, RenewSession, ReleaseSession, SetSessionState:
		return validSessionCommand(c)
	}
	return checkCatalog(c)
}

// checkCatalog is Check for the commands of the catalog.
func checkCatalog(c Command) Code {
	switch c := c.(type) {
	case FoundCluster:
		return codeIf(validFoundation(c))
	case CreateEntity:
		return codeIf(c.Settings.validFor(c.Kind) && validKind(c.Kind, c.Topic, c.Rule) && validPath(c.Kind, c.Name) &&
			(c.Partition == CatalogPartition) == (c.Kind == SubscriptionEntity) && c.validShards() && c.validNamespace())
	case UpdateEntity:
		return codeIf(c.Settings.Validate() == nil)
	case CreateNamespace:
		return codeIf(validNamespaceName(c.Name) && c.Settings.Validate() == nil && validAccess(c.Access))
	case UpdateNamespace:
		return codeIf(c.Namespace != 0 && c.Settings.Validate() == nil)
	case DeleteNamespace:
		return codeIf(c.Namespace != 0)
	case SetAccess:
		return codeIf(c.Namespace != 0 && validAccess(c.Rules))
	case SetMember:
		return codeIf(c.Member.valid())
	case PlacePartition:
		return codeIf(c.Partition != CatalogPartition && validMembers(c.Members))
	case PartitionPlaced:
		return codeIf(c.Partition != CatalogPartition && validReplicas(c.Replicas, partitionReplicaMax))
	case RaiseLevel:
		return codeIf(c.Level != 0)
	case AddPartitions:
		return codeIf(within(len(c.Partitions), partitionsMax) && !slices.ContainsFunc(c.Partitions, func(members []MemberID) bool { return !validMembers(members) }))
	}
	return OK
}

// validKind reports whether an entity of that kind can have this topic and first rule.
func validKind(kind EntityKind, topic EntityID, rule *Rule) bool {
	return kind <= SubscriptionEntity && (kind == SubscriptionEntity) == (topic != 0) &&
		(rule == nil || kind == SubscriptionEntity && rule.Validate() == nil)
}

func codeIf(valid bool) Code {
	if valid {
		return OK
	}
	return InvalidArgument
}

func checkSend(c SendMessages) Code {
	if !within(len(c.Messages), commandMessagesMax) {
		return InvalidArgument
	}
	for i := range c.Messages {
		m := &c.Messages[i]
		if len(m.ID) > messageIDBytesMax || !checkSession(m.Session) || !validTime(m.TimeToLive, m.EnqueueAt) || !validProperties(m.Properties) {
			return InvalidArgument
		}
		if len(m.Payload) > messageBytesMax {
			return MessageTooLarge
		}
	}
	return OK
}

// validTime reports whether a message may have this time to live and time of enqueueing.
func validTime(ttl Millis, at Instant) bool { return ttl >= 0 && at >= 0 && at <= Instant(Forever) }

func checkLock(c LockMessages) Code {
	return codeIf(within(int(c.Max), commandMessagesMax) && c.Address.valid())
}

func checkRenew(c RenewLocks) Code {
	return codeIf(within(len(c.Locks), commandSettlementsMax) && c.Address.valid())
}

func checkFetch(c FetchDeferred) Code {
	return codeIf(within(len(c.Sequences), commandFetchMax) && c.Address.valid())
}

func checkSettle(c SettleMessages) Code {
	if !within(len(c.Settlements), commandSettlementsMax) || !c.Address.valid() {
		return InvalidArgument
	}
	for i := range c.Settlements {
		if !validSettlement(&c.Settlements[i]) {
			return InvalidArgument
		}
	}
	return OK
}

// validSettlement checks one settlement. Apply checks each settlement alone, so that one that is
// over a limit does not affect the others.
func validSettlement(s *Settlement) bool {
	return validVerb(s.Verb) &&
		len(s.Reason) <= reasonBytesMax && len(s.Description) <= reasonBytesMax &&
		len(s.Properties) <= propertiesBytesMax &&
		validUntil(s.Verb, s.Until)
}

func validVerb(v Verb) bool { return v >= Complete && v <= Release }

// validUntil reports whether a settlement may have this delay: only abandoned messages can be
// delayed.
func validUntil(v Verb, until Instant) bool { return until == 0 || until > 0 && v == Abandon }

// within reports whether n is between 1 and limit.
func within(n, limit int) bool { return n > 0 && n <= limit }

// valid reports whether clients can address such a sub-queue.
func (a Address) valid() bool { return a.Sub <= TransferDeadLetterQueue }

func validFoundation(c FoundCluster) bool {
	if c.ClusterID == "" || len(c.ClusterID) > clusterIDBytesMax ||
		!within(len(c.Partitions), partitionsMax) {
		return false
	}
	for i := range c.Partitions {
		p := &c.Partitions[i]
		if p.ID != PartitionID(i+1) || !validReplicas(p.Replicas, partitionReplicaMax) {
			return false
		}
	}
	return true
}

// validPath reports whether an entity of that kind can have this path. The name of a queue or topic
// has no segment "Subscriptions".
func validPath(kind EntityKind, path string) bool {
	topic, subscription, ok := SplitSubscriptionPath(path)
	if kind != SubscriptionEntity {
		return validName(path) && !ok && !isSubscriptions(path)
	}
	return ok && validPath(TopicEntity, topic) && validName(subscription) &&
		len(subscription) <= subscriptionNameCharactersMax && !strings.Contains(subscription, "/")
}

// isSubscriptions reports whether the first or the last segment of a name is "Subscriptions".
func isSubscriptions(name string) bool {
	key := nameKey(name)
	return key == subscriptionsSegment || strings.HasPrefix(key, subscriptionsSegment+"/") || strings.HasSuffix(key, "/"+subscriptionsSegment)
}

// validName reports whether a name is valid for an entity: 1 to 260 ASCII letters and digits, '.',
// '-', '_' and '/', no '/' at either end. ASCII only, because case folding of other letters changes
// with the Unicode tables of the compiler, and replicas of two releases must agree. '$' is
// excluded, so that names differ from reserved sub-paths ($DeadLetterQueue, $management).
func validName(name string) bool {
	if name == "" || len(name) > entityNameBytesMax || name[0] == '/' || name[len(name)-1] == '/' {
		return false
	}
	for i := range len(name) {
		c := name[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && c != '.' && c != '-' && c != '_' && c != '/' {
			return false
		}
	}
	return true
}
