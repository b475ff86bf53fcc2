package snapshots

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"

	"github.com/peeklock/peeklock/partition/disk"
)

// CheckBackup reads a backup to its end and verifies that it is complete, that nothing follows it and that
// its checksum is right. It does not verify the content, which [RestoreFrom] does. It needs some KiB of
// memory.
func CheckBackup(r io.Reader) (BackupInfo, error) {
	whole := xxhash.New()
	in := io.TeeReader(r, whole)
	info, err := ReadBackupInfo(in)
	if err != nil {
		return info, err
	}
	if _, err := io.CopyN(io.Discard, in, info.StreamBytes); err != nil {
		return info, fmt.Errorf("check backup: it ends too early: %w (%w)", err, disk.ErrDamaged)
	}
	want := whole.Sum64()
	var trailer [backupTrailerBytes]byte
	if _, err := io.ReadFull(r, trailer[:]); err != nil {
		return info, fmt.Errorf("check backup: it ends too early: %w (%w)", err, disk.ErrDamaged)
	}
	if binary.LittleEndian.Uint64(trailer[:]) != want {
		return info, fmt.Errorf("check backup: checksum of the whole: %w", disk.ErrDamaged)
	}
	if n, err := io.ReadFull(r, trailer[:1]); n != 0 || !errors.Is(err, io.EOF) {
		return info, errors.Join(fmt.Errorf("check backup: bytes follow it: %w", disk.ErrDamaged), err)
	}
	return info, nil
}
