// Package catalog is the state machine of partition 0: the cluster, its members, partitions, namespaces and entities.
//
// [Machine] performs the commands of the catalog. Every member has a replica, from which requests find the partitions of entities.
// A Machine is not safe for concurrent use; its images may be used concurrently with it.
package catalog
