package fsm

import "encoding/binary"

// The fewest bytes a partition and a replica take.
const (
	partitionBytesMin = 3 // id, formed, count
	replicaBytesMin   = 2 // member, number
)

func appendFoundCluster(dst []byte, c FoundCluster) []byte {
	dst = appendString(dst, c.ClusterID)
	dst = append(dst, c.SealKey[:]...)
	return appendPartitions(dst, c.Partitions)
}

func (r *reader) foundCluster() FoundCluster {
	c := FoundCluster{ClusterID: r.string(), SealKey: r.key()}
	c.Partitions = make([]Partition, r.count(partitionBytesMin))
	for i := range c.Partitions {
		c.Partitions[i] = r.partition()
	}
	return c
}

func (r *reader) key() (key [16]byte) {
	if len(r.b) < len(key) {
		r.fail(errShort)
		return key
	}
	r.b = r.b[copy(key[:], r.b):]
	return key
}

func appendPartitions(dst []byte, partitions []Partition) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(partitions)))
	for i := range partitions {
		dst = appendPartition(dst, &partitions[i])
	}
	return dst
}

func appendPartition(dst []byte, p *Partition) []byte {
	dst = binary.AppendUvarint(dst, uint64(p.ID))
	dst = appendBool(dst, p.Formed)
	dst = binary.AppendUvarint(dst, uint64(len(p.Replicas)))
	for _, replica := range p.Replicas {
		dst = appendString(dst, string(replica.Member))
		dst = binary.AppendUvarint(dst, uint64(replica.Number))
	}
	return dst
}

func (r *reader) partition() Partition {
	p := Partition{ID: PartitionID(r.uint32()), Formed: r.bool()}
	p.Replicas = make([]Replica, r.count(replicaBytesMin))
	for i := range p.Replicas {
		p.Replicas[i] = Replica{Member: MemberID(r.string()), Number: r.uint32()}
	}
	return p
}

func appendCreateEntity(dst []byte, c CreateEntity) []byte {
	dst = appendString(dst, c.Name)
	dst = binary.AppendUvarint(dst, uint64(c.Partition))
	return appendSettings(dst, c.Settings)
}

func (r *reader) createEntity() CreateEntity {
	return CreateEntity{Name: r.string(), Partition: PartitionID(r.uint32()), Settings: r.settings()}
}
