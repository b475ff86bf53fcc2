package snapshots

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"
	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/partition/raftlog"
)

// RestoredBackup is the snapshot of a backup, received in whole and not valid yet.
type RestoredBackup struct{ sink *snapshotSink }

// ReceiveBackup reads a backup, verifies its checksums and that nothing follows it, and writes its bodies and image. The
// snapshot is valid after Publish only. The group begins with the configuration servers, in term BackupFirstTerm.
func (s *Store) ReceiveBackup(r io.Reader, servers raft.Configuration) (*RestoredBackup, BackupInfo, error) {
	whole := xxhash.New()
	in := io.TeeReader(r, whole)
	info, err := ReadBackupInfo(in)
	if err != nil {
		return nil, info, err
	}
	if info.Index == 0 || info.Index > raftlog.IndexMax || info.StreamBytes < streamHeaderBytes {
		return nil, info, fmt.Errorf("backup of index %d, %d bytes: %w", info.Index, info.StreamBytes, disk.ErrDamaged)
	}
	sink, err := s.create(info.Index, BackupFirstTerm, servers, info.Index)
	if err != nil {
		return nil, info, err
	}
	if err := sink.receiveBackup(in, info); err != nil {
		return nil, info, err
	}
	want := whole.Sum64()
	var trailer [backupTrailerBytes]byte
	if _, err := io.ReadFull(in, trailer[:]); err != nil {
		return nil, info, fmt.Errorf("end of the backup: %w (%w)", err, disk.ErrDamaged)
	}
	if binary.LittleEndian.Uint64(trailer[:]) != want {
		return nil, info, fmt.Errorf("backup: checksum of the whole: %w", disk.ErrDamaged)
	}
	if n, err := io.ReadFull(in, trailer[:1]); n != 0 || !errors.Is(err, io.EOF) {
		return nil, info, errors.Join(fmt.Errorf("bytes left over behind the backup: %w", disk.ErrDamaged), err)
	}
	return &RestoredBackup{sink}, info, nil
}

// Load loads the snapshot into a machine. It panics where the machine does not know its bytes.
func (b *RestoredBackup) Load(machine Machine) error {
	trial := &Snapshot{Manifest: b.sink.Manifest, files: b.sink.store.Files, id: b.sink.id, Dir: b.sink.dir}
	return trial.Load(machine)
}

// Publish makes the snapshot valid.
func (b *RestoredBackup) Publish() error { return b.sink.publish() }

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
