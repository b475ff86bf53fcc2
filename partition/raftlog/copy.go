package raftlog

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"github.com/peeklock/peeklock/partition/disk"
)

// A raft-boltdb file has no checksums, so damage to it could change a vote unseen. Where it holds nothing but values, since the
// entries are in a journal, a second file has a copy of them, with checksums. It begins with a record of all values; each later one
// has the change of one transaction, and the last one, after an orderly end, the checksum of the raft-boltdb file. DESIGN.md of
// package partition gives the reasons.
const (
	copySuffix  = ".copy" // of the file, behind the path of the raft-boltdb file
	freshSuffix = ".new"  // of a file that is being written and replaces another one

	copyRecordHeadBytes = 16       // length of the rest, its checksum, transaction
	copyChangesBytesMax = 64 << 10 // of changes behind the first record before the copy is written anew, unless that record is larger

	keyFile = "file" // key of the id of the raft-boltdb file, a random text. A file that is written again from its copy gets another one
)

// pendingTransaction is the transaction of a copy from which the raft-boltdb file is being written again: it counts, whatever the
// file holds. The first transaction of a bbolt file is a higher one.
const pendingTransaction = 0

// copyHead is the magic and the version of a copy.
var copyHead = []byte("PLKVALUE\x01\x00\x00\x00") //nolint:gochecknoglobals // read only

// valueCopy is the content of a copy.
type valueCopy struct {
	transaction uint64 // of the raft-boltdb file after which the values were these
	values      map[string]string
	sum         []byte // checksum of the raft-boltdb file after its orderly end, nil if it has not come to that
}

// errLostValues means that a raft-boltdb file cannot be written again from its copy.
var errLostValues = fmt.Errorf("the file is missing, damaged or an older one, and its copy may lack the newest votes: put back the file as it was last, "+
	"or replace this member by a new one with an empty folder: %w", disk.ErrDamaged)

// encode returns a copy without changes.
func (c *valueCopy) encode() []byte {
	return appendCopyRecord(bytes.Clone(copyHead), c.transaction, c.values)
}

// appendCopyRecord appends a record. An empty value removes its key. The empty key, which bbolt does not permit, has the checksum of the
// raft-boltdb file.
func appendCopyRecord(b []byte, transaction uint64, values map[string]string) []byte {
	start := len(b)
	b = binary.LittleEndian.AppendUint64(append(b, make([]byte, 8)...), transaction)
	for _, key := range slices.Sorted(maps.Keys(values)) {
		for _, s := range []string{key, values[key]} {
			b = append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...)
		}
	}
	binary.LittleEndian.PutUint32(b[start:], uint32(len(b)-start-8))
	binary.LittleEndian.PutUint32(b[start+4:], crc32.Checksum(b[start+8:], disk.Castagnoli))
	return b
}

// decodeCopyRecord returns the record at the start of b and its length, 0 if there is no whole one.
func decodeCopyRecord(b []byte) (transaction uint64, values map[string]string, n int) {
	if len(b) < copyRecordHeadBytes {
		return 0, nil, 0
	}
	length := uint64(binary.LittleEndian.Uint32(b)) + 8
	if length < copyRecordHeadBytes || length > uint64(len(b)) || crc32.Checksum(b[8:length], disk.Castagnoli) != binary.LittleEndian.Uint32(b[4:]) {
		return 0, nil, 0
	}
	rest := b[copyRecordHeadBytes:length]
	next := func() (string, bool) {
		if len(rest) < 4 || uint64(binary.LittleEndian.Uint32(rest)) > uint64(len(rest)-4) {
			return "", false
		}
		end := 4 + int(binary.LittleEndian.Uint32(rest))
		s := string(rest[4:end])
		rest = rest[end:]
		return s, true
	}
	values = make(map[string]string)
	for len(rest) > 0 {
		key, hasKey := next()
		value, hasValue := next()
		if !hasKey || !hasValue {
			return 0, nil, 0
		}
		values[key] = value
	}
	return binary.LittleEndian.Uint64(b[8:]), values, int(length)
}

// decodeCopy returns what a copy holds up to the first record that is not whole, nil if that is nothing. Such a copy is as if the
// process had ended earlier.
func decodeCopy(b []byte) *valueCopy {
	b, ok := bytes.CutPrefix(b, copyHead)
	if !ok {
		return nil
	}
	transaction, values, n := decodeCopyRecord(b)
	if n == 0 {
		return nil
	}
	c := &valueCopy{transaction: transaction, values: values}
	for {
		b = b[n:]
		if transaction, values, n = decodeCopyRecord(b); n == 0 {
			return c
		}
		if sum, ok := values[""]; ok && transaction == c.transaction {
			c.sum = []byte(sum)
			return c
		}
		if transaction != c.transaction+1 {
			return c
		}
		c.transaction = transaction
		for key, value := range values {
			setValue(c.values, key, value)
		}
	}
}

func setValue(values map[string]string, key, value string) {
	if value == "" {
		delete(values, key)
		return
	}
	values[key] = value
}

// The places in a meta page of bbolt. A file has two of them, one behind the other, and a transaction is valid once it
// has overwritten the older one.
const (
	metaStart       = 16 // behind the head of the page
	metaPageSize    = metaStart + 8
	metaTransaction = metaStart + 48
	metaSum         = metaStart + 56
	metaEnd         = metaSum + 8

	metaMagic, metaVersion = 0xED0CDAED, 2

	pageBytesMin, pageBytesMax = 1 << 10, 1 << 16
)

// boltMetas says what the meta pages of a raft-boltdb file tell that are not damaged.
type boltMetas struct {
	newest uint64 // transaction
	whole  int    // pages, two unless the file is damaged
}

// readMetas reads the meta pages, without bbolt, which might not survive a damaged file.
func readMetas(file io.ReaderAt) (m boltMetas, err error) {
	read := func(offset int64) (pageBytes int64, err error) {
		page := make([]byte, metaEnd)
		switch _, err := file.ReadAt(page, offset); {
		case disk.IsUnreadable(err): // it is damaged
			return 0, nil
		case err != nil && !errors.Is(err, io.EOF):
			return 0, err
		}
		if binary.NativeEndian.Uint32(page[metaStart:]) != metaMagic || binary.NativeEndian.Uint32(page[metaStart+4:]) != metaVersion ||
			binary.NativeEndian.Uint64(page[metaSum:]) != sumOfMeta(page) {
			return 0, nil
		}
		m.newest = max(m.newest, binary.NativeEndian.Uint64(page[metaTransaction:]))
		m.whole++
		return int64(binary.NativeEndian.Uint32(page[metaPageSize:])), nil
	}
	second, err := read(0)
	if m.whole > 0 {
		_, err = read(second)
	}
	for offset := int64(pageBytesMin); err == nil && offset <= pageBytesMax && m.whole == 0; offset *= 2 {
		_, err = read(offset)
	}
	return m, err
}

func sumOfMeta(page []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(page[metaStart:metaSum])
	return h.Sum64()
}

// isNewest reports whether a transaction, which was in the file, was the newest one. If one of the meta pages is damaged, it may be that of
// the newest transaction.
func (m *boltMetas) isNewest(transaction uint64) bool {
	return m.whole > 0 && (transaction == m.newest || m.whole == 1 && transaction == m.newest+1)
}

// restoreValues makes the raft-boltdb file of a log hold what its copy holds, if the copy has the newest transaction and nothing shows
// that the file is whole. It is called before anything else reads the file. It returns the id that the file must have, empty if there
// is no copy, or an error that wraps disk.ErrDamaged if the file is damaged and the copy may lack transactions.
func restoreValues(cfg *Config) (id string, err error) {
	content, err := disk.ReadFile(cfg.FS, cfg.Path+copySuffix)
	switch {
	case errors.Is(err, disk.ErrDamaged):
		cfg.Logger.Error("failed to read the copy of terms and votes, and goes on without it: check the disk", "path", cfg.Path+copySuffix, "error", err)
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
