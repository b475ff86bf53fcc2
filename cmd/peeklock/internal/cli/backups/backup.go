package backups

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/cmd/objects"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/topology"
)

const (
	manifestFile     = "manifest.json"
	manifestVersion  = 1
	manifestBytesMax = 4 << 20
	backupTries      = 5 // attempts for one partition
	backupRetry      = 2 * time.Second
)

// backupManifest describes a backup of a cluster. It is written last, so a store without a manifest holds no
// backup.
type backupManifest struct {
	Version   int       `json:"version"`
	Draft     uint32    `json:"draft"` // see fsm.FormatDraft
	ClusterID string    `json:"clusterId"`
	Release   string    `json:"release"` // of the command that wrote it
	Began     time.Time `json:"began"`
	Ended     time.Time `json:"ended"`
	// CatalogChanged says that entities, keys or placements changed between Began and Ended.
	CatalogChanged bool           `json:"catalogChanged"`
	Partitions     []backedUpPart `json:"partitions"` // the catalog first
}

// backedUpPart is the copy of one partition.
type backedUpPart struct {
	partition.BackupInfo

	File   string    `json:"file"`
	Bytes  int64     `json:"bytes"`
	SHA256 string    `json:"sha256"`
	Ended  time.Time `json:"ended"`
}

// backedUp is the answer of cluster backup.
type backedUp struct {
	Dir            string `json:"dir"` // or location in an object store
	Partitions     int    `json:"partitions"`
	Bytes          int64  `json:"bytes"`
	CatalogChanged bool   `json:"catalogChanged"`
}

// backupRun is a backup in progress.
type backupRun struct {
	*client.Client

	to        objects.Store
	rateLimit *objects.RateLimit
	manifest  backupManifest
}

// BackupVerb returns the command cluster backup.
func BackupVerb() command.Verb {
	var rate rateFlag
	return command.Verb{
		Use: "backup DIR|s3://BUCKET/PREFIX", Short: "Copy the cluster to a directory or an object store while it runs", Long: `Copy all partitions to a directory, which must be empty or missing, or to an object store, where no object may have the
prefix. The cluster keeps running. The copies come from the leaders, through any member. Each partition is consistent as
of a moment between the start and the end of the backup, but the partitions are not consistent with each other: of two
messages sent to different partitions during the backup, one may be missing, and a message that was being forwarded may
be in neither partition or in both ("Backup" in the operations guide). The catalog is copied first and last; the last copy counts, and the manifest says
whether it changed. {time} in the target is replaced by the time of the start, as in 20261120T020000Z.

A copy keeps disk space on its leader until it is written, so a slow target costs disk space there. The files contain
all messages and keys: protect them. "peeklock restore" reads them.

Any object store that speaks S3 works. The data goes through this command, not from the members to the store.
` + objects.EnvironmentHelp, Example: `  peeklock cluster backup /backups/2026-11-20
  AWS_ENDPOINT_URL_S3=https://store.example:9000 peeklock cluster backup s3://backups/2026-11-20 --rate 50MiB
  peeklock cluster backup s3://backups/nightly/{time}`,
		Args: cli.ArgCount(1, 1),
		Flags: func(cmd *cobra.Command) {
			cmd.Flags().Var(&rate, "rate", "maximum bytes per second, 64KiB or more; 0: no limit")
		},
		Run:   func(i command.Invocation) error { return backUp(i, rate) },
		Would: wouldBackUp,
	}
}

// target returns the location of a backup that begins now.
func target(i command.Invocation) string {
	return strings.ReplaceAll(i.Args[0], "{time}", time.Now().UTC().Format("20060102T150405Z"))
}

// wouldBackUp says how much would be copied. It does not look into the target.
func wouldBackUp(i command.Invocation) (command.Would, error) {
	to, err := objects.Open(i.Ctx, target(i), i.Client.Getenv)
	if err != nil {
		return command.Would{}, cli.Usage(err)
	}
	var st topology.Status
	if err := i.Client.Call(i.Ctx, http.MethodGet, "/v1/status", nil, &st); err != nil {
		return command.Would{}, err
	}
	messages := uint64(0)
	for _, p := range st.Partitions {
		messages += p.Messages
	}
	return command.Wouldf("copy %d partitions with %d messages to %s, which must be empty", len(st.Partitions), messages, to)
}

func backUp(i command.Invocation, pace rateFlag) error {
	ctx, out := i.Ctx, i.Out
	location := target(i)
	to, err := objects.Open(ctx, location, i.Client.Getenv)
	if err != nil {
		return cli.Usage(err)
	}
	if err := to.Claim(ctx); errors.Is(err, objects.ErrNotEmpty) {
		return cli.Usage(err)
	} else if err != nil {
		return err
	}
	var st topology.Status
	if err := i.Client.Call(ctx, http.MethodGet, "/v1/status", nil, &st); err != nil {
		return err
	}
	x := &backupRun{Client: i.Client, to: to, manifest: backupManifest{
		Version: manifestVersion, Draft: fsm.FormatDraft, ClusterID: st.ClusterID, Release: cli.Version(), Began: time.Now().UTC(),
	}}
	if pace > 0 {
		x.rateLimit = objects.NewRateLimit(int64(pace))
	}
	m := output.NewMeter(i.Client.Process, "copying", len(st.Partitions)+1)
	err = x.copyAll(ctx, st, m)
	m.End(err != nil)
	if err != nil {
		return cli.Incomplete(fmt.Errorf("%s is not a backup: %w: delete its content, and start again with another target", to, err))
	}
	answer := backedUp{Dir: location, Partitions: len(x.manifest.Partitions), CatalogChanged: x.manifest.CatalogChanged}
	for _, p := range x.manifest.Partitions {
		answer.Bytes += p.Bytes
	}
	if !out.IsTable() {
		return out.Data(answer)
	}
	if answer.CatalogChanged {
		_, _ = fmt.Fprintln(i.Client.Err, "entities, keys or placements changed meanwhile: the last state of the catalog counts")
	}
	return out.Note("%d partitions, %s, copied to %s", answer.Partitions, output.SignedBytesText(answer.Bytes), location)
}

// copyAll copies the catalog, the partitions and then the catalog again. If a partition was copied before an
// entity was created in it, the restored cluster creates the entity there. An entity that is in a partition and
// not in the catalog would be worse, so the last catalog is the one that counts.
func (x *backupRun) copyAll(ctx context.Context, st topology.Status, m *output.Meter) error {
	first, err := x.copyPartition(ctx, fsm.CatalogPartition)
	if err != nil {
		return err
	}
	m.Add(1)
	manifest := &x.manifest
	manifest.Partitions = make([]backedUpPart, 1, len(st.Partitions))
	for _, p := range st.Partitions {
		if p.ID == fsm.CatalogPartition {
			continue
		}
		part, err := x.copyPartition(ctx, p.ID)
		if err != nil {
			return err
		}
		manifest.Partitions = append(manifest.Partitions, part)
		m.Add(1)
	}
	last, err := x.copyPartition(ctx, fsm.CatalogPartition)
	if err != nil {
		return err
	}
	m.Add(1)
	manifest.Partitions[0], manifest.CatalogChanged, manifest.Ended = last, first.State != last.State, time.Now().UTC()
	var now topology.Status
	if err := x.Call(ctx, http.MethodGet, "/v1/status", nil, &now); err != nil {
		return err
	}
	if len(now.Partitions) != len(st.Partitions) || now.ClusterID != st.ClusterID {
		return errors.New("partitions were added meanwhile")
	}
	body, err := json.MarshalIndent(manifest, "", "  ")
	if err != nil {
		return err
	}
	return x.to.Put(ctx, manifestFile, func(w io.Writer) error {
		_, err := w.Write(append(body, '\n'))
		return err
	})
}

// copyPartition copies one partition, and retries while its leader changes.
func (x *backupRun) copyPartition(ctx context.Context, id fsm.PartitionID) (part backedUpPart, err error) {
	for range backupTries {
		if part, err = x.tryPartition(ctx, id); err == nil {
			return part, nil
		}
		code, refused := client.Code(err)
		if ctx.Err() != nil || refused && code != "ServerBusy" && code != "Timeout" || errors.As(err, new(*objects.Error)) {
			break
		}
		cli.Sleep(ctx, backupRetry)
	}
	return part, fmt.Errorf("partition %d: %w", id, err)
}

// tryPartition copies one partition, and checks the data while it is written.
func (x *backupRun) tryPartition(ctx context.Context, id fsm.PartitionID) (part backedUpPart, err error) {
	name := fmt.Sprintf("partition-%d.backup", id)
	sum := sha256.New()
	err = x.to.Put(ctx, name, func(w io.Writer) (err error) {
		part.Bytes, part.BackupInfo, err = x.copyAndCheck(ctx, id, io.MultiWriter(w, sum))
		return err
	})
	part.File, part.SHA256, part.Ended = name, hex.EncodeToString(sum.Sum(nil)), time.Now().UTC()
	return part, err
}

// copyAndCheck writes the copy of a partition and checks that it is complete.
func (x *backupRun) copyAndCheck(ctx context.Context, id fsm.PartitionID, to io.Writer) (n int64, info partition.BackupInfo, err error) {
	checked, checking := io.Pipe()
	found := make(chan error, 1)
	go func() {
		var err error
		info, err = partition.CheckBackup(checked)
		_ = checked.CloseWithError(cmp.Or(err, errors.New("bytes follow the backup")))
		found <- err
	}()
	n, err = x.Download(ctx, fmt.Sprintf("/v1/backup/%d", id), io.MultiWriter(x.rateLimit.Writer(ctx), to, checking))
	_ = checking.CloseWithError(err) // nil: end of the data
	judged := <-found
	switch {
	case errors.As(err, new(*objects.Error)): // data that was not written cannot be checked
	case cmp.Or(judged, err) != nil:
		err = cmp.Or(judged, err)
	case info.Partition != id:
		err = fmt.Errorf("the member sent partition %d", info.Partition)
	}
	return n, info, err
}
