// Package entities creates, changes, describes and deletes entities, their rules and namespaces. An entity is in two
// places, the catalog and its partition; a [Manager] writes both, and completes what was interrupted.
//
//	control API, gateways ─► Manager ─► client.Clients ─► the leaders of the catalog and of partitions
//
// Package router embeds a Manager, and asks it to create an entity again whose creation was interrupted. Package cluster
// has it remove what the catalog's leader and the leaders of partitions find: deleted and idle entities. The package does
// not send or receive messages (package router) and does not import package router.
//
// Invariants:
//
//   - The catalog knows an entity before its partition does, and longer: an id is never given twice.
//   - Each step may be repeated, also by another member.
//   - A method that does not block reads only this member's replica of the catalog.
//   - No lock is held while a replica, a connection or a function of the caller is called.
//
// All methods are safe for concurrent use.
package entities
