package backups

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/cluster/backup"
	"github.com/peeklock/peeklock/cmd/objects"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// restoreOptions are the flags of restore.
type restoreOptions struct {
	from, dir string
	only      []uint
	logStore  string
}

// Nouns returns the command restore. Cluster backup is a command of the noun cluster: see [BackupVerb].
func Nouns() []command.Noun { return []command.Noun{{Verbs: []command.Verb{restoreVerb()}}} }

func restoreVerb() command.Verb {
	var o restoreOptions
	return command.Verb{
		Use: "restore --from DIR|s3://BUCKET/PREFIX --dir DATA", Short: "Create the data directory of a member from a backup",
		Long: `Create the data directory of one new member from the backup of a cluster, offline. The member has all the data. Start
it, let other members join, and rebalance the partitions:

  peeklock restore --from /backups/2026-11-20 --dir a
  peeklock serve --name a --dir a ...
  peeklock serve --name b --dir b --join host-a:7946 ...
  peeklock serve --name c --dir c --join host-a:7946 ...
  peeklock partition rebalance

The cluster has the keys of the cluster that was backed up and an id of its own: members of the two refuse each other.
Its formats are those of this release, so all its members need this release or a newer one. Locks that clients held
during the backup end by themselves. Messages that were received after the backup are there again. Messages that were
forwarded during the backup may be missing or be there twice: see "Backup" in the operations guide.

With --partition, only the messages of that partition are restored, together with all entities and keys. Use such a
cluster to look for lost messages, and discard it afterwards. "peeklock queue list" shows the partition of a queue.
Messages that the partition forwarded to others are not there: do not let clients use the cluster.

A backup may be in an object store that speaks S3.
` + objects.EnvironmentHelp,
		Flags: func(cmd *cobra.Command) {
			f := cmd.Flags()
			f.StringVar(&o.from, "from", "", "directory of the backup, or s3://bucket/prefix")
			f.StringVar(&o.dir, "dir", "", "data directory of the new member: empty or missing")
			f.StringVar(&o.logStore, "log-store", string(partition.JournalLog), "where the log of the new member keeps its entries, journal or bolt: start the member with the same value")
			f.UintSliceVar(&o.only, "partition", nil, "restore only the messages of these partitions, separated by commas")
		},
		Run: func(i command.Invocation) error {
			if err := o.check(); err != nil {
				return err
			}
			return restore(i, &o)
		},
		Would: func(i command.Invocation) (command.Would, error) { return wouldRestore(i, &o) },
	}
}

func (o *restoreOptions) check() error {
	if o.from == "" || o.dir == "" {
		return cli.Usagef("give --from, the backup that peeklock cluster backup wrote, and --dir, the data directory to create")
	}
	if !config.IsLogStore(o.logStore) {
		return cli.Usagef("--log-store: journal or bolt, not %q", o.logStore)
	}
	return nil
}

// wouldRestore reads the manifest of a backup. The copies are not read.
func wouldRestore(i command.Invocation, o *restoreOptions) (command.Would, error) {
	if err := o.check(); err != nil {
		return command.Would{}, err
	}
	place, err := objects.Open(i.Ctx, o.from, i.Client.Getenv)
	if err != nil {
		return command.Would{}, cli.Usage(err)
	}
	manifest, err := readManifest(i.Ctx, place)
	if err != nil {
		return command.Would{}, err
	}
	switch names, err := os.ReadDir(o.dir); {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return command.Would{}, err //nolint:wrapcheck // it names the folder
	case len(names) > 0:
		return command.Would{}, fmt.Errorf("%s is not empty: name another folder with --dir", o.dir)
	}
	bytes := int64(0)
	for _, p := range manifest.Partitions {
		bytes += p.Bytes
	}
	return command.Wouldf("write %d partitions of cluster %s, as of %s, from %s of copies to %s", len(manifest.Partitions), manifest.ClusterID, manifest.Ended.Format(time.RFC3339), output.SignedBytesText(bytes), o.dir)
}

// restored is the answer of restore.
type restored struct {
	Dir        string `json:"dir"`
	ClusterID  string `json:"clusterId"`       // of the restored cluster
	BackupOf   string `json:"backupOfCluster"` // id of the cluster that was backed up
	Partitions int    `json:"partitions"`
	Messages   string `json:"asOf"` // time at which the last partition was copied
}

func restore(i command.Invocation, o *restoreOptions) error {
	ctx, out, from, dir, partitions := i.Ctx, i.Out, o.from, o.dir, o.only
	place, err := objects.Open(ctx, from, i.Client.Getenv)
	if err != nil {
		return cli.Usage(err)
	}
	manifest, err := readManifest(ctx, place)
	if err != nil {
		return err
	}
	only := make([]fsm.PartitionID, len(partitions))
	for i, id := range partitions {
		if id > math.MaxUint32 {
			return cli.Usagef("--partition %d does not exist", id)
		}
		only[i] = fsm.PartitionID(id)
	}
	cluster := rand.Text()
	m := output.NewMeter(i.Client.Process, "restoring", len(manifest.Partitions))
	err = backup.Restore(ctx, backup.RestoreConfig{
		Dir: dir, Only: only, ClusterID: cluster, LogStore: partition.LogKind(o.logStore),
		Backup: func(id fsm.PartitionID) (io.ReadCloser, error) { return openBackup(ctx, place, manifest, id) },
		Restored: func(partition.BackupInfo, int) {
			m.Add(1)
		},
		Logger: config.NewLogger(i.Client.Err, "warn", config.LogText),
	})
	m.End(err != nil)
	if errors.Is(err, backup.ErrIncomplete) {
		return fmt.Errorf("%w: nothing starts from %s: delete what this command has written there, and run it again", err, dir)
	}
	if err != nil {
		return err
	}
	answer := restored{Dir: dir, ClusterID: cluster, BackupOf: manifest.ClusterID, Partitions: len(manifest.Partitions), Messages: manifest.Ended.Format("2006-01-02T15:04:05Z")}
	if !out.IsTable() {
		return out.Data(answer)
	}
	if len(only) > 0 {
		return out.Note("partitions %d of cluster %s, as of %s, are in %s, and the others empty: search them with peeklock serve --dir %s on an address that clients cannot reach",
			only, answer.BackupOf, answer.Messages, dir, dir)
	}
	return out.Note("%d partitions of cluster %s, as of %s, are in %s, as cluster %s: start it with peeklock serve --dir %s",
		answer.Partitions, answer.BackupOf, answer.Messages, dir, answer.ClusterID, dir)
}

func readManifest(ctx context.Context, from objects.Store) (*backupManifest, error) {
	file, err := from.Get(ctx, manifestFile)
	if err != nil {
		return nil, fmt.Errorf("%s is not a complete backup: %w", from, err)
	}
	defer func() { _ = file.Close() }()
	body, err := io.ReadAll(io.LimitReader(file, manifestBytesMax))
	if err != nil {
		return nil, fmt.Errorf("%s is not a complete backup: %w", from, err)
	}
	var m backupManifest
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, fmt.Errorf("%s of %s: %w", manifestFile, from, err)
	}
	if m.Version != manifestVersion {
		return nil, fmt.Errorf("%s of %s: version %d is not known to this binary", manifestFile, from, m.Version)
	}
	if m.Draft != fsm.FormatDraft {
		return nil, fmt.Errorf("%s of %s: the backup has draft %d of the formats, this binary has draft %d, and before release 0.1.0 nothing converts between drafts: "+
			"restore it with the build that wrote it", manifestFile, from, m.Draft, fsm.FormatDraft)
	}
	return &m, nil
}

// openBackup opens the copy of a partition. Its checksum is compared with the manifest.
func openBackup(ctx context.Context, from objects.Store, m *backupManifest, id fsm.PartitionID) (io.ReadCloser, error) {
	for _, p := range m.Partitions {
		if p.Partition != id {
			continue
		}
		if p.File != filepath.Base(p.File) {
			return nil, fmt.Errorf("%q is not the name of a file", p.File)
		}
		file, err := from.Get(ctx, p.File)
		if err != nil {
			return nil, err
		}
		return &checksummedFile{ReadCloser: file, name: p.File, sum: sha256.New(), want: p.SHA256}, nil
	}
	return nil, errors.New("the backup does not contain it")
}

// checksummedFile is a file whose checksum is compared when it is closed.
type checksummedFile struct {
	io.ReadCloser

	name string
	sum  hash.Hash
	want string
}

// Read implements io.Reader.
func (f *checksummedFile) Read(p []byte) (int, error) {
	n, err := f.ReadCloser.Read(p)
	f.sum.Write(p[:n])
	return n, err
}

// Close returns an error if the content read differs from the content written.
func (f *checksummedFile) Close() error {
	err := f.ReadCloser.Close()
	if got := hex.EncodeToString(f.sum.Sum(nil)); got != f.want {
		err = errors.Join(err, fmt.Errorf("%s is not what was backed up: SHA-256 %s, not %s", f.name, got, f.want))
	}
	return err
}
