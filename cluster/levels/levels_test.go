package levels

import (
	"log/slog"
	"os"
	"testing"

	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/test/kit"
)

// TestLevelIsRecordedAgain: a level that could not be written to member.json is written the next time that the member
// follows the catalog.
func TestLevelIsRecordedAgain(t *testing.T) {
	t.Parallel()
	path := kit.MemoryDir(t)
	dir := kit.Must(datadir.Open(nil, path))(t)
	defer func() { _ = dir.Close() }()
	l := New(&Config{Readable: 2, Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	kit.OK(t, os.RemoveAll(path))
	if !l.Adopt(t.Context(), 2) || dir.Identity().Level != 0 {
		t.Fatalf("level %d is recorded in a folder that does not exist, want 0", dir.Identity().Level)
	}
	kit.OK(t, os.MkdirAll(path, 0o700))
	if !l.Adopt(t.Context(), 2) || dir.Identity().Level != 2 {
		t.Errorf("level %d is recorded, want 2", dir.Identity().Level)
	}
}
