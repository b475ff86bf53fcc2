package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin"
	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

const (
	manifestFile     = "manifest.json"
	manifestVersion  = 1
	manifestBytesMax = 4 << 20
	backupTries      = 5 // of one partition
	backupRetry      = 2 * time.Second
)

// backupManifest describes a backup of a cluster. It is written last: a folder without one is
// no backup.
type backupManifest struct {
	Version   int       `json:"version"`
	ClusterID string    `json:"clusterId"`
	Release   string    `json:"release"` // of the command that wrote it
	Began     time.Time `json:"began"`
	Ended     time.Time `json:"ended"`
	// CatalogChanged says that entities, keys or placements changed between began and ended.
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

func newClusterBackup(c *client) *cobra.Command {
	return &cobra.Command{
		Use: "backup DIR", Short: "Copy the cluster to a folder, while it runs",
		Long: `Copy every partition to DIR, which must be empty or not there, while the cluster runs:
through any member, from the leaders. Each partition is consistent in itself, as of a moment
between beginning and end; all of them together are not as of one moment. So what was sent to one
partition while another was copied is there or not, and a message that was being forwarded
from one to the other meanwhile may be in neither or in both. The catalog is copied
first and last; the last one counts, and the manifest says whether it changed.

A copy keeps what it needs on its leader, so a slow disk here costs disk there. Everything
is in the files, messages and keys: protect them. "peeklock restore" reads them.`,
		Example: `  peeklock cluster backup /backups/2026-11-20`,
		Args:    wantArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return c.backup(cmd.Context(), args[0]) },
	}
}

// backedUp is the answer of cluster backup.
type backedUp struct {
	Dir            string `json:"dir"`
	Partitions     int    `json:"partitions"`
	Bytes          int64  `json:"bytes"`
	CatalogChanged bool   `json:"catalogChanged"`
}

func (c *client) backup(ctx context.Context, dir string) error {
	out, err := c.output()
	if err != nil {
		return err
	}
	if err := emptyFolder(dir); err != nil {
		return err
	}
	var st admin.Status
	if err := c.call(ctx, http.MethodGet, "/v1/status", nil, &st); err != nil {
		return err
	}
	manifest := backupManifest{Version: manifestVersion, ClusterID: st.ClusterID, Release: version(), Began: time.Now().UTC()}
	m := c.meter("copying", len(st.Partitions)+1)
	err = c.backupAll(ctx, dir, st, &manifest, m)
	m.end(err != nil)
	if err != nil {
		return fmt.Errorf("%s is no backup: %w", dir, err)
	}
	answer := backedUp{Dir: dir, Partitions: len(manifest.Partitions), CatalogChanged: manifest.CatalogChanged}
	for _, p := range manifest.Partitions {
		answer.Bytes += p.Bytes
	}
	if !out.people() {
		return out.data(answer)
	}
	if manifest.CatalogChanged {
		_, _ = fmt.Fprintln(c.err, "entities, keys or placements changed meanwhile: the last state of the catalog counts")
	}
	return out.note("%d partitions, %s, copied to %s", answer.Partitions, sized(answer.Bytes), dir)
}

// emptyFolder makes a folder that is there and has nothing in it.
func emptyFolder(dir string) error {
	names, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return os.MkdirAll(dir, 0o700)
	case err != nil:
		return err
	case len(names) > 0:
		return usagef("%s is not empty", dir)
	}
	return nil
}

// backupAll copies the catalog, the partitions and the catalog again. A partition that was
// copied before an entity was made in it is filled by the cluster that is restored; one that
// knows of an entity that the catalog does not would be worse. So the last catalog counts.
func (c *client) backupAll(ctx context.Context, dir string, st admin.Status, manifest *backupManifest, m *meter) error {
	first, err := c.backupOne(ctx, dir, fsm.CatalogPartition)
	if err != nil {
		return err
	}
	m.add(1)
	manifest.Partitions = make([]backedUpPart, 1, len(st.Partitions))
	for _, p := range st.Partitions {
		if p.ID == fsm.CatalogPartition {
			continue
		}
		part, err := c.backupOne(ctx, dir, p.ID)
		if err != nil {
			return err
		}
		manifest.Partitions = append(manifest.Partitions, part)
		m.add(1)
	}
	last, err := c.backupOne(ctx, dir, fsm.CatalogPartition)
	if err != nil {
		return err
	}
	m.add(1)
	manifest.Partitions[0], manifest.CatalogChanged, manifest.Ended = last, first.State != last.State, time.Now().UTC()
	var now admin.Status
	if err := c.call(ctx, http.MethodGet, "/v1/status", nil, &now); err != nil {
		return err
	}
	if len(now.Partitions) != len(st.Partitions) || now.ClusterID != st.ClusterID {
		return errors.New("partitions were added meanwhile: begin again")
	}
	body, err := json.MarshalIndent(manifest, "", "  ")
	if err != nil {
		return err
	}
	return writeSynced(filepath.Join(dir, manifestFile), append(body, '\n'))
}

// backupOne copies one partition, and tries again while its leader changes.
func (c *client) backupOne(ctx context.Context, dir string, id fsm.PartitionID) (part backedUpPart, err error) {
	for range backupTries {
		if part, err = c.backupTo(ctx, dir, id); err == nil {
			return part, nil
		}
		var refused *refusedError
		if ctx.Err() != nil || errors.As(err, &refused) && refused.Code != "ServerBusy" && refused.Code != "Timeout" || errors.As(err, new(*fs.PathError)) {
			break
		}
		pauseFor(ctx, backupRetry)
	}
	return part, fmt.Errorf("partition %d: %w", id, err)
}

// backupTo copies one partition. What arrives is checked as it is written.
func (c *client) backupTo(ctx context.Context, dir string, id fsm.PartitionID) (part backedUpPart, err error) {
	part.File = fmt.Sprintf("partition-%d.backup", id)
	path := filepath.Join(dir, part.File)
	file, err := os.OpenFile(path+".part", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600) //nolint:gosec // the folder that was named
	if err != nil {
		return part, err
	}
	defer func() { _ = file.Close() }() // closed before where it counts
	sum := sha256.New()
	checked, checking := io.Pipe()
	found := make(chan error, 1)
	go func() {
		info, err := partition.CheckBackup(checked)
		part.BackupInfo = info
		_ = checked.CloseWithError(cmp.Or(err, errors.New("more than a backup")))
		found <- err
	}()
	part.Bytes, err = c.download(ctx, fmt.Sprintf("/v1/backup/%d", id), io.MultiWriter(file, sum, checking))
	_ = checking.CloseWithError(err) // nil: the end
	if err = cmp.Or(<-found, err); err != nil {
		return part, err
	}
	if part.Partition != id {
		return part, fmt.Errorf("the member sent partition %d", part.Partition)
	}
	part.SHA256, part.Ended = hex.EncodeToString(sum.Sum(nil)), time.Now().UTC()
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return part, err
	}
	return part, os.Rename(path+".part", path)
}

// download writes the answer to a request as it comes, without a limit of time or size.
func (c *client) download(ctx context.Context, path string, to io.Writer) (n int64, err error) {
	urls, err := c.addresses()
	if err != nil {
		return 0, err
	}
	if err := c.prepare(); err != nil {
		return 0, err
	}
	for _, base := range urls {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
		if err != nil {
			return 0, usageError{err}
		}
		if name, key, given := c.credentials(); given {
			request.Header.Set("Authorization", auth.Sign(base+"/", name, key, time.Now().Add(signatureLife)))
		}
		var response *http.Response
		response, err = cmp.Or(c.http, http.DefaultClient).Do(request)
		if dialError(err) != nil && base != urls[len(urls)-1] {
			continue
		}
		if err != nil {
			return 0, err
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusOK {
			body, err := io.ReadAll(io.LimitReader(response.Body, answerBytesMax))
			if err != nil {
				return 0, err
			}
			return 0, problem(response.StatusCode, http.MethodGet, base, body)
		}
		return io.Copy(to, response.Body)
	}
	return 0, errors.New("no member answers")
}

// writeSynced writes a whole file, durably.
func writeSynced(path string, data []byte) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600) //nolint:gosec // in the folder that was named
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Sync(), file.Close())
}
