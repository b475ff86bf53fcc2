package partition

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/cespare/xxhash/v2"
	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/partition/bodystore"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/partition/raftlog"
)

// restoringFile marks the folder of a replica into which a backup is being restored.
const restoringFile = "restoring"

// The errors of a restore that callers branch on.
var (
	// ErrNotEmpty means that the replica has data already: it must be dropped first.
	ErrNotEmpty = errors.New("replica is not empty")
	// ErrRestoring means that a restore into the replica was interrupted: restore again, or drop the replica.
	ErrRestoring = errors.New("restoring of the replica was not finished")
)

// RestoreFrom creates one of the first replicas of a new group from a backup; afterwards [Open] with the same
// Config opens it. Config.Bootstrap names all first replicas. Either it names this one alone, and others are
// added when it is the leader; or the same backup is restored with the same Bootstrap at each of them. The
// new group is independent of that of the backup: its replicas have names of their own, its terms begin at 1,
// and its log begins behind the backup's index. The partition of the backup and of Config may differ; the
// caller must know whether that makes sense.
//
// The replica must be empty (ErrNotEmpty); the remains of an interrupted restore are dropped first. The
// replica becomes valid only after the whole backup was read and verified: if the backup is damaged,
// truncated or of another machine, RestoreFrom removes everything it has written and returns an error.
func RestoreFrom(ctx context.Context, cfg Config, r io.Reader) (BackupInfo, error) {
	if cfg.Sizes == (Sizes{}) {
		cfg.Sizes = DefaultSizes()
	}
	if cfg.Timing == (Timing{}) {
		cfg.Timing = DefaultTiming()
	}
	err := cfg.validate()
	if err == nil && len(cfg.Bootstrap) == 0 {
		err = errors.New("config: Bootstrap must name the first replicas")
	}
	var info BackupInfo
	if err == nil {
		err = prepareRestore(&cfg)
	}
	if err != nil {
		return info, fmt.Errorf("restore group %d: %w", cfg.ID, err)
	}
	if info, err = restore(ctx, &cfg, r); err != nil {
		err = errors.Join(err, Drop(cfg.Log, cfg.ID, cfg.Replica, cfg.Dir))
		return info, fmt.Errorf("restore group %d: %w", cfg.ID, err)
	}
	return info, nil
}

// prepareRestore verifies that the replica is empty, and marks it as being restored.
func prepareRestore(cfg *Config) error {
	files, path := cfg.Log.FS(), filepath.Join(cfg.Dir, restoringFile)
	if _, err := files.Stat(path); err == nil || isDropped(files, cfg.Dir) {
		if err := Drop(cfg.Log, cfg.ID, cfg.Replica, cfg.Dir); err != nil {
			return err
		}
	}
	log, err := cfg.Log.Group(cfg.ID)
	if err != nil {
		return err
	}
	owner, err := log.Owner()
	if err != nil {
		return err
	}
	if last, _ := log.LastIndex(); last != 0 || owner != "" {
		return fmt.Errorf("log holds replica %s: %w", owner, ErrNotEmpty)
	}
	names, err := files.ReadDir(cfg.Dir)
	switch {
	case err == nil && len(names) > 0:
		return fmt.Errorf("folder %s: %w", cfg.Dir, ErrNotEmpty)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := files.MkdirAll(cfg.Dir, disk.FolderMode); err != nil {
		return err
	}
	return errors.Join(disk.WriteSynced(files, path, nil), files.SyncFolder(filepath.Dir(cfg.Dir)))
}

// restore reads a backup into an empty replica.
func restore(ctx context.Context, cfg *Config, r io.Reader) (info BackupInfo, err error) {
	log, err := cfg.Log.Group(cfg.ID)
	if err != nil {
		return info, err
	}
	if err := claim(cfg, log); err != nil {
		return info, err
	}
	files, snapDir := cfg.Log.FS(), filepath.Join(cfg.Dir, "snap")
	if _, _, err := findSnapshot(files, snapDir); err != nil { // creates the folder
		return info, err
	}
	var failed error
	fail := func(err error) { failed = errors.Join(failed, err) }
	b, err := bodystore.Open(files, filepath.Join(cfg.Dir, "seg"), cfg.Sizes.Segment, nil, fail)
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, failed, b.Close()) }()
	store := &snapshotStore{files: files, dir: snapDir, bodies: b, machine: cfg.Machine, fail: fail, received: func() {}}

	whole := xxhash.New()
	in := io.TeeReader(contextReader(ctx, r), whole)
	if info, err = ReadBackupInfo(in); err != nil {
		return info, err
	}
	if info.Index == 0 || info.Index > raftlog.IndexMax || info.StreamBytes < streamHeaderBytes {
		return info, fmt.Errorf("backup of index %d, %d bytes: %w", info.Index, info.StreamBytes, disk.ErrDamaged)
	}
	s, err := newGroupSink(store, cfg, info.Index)
	if err != nil {
		return info, err
	}
	if err := s.receiveBackup(in, info); err != nil {
		return info, err
	}
	want := whole.Sum64()
	var trailer [backupTrailerBytes]byte
	if _, err := io.ReadFull(in, trailer[:]); err != nil {
		return info, fmt.Errorf("end of the backup: %w (%w)", err, disk.ErrDamaged)
	}
	if binary.LittleEndian.Uint64(trailer[:]) != want {
		return info, fmt.Errorf("backup: checksum of the whole: %w", disk.ErrDamaged)
	}
	if n, err := io.ReadFull(in, trailer[:1]); n != 0 || !errors.Is(err, io.EOF) {
		return info, errors.Join(fmt.Errorf("bytes left over behind the backup: %w", disk.ErrDamaged), err)
	}
	return info, finishRestore(cfg, log, s)
}

// newGroupSink creates the sink of the snapshot with which the group begins.
func newGroupSink(store *snapshotStore, cfg *Config, index uint64) (*snapshotSink, error) {
	made, err := store.Create(raft.SnapshotVersionMax, index, backupFirstTerm, cfg.firstConfiguration(), index, nil)
	if err != nil {
		return nil, err
	}
	s, ok := made.(*snapshotSink)
	if !ok {
		return nil, fmt.Errorf("sink is a %T", made)
	}
	return s, nil
}

// receiveBackup reads the snapshot from a backup, and nothing behind it.
func (s *snapshotSink) receiveBackup(in io.Reader, info BackupInfo) error {
	limited := &io.LimitedReader{R: in, N: info.StreamBytes}
	if err := s.receive(bufio.NewReaderSize(limited, copyBufferBytes)); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w (%w)", err, disk.ErrDamaged)
		}
		return err
	}
	if limited.N != 0 || s.Applied != info.Index {
		return fmt.Errorf("backup says %d and its snapshot %d: %w", info.Index, s.Applied, disk.ErrDamaged)
	}
	return nil
}

// finishRestore makes the received snapshot valid: it loads the snapshot once, to verify it, writes the first
// term and the snapshot, and then removes the mark of the restore.
func finishRestore(cfg *Config, log *raftlog.Group, s *snapshotSink) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("load backup: %v: %w", r, disk.ErrDamaged)
		}
	}()
	machine := cfg.Machine(s.store.bodies)
	trial := &storedSnapshot{manifest: s.manifest, files: s.store.files, id: s.id, dir: s.dir}
	if err := trial.load(machine); err != nil {
		return err
	}
	if err := s.store.bodies.Recount(machine); err != nil {
		return err
	}
	if err := log.SetTerm(backupFirstTerm); err != nil {
		return fmt.Errorf("write first term: %w", err)
	}
	if err := s.publish(); err != nil {
		return err
	}
	if err := s.store.files.Remove(filepath.Join(cfg.Dir, restoringFile)); err != nil {
		return fmt.Errorf("finish restoring: %w", err)
	}
	return s.store.files.SyncFolder(cfg.Dir)
}

// readerFunc is a function that implements io.Reader.
type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// contextReader returns a reader that fails when ctx has ended.
func contextReader(ctx context.Context, r io.Reader) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		return r.Read(p)
	})
}
