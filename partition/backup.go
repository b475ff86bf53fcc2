package partition

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/peeklock/peeklock/partition/disk"
)

// Backup writes a consistent copy of the current state of this replica: the image of the machine and its live
// bodies, whose checksums it verifies. Apply is delayed for microseconds. The memory that the image shares
// with the machine and the segments of its bodies are kept until the backup is written, so a slow w costs
// memory and disk; beyond that Backup uses some MiB. On the leader, after [Group.Read], the copy contains
// everything that was answered before; on a follower it may lag. Damaged bytes stop the replica.
func (g *Group) Backup(ctx context.Context, w io.Writer) (BackupInfo, error) {
	frozen, err := g.freeze()
	if err != nil {
		return BackupInfo{}, fmt.Errorf("back up group %d: %w", g.cfg.ID, err)
	}
	defer frozen.Release()
	backup, err := frozen.MeasureBackup(BackupInfo{Partition: g.cfg.ID, Replica: g.cfg.Replica})
	if err == nil {
		err = backup.Write(ctx, w)
	}
	if errors.Is(err, disk.ErrDamaged) {
		g.halt(err)
	}
	if err != nil {
		return BackupInfo{}, fmt.Errorf("back up group %d: %w", g.cfg.ID, err)
	}
	return backup.Info, nil
}
