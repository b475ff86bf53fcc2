// Package router performs the operations of the gateways on entities: it finds the partition, or the shards of a
// partitioned entity, and has package client send commands and queries to the leaders.
//
//	gateways ─► Router ─► single (an entity, or a shard) ─► client.Clients ─► the leaders of partitions
//	               └────► sharded ─► single, for each shard
//
// Package cluster makes one Router per member; the AMQP gateway and the control API use it. A Router embeds the Manager
// of package entities, which creates, changes and deletes entities.
//
// Invariants:
//
//   - A partitioned entity is many entities of the state machines; only this package, package
//     entities and the catalog know that they are one. A key is always in the same shard.
//   - No lock is held while a replica, a connection or a function of the caller is called.
package router
