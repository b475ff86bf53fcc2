// Package bootstrap brings a member that has no data into a cluster: into one that exists, or into
// a new one that it bootstraps together with other members without data.
//
// Package cluster runs a [Bootstrapper] before it opens the catalog, and passes the hello and pledge
// requests of other members to it. The package opens no replica and places no partition; it
// uses gossip only as a list of members to ask.
//
// The decision to bootstrap is made by one member alone, the initial member with the lowest id, and only
// after all initial members have durably pledged to bootstrap with these members only:
//
//	lowest id                        each other initial member
//	  pledge [A B C]  ------------->   writes the pledge, grants it
//	  writes "founding"                 asks A every round: do you have data now?
//	  opens partition 0 with [A B C]    yes: opens partition 0 with [A B C]
//
// Invariants:
//
//   - A pledge binds until the member that it was given to reports that it tries something else. Two
//     decided bootstraps therefore share no member, whatever gossip shows to each of them; and where Expect
//     members must be seen first, there are not enough members for two.
//   - A member that has data never bootstraps.
//   - A pledge and a decision are on disk before they are answered or acted on.
package bootstrap
