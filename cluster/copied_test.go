package cluster

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/test/kit"
)

// copyFolder copies the data folder of a member.
func copyFolder(t *testing.T, from string) (to string) {
	t.Helper()
	to = kit.MemoryDir(t)
	kit.OK(t, os.CopyFS(to, os.DirFS(from)))
	return to
}

func awaitCopied(t *testing.T, n *Node, which string) {
	t.Helper()
	select {
	case <-n.Copied():
	case <-time.After(waitMax):
		t.Errorf("%s runs on", which)
	}
}

// TestOlderDataFolderIsRefused: a member whose data folder was replaced by an older copy is refused by the others and stops, also at its
// next starts, until an operator accepts it.
func TestOlderDataFolderIsRefused(t *testing.T) { inBubble(t, olderDataFolderIsRefused) }

func olderDataFolderIsRefused(t *testing.T) {
	c := newFileCluster(t, 3, 1)
	c.startAll()
	c.stop(2)
	older := copyFolder(t, c.configs[2].Dir)
	c.start(2)
	c.ready()
	c.stop(2)
	c.configs[2].Dir = older
	awaitCopied(t, c.start(2), "the member with the older folder")
	c.stop(2)
	if _, err := c.open(2); !errors.Is(err, datadir.ErrCopied) {
		t.Fatalf("started again with %v, want %v", err, datadir.ErrCopied)
	}
	kit.Must(datadir.AcceptRollback(older))(t)
	c.start(2)
	c.ready()
}

// TestProcessOnACopiedFolderIsFound: a member and a process on a copy of its data folder, which a restart would look like, both stop.
func TestProcessOnACopiedFolderIsFound(t *testing.T) { inBubble(t, processOnACopiedFolderIsFound) }

func processOnACopiedFolderIsFound(t *testing.T) {
	c := newFileCluster(t, 3, 1)
	c.startAll()
	copied := copyFolder(t, c.configs[2].Dir)
	twin := c.add()
	c.configs[twin].Name, c.configs[twin].Dir = c.configs[2].Name, copied
	awaitCopied(t, c.start(twin), "the process on the copy")
	awaitCopied(t, c.nodes[2], "the original")
}
