// Package topology describes a cluster for operators: its members, partitions, moves and the comparison of replicas.
// cluster fills the structs, admin encodes them as JSON and the command line decodes them. The package has no code.
package topology
