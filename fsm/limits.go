package fsm

// Limits of settings and of the catalog.
const (
	lockDurationMin       = Millis(1000)
	lockDurationMax       = Millis(24 * 60 * 60 * 1000) // if the namespace allows it
	deliveryCountMax      = 1<<31 - 1                   // as a signed number of 32 bits, which clients have
	messageBytesFloor     = 1
	MessageBytesMax       = 100 << 20
	DuplicateWindowMin    = Millis(20 * 1000)
	duplicateWindowMax    = Millis(7 * 24 * 60 * 60 * 1000)
	AutoDeleteMin         = Millis(5 * 60 * 1000)
	deadLetterLifeMin     = Millis(1000)
	QueueBytesMin         = 1 << 20
	queueBytesMax         = 80 << 30
	UserMetadataBytesMax  = 1024
	ClusterIDBytesMax     = 256
	memberIDBytesMax      = 256
	PartitionsMax         = 4096
	PartitionReplicaMax   = 16
	PartitionHeldMax      = 2 * PartitionReplicaMax // replicas of a partition during a move
	memberTextBytesMax    = 64                      // name, zone
	memberWeightMax       = 100
	NamespacesMax         = 1000
	namespaceNameBytesMax = 50
	namespaceHostsMax     = 16
	hostBytesMax          = 253 // RFC 1035 section 2.3.4, without the trailing dot
	hostLabelBytesMax     = 63
	AccessRulesMax        = 12 // of an entity or namespace, as in Azure Service Bus
	accessNameBytesMax    = 256
	accessSecretBytesMax  = 256
	EntitiesMax           = 100_000 // entities of a cluster, those being deleted included
)

// PayloadOverheadMax is by how much a payload may exceed the MaxMessageBytes of its entity:
// the gateway measures a message as its client sent it, and adds the head of the payload and an id.
const PayloadOverheadMax = 256 // bytes

// Limits of commands. A command over a limit is refused with InvalidArgument or MessageTooLarge
// when it is built, and again when it is applied.
const (
	CommandMessagesMax    = 4096      // messages that one command locks or forwards
	CommandSendMax        = 4500      // messages of one SendMessages, as in Azure Service Bus
	CommandSettlementsMax = 4096      // settlements of one SettleMessages
	commandFetchMax       = 4096      // messages of one FetchDeferred or FetchReady
	MessageIDBytesMax     = 128 * 4   // 128 characters
	SessionIDBytesMax     = 128 * 4   // 128 characters
	reasonBytesMax        = 4096 * 4  // dead-letter reason or description
	PropertiesBytesMax    = 64 * 1024 // properties to modify, for all patches of a message together
	EntityNameBytesMax    = 260       // also the number of characters, because names are ASCII
	// DestinationBaseBytesMax is the longest URL before the name of a destination: a host name has 253
	// characters.
	DestinationBaseBytesMax = 300
	PulseMessagesMax        = 1000 // messages that one Pulse processes
	CommandPurgeMax         = 4000 // messages of one PurgeMessages, as in Azure Service Bus
	commandRedriveMax       = 1000 // sequence numbers of one RedriveMessages
	// DelayMax is how long the redelivery of an abandoned message can be delayed.
	DelayMax = Millis(7 * 24 * 60 * 60 * 1000)
)

// HopsMax is the number of times that a message can be forwarded: it ends cycles of entities that
// forward to each other.
const HopsMax = 4
