package fsm

import (
	"slices"
)

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

func codeIf(valid bool) Code {
	if valid {
		return OK
	}
	return InvalidArgument
}

// within reports whether n is between 1 and limit.
func within(n, limit int) bool { return n > 0 && n <= limit }

// valid reports whether clients can address such a sub-queue.
func (a Address) valid() bool { return a.Sub <= TransferDeadLetterQueue }
