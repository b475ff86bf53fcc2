package offline

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/savedlog"
)

// entryOf is an entry with one command, as a leader writes it.
func entryOf(index, term uint64, c fsm.Command, replicas ...string) savedlog.Entry {
	data := append([]byte{0x91, 100, 100}, make([]byte, 8)...)
	command := fsm.AppendCommand(nil, fsm.Header{}, c)
	data = binary.AppendUvarint(append(data, 1), uint64(len(command)))
	return savedlog.Entry{Index: index, Term: term, Data: append(data, command...), Replicas: replicas}
}

// The replay prints the commands of the newest entries with their results, and the entry from which on a replica
// stored others.
func TestReplayPrintsEntriesAndWhereReplicasDiffer(t *testing.T) {
	t.Parallel()
	message := func(text string) fsm.SendMessages {
		return fsm.SendMessages{Entity: 9, Messages: []fsm.Message{{Payload: []byte(text)}}}
	}
	var file bytes.Buffer
	if err := savedlog.Write(&file, 3, []savedlog.Entry{
		entryOf(1, 2, fsm.PutEntity{Entity: 9, Version: 1, Settings: fsm.DefaultSettings()}, "m0", "m1", "m2"),
		entryOf(2, 2, message("forgotten"), "m2"),
		entryOf(2, 4, message("stored"), "m0", "m1"),
	}); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "group-3.log"), file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	replay := func(args ...string) string {
		var out, errs bytes.Buffer
		p := cli.Process{Args: append([]string{"debug", "replay", folder}, args...), Out: &out, Err: &errs}
		root, _ := command.NewRoot(p, Nouns()...)
		if code := cli.Execute(t.Context(), p, root); code != cli.ExitDone {
			t.Fatalf("exit code %d: %s", code, &errs)
		}
		return out.String()
	}
	all := replay()
	for _, want := range []string{"partition 3, 2 entries", "fsm.PutEntity{Entity:9", `Payload:"stored"`, "Sequence:1", "effect {Address:{Entity:9}", "replica m2 differs from entry 2 on"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is missing in:\n%s", want, all)
		}
	}
	if strings.Contains(all, "forgotten") || strings.Contains(all, "replica m1") {
		t.Errorf("entries that were replaced were printed, or replicas that have the newest:\n%s", all)
	}
	if some := replay("--find", "stored\""); strings.Contains(some, "PutEntity") || !strings.Contains(some, "SendMessages") {
		t.Errorf("found:\n%s", some)
	}
	if none := replay("--partition", "4"); none != "" {
		t.Errorf("printed of another partition:\n%s", none)
	}
}
