// Package fakeclients provides clients of partitions for tests of the packages that use them. Only tests import it. The
// test controls the replicas that serve the partitions.
package fakeclients
