package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/kit"
)

// Members keep the log store of their folders, and what was confirmed, when they restart; either kind works with the other. A
// start with another log store is refused. A journal is removed with the member.
func TestMembersKeepTheirLogStore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newFileCluster(t, 3, 2)
		for i, kind := range []partition.LogKind{partition.JournalLog, partition.JournalLog, partition.BoltLog} {
			c.configs[i].LogStore = kind
		}
		c.startAll()
		createQueue(t, c.nodes[0], "orders")
		for range 20 {
			sendMessage(t, c.nodes[1], resolve(t, c.nodes[1], "orders"), "hello")
		}
		for i := range c.nodes {
			c.stop(i)
		}
		for i := range c.configs {
			config := c.configs[i]
			other := map[partition.LogKind]partition.LogKind{partition.JournalLog: partition.BoltLog, partition.BoltLog: partition.JournalLog}[config.LogStore]
			want := "--log-store " + string(config.LogStore)
			config.LogStore = other
			if n, err := Open(t.Context(), config); err == nil {
				t.Errorf("member %d was opened with %s", i, other)
				_ = n.Close(t.Context())
			} else if !errors.Is(err, datadir.ErrOtherLog) || !strings.Contains(err.Error(), want) {
				t.Error(err)
			}
		}
		c.startAll()
		if counts := countMessages(t, c.nodes[0], resolve(t, c.nodes[0], "orders")); counts.Active != 20 {
			t.Errorf("%+v", counts)
		}

		dir := c.configs[0].Dir
		if _, err := os.Stat(filepath.Join(dir, partition.JournalFolder)); err != nil {
			t.Error(err)
		}
		c.stop(0)
		folder := kit.Must(datadir.Open(nil, dir))(t)
		kit.OK(t, errors.Join(folder.Update(func(id *datadir.Identity) { id.Removed = true }), folder.Close()))
		if moved, err := datadir.SetAsideRemoved(dir); !moved || err != nil {
			t.Fatal(moved, err)
		}
		if left, err := filepath.Glob(filepath.Join(dir, partition.JournalFolder)); err != nil || len(left) > 0 {
			t.Error(left, err)
		}
	})
}
