// Package lanes holds the commands that wait for a place in the log, and shares the places among namespaces.
//
// Package partition adds the commands that its leader gets, and takes from the queue what it puts into the next entry.
//
// Invariants:
//
//   - The commands of a namespace, and those of an entity, keep their order.
//   - A namespace with few commands waits behind little of the others: at most one turn of each.
//   - A queue is bounded by CommandsMax and BytesMax, and one namespace leaves places for another one.
package lanes
