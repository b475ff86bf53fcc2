package fsm

import "github.com/peeklock/peeklock/fsm/fields"

// FormatLevel is the highest format level that this binary knows.
//
// A format level is a number for a set of formats: which kinds of commands a binary of that level
// may write and in which versions, and therefore the contents of logs, images, backups, gossip and
// results. Every change that an older binary would refuse or read differently is a new level,
// however small it is. A binary reads all levels up to its own, and writes that of the cluster
// (Catalog.FormatLevel), which rises when all members know the next one. A change of format
// therefore has two parts: the code that reads it, with a new FormatLevel here, and the code that
// writes it if Catalog.FormatLevel permits it.
//
//	1  the formats in testdata/formats
//	2  RaiseLevel in the logs of message partitions. From it on, a state machine counts steps
//	   (ruleStepsMax, entryStepsMax), stores messages that exceed the budget of an entry as
//	   Pending, and writes image version 4, which begins with its level.
//	3  Epochs of forwarding: BeginEpoch, and TransferMessages with sequence numbers. A state machine
//	   takes both, writes image version 5, which holds them, and stores at most pulseBytesMax of
//	   bodies with one pulse and setAsideBytesMax with the batches that one entry takes. RenameCluster
//	   in the log of the catalog, and PlacePartition that names the placement it replaces.
//	   Two times (see Times): entries of version 2 carry a serving time beside the wall time, and
//	   image version 5 of both state machines has the serving time.
//	4  Administration as in the service: settings version 4, rules with the forms of their values,
//	   MaxDeliveryCount above 2000, names with a tilde; the catalog refuses them below. The time of
//	   the last use of each entity, in image version 6. One entry rewrites at most rewriteBytesMax of
//	   patches outside of pulses.
//	   Transactions with up to transactionSettlementsMax settlements beside transactionSendsMax sends,
//	   and with messages for other partitions that are scheduled. Numbers that are reserved, and transactions
//	   that schedule messages under them, cancel scheduled messages and set states of sessions; patches of
//	   version 3.
//	   A deferred delivery counts as one that did not settle the message; in other sub-queues than the main
//	   queue no delivery counts. What the gateway adds to a message does not count in MaxMessageBytes, and
//	   SendMessages with up to commandSendMax messages. The actions of correlation filters share
//	   correlationStepsMax for a message. Payloads, which the gateway writes and reads, may hold first-acquirer and
//	   the delivery annotations of the sender. ReplaceReplica in the log of the catalog.
//	   AutoDeleteOnIdle of partitioned entities, which the catalog refuses below; FenceIdle, and the
//	   fences of entities in image version 7.
//	5  FetchReady.
//	6  Session locks that are not exclusive: AcceptSession with a token, and image version 8 of the queues as long as
//	   there are such locks. Settings version 5, with Express, which the catalog refuses below.
const FormatLevel uint32 = 6

// The first levels of changes of behaviour. Changes that appeared in one release share a level and have a
// constant each, so that the code says for which of them it asks.
const (
	// levelPublishSteps is the first level at which publishing is limited by steps.
	levelPublishSteps = 2
	// levelEpochs is the first level at which batches have epochs and sequence numbers, and pulses are
	// limited by bytes.
	levelEpochs = 3
	// LevelPlacementSeen is the first level at which a command can name the placement it was derived from.
	LevelPlacementSeen = 3
	// LevelServingTime is the first level at which serving time differs from wall time: the leader writes the
	// serving time into each entry.
	LevelServingTime = 3
	// levelServiceSettings is the first level at which a catalog takes what the service takes in settings, names
	// and rules, and a message partition records the use of entities.
	levelServiceSettings = 4
	// levelRewriteBytes is the first level at which one entry rewrites a limited number of bytes of patches.
	levelRewriteBytes = 4
	// LevelTransactions is the first level at which a transaction has a limit of its own for settlements, and
	// schedules messages for other partitions.
	LevelTransactions = 4
	// LevelReservedNumbers is the first level at which a transaction schedules messages under numbers that were
	// reserved, cancels scheduled messages, and sets states of sessions.
	LevelReservedNumbers = 4
	// levelDeliveryCount is the first level at which a delivery that is deferred counts, and deliveries in
	// dead-letter queues do not.
	levelDeliveryCount = 4
	// levelSendLimits is the first level at which a SendMessages can have commandSendMax messages, and a payload
	// payloadOverheadMax more than the size that its entity allows.
	levelSendLimits = 4
	// levelCorrelationSteps is the first level at which the actions of correlation filters share
	// correlationStepsMax for one message.
	levelCorrelationSteps = 4
	// LevelSentFields is the first level at which the gateway stores first-acquirer and delivery annotations with a
	// message: a gateway that knows only lower levels cannot read such a payload.
	LevelSentFields = 4
	// LevelReplaceReplica is the first level at which the catalog can replace a replica by another one on its member.
	LevelReplaceReplica = 4
	// LevelFences is the first level at which partitioned entities can be deleted when they are idle.
	LevelFences = 4
	// LevelFetchReady is the first level at which ready messages that were peeked at can be locked.
	LevelFetchReady = 5
	// LevelNonExclusiveSessions is the first level at which session locks can have a token and be taken over.
	LevelNonExclusiveSessions = 6
	// levelExpress is the first level at which a catalog stores Express.
	levelExpress = 6
)

// RaiseLevel records that every member knows a format level, which must be above 0: from now on its
// formats may be written, and a binary with a lower FormatLevel can no longer participate. The
// level never falls: PreconditionFails, as for a catalog without a cluster.
//
// In the catalog it is the level of the cluster. In the log of a message partition it is the level
// of its state machine, which knows no other: the leader writes the command when it learns that the
// cluster has a higher level, and from that entry on all replicas behave as the level says,
// whatever their members have learned.
type RaiseLevel struct{ Level uint32 }

// raiseLevel sets the level of the cluster. A level above FormatLevel is accepted too: all replicas
// must answer alike, and package cluster checks whether this binary is too old.
func (c *Catalog) raiseLevel(level uint32) Code {
	if level < c.level || c.clusterID == "" {
		return PreconditionFails
	}
	c.level = level
	return OK
}

// FormatLevel returns the level of the state machine, 1 or more, which decides its behaviour and
// the version of its image.
func (q *Queues) FormatLevel() uint32 { return max(1, q.level) }

// raiseLevel sets the level of the state machine. Messages that were published before stay
// published.
func (q *Queues) raiseLevel(level uint32) Code {
	if level == 0 {
		return InvalidArgument
	}
	if level < q.FormatLevel() {
		return PreconditionFails
	}
	if q.FormatLevel() < levelPublishSteps && level >= levelPublishSteps {
		for _, x := range q.entities {
			if x.topicState != nil {
				x.topicState.rebuildIndex(q.arena.generation)
			}
		}
	}
	q.level = level
	return OK
}

// FormatLevel returns the level of the cluster, which decides what may be written: 0 before the
// cluster is bootstrapped, then 1 or more.
func (c *Catalog) FormatLevel() uint32 { return c.level }

// CommandLevel returns the format level from which on a state machine performs an encoded command; 1 for what every
// level performs, and for bytes that are not a command.
func CommandLevel(b []byte) uint32 {
	info, err := PeekCommand(b)
	if err != nil {
		return 1
	}
	switch {
	case info.Kind == KindSendMessages && info.Messages > commandSendBeforeMax:
		return levelSendLimits
	case info.Kind == KindTransact:
		_, command, _ := DecodeCommand(b)
		if c, ok := command.(interface{ Level() uint32 }); ok {
			return c.Level()
		}
	}
	return info.Kind.row().level
}

func (RaiseLevel) kind() Kind                           { return KindRaiseLevel }
func (c RaiseLevel) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }
func (c RaiseLevel) check() Code                        { return codeIf(c.Level != 0) }

func (c *RaiseLevel) fields(x *fields.Codec) {
	fields.Uint32(x, &c.Level)
}
