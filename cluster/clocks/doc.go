// Package clocks compares the wall clock of this member with those of the others and tells which of them a
// quorum confirms. The node feeds it with readings of other clocks and asks it for the time that a leader may
// stamp into entries (partition.Config.AgreedTime) and for members whose clocks are wrong. It opens no
// connections and moves no leaderships.
//
// Invariant: a time is agreed only if the clocks of more than half of the members are within ErrorMax of their
// median. Of an even number of known clocks, the median is the earlier one of the two in the middle: so two members, of
// which one is wrong, agree only while they are within ErrorMax of each other.
//
// The clocks of all members may be wrong together: one server sets them. So each member counts a steady time by its
// boot-time clock (steady.go), and holds wall time to it while the agreed time is more than StepMax away. Members tell
// each other their steady times, so that one that has just started goes on with that of the others.
package clocks
