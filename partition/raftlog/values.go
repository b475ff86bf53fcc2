package raftlog

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
)

// valueStore is a raft-boltdb file whose values are also in memory and, after startCopy, in a copy. Nothing of that copy is synced: a
// loss of power may take its end, and restoreValues sees that.
type valueStore struct {
	Store // the file

	path string

	mu     sync.RWMutex // guards values. It is held for no transaction: raft reads the vote for each request for votes
	values map[string]string

	turn        sync.Mutex // held for a transaction. It guards what follows: the copy, once logger is set
	files       disk.FS
	logger      *slog.Logger
	bolt        disk.File // the raft-boltdb file, for its meta pages
	transaction uint64    // of the copy
	file        disk.File // the copy, written at its end; nil until it is written anew
	changes     int       // bytes behind its first record
	changesMax  int
}

// openBolt opens the store of members: a bbolt file. It uses the operating system's files directly, as bbolt
// does, which maps its file into memory.
func openBolt(cfg *Config) (Store, map[fsm.PartitionID]IndexRange, error) {
	path := cfg.Path
	file, err := restoreValues(cfg)
	if err != nil {
		return nil, nil, err
	}
	if err := readBolt(cfg.FS, path); err != nil {
		if err = setAsideUnreadable(cfg, err); err != nil {
			return nil, nil, err
		}
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

// Get implements Store. Damage to the file while it is open has no effect.
func (s *valueStore) Get(key []byte) ([]byte, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return []byte(s.values[string(key)]), nil
}

// Set implements Store. It returns after the change is in the copy, so that the end of the process loses nothing of it.
func (s *valueStore) Set(key, value []byte) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	defer explainFault(s.path)()
	if err := s.Store.Set(key, value); err != nil {
		return err
	}
	s.mu.Lock()
	setValue(s.values, string(key), string(value))
	s.mu.Unlock()
	if s.logger != nil {
		s.copyChange(string(key), string(value))
	}
	return nil
}

// GetLog implements Store, for entries in bbolt.
func (s *valueStore) GetLog(index uint64, out *raft.Log) error {
	defer explainFault(s.path)()
	return s.Store.GetLog(index, out)
}

// StoreLogs implements Store, for entries in bbolt.
func (s *valueStore) StoreLogs(entries []*raft.Log) error {
	defer explainFault(s.path)()
	return s.Store.StoreLogs(entries)
}

// DeleteRange implements Store, for entries in bbolt.
func (s *valueStore) DeleteRange(low, high uint64) error {
	defer explainFault(s.path)()
	return s.Store.DeleteRange(low, high)
}

// startCopy begins the copy. From then on nothing but Set changes the file.
func (s *valueStore) startCopy(cfg *Config) error {
	if s.values[keyFile] == "" {
		if err := s.Set([]byte(keyFile), []byte(rand.Text())); err != nil {
			return err
		}
	}
	bolt, err := disk.Open(cfg.FS, s.path)
	if err != nil {
		return err
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	metas, err := readMetas(bolt)
	if err != nil {
		return errors.Join(err, bolt.Close())
	}
	s.files, s.logger, s.bolt, s.transaction = cfg.FS, cfg.Logger, bolt, metas.newest
	s.rewriteCopy()
	return nil
}

// copyChange brings a change into the copy. The caller has the turn.
func (s *valueStore) copyChange(key, value string) {
	metas, err := readMetas(s.bolt)
	if err == nil && metas.newest != s.transaction+1 {
		err = fmt.Errorf("transaction %d follows %d", metas.newest, s.transaction) // a change failed, and is in the file
	}
	if err != nil {
		s.endCopy(err)
		return
	}
	s.transaction = metas.newest
	if s.file == nil || s.changes > s.changesMax {
		s.rewriteCopy()
		return
	}
	s.appendCopy(appendCopyRecord(nil, s.transaction, map[string]string{key: value}))
}

// rewriteCopy replaces the copy by one without changes. If it fails, the next change tries it again. The caller has the turn.
func (s *valueStore) rewriteCopy() {
	content := (&valueCopy{transaction: s.transaction, values: s.values}).encode()
	path, files := s.path+copySuffix, s.files
	s.closeCopy()
	file, err := files.OpenFile(path+freshSuffix, os.O_RDWR|os.O_CREATE|os.O_TRUNC, disk.FileMode)
	if err == nil {
		if _, err = file.Write(content); err == nil {
			err = files.Rename(path+freshSuffix, path)
		}
		if err != nil {
			err = errors.Join(err, file.Close(), files.Remove(path+freshSuffix))
		}
	}
	if err != nil {
		s.warnCopy(err)
		return
	}
	s.file, s.changes, s.changesMax = file, 0, max(copyChangesBytesMax, len(content))
}

// appendCopy writes at the end of the copy. If that fails, the copy has to be written anew.
func (s *valueStore) appendCopy(b []byte) {
	s.changes += len(b)
	if _, err := s.file.Write(b); err != nil {
		s.warnCopy(err)
		s.closeCopy()
	}
}

func (s *valueStore) warnCopy(err error) {
	s.logger.Warn("failed to write the copy of terms and votes, will retry", "path", s.path+copySuffix, "error", err)
}

func (s *valueStore) closeCopy() {
	if s.file != nil {
		_ = s.file.Close() // nothing depends on it
		s.file = nil
	}
}

// endCopy leaves the copy as it is: the file goes beyond it, and the next start does without it. The caller has the turn.
func (s *valueStore) endCopy(err error) {
	if s.logger == nil {
		return
	}
	s.logger.Warn("failed to continue the copy of terms and votes; the next start begins another one", "path", s.path+copySuffix, "error", err)
	s.closeCopy()
	_ = s.bolt.Close() // it was only read
	s.logger = nil
}

// Close implements Store. The copy gets the checksum of the file, which does not change any more.
func (s *valueStore) Close() error {
	s.turn.Lock()
	defer s.turn.Unlock()
	err := s.Store.Close()
	if s.logger == nil {
		return err
	}
	if s.file != nil && err == nil {
		if sum, sumErr := sumOfBolt(s.bolt); sumErr == nil {
			s.appendCopy(appendCopyRecord(nil, s.transaction, map[string]string{"": string(sum)}))
		}
	}
	s.closeCopy()
	_ = s.bolt.Close() // it was only read
	s.logger = nil
	return err
}
