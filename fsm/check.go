package fsm

// The limits of settings and of the catalog.
const (
	lockDurationMin     = Millis(5 * 1000)
	lockDurationMax     = Millis(5 * 60 * 1000)
	deliveryCountMax    = 2000
	messageBytesFloor   = 1
	messageBytesMax     = 100 << 20
	clusterIDBytesMax   = 256
	memberIDBytesMax    = 256
	partitionsMax       = 4096
	partitionReplicaMax = 16
	entitiesMax         = 100_000 // entities of a cluster, dropping ones included
	originsMax          = 1024    // members remembered in one partition
)

// DefaultQueueSettings is what a queue gets when its description leaves everything
// out: a lock of 60 s and 10 deliveries, as in the cloud, and messages up to 1 MiB.
func DefaultQueueSettings() QueueSettings {
	return QueueSettings{LockDuration: 60 * 1000, MaxDeliveryCount: 10, MaxMessageBytes: 1 << 20}
}

// Validate reports InvalidArgument, as an error, unless LockDuration is 5 s to 5 min,
// MaxDeliveryCount 1 to 2000 and MaxMessageBytes 1 byte to 100 MiB.
func (s QueueSettings) Validate() error {
	if s.LockDuration < lockDurationMin || s.LockDuration > lockDurationMax ||
		s.MaxDeliveryCount < 1 || s.MaxDeliveryCount > deliveryCountMax ||
		s.MaxMessageBytes < messageBytesFloor || s.MaxMessageBytes > messageBytesMax {
		return InvalidArgument
	}
	return nil
}

// Check says whether a command keeps the limits that hold whatever the state is: OK,
// InvalidArgument or MessageTooLarge. Whoever builds a command calls it before the
// command is encoded; the machines check again.
func Check(c Command) Code {
	switch c := c.(type) {
	case PutQueue:
		return codeIf(c.Settings.Validate() == nil && c.Entity != 0)
	case DropQueue:
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
	case FoundCluster:
		return codeIf(validFoundation(c))
	case CreateEntity:
		return codeIf(validName(c.Name) && c.Settings.Validate() == nil && c.Partition != CatalogPartition)
	case UpdateEntity:
		return codeIf(c.Settings.Validate() == nil)
	}
	return OK
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
		if len(c.Messages[i].ID) > messageIDBytesMax {
			return InvalidArgument
		}
		if len(c.Messages[i].Payload) > messageBytesMax {
			return MessageTooLarge
		}
	}
	return OK
}

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

// validSettlement is checked alone when applied, so that one settlement over a limit
// does not stop its neighbours.
func validSettlement(s *Settlement) bool {
	return validVerb(s.Verb) &&
		len(s.Reason) <= reasonBytesMax && len(s.Description) <= reasonBytesMax &&
		len(s.Properties) <= propertiesBytesMax
}

func validVerb(v Verb) bool { return v >= Complete && v <= Release }

// within says whether a list has items, and no more than limit.
func within(n, limit int) bool { return n > 0 && n <= limit }

// valid says whether there can be such a sub-queue.
func (a Address) valid() bool { return a.Sub <= DeadLetterQueue }

func validFoundation(c FoundCluster) bool {
	if c.ClusterID == "" || len(c.ClusterID) > clusterIDBytesMax ||
		!within(len(c.Partitions), partitionsMax) {
		return false
	}
	for i := range c.Partitions {
		p := &c.Partitions[i]
		if p.ID != PartitionID(i+1) || !within(len(p.Replicas), partitionReplicaMax) {
			return false
		}
		for _, r := range p.Replicas {
			if r.Member == "" || len(r.Member) > memberIDBytesMax {
				return false
			}
		}
	}
	return true
}

// validName says whether an entity may be called so: ASCII letters and digits, '.',
// '-', '_' and '/', at most 260 of them, no '/' at either end. ASCII only, because
// folding the case of other letters changes with the Unicode tables of the compiler,
// and replicas of two releases must agree. '$' is not among them, which keeps the
// reserved sub-paths ($DeadLetterQueue, $management) apart.
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
