// Package space limits the effect of full disks and of used-up memory on the groups that a member leads. Package cluster makes
// one [Monitor] per member.
//
// A member that is low on space announces it in gossip, and transfers its leaderships to voters that have space. A group that
// nobody with space can lead, or whose voters with space are no quorum, becomes read-only, so that its clients are refused at
// once and do not wait. The package does not measure space: package partition does. It may not import package cluster.
//
// No lock is held while a group is called.
package space
