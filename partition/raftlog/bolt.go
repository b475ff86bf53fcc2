package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path/filepath"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
)

// The buckets of a raft-boltdb file.
const (
	bucketLogs = "logs"
	bucketConf = "conf" // of the values
)

const (
	logMapBytes    = 1 << 30 // address space reserved at once, so that growth rarely remaps
	logLockTimeout = time.Second
	keyFile        = "file" // key of the id of the raft-boltdb file, a random text. A file that is written again from its copy gets another one
)

// errFolderInUse means that another process holds the file lock of the log.
var errFolderInUse = errors.New("data folder is in use by another process")

// explainLockError replaces bbolt's "timeout" by an error that says what to do.
func explainLockError(err error) error {
	if errors.Is(err, bolterrors.ErrTimeout) {
		return errFolderInUse
	}
	return err
}

// errLostValues means that a raft-boltdb file cannot be written again from its copy.
var errLostValues = fmt.Errorf("the file is missing, damaged or an older one, and its copy may lack the newest votes: put back the file as it was last, "+
	"or replace this member by a new one with an empty folder: %w", disk.ErrDamaged)

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

// unreadableSuffix is that of a file of entries that could not be read, which is kept for an investigation.
const unreadableSuffix = ".unreadable"

// setAsideUnreadable lets a log of the kind Bolt begin anew if a page of its file cannot be read; failed is the error. Which groups
// had entries or a vote in that page is not known. Each replica of the member finds that the log does not name it any more, so
// it is damaged, and is replaced by one with another name (package partition, claim): no vote is cast twice. Any other error is
// returned.
func setAsideUnreadable(cfg *Config, failed error) error {
	if cfg.Kind != Bolt || !errors.Is(failed, errLostValues) {
		return failed
	}
	if _, err := cfg.FS.Stat(cfg.journalFolder()); !errors.Is(err, fs.ErrNotExist) {
		return failed // the values of a journal
	}
	cfg.Logger.Error("failed to read a page of the log; all replicas of this member are damaged, and the leaders are asked to replace them: check the disk",
		"path", cfg.Path, "kept_as", cfg.Path+unreadableSuffix, "error", failed)
	if err := cfg.FS.Rename(cfg.Path, cfg.Path+unreadableSuffix); err != nil {
		return errors.Join(failed, err)
	}
	if err := cfg.FS.SyncFolder(filepath.Dir(cfg.Path)); err != nil {
		return errors.Join(failed, err)
	}
	return nil
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

func setValue(values map[string]string, key, value string) {
	if value == "" {
		delete(values, key)
		return
	}
	values[key] = value
}

// sumOfBolt returns the checksum of a raft-boltdb file.
func sumOfBolt(file disk.File) ([]byte, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	sum := crc32.New(disk.Castagnoli)
	_, err = io.Copy(sum, disk.Reader(io.NewSectionReader(file, 0, info.Size())))
	return binary.LittleEndian.AppendUint64(sum.Sum(nil), uint64(info.Size())), err
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
