package fsm

import (
	"encoding/binary"
	"fmt"
)

// appendCatalogCommand is AppendCommand for what only the catalog takes.
func appendCatalogCommand(dst []byte, h Header, c Command) []byte {
	head := func(k Kind) []byte { return appendHeader(dst, k, h) }
	switch c := c.(type) {
	case FoundCluster:
		return appendFoundCluster(head(KindFoundCluster), c)
	case PartitionFormed:
		return binary.AppendUvarint(head(KindPartitionFormed), uint64(c.Partition))
	case CreateEntity:
		return appendCreateEntity(head(KindCreateEntity), c)
	case UpdateEntity:
		dst = binary.AppendUvarint(head(KindUpdateEntity), uint64(c.Entity))
		return appendSettings(dst, c.Settings)
	case DeleteEntity:
		return binary.AppendUvarint(head(KindDeleteEntity), uint64(c.Entity))
	case ForgetEntity:
		return binary.AppendUvarint(head(KindForgetEntity), uint64(c.Entity))
	case CreateNamespace:
		return appendCreateNamespace(head(KindCreateNamespace), c)
	case UpdateNamespace:
		return appendNamespaceSettings(binary.AppendUvarint(head(KindUpdateNamespace), uint64(c.Namespace)), &c.Settings)
	case DeleteNamespace:
		return binary.AppendUvarint(head(KindDeleteNamespace), uint64(c.Namespace))
	case SetAccess:
		return appendSetAccess(head(KindSetAccess), c)
	case SetMember:
		return appendMember(head(KindSetMember), &c.Member)
	case PlacePartition:
		return appendPlacePartition(head(KindPlacePartition), c)
	case PartitionPlaced:
		return appendReplicas(binary.AppendUvarint(head(KindPartitionPlaced), uint64(c.Partition)), c.Replicas)
	case AddPartitions:
		return appendAddPartitions(head(KindAddPartitions), c)
	case RaiseLevel:
		return binary.AppendUvarint(head(KindRaiseLevel), uint64(c.Level))
	default:
		panic(fmt.Sprintf("fsm: %T is not a command", c))
	}
}

// catalogPayload is payload for what only the catalog takes.
func (r *reader) catalogPayload(kind Kind) Command {
	switch kind { //nolint:exhaustive // payload reads the others
	case KindFoundCluster:
		return r.foundCluster()
	case KindPartitionFormed:
		return PartitionFormed{Partition: PartitionID(r.uint32())}
	case KindCreateEntity:
		return r.createEntity()
	case KindUpdateEntity:
		return UpdateEntity{Entity: EntityID(r.uvarint()), Settings: r.settings()}
	case KindDeleteEntity:
		return DeleteEntity{Entity: EntityID(r.uvarint())}
	case KindForgetEntity:
		return ForgetEntity{Entity: EntityID(r.uvarint())}
	case KindCreateNamespace:
		return CreateNamespace{Name: r.string(), Settings: r.namespaceSettings(), Access: r.access()}
	case KindUpdateNamespace:
		return UpdateNamespace{Namespace: NamespaceID(r.uint32()), Settings: r.namespaceSettings()}
	case KindDeleteNamespace:
		return DeleteNamespace{Namespace: NamespaceID(r.uint32())}
	case KindSetAccess:
		return SetAccess{Namespace: NamespaceID(r.uint32()), Entity: EntityID(r.uvarint()), Version: r.uvarint(), Rules: r.access()}
	case KindSetMember:
		return SetMember{Member: r.member()}
	case KindPlacePartition:
		return PlacePartition{Partition: PartitionID(r.uint32()), Members: r.members(), Paused: r.bool()}
	case KindPartitionPlaced:
		return PartitionPlaced{Partition: PartitionID(r.uint32()), Replicas: r.replicas()}
	case KindAddPartitions:
		return r.addPartitions()
	case KindRaiseLevel:
		return RaiseLevel{Level: r.uint32()}
	}
	r.fail(errKind)
	return Pulse{}
}
