package backups

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/objectstore"
	"github.com/peeklock/peeklock/topology"
)

// copiedMember answers as a member with two partitions and the catalog does. Its copies cannot be restored, but
// they pass the check for completeness.
type copiedMember struct{ size int }

// copyOf returns the copy of a partition.
func (m copiedMember) copyOf(id fsm.PartitionID) []byte {
	text, _ := json.Marshal(partition.BackupInfo{Draft: fsm.FormatDraft, Partition: id, Index: 7, StreamBytes: int64(m.size)})
	b := append([]byte("PKBK"), 1, 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(text)))
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	b = binary.LittleEndian.AppendUint32(b, crc32.Update(crc32.Checksum(b, castagnoli), castagnoli, text))
	b = append(append(b, text...), bytes.Repeat([]byte{byte(id) + 1}, m.size)...)
	return binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b))
}

func (m copiedMember) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/status" {
		_ = json.NewEncoder(w).Encode(topology.Status{ClusterID: "c1", Partitions: []topology.Partition{{ID: 0}, {ID: 1}, {ID: 2}}})
		return
	}
	var id fsm.PartitionID
	if _, err := fmt.Sscanf(r.URL.Path, "/v1/backup/%d", &id); err != nil {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write(m.copyOf(id))
}

// RoundTrip answers requests without a network.
func (m copiedMember) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	m.ServeHTTP(w, r)
	return w.Result(), nil
}

// runBackup runs a command of this package and returns its exit code.
func runBackup(ctx context.Context, p cli.Process) int {
	root, _ := command.NewRoot(p, append(Nouns(), command.Noun{Name: "cluster", Verbs: []command.Verb{BackupVerb()}})...)
	return cli.Execute(ctx, p, root)
}

// copyTo runs cluster backup in an environment.
func copyTo(ctx context.Context, server string, env []string, args ...string) (int, string) {
	var out, errs bytes.Buffer
	code := runBackup(ctx, cli.Process{
		Args: append([]string{"cluster", "backup", "--server", server}, args...), Env: env,
		In: strings.NewReader(""), Out: &out, Err: &errs,
	})
	return code, out.String() + errs.String()
}

// A backup in an object store has the same content as in a directory, under the same names.
func TestBackupToAnObjectStore(t *testing.T) {
	t.Parallel()
	m := copiedMember{size: 6 << 20}
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	defer server.Close()
	s := objectstore.Start(t)
	var mu sync.Mutex
	var completed []string
	s.Before = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost && r.URL.Query().Has("uploadId") {
			mu.Lock()
			defer mu.Unlock()
			completed = append(completed, strings.TrimPrefix(r.URL.Path, "/copies/a/b/"))
		}
		return false
	}
	code, text := copyTo(t.Context(), server.URL, s.Environment(), "s3://copies/a/b/")
	if code != cli.ExitDone || !strings.Contains(text, "3 partitions, 18.0 MiB, copied to s3://copies/a/b/") {
		t.Fatal(code, text)
	}
	if want := []string{"partition-0.backup", "partition-1.backup", "partition-2.backup", "partition-0.backup", manifestFile}; !slices.Equal(completed, want) {
		t.Error("written in the order", completed)
	}
	dir := filepath.Join(t.TempDir(), "copy")
	if code, text := copyTo(t.Context(), server.URL, nil, dir); code != cli.ExitDone {
		t.Fatal(text)
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 4 || len(s.Names()) != 4 {
		t.Fatal(names, s.Names(), err)
	}
	for _, name := range names {
		body, err := os.ReadFile(filepath.Join(dir, name.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if other := s.Object("a/b/" + name.Name()); name.Name() != manifestFile && !bytes.Equal(body, other) {
			t.Error(name.Name(), len(body), len(other))
		}
	}
	var manifest backupManifest
	if err := json.Unmarshal(s.Object("a/b/"+manifestFile), &manifest); err != nil || manifest.ClusterID != "c1" || len(manifest.Partitions) != 3 {
		t.Errorf("%+v: %v", manifest, err)
	}

	for _, c := range []struct {
		location, pair, want string
		code                 int
	}{
		{"s3://copies/a/b", "", "is not empty: give another prefix", cli.ExitUsage},
		{"s3://copies/a", "", "is not empty", cli.ExitUsage},
		{"s3://missing/a", "", "make the bucket first", cli.ExitRefused},
		{"s3://copies/c", "AWS_SECRET_ACCESS_KEY=other", "AWS_SECRET_ACCESS_KEY", cli.ExitRefused},
		{"gs://copies/c", "", "give a folder, or s3://bucket/prefix", cli.ExitUsage},
		{"s3://copies/c", "AWS_ENDPOINT_URL_S3=store", "AWS_ENDPOINT_URL_S3", cli.ExitUsage},
	} {
		if code, text := copyTo(t.Context(), server.URL, append(s.Environment(), c.pair), c.location); code != c.code || !strings.Contains(text, c.want) {
			t.Error(c.location, c.pair, code, text)
		}
	}
}

// Whatever fails in the middle, there is no manifest, so there is no backup; a second one elsewhere is complete.
func TestInterruptedBackupIsNoBackup(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(copiedMember{size: 100 << 10})
	t.Cleanup(server.Close)
	t.Cleanup(server.Close)
	for _, c := range []struct {
		name string // name of the object that the store refuses
		cut  func(w http.ResponseWriter, cancel func())
		want string
	}{
		{"partition-2.backup", func(w http.ResponseWriter, _ func()) {
			objectstore.WriteError(w, http.StatusForbidden, "AccessDenied", "Access Denied")
		}, "partition 2: write s3://copies/a/partition-2.backup: Access Denied: look at AWS_"},
		{manifestFile, func(w http.ResponseWriter, _ func()) {
			objectstore.WriteError(w, http.StatusInsufficientStorage, "XStorageFull", "the disk is full")
		}, "the disk is full"},
		{"partition-1.backup", func(_ http.ResponseWriter, cancel func()) {
			cancel()
			panic(http.ErrAbortHandler)
		}, "context canceled"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := objectstore.Start(t)
			s.Before = func(w http.ResponseWriter, r *http.Request) bool {
				hit := r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "a/"+c.name)
				if hit {
					c.cut(w, cancel)
				}
				return hit
			}
			code, text := copyTo(ctx, server.URL, s.Environment(), "s3://copies/a")
			if code != cli.ExitRefused || !strings.Contains(text, c.want) || !strings.Contains(text, "s3://copies/a/ is not a backup: ") || !strings.Contains(text, "delete its content, and start again with another target") {
				t.Error(code, text)
			}
			if s.Object("a/"+manifestFile) != nil || s.Object("a/"+c.name) != nil || s.Unfinished() != 0 {
				t.Error(s.Names(), s.Unfinished())
			}
			var out bytes.Buffer
			code = runBackup(t.Context(), cli.Process{
				Args: []string{"restore", "--from", "s3://copies/a", "--dir", filepath.Join(t.TempDir(), "x")},
				Env:  s.Environment(), Out: &out, Err: &out,
			})
			if code != cli.ExitRefused || !strings.Contains(out.String(), "is not a complete backup") {
				t.Error(code, out.String())
			}
			if code, text := copyTo(t.Context(), server.URL, s.Environment(), "s3://copies/again"); code != cli.ExitDone {
				t.Error(code, text)
			}
		})
	}
}

// TestManifestOfAnotherDraftIsRefused: the command says so before it reads a partition.
func TestManifestOfAnotherDraftIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	manifest := fmt.Appendf(nil, `{"version":%d,"draft":%d,"partitions":[]}`, manifestVersion, fsm.FormatDraft+1)
	if err := os.WriteFile(filepath.Join(dir, manifestFile), manifest, 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	code := runBackup(t.Context(), cli.Process{Args: []string{"restore", "--from", dir, "--dir", filepath.Join(t.TempDir(), "x")}, Out: &out, Err: &out})
	const want = "restore it with the build that wrote it"
	if code != cli.ExitRefused || !strings.Contains(out.String(), want) {
		t.Errorf("exit code %d, want %d; it does not say %q:\n%s", code, cli.ExitRefused, want, &out)
	}
}

// cutMember is a member whose copies of a partition are interrupted a given number of times.
type cutMember struct {
	copiedMember

	partition string
	times     *atomic.Int32
}

func (m cutMember) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := m.copiedMember.RoundTrip(r)
	if r.URL.Path == "/v1/backup/"+m.partition && m.times.Add(-1) >= 0 {
		response.Body = io.NopCloser(io.MultiReader(io.LimitReader(response.Body, 1000), iotest.ErrReader(io.ErrUnexpectedEOF)))
	}
	return response, err
}

// backupInvocation returns an invocation of cluster backup that prints nothing, without its target.
func backupInvocation(t *testing.T, h *http.Client) command.Invocation {
	t.Helper()
	out, err := output.NewOutput(io.Discard, "table")
	if err != nil {
		t.Fatal(err)
	}
	c := &client.Client{Process: cli.Process{Out: io.Discard, Err: io.Discard}}
	return command.Invocation{Ctx: t.Context(), Client: c.WithHTTP(h), Out: out}
}

// If a member interrupts a copy, the command retries, five times in all; incomplete data does not become a file.
// The clock advances when all goroutines wait.
func TestBackupRetriesPartitions(t *testing.T) {
	t.Parallel()
	for times, whole := range map[int32]bool{backupTries - 1: true, backupTries: false} {
		synctest.Test(t, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "copy")
			m := cutMember{copiedMember{size: 5000}, "1", new(atomic.Int32)}
			m.times.Store(times)
			i := backupInvocation(t, &http.Client{Transport: m})
			i.Args = []string{dir}
			if err := backUp(i, 0); (err == nil) != whole {
				t.Fatal(times, err)
			}
			_, noManifest := os.Stat(filepath.Join(dir, manifestFile))
			_, noPart := os.Stat(filepath.Join(dir, "partition-1.backup"))
			if (noManifest == nil) != whole || (noPart == nil) != whole {
				t.Error(times, noManifest, noPart)
			}
		})
	}
}

// The clock advances when all goroutines wait: 3 MiB and the catalog once more, at 1 MiB per second.
func TestBackupKeepsTheRate(t *testing.T) {
	t.Parallel()
	for rate, want := range map[string]time.Duration{"1MiB": 4 * time.Second, "512KiB": 8 * time.Second, "0": 0, "": 0} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			var pace rateFlag
			if rate != "" {
				if err := pace.Set(rate); err != nil {
					t.Fatal(err)
				}
			}
			i := backupInvocation(t, &http.Client{Transport: copiedMember{size: 1 << 20}})
			i.Args = []string{filepath.Join(t.TempDir(), "copy")}
			if err := backUp(i, pace); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > want+want/10 || took < want-want/10 {
				t.Errorf("--rate %s took %s", rate, took)
			}
		})
	}
}

// A command that runs every night needs a target of its own each time. The clock begins at the year 2000.
func TestBackupTargetNamesItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		i := backupInvocation(t, &http.Client{Transport: copiedMember{size: 100}})
		for range 2 {
			i.Args = []string{filepath.Join(dir, "{time}")}
			if err := backUp(i, 0); err != nil {
				t.Fatal(err)
			}
			time.Sleep(24 * time.Hour) //nolint:forbidigo // in a bubble
		}
		for _, name := range []string{"20000101T000000Z", "20000102T000000Z"} {
			if _, err := os.Stat(filepath.Join(dir, name, manifestFile)); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestByteRateIsParsed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]rateFlag{
		"0": 0, "0MiB": 0, "64KiB": 64 << 10, "50MiB": 50 << 20, "2GiB": 2 << 30, "65536": 64 << 10, "70000B": 70000,
	} {
		var r rateFlag
		if err := r.Set(text); err != nil || r != want {
			t.Error(text, r, err)
		}
	}
	for _, text := range []string{"", "fast", "-1", "1.5MiB", "50MB/s", "63KiB", "1", "9223372036854775807GiB", "MiB"} {
		var r rateFlag
		if err := r.Set(text); err == nil {
			t.Error(text, "is", r)
		}
	}
	if code, text := copyTo(t.Context(), "", nil, "x", "--rate", "fast"); code != cli.ExitUsage || !strings.Contains(text, "--rate: \"fast\" is not a number of bytes") {
		t.Error(code, text)
	}
}
