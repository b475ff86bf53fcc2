// Package health checks whether clients should be sent to a member ([Monitor.Readiness]), and whether its process should be
// restarted ([Monitor.Liveness]). Package cluster makes one Monitor per member, and the probes of Kubernetes read it.
//
// Invariants:
//
//   - A member is not ready only when other members serve clients better.
//   - Nothing that other members cause makes a member not alive.
//   - Checks have no names of entities and addresses in them.
//
// The package may not import package cluster.
package health
