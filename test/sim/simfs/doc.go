// Package simfs is a disk in memory for the simulation of clusters: it loses what was not synced.
//
// A [Disk] survives the processes that use it. Each process gets a file system of its own from [Disk.Mount],
// which implements disk.FS, and from [FS.OpenLog] the store of its log, instead of a bbolt file. [Disk.Kill]
// ends the process: its file system fails from then on, and the disk keeps what was written. [Disk.Crash] is a
// loss of power: the disk keeps what was synced, and some of what was not, as its source of randomness decides:
//
//   - Of the writes to a file since its last sync: none, all, the first ones, the last of them torn at a sector,
//     or any of them, with zeros where the others were.
//   - Of the names created, renamed and removed in a folder since it was synced: none, all or the first ones.
//     Each folder and each file decides for itself: a name can be there without the content of its file.
//   - Of a transaction of the log that had not returned: all or nothing. Those that had returned are there.
//
// A sync that fails loses the writes that it was for, as Linux does: a second sync succeeds without them.
//
// Delays sleep by the clock of package time, so they are virtual in a bubble of testing/synctest. There are
// delays only where the product holds no mutex: a goroutine that waits for a mutex stops the time of a bubble.
package simfs
