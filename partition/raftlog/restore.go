package raftlog

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/peeklock/peeklock/partition/disk"
)

// restoreValues makes the raft-boltdb file of a log hold what its copy holds, if the copy has the newest transaction and nothing shows
// that the file is whole. It is called before anything else reads the file. It returns the id that the file must have, empty if there
// is no copy, or an error that wraps disk.ErrDamaged if the file is damaged and the copy may lack transactions.
func restoreValues(cfg *Config) (id string, err error) {
	content, err := disk.ReadFile(cfg.FS, cfg.Path+copySuffix)
	switch {
	case errors.Is(err, disk.ErrDamaged):
		cfg.Logger.Error("failed to read the copy of terms and votes, continuing without it: check the disk", "path", cfg.Path+copySuffix, "error", err)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("read the copy of the values: %w", err)
	}
	c := decodeCopy(content)
	if c == nil {
		return "", nil
	}
	file, err := disk.Open(cfg.FS, cfg.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", errLostValues
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	lock, err := cfg.FS.Lock(cfg.Path)
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }()
	pending := c.transaction == pendingTransaction
	metas, err := readMetas(file)
	switch {
	case err != nil:
		return "", err
	case pending:
	case metas.newest > c.transaction:
		return c.values[keyFile], nil // a loss of power took the end of the copy
	case !metas.isNewest(c.transaction):
		return "", errLostValues
	case c.sum != nil:
		sum, err := sumOfBolt(file)
		if err == nil && bytes.Equal(sum, c.sum) {
			return c.values[keyFile], nil
		}
		if err != nil && !errors.Is(err, disk.ErrDamaged) {
			return "", err
		}
		cfg.Logger.Error("file of terms and votes was damaged, and is written again from its copy: check the disk", "path", cfg.Path)
	}
	fresh := valueCopy{transaction: pendingTransaction, values: maps.Clone(c.values)}
	fresh.values[keyFile] = rand.Text()
	if err := prepareValues(cfg, &fresh); err != nil {
		err = errors.Join(err, cfg.FS.RemoveAll(cfg.Path+freshSuffix), cfg.FS.RemoveAll(cfg.Path+copySuffix+freshSuffix))
		if disk.IsNoSpace(err) && c.sum == nil && !pending {
			cfg.Logger.Warn("failed to write the file of terms and votes again after a crash: the disk is full; the file is used unchecked", "path", cfg.Path)
			return c.values[keyFile], nil
		}
		return "", err
	}
	return fresh.values[keyFile], replaceValues(cfg)
}

// prepareValues writes and syncs a copy and a raft-boltdb file that has its values, both under names that no start reads.
func prepareValues(cfg *Config, c *valueCopy) error {
	fresh := cfg.Path + freshSuffix
	if err := cfg.FS.RemoveAll(fresh); err != nil { // of an interruption
		return err
	}
	db, err := bbolt.Open(fresh, disk.FileMode, &bbolt.Options{NoSync: true, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte(bucketLogs))
		conf, confErr := tx.CreateBucket([]byte(bucketConf))
		if err := errors.Join(err, confErr); err != nil {
			return err
		}
		for _, key := range slices.Sorted(maps.Keys(c.values)) {
			if err := conf.Put([]byte(key), []byte(c.values[key])); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	if err := syncBolt(cfg.FS, fresh); err != nil {
		return err
	}
	return disk.WriteFile(cfg.FS, cfg.Path+copySuffix+freshSuffix, c.encode(), disk.FileMode)
}

// replaceValues replaces the copy and the raft-boltdb file by those that prepareValues has written. While the pending copy is there,
// a start replaces the file by another one that is written from it. It is removed before the file can change. An error leaves
// a log that must not be used before the next start.
func replaceValues(cfg *Config) error {
	dir, path := filepath.Dir(cfg.Path), cfg.Path
	for _, step := range []func() error{
		func() error { return cfg.FS.Rename(path+copySuffix+freshSuffix, path+copySuffix) },
		func() error { return cfg.FS.SyncFolder(dir) },
		func() error { return cfg.FS.Rename(path+freshSuffix, path) },
		func() error { return cfg.FS.SyncFolder(dir) },
		func() error { return cfg.FS.Remove(path + copySuffix) }, // openValues makes it durable
	} {
		if err := step(); err != nil {
			return fmt.Errorf("write the file of terms and votes again: %w", err)
		}
	}
	return nil
}
