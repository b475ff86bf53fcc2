package snapshots

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
)

// A backup with another draft of the formats is refused, with words, before anything of it is read.
func TestBackupOfAnotherDraftIsRefused(t *testing.T) {
	t.Parallel()
	for draft, refused := range map[uint32]bool{0: true, fsm.FormatDraft: false, fsm.FormatDraft + 1: true} {
		text := fmt.Appendf(nil, `{"draft":%d,"partition":1}`, draft)
		h := append(slices.Clone(backupMagic[:]), backupVersion, 0, 0, 0, byte(len(text)), 0, 0, 0)
		h = binary.LittleEndian.AppendUint32(h, crc32.Update(crc32.Checksum(h, disk.Castagnoli), disk.Castagnoli, text))
		_, err := ReadBackupInfo(bytes.NewReader(append(h, text...)))
		if !refused && err != nil || refused && (err == nil || !strings.Contains(err.Error(), fmt.Sprintf("it has draft %d of the formats", draft))) {
			t.Errorf("a backup with draft %d: %v, want it refused: %v", draft, err, refused)
		}
	}
}
