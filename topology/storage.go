package topology

import (
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// Storage is the state of the disks of members, and of the backups of partitions.
type Storage struct {
	Members []MemberStorage `json:"members"` // by name
	// Backups are the last backup of each partition, by partition. A member forgets those that were read through it when it stops.
	Backups     []Backup `json:"backups"`
	Unreachable []string `json:"unreachable,omitempty"` // members that did not answer: their disks are missing, and backups may be
}

// MemberStorage is the disk of a member.
type MemberStorage struct {
	ID   fsm.MemberID `json:"id"`
	Name string       `json:"name"`
	// DiskBytes and FreeBytes are the size of the file system of the data folder and the free space that the member may still use; 0
	// if the operating system does not report them.
	DiskBytes uint64 `json:"diskBytes"`
	FreeBytes uint64 `json:"freeBytes"`
}

// Backup is a backup that was read completely.
type Backup struct {
	Partition fsm.PartitionID `json:"partition"` // 0 is the catalog
	At        time.Time       `json:"at"`        // when it ended, by the clock of the member that wrote it
	Bytes     int64           `json:"bytes"`
}
