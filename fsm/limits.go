package fsm

// Limits of settings and of the catalog.
const (
	lockDurationMin       = Millis(5 * 1000)
	lockDurationMax       = Millis(24 * 60 * 60 * 1000) // if the namespace allows it
	lockDurationCloudMax  = Millis(5 * 60 * 1000)       // if the namespace does not set a limit
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
	// pathBytesMax is the longest path of a subscription.
	pathBytesMax               = entityNameBytesMax + len("/Subscriptions/") + subscriptionNameCharactersMax
	answersOutstandingMax      = 16384 // remembered answers of one receiver
	receiversPerIncarnationMax = 65536 // receivers of one incarnation in one partition
	incarnationIdleMax         = Millis(10 * 60 * 1000)
	pulseMessagesMax           = 1000 // messages that one Pulse processes
	// pulseBytesMax bounds the bodies and patches that one Pulse stores: a
	// Pulse begins no message once it has stored so many bytes.
	pulseBytesMax = 4 << 20
	// setAsideBytesMax bounds the patches that one entry writes for messages that expired or were
	// forwarded too often when a batch is taken: the entry begins no such
	// message once it has stored so many bytes.
	setAsideBytesMax = 4 << 20
	// rewriteBytesMax bounds the patches that settlements, redrives, ends of sessions, and messages that expire outside
	// of pulses make one entry read and write again: once an entry has rewritten so
	// many bytes, it begins no further such message.
	rewriteBytesMax = 8 << 20
	// addedBytesMax bounds the properties and reasons that settlements add to messages in one entry, those that they
	// share counted for each: once an entry has added so many bytes, it begins no further such settlement. A
	// command holds an outcome once for all its locks.
	addedBytesMax     = 32 << 20
	commandPurgeMax   = 4000 // messages of one PurgeMessages, as in Azure Service Bus
	commandRedriveMax = 1000 // sequence numbers of one RedriveMessages
	// delayMax is how long the redelivery of an abandoned message can be delayed.
	delayMax = Millis(7 * 24 * 60 * 60 * 1000)
)

// hopsMax is the number of times that a message can be forwarded: it ends cycles of entities that
// forward to each other.
const hopsMax = 4
