// Package starts tells the starts of a member apart: each has a number, one more than that of the start before, and a random
// nonce. A member remembers the newest start that it has seen of each other one, and refuses what cannot have followed it. So
// it finds a data folder that was copied, or replaced by an older copy of itself.
//
// Package datadir stores the starts, package peer sends them with each stream, and package cluster stops a member that others
// refuse. The package has no state and imports only the codec.
//
// One case cannot be found so: a folder that is replaced by a copy of the start that runs. What its next start says
// is what a restart would say.
package starts
