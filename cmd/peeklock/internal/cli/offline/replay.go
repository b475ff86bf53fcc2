package offline

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/partition/savedlog"
)

// The names of the files of a saved group, and how much of a body is printed.
const (
	savedLogSuffix    = ".log"
	savedCopySuffix   = ".copy" // the backup that a restored group begins with
	printedBytesMax   = 60
	replicaStoredNone = "-"
)

// debugNoun is hidden: its commands are for developers, and promise nothing.
func debugNoun() command.Noun {
	var o replayOptions
	return command.Noun{Name: "debug", Short: "Look into what tests have saved", Hidden: true, Verbs: []command.Verb{{
		Use: "replay FOLDER", Short: "Print what the entries of saved logs did",
		Long: `Feed the logs of groups that a failed simulation has saved (files group-N.log) through their state machine, and print
the time of each entry, its commands, their results, the effects, and the digest so far. Where replicas stored other entries than
the newest ones, each of them is replayed, and the first entry is printed at which its digest differs.`,
		Args: cli.ArgCount(1, 1),
		Flags: func(cmd *cobra.Command) {
			f := cmd.Flags()
			f.UintSliceVar(&o.partitions, "partition", nil, "only these partitions, separated by commas")
			f.Uint64Var(&o.from, "from", 0, "print no entry before this index")
			f.StringVar(&o.find, "find", "", "print only entries that contain this text, such as the id of a message")
		},
		Run: func(i command.Invocation) error { return replay(i.Client.Out, i.Args[0], &o) },
	}}}
}

// replayOptions are the flags of debug replay.
type replayOptions struct {
	partitions []uint
	from       uint64
	find       string
}

// replay prints all saved logs below a folder.
func replay(to io.Writer, folder string, o *replayOptions) error {
	out := bufio.NewWriter(to)
	found := false
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != savedLogSuffix || !strings.HasPrefix(d.Name(), "group-") {
			return err
		}
		found = true
		return replayFile(out, path, o)
	})
	if err == nil && !found {
		err = fmt.Errorf("%s has no saved logs (group-N%s)", folder, savedLogSuffix)
	}
	return errors.Join(err, out.Flush())
}

func replayFile(out io.Writer, path string, o *replayOptions) error {
	file, err := os.Open(path) //nolint:gosec // the user names the folder
	if err != nil {
		return err
	}
	id, entries, err := savedlog.Read(file)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if len(o.partitions) > 0 && !slices.Contains(o.partitions, uint(id)) {
		return nil
	}
	start, err := os.ReadFile(strings.TrimSuffix(path, savedLogSuffix) + savedCopySuffix)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s := savedGroup{id: id, start: start, newest: logOf(entries, ""), options: o}
	_, _ = fmt.Fprintf(out, "%s: partition %d, %d entries\n", path, id, len(s.newest))
	if s.digests, err = s.run(s.newest, out); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, replica := range replicasOf(entries) {
		if err := s.compare(out, replica, logOf(entries, replica)); err != nil {
			return fmt.Errorf("%s: replica %s: %w", path, replica, err)
		}
	}
	return nil
}

// savedGroup is a group whose log was saved.
type savedGroup struct {
	id      fsm.PartitionID
	start   []byte // backup that the group was restored from; empty: the log begins with the group
	newest  []savedlog.Entry
	digests map[uint64]uint64 // by index, of newest
	options *replayOptions
}

// logOf returns one entry for each index: of the newest term that a replica stored, or, without a replica and where it
// stored none because it received a snapshot, of the newest term at all. That is the committed one, if any is.
func logOf(entries []savedlog.Entry, replica string) (log []savedlog.Entry) {
	sorted := slices.Clone(entries)
	slices.SortStableFunc(sorted, func(a, b savedlog.Entry) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Term, b.Term))
	})
	own := false
	for _, e := range sorted {
		stored := replica != "" && slices.Contains(e.Replicas, replica)
		switch last := len(log) - 1; {
		case last < 0 || log[last].Index != e.Index:
			log, own = append(log, e), stored
		case stored || !own:
			log[last], own = e, stored
		}
	}
	return log
}

// replicasOf returns the names of all replicas that stored entries.
func replicasOf(entries []savedlog.Entry) (names []string) {
	for i := range entries {
		names = append(names, entries[i].Replicas...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// run replays a log, prints it unless out is nil, and returns the digest after each entry.
func (s *savedGroup) run(log []savedlog.Entry, out io.Writer) (map[uint64]uint64, error) {
	var backup io.Reader
	if len(s.start) > 0 {
		backup = bytes.NewReader(s.start)
	}
	replay, err := partition.NewReplay(s.id, backup)
	if err != nil {
		return nil, err
	}
	digests := make(map[uint64]uint64)
	for i := range log {
		e := &log[i]
		got, err := replay.Apply(e)
		if out != nil && e.Index >= s.options.from {
			if text := entryText(e, &got); strings.Contains(text, s.options.find) {
				_, _ = io.WriteString(out, text)
			}
		}
		if err != nil {
			return nil, err
		}
		digests[e.Index] = got.Digest
	}
	return digests, nil
}

// compare reports where the log of a replica and what follows from it differ from the newest one.
func (s *savedGroup) compare(out io.Writer, replica string, log []savedlog.Entry) error {
	same := slices.EqualFunc(log, s.newest, func(a, b savedlog.Entry) bool { return a.Term == b.Term && bytes.Equal(a.Data, b.Data) })
	if same {
		return nil
	}
	digests, err := s.run(log, nil)
	if err != nil {
		return err
	}
	for i := range log {
		if at := log[i].Index; digests[at] != s.digests[at] {
			_, _ = fmt.Fprintf(out, "replica %s differs from entry %d on: it stored term %d there, the newest is term %d; digests %016x and %016x\n",
				replica, at, log[i].Term, s.newest[i].Term, digests[at], s.digests[at])
			break
		}
	}
	return nil
}

// entryText is an entry as lines of a report.
func entryText(e *savedlog.Entry, got *partition.ReplayedEntry) string {
	var b strings.Builder
	by := strings.Join(e.Replicas, ",")
	fmt.Fprintf(&b, "%d term %d at %s, serving %d, stored by %s, digest %016x\n",
		e.Index, e.Term, time.UnixMilli(int64(got.Times.Wall)).UTC().Format("15:04:05.000"), got.Times.Serving, cmp.Or(by, replicaStoredNone), got.Digest)
	for _, c := range got.Commands {
		fmt.Fprintf(&b, "    %T%s\n        -> %s\n", c.Command, valueText(reflect.ValueOf(c.Command)), valueText(reflect.ValueOf(c.Result)))
	}
	for _, effect := range got.Effects {
		fmt.Fprintf(&b, "    effect %s\n", valueText(reflect.ValueOf(effect)))
	}
	return b.String()
}

// valueText is a value as text: of a struct the fields that are not zero, of bytes the beginning.
func valueText(v reflect.Value) string {
	if v.CanInterface() {
		if named, is := v.Interface().(fmt.Stringer); is {
			return named.String()
		}
	}
	switch v.Kind() { //nolint:exhaustive // the others print well
	case reflect.Struct:
		var fields []string
		for i := range v.NumField() {
			if field := v.Field(i); !field.IsZero() || v.Type().Field(i).Name == "Code" {
				fields = append(fields, v.Type().Field(i).Name+":"+valueText(field))
			}
		}
		return "{" + strings.Join(fields, " ") + "}"
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return strconv.Quote(string(v.Bytes()[:min(v.Len(), printedBytesMax)]))
		}
		var items []string
		for i := range v.Len() {
			items = append(items, valueText(v.Index(i)))
		}
		return "[" + strings.Join(items, " ") + "]"
	case reflect.Pointer:
		return valueText(v.Elem())
	}
	return fmt.Sprint(v)
}
