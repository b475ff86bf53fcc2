package snapshots

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/partition/bodystore"
	"github.com/peeklock/peeklock/partition/digest"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/test/golden"
	"github.com/peeklock/peeklock/test/kit"
)

// TestJSONFormats verifies that stored JSON keeps its form.
func TestJSONFormats(t *testing.T) {
	t.Parallel()
	golden.JSON(t, "testdata/formats.golden", []golden.Format{
		{Name: "manifest of a snapshot", Of: Manifest{}},
		{Name: "description of a backup", Of: BackupInfo{}},
	})
}

// exampleManifest has every field set.
func exampleManifest() Manifest {
	servers := raft.Configuration{Servers: []raft.Server{
		{Suffrage: raft.Voter, ID: "A.1", Address: "A"}, {Suffrage: raft.Nonvoter, ID: "B.2", Address: "B"},
	}}
	return Manifest{
		Index: 1 << 60, Term: 7, Configuration: raft.EncodeConfiguration(servers), ConfigurationIndex: 3,
		Applied: 1<<60 - 1, Clock: 1_763_640_000_000, ImageBytes: 5 << 30, ImageSum: 0xfedcba98, Remapped: true,
		Bodies: 70_000, BodyBytes: 6 << 30, Segments: []bodystore.SegmentSize{{Number: 4, Size: 64 << 20}, {Number: 5, Size: 1}},
		State: digest.State{Digest: 0xfedcba9876543210, DigestVersion: 2, DigestTerm: 6},
	}
}

// TestManifestKeepsItsBytes verifies that the manifest of a snapshot, with raft's encoding of its configuration, keeps
// its bytes and is read back as written.
func TestManifestKeepsItsBytes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kit.OK(t, writeManifest(disk.OS{}, dir, exampleManifest()))
	written := kit.Must(os.ReadFile(filepath.Join(dir, manifestFile)))(t)
	golden.Compare(t, "testdata/manifest-v1.hex", append(hex.AppendEncode(nil, written), '\n'))
	if read, err := readManifest(disk.OS{}, dir); err != nil || !reflect.DeepEqual(read, exampleManifest()) {
		t.Errorf("read %+v, %v", read, err)
	}
}

// TestStreamHeaderKeepsItsBytes verifies the bytes of the header of a snapshot stream. (Those of a record are in
// record_format_test.go, those of an entry in entry_test.go.)
func TestStreamHeaderKeepsItsBytes(t *testing.T) {
	t.Parallel()
	m := exampleManifest()
	written := fmt.Appendf(nil, "header of a snapshot: %x\n", appendStreamHeader(nil, &m))
	golden.Compare(t, "testdata/binary.golden", written)
}
