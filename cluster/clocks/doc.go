// Package clocks compares the wall clock of this member with those of the others and tells which of them a
// quorum confirms. The node feeds it with readings of other clocks and asks it for the time that a leader may
// stamp into entries (partition.Config.AgreedTime) and for members whose clocks are wrong. It opens no
// connections and moves no leaderships.
//
// Invariant: a time is agreed only if the clocks of more than half of the members are within ErrorMax of their
// median. Of an even number of known clocks, the median is the earlier one of the two in the middle: so two members, of
// which one is wrong, agree only while they are within ErrorMax of each other.
package clocks
