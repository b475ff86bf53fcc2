package offline

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/cluster"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// entryFlags name an entry of a partition in the data directory of a member.
type entryFlags struct {
	dir       string
	partition uint32
	index     uint64
}

func (e *entryFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&e.dir, "dir", "", "data directory of the member")
	f.Uint32Var(&e.partition, "partition", 0, "number of the partition; 0 is the catalog")
	f.Uint64Var(&e.index, "index", 0, "index of the entry")
}

func (e *entryFlags) check() error {
	switch {
	case e.dir == "":
		return cli.Usagef("give --dir, the data directory of the member")
	case e.index == 0:
		return cli.Usagef("give --index, the index of the entry: the log of the member has it, in the line about the replica that stopped")
	}
	return nil
}

// shownEntry is the answer of raft-log show.
type shownEntry struct {
	Partition uint32    `json:"partition"`
	Index     uint64    `json:"index"`
	Term      uint64    `json:"term"`
	Checksum  string    `json:"checksum"`
	Bytes     int       `json:"bytes"`
	Time      time.Time `json:"time"` // wall time; zero for an entry without commands
	Commands  []string  `json:"commands"`
	Error     string    `json:"error,omitempty"` // why commands are missing
}

// skippedEntry is the answer of raft-log skip.
type skippedEntry struct {
	Partition uint32 `json:"partition"`
	Index     uint64 `json:"index"`
	Checksum  string `json:"checksum"`
}

// ChecksumText returns a checksum as logs show it and as raft-log skip takes it.
func ChecksumText(sum uint32) string { return fmt.Sprintf("%08x", sum) }

func showVerb() command.Verb {
	var e entryFlags
	return command.Verb{
		Use: "show --dir DATA --partition N --index I", Short: "Show an entry of the log of a partition",
		Long: `Print an entry of the log of a member that is not running: its checksum and its commands, with up to 60 bytes of each
message.`,
		Example: "  peeklock raft-log show --dir /var/lib/peeklock --partition 3 --index 48211",
		Flags:   e.register,
		Run:     func(i command.Invocation) error { return showEntry(i, &e) },
	}
}

func skipVerb() command.Verb {
	var e entryFlags
	var checksum string
	var yes bool
	return command.Verb{
		Use: "skip --dir DATA --partition N --index I --checksum C --yes", Short: "Skip an entry that stops every replica of its partition",
		Long: `Mark an entry as skipped in the data directory of a member that is not running, if every replica of the partition stops
when it applies the entry. The log of the members shows its index and checksum. Run it for a majority of the members that
have a replica of the partition, then start them: they answer the commands of the entry with an internal error, also when
clients repeat them, and go on. A replica without the mark stops again: replace it.

What the commands asked for is not done. Do not mark an entry that any replica has applied: replicas would differ. The audit
log has a line for each mark at each start, until a snapshot covers the entry.`,
		Example: "  peeklock raft-log skip --dir /var/lib/peeklock --partition 3 --index 48211 --checksum 1f0c22ab --yes",
		Flags: func(cmd *cobra.Command) {
			e.register(cmd)
			cmd.Flags().StringVar(&checksum, "checksum", "", "checksum of the entry, 8 hexadecimal digits")
			cmd.Flags().BoolVar(&yes, "yes", false, "confirm that the commands of the entry are not done")
		},
		Run:   func(i command.Invocation) error { return skipEntry(i, &e, checksum, yes) },
		Would: func(i command.Invocation) (command.Would, error) { return wouldSkip(i, &e, checksum) },
	}
}

func showEntry(i command.Invocation, e *entryFlags) error {
	if err := e.check(); err != nil {
		return err
	}
	stored, sum, err := cluster.StoredEntry(e.dir, fsm.PartitionID(e.partition), e.index, config.NewLogger(i.Client.Err, "warn", config.LogText))
	if err != nil {
		return err
	}
	shown := shownEntry{Partition: e.partition, Index: stored.Index, Term: stored.Term, Checksum: ChecksumText(sum), Bytes: len(stored.Data), Commands: []string{}}
	decoded, err := partition.DecodeEntry(&stored)
	if err != nil {
		shown.Error = err.Error()
	}
	if decoded.Times != (fsm.Times{}) {
		shown.Time = time.UnixMilli(int64(decoded.Times.Wall)).UTC()
	}
	for _, c := range decoded.Commands {
		shown.Commands = append(shown.Commands, fmt.Sprintf("%T%s", c.Command, valueText(reflect.ValueOf(c.Command))))
	}
	if !i.Out.IsTable() {
		return i.Out.Data(shown)
	}
	text := fmt.Sprintf("partition %d, entry %d, term %d, %d bytes, checksum %s", shown.Partition, shown.Index, shown.Term, shown.Bytes, shown.Checksum)
	if !shown.Time.IsZero() {
		text += ", " + shown.Time.Format(time.RFC3339Nano)
	}
	for _, c := range shown.Commands {
		text += "\n    " + c
	}
	if shown.Error != "" {
		text += "\n    " + shown.Error
	}
	return i.Out.Note("%s", text)
}

// parseChecksum parses the checksum of an entry.
func parseChecksum(text string) (uint32, error) {
	sum, err := strconv.ParseUint(strings.TrimSpace(text), 16, 32)
	if err != nil || len(text) != 8 {
		return 0, cli.Usagef("give --checksum, 8 hexadecimal digits: the log of the member has it, and peeklock raft-log show prints it")
	}
	return uint32(sum), nil
}

// wouldSkip compares the checksum with that of the stored entry.
func wouldSkip(i command.Invocation, e *entryFlags, checksum string) (command.Would, error) {
	if err := e.check(); err != nil {
		return command.Would{}, err
	}
	want, err := parseChecksum(checksum)
	if err != nil {
		return command.Would{}, err
	}
	stored, sum, err := cluster.StoredEntry(e.dir, fsm.PartitionID(e.partition), e.index, config.NewLogger(i.Client.Err, "warn", config.LogText))
	switch {
	case err != nil:
		return command.Would{}, err
	case sum != want:
		return command.Would{}, fmt.Errorf("entry %d of partition %d has the checksum %s", e.index, e.partition, ChecksumText(sum))
	}
	decoded, err := partition.DecodeEntry(&stored)
	if err != nil {
		return command.Wouldf("mark entry %d of partition %d in %s as skipped; its commands cannot be decoded: %v", e.index, e.partition, e.dir, err)
	}
	return command.Wouldf("mark entry %d of partition %d in %s as skipped: its %d commands are not done", e.index, e.partition, e.dir, len(decoded.Commands))
}

func skipEntry(i command.Invocation, e *entryFlags, checksum string, yes bool) error {
	if err := e.check(); err != nil {
		return err
	}
	sum, err := parseChecksum(checksum)
	if err != nil {
		return err
	}
	if !yes {
		return cli.Usagef("the commands of the entry will not be done, and are refused when clients repeat them: look at it with peeklock raft-log show, then add --yes")
	}
	err = cluster.SkipEntry(e.dir, fsm.PartitionID(e.partition), e.index, sum, config.NewLogger(i.Client.Err, "warn", config.LogText))
	if err != nil {
		return err
	}
	if !i.Out.IsTable() {
		return i.Out.Data(skippedEntry{e.partition, e.index, ChecksumText(sum)})
	}
	return i.Out.Note("entry %d of partition %d is marked as skipped here: mark it on a majority of its replicas, then start the members", e.index, e.partition)
}
