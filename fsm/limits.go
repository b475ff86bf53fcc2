package fsm

// Limits of settings and of the catalog.
const (
	lockDurationMin       = Millis(5 * 1000)
	lockDurationMax       = Millis(24 * 60 * 60 * 1000) // if the namespace allows it
	deliveryCountMax      = 1<<31 - 1                   // as a signed number of 32 bits, which clients have
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
)

// payloadOverheadMax is by how much a payload may exceed the MaxMessageBytes of its entity:
// the gateway measures a message as its client sent it, and adds the head of the payload and an id.
const payloadOverheadMax = 256 // bytes

// Limits of commands. A command over a limit is refused with InvalidArgument or MessageTooLarge
// when it is built, and again when it is applied.
const (
	commandMessagesMax    = 4096      // messages that one command locks or forwards
	commandSendMax        = 4500      // messages of one SendMessages, as in Azure Service Bus
	commandSettlementsMax = 4096      // settlements of one SettleMessages
	commandFetchMax       = 4096      // messages of one FetchDeferred or FetchReady
	messageIDBytesMax     = 128 * 4   // 128 characters
	sessionIDBytesMax     = 128 * 4   // 128 characters
	reasonBytesMax        = 4096 * 4  // dead-letter reason or description
	propertiesBytesMax    = 64 * 1024 // properties to modify, for all patches of a message together
	entityNameBytesMax    = 260       // also the number of characters, because names are ASCII
	// destinationBaseBytesMax is the longest URL before the name of a destination: a host name has 253
	// characters.
	destinationBaseBytesMax = 300
	pulseMessagesMax        = 1000 // messages that one Pulse processes
	commandPurgeMax         = 4000 // messages of one PurgeMessages, as in Azure Service Bus
	commandRedriveMax       = 1000 // sequence numbers of one RedriveMessages
	// delayMax is how long the redelivery of an abandoned message can be delayed.
	delayMax = Millis(7 * 24 * 60 * 60 * 1000)
)

// hopsMax is the number of times that a message can be forwarded: it ends cycles of entities that
// forward to each other.
const hopsMax = 4
