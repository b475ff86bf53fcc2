package backup

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"testing"

	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/kit"
)

// wantUnusable checks that no member starts in a folder, and that no restore writes over it.
func wantUnusable(t *testing.T, config RestoreConfig) {
	t.Helper()
	if dir, err := datadir.Open(nil, config.Dir); err == nil {
		t.Error("a member can start in the folder")
		_ = dir.Close()
	}
	if err := Restore(context.WithoutCancel(t.Context()), config); err == nil {
		t.Error("a second restore wrote over the folder")
	}
}

// wantRestored opens a restored folder and checks that it holds a catalog that names this member alone, and
// in each partition so many messages.
func wantRestored(t *testing.T, path string, messages map[fsm.PartitionID]uint64) {
	t.Helper()
	run := openRun(t, path, datadir.Open)
	catalog := readCatalog(run.openGroup(t, fsm.CatalogPartition, raftgroup.CatalogReplica))
	if got := run.dir.Identity(); got.Cluster == sourceCluster || got.Cluster != catalog.cluster || got.Level != fsm.FormatLevel || catalog.level != fsm.FormatLevel {
		t.Errorf("the member belongs to cluster %q at level %d, the catalog to %q at level %d", got.Cluster, got.Level, catalog.cluster, catalog.level)
	}
	if len(catalog.partitions) != len(messages) {
		t.Errorf("%d partitions, want %d", len(catalog.partitions), len(messages))
	}
	for _, p := range catalog.partitions {
		if len(p.Replicas) != 1 || p.Replicas[0].Member != run.self() || p.Target != nil || !p.Formed {
			t.Fatalf("partition %d is placed as %+v", p.ID, p)
		}
		var got uint64
		group := run.openGroup(t, p.ID, p.Replicas[0].Number)
		group.View(func(m partition.Machine) { got = raftgroup.Queues(m).Messages() })
		wantNewEpoch(t, group)
		if got != messages[p.ID] {
			t.Errorf("partition %d has %d messages, want %d", p.ID, got, messages[p.ID])
		}
	}
	for _, m := range catalog.members {
		if !m.Removed {
			t.Errorf("former member %s is not removed", m.ID)
		}
	}
}

// wantNewEpoch checks that the batches of a partition have an epoch.
func wantNewEpoch(t *testing.T, group *partition.Group) {
	t.Helper()
	settings := fsm.DefaultSettings()
	settings.ForwardTo = "elsewhere"
	mustPropose(t, group, fsm.PutEntity{Entity: 99, Version: 1, Settings: settings}, fsm.SendMessages{Entity: 99, Messages: make([]fsm.Message, 1)})
	answers := make(chan partition.Answer, 1)
	take := fsm.ForwardMessages{Address: fsm.Address{Entity: 99}, To: fsm.Destination{Partition: 1, Entity: 1}, Max: 1, MaxBytes: 1}
	group.Submit(fsm.AppendCommand(nil, fsm.Header{}, take), func(a partition.Answer) { answers <- a })
	if batch := (<-answers).Result; batch.Serial == 0 || batch.Epoch == 0 {
		t.Errorf("batch %d has epoch %d", batch.Serial, batch.Epoch)
	}
}

func TestRestoredMemberHoldsEveryPartitionAlone(t *testing.T) {
	t.Parallel()
	config := RestoreConfig{Dir: filepath.Join(kit.MemoryDir(t), "restored"), Logger: discardLogger(), Backup: backUp(t, sourceGroups(t)).open}
	var restored []fsm.PartitionID
	config.Restored = func(info partition.BackupInfo, of int) {
		if restored = append(restored, info.Partition); of != 3 {
			t.Errorf("%d partitions were announced, want 3", of)
		}
	}
	kit.OK(t, Restore(t.Context(), config))
	if len(restored) != 3 {
		t.Errorf("restored partitions %v, want 3", restored)
	}
	wantRestored(t, config.Dir, map[fsm.PartitionID]uint64{1: 1, 2: 1})
}

// Two restores of one backup are two clusters.
func TestEachRestoreIsAClusterOfItsOwn(t *testing.T) {
	t.Parallel()
	whole := backUp(t, sourceGroups(t))
	ids := map[string]bool{sourceCluster: true}
	for _, id := range []string{"", "", "chosen"} {
		config := RestoreConfig{Dir: filepath.Join(kit.MemoryDir(t), "restored"), Logger: discardLogger(), Backup: whole.open, ClusterID: id}
		kit.OK(t, Restore(t.Context(), config))
		ids[openRun(t, config.Dir, datadir.Open).dir.Identity().Cluster] = true
	}
	if len(ids) != 4 || !ids["chosen"] || ids[""] {
		t.Errorf("the clusters have the ids %v", ids)
	}
}

func TestRestoreRefusesWrongOrDamagedCopies(t *testing.T) {
	t.Parallel()
	whole := backUp(t, sourceGroups(t))
	flipped := func(id fsm.PartitionID, at int) copies {
		b := append([]byte(nil), whole[id]...)
		b[at] ^= 1
		return whole.with(id, b)
	}
	for name, c := range map[string]copies{
		"no catalog":                   whole.with(0, nil),
		"a partition as the catalog":   whole.with(0, whole[1]),
		"the catalog as a partition":   whole.with(1, whole[0]),
		"partitions exchanged":         whole.with(1, whole[2]).with(2, whole[1]),
		"last partition missing":       whole.with(2, nil),
		"catalog cut short":            whole.with(0, whole[0][:len(whole[0])-1]),
		"last partition cut short":     whole.with(2, whole[2][:len(whole[2])/2]),
		"last partition empty":         whole.with(2, []byte{}),
		"bytes behind the end":         whole.with(2, append(append([]byte(nil), whole[2]...), 0)),
		"a bit of the head flipped":    flipped(2, 0),
		"a bit of a body flipped":      flipped(2, len(whole[2])/2),
		"a bit of the end flipped":     flipped(2, len(whole[2])-1),
		"a bit of the catalog flipped": flipped(0, len(whole[0])/2),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := RestoreConfig{Dir: filepath.Join(kit.MemoryDir(t), "restored"), Logger: discardLogger(), Backup: c.open}
			if err := Restore(t.Context(), config); err == nil {
				t.Error("the copies were restored")
			}
			wantUnusable(t, config)
		})
	}
}

// brokenReader fails after the first bytes of a copy, or ends the context of the restore there.
type brokenReader struct {
	io.ReadCloser
	left   int
	broken func() error
}

func (r *brokenReader) Read(b []byte) (int, error) {
	if r.left <= 0 {
		if err := r.broken(); err != nil {
			return 0, err
		}
		return r.ReadCloser.Read(b)
	}
	n, err := r.ReadCloser.Read(b[:min(len(b), r.left)])
	r.left -= n
	return n, err
}

func TestInterruptedRestoreLeavesNoUsableFolder(t *testing.T) {
	t.Parallel()
	whole := backUp(t, sourceGroups(t))
	errLost := errors.New("connection lost")
	for id := range whole {
		for name, broken := range map[string]func(cancel func()) error{
			"read fails":   func(func()) error { return errLost },
			"context ends": func(cancel func()) error { cancel(); return nil },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				config := RestoreConfig{Dir: filepath.Join(kit.MemoryDir(t), "restored"), Logger: discardLogger()}
				config.Backup = func(of fsm.PartitionID) (io.ReadCloser, error) {
					file, err := whole.open(of)
					if of == id {
						file = &brokenReader{ReadCloser: file, left: len(whole[of]) / 2, broken: func() error { return broken(cancel) }}
					}
					return file, err
				}
				if err := Restore(ctx, config); !errors.Is(err, errLost) && !errors.Is(err, context.Canceled) {
					t.Errorf("restored, or failed for another reason: %v", err)
				}
				config.Backup = whole.open
				wantUnusable(t, config)
			})
		}
	}
}

func TestRestoreOfSelectedPartitionsLeavesTheOthersEmpty(t *testing.T) {
	t.Parallel()
	whole := backUp(t, sourceGroups(t))
	config := RestoreConfig{
		Dir: filepath.Join(kit.MemoryDir(t), "restored"), Logger: discardLogger(),
		Only: []fsm.PartitionID{2}, Backup: whole.with(1, nil).open,
	}
	kit.OK(t, Restore(t.Context(), config))
	wantRestored(t, config.Dir, map[fsm.PartitionID]uint64{1: 0, 2: 1})
	config.Dir, config.Only = filepath.Join(kit.MemoryDir(t), "other"), []fsm.PartitionID{2, 7}
	if err := Restore(t.Context(), config); err == nil {
		t.Error("a partition that the catalog does not have was restored")
	}
	wantUnusable(t, config)
}

func TestRestoreRefusesAFolderThatIsNotEmpty(t *testing.T) {
	t.Parallel()
	config := RestoreConfig{
		Dir: filepath.Dir(kit.WriteFile(t, "something")), Logger: discardLogger(),
		Backup: func(fsm.PartitionID) (io.ReadCloser, error) { return nil, errors.New("a backup was opened") },
	}
	if err := Restore(t.Context(), config); err == nil {
		t.Error("restored into a folder with other files")
	}
}
