// Package topology describes a cluster for operators: its members, partitions, moves, the comparison of replicas, and the
// connections of clients. cluster and amqp fill the structs, admin encodes them as JSON and the command line decodes them. The
// package has no code.
package topology
