// Package operate has the commands of the cluster, its members and its partitions, of the connections of clients, the audit log,
// the rates of entities, and contexts.
//
//	nouns.go status.go verify.go  cluster
//	member.go                     member
//	partition.go rebalance.go     partition
//	connection.go audit.go        connection, audit
//	context.go                    context
//	top.go                        top
//	dry_run.go                    what --dry-run prints
//	watch.go                      work that continues in the cluster while a command watches it
//
// A command that is interrupted while it watches changes nothing: the cluster continues, and the exit code is 3.
package operate
