package raftlog

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
)

// Store is the part of raft-boltdb that the log uses. What StoreLogs, DeleteRange and Set have written is
// durable when they return; a crash while one of them runs leaves all or nothing of it.
type Store interface {
	// GetLog returns raft.ErrLogNotFound for an index that is not stored.
	GetLog(index uint64, out *raft.Log) error
	StoreLogs(entries []*raft.Log) error
	DeleteRange(low, high uint64) error
	// Set stores a value; an empty one means that the key is not set.
	Set(key, value []byte) error
	// Get returns nothing or raftboltdb.ErrKeyNotFound for a key that is not set.
	Get(key []byte) ([]byte, error)
	Close() error
}

// OpenStore opens the store at a path and creates it if needed. The ranges are those of all groups that have
// entries. It returns an error within a second if another process has it open.
type OpenStore func(path string) (Store, map[fsm.PartitionID]IndexRange, error)

// IndexRange is the range of a group in the store: the first and last index, both 0 when it has no entries.
type IndexRange struct{ First, Last uint64 }

func (r IndexRange) add(index uint64) IndexRange {
	if r.Last == 0 {
		return IndexRange{index, index}
	}
	return IndexRange{min(r.First, index), max(r.Last, index)}
}

// RangesOf returns the ranges of the groups that have entries under the given keys of a store.
func RangesOf(keys []uint64) map[fsm.PartitionID]IndexRange {
	found := make(map[fsm.PartitionID]IndexRange)
	for _, k := range keys {
		id := fsm.PartitionID(k >> logIndexBits)
		found[id] = found[id].add(k & IndexMax)
	}
	return found
}

// errFolderInUse means that another process holds the file lock of the log.
var errFolderInUse = errors.New("data folder is in use by another process")

// The buckets of a raft-boltdb file.
const (
	bucketLogs = "logs"
	bucketConf = "conf" // of the values
)

// openBolt opens the store of members: a bbolt file. It uses the operating system's files directly, as bbolt
// does, which maps its file into memory.
func openBolt(cfg *Config) (Store, map[fsm.PartitionID]IndexRange, error) {
	path := cfg.Path
	file, err := restoreValues(cfg)
	if err != nil {
		return nil, nil, err
	}
	if err := readBolt(cfg.FS, path); err != nil {
		return nil, nil, err
	}
	ranges, values, err := scanBolt(path)
	if err != nil {
		return nil, nil, err
	}
	if file != "" && values[keyFile] != file {
		return nil, nil, errLostValues
	}
	if err := syncBolt(cfg.FS, path); err != nil {
		return nil, nil, err
	}
	store, err := raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: &bbolt.Options{
		Timeout:         logLockTimeout,
		FreelistType:    bbolt.FreelistMapType,
		NoFreelistSync:  true,
		InitialMmapSize: logMapBytes,
	}})
	if err != nil {
		return nil, nil, explainLockError(err)
	}
	return &valueStore{Store: store, path: path, values: values}, ranges, nil
}

// readBolt reads the file once, if it exists. bbolt maps it into memory, and a page that cannot be read would end the process.
func readBolt(files disk.FS, path string) error {
	file, err := disk.Open(files, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = sumOfBolt(file)
	if err = errors.Join(err, file.Close()); errors.Is(err, disk.ErrDamaged) {
		return fmt.Errorf("%w: %w", errLostValues, err)
	}
	return err
}

// explainFault makes this goroutine end the process with words when a page of the file that bbolt has mapped cannot be read. The
// function that it returns must be deferred. Nothing is written after that: bbolt has changed no page of the file yet, or
// the copy lacks the transaction, and the next start writes the file again from its copy.
func explainFault(path string) func() {
	before := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(before)
		r := recover()
		if fault, is := r.(interface{ Addr() uintptr }); is {
			panic(fmt.Sprintf("raftlog: %s cannot be read (%v at %#x): check the disk, and start the member again: the file of a member with a journal is then written from its copy", path, r, fault.Addr()))
		}
		if r != nil {
			panic(r)
		}
	}
}

// syncBolt makes durable what was read, if the file exists. It can be in the memory of the operating system alone, when the process was
// killed during a sync, and a vote or an entry that was found is confirmed without another write.
func syncBolt(files disk.FS, path string) error {
	file, err := disk.OpenWritable(files, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

// explainLockError replaces bbolt's "timeout" by an error that says what to do.
func explainLockError(err error) error {
	if errors.Is(err, bolterrors.ErrTimeout) {
		return errFolderInUse
	}
	return err
}

// scanBolt finds the groups that have entries, directly in the file, because raft-boltdb knows only one log.
// Keys are big endian, so each group is one range of keys. It also returns all values.
func scanBolt(path string) (map[fsm.PartitionID]IndexRange, map[string]string, error) {
	found, values := make(map[fsm.PartitionID]IndexRange), make(map[string]string)
	if _, err := (disk.OS{}).Stat(path); errors.Is(err, fs.ErrNotExist) {
		return found, values, nil
	}
	db, err := bbolt.Open(path, disk.FileMode, &bbolt.Options{ReadOnly: true, Timeout: logLockTimeout})
	if err != nil {
		return nil, nil, explainLockError(err)
	}
	err = db.View(func(tx *bbolt.Tx) error {
		if b := tx.Bucket([]byte(bucketConf)); b != nil {
			if err := b.ForEach(func(k, v []byte) error {
				setValue(values, string(k), string(v))
				return nil
			}); err != nil {
				return err
			}
		}
		b := tx.Bucket([]byte(bucketLogs))
		if b == nil {
			return nil
		}
		c := b.Cursor()
		k, _ := c.First()
		for k != nil {
			first := keyIndex(k)
			group := first >> logIndexBits
			next, _ := c.Seek(indexKey((group + 1) << logIndexBits))
			var last []byte
			if next == nil {
				last, _ = c.Last()
			} else {
				last, _ = c.Prev()
			}
			found[fsm.PartitionID(group)] = IndexRange{first & IndexMax, keyIndex(last) & IndexMax}
			k = next
		}
		return nil
	})
	return found, values, errors.Join(err, db.Close())
}
