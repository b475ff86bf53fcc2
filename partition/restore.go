package partition

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/peeklock/peeklock/partition/bodystore"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/partition/raftlog"
	"github.com/peeklock/peeklock/partition/snapshots"
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
	return errors.Join(disk.WriteSynced(files, path, nil, disk.FileMode), files.SyncFolder(filepath.Dir(cfg.Dir)))
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
	if _, _, err := snapshots.Find(files, snapDir); err != nil { // creates the folder
		return info, err
	}
	var failed error
	fail := func(err error) { failed = errors.Join(failed, err) }
	b, err := bodystore.Open(files, filepath.Join(cfg.Dir, "seg"), cfg.Sizes.Segment, nil, fail)
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, failed, b.Close()) }()
	store := snapshots.New(snapshots.Config{
		Files: files, Dir: snapDir, Bodies: b, Machine: cfg.snapshotMachine, Fail: fail, Received: func() {},
	}, nil, 0)
	restored, info, err := store.ReceiveBackup(contextReader(ctx, r), cfg.firstConfiguration())
	if err != nil {
		return info, err
	}
	return info, finishRestore(cfg, log, b, restored)
}

// finishRestore makes the received snapshot valid: it loads the snapshot once, to verify it, writes the first
// term and the snapshot, and then removes the mark of the restore.
func finishRestore(cfg *Config, log *raftlog.Group, bodies *bodystore.Store, s *snapshots.RestoredBackup) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("load backup: %v: %w", r, disk.ErrDamaged)
		}
	}()
	machine := cfg.Machine(bodies)
	if err := s.Load(machine); err != nil {
		return err
	}
	if err := bodies.Recount(machine); err != nil {
		return err
	}
	if err := log.SetTerm(snapshots.BackupFirstTerm); err != nil {
		return fmt.Errorf("write first term: %w", err)
	}
	if err := s.Publish(); err != nil {
		return err
	}
	if err := cfg.Log.FS().Remove(filepath.Join(cfg.Dir, restoringFile)); err != nil {
		return fmt.Errorf("finish restoring: %w", err)
	}
	return cfg.Log.FS().SyncFolder(cfg.Dir)
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
