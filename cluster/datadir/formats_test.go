package datadir

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/peeklock/peeklock/cluster/starts"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/test/golden"
	"github.com/peeklock/peeklock/test/kit"
)

// TestIdentityFileKeepsItsFormat: the identity of a member stays readable, and is written as it was.
func TestIdentityFileKeepsItsFormat(t *testing.T) {
	t.Parallel()
	golden.JSON(t, "testdata/identity.golden", []golden.Format{{Name: "member.json", Of: Identity{}}, {Name: "peers.json", Of: seenStarts{}}})

	const member = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	want := Identity{Format: identityFormat, Draft: fsm.FormatDraft, Member: member, Cluster: "c", Pledge: []fsm.MemberID{member}, Bootstrapping: true, Level: 3, Log: JournalLog, Start: starts.Start{Count: 2, Nonce: 3, Before: [starts.Kept]uint64{4}}}
	dir := t.TempDir()
	d := &Dir{files: disk.OS{}, path: dir, identity: want}
	kit.OK(t, d.save(d.identity))
	written := kit.Must(os.ReadFile(filepath.Join(dir, "member.json")))(t)
	golden.Compare(t, "testdata/member.json", written)
	kit.OK(t, os.WriteFile(d.LogPath(), nil, 0o600))
	read := &Dir{files: disk.OS{}, path: dir}
	if err := read.load(); err != nil || !reflect.DeepEqual(read.identity, want) {
		t.Errorf("read %+v, %v", read.identity, err)
	}
}
