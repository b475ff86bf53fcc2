package cli

import (
	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/cluster"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
)

// cutLog is the answer of raft-log cut.
type cutLog struct {
	Dir string `json:"dir"`
	Cut bool   `json:"cut"` // false: there was nothing to cut
}

// OfflineNouns returns the commands that need no member.
func OfflineNouns() []noun {
	return []noun{raftLogNoun(), debugNoun(), {verbs: []verb{versionVerb()}}}
}

func raftLogNoun() noun {
	var dir string
	var yes bool
	return noun{name: "raft-log", short: "Work on the Raft log of a member that is not running", verbs: []verb{
		{
			use: "cut --dir DATA --yes", short: "Cut a batch at the end of a journal that may have been confirmed",
			long: `Cut a batch at the end of the journal of a member that does not start because "the newest batch cannot be read, and may have
been confirmed". That is a batch that was on disk as a whole when the member crashed, and in which bits have changed since.

Use it only if too few other members are left for a quorum of the partitions, or if there are none: messages that only this
batch confirmed are lost. If the others have a quorum, remove this member instead and start it with an empty data directory: it
gets everything from them.`,
			example: "  peeklock raft-log cut --dir /var/lib/peeklock --yes",
			flags: func(cmd *cobra.Command) {
				cmd.Flags().StringVar(&dir, "dir", "", "data directory of the member")
				cmd.Flags().BoolVar(&yes, "yes", false, "confirm that what only this batch holds may be lost")
			},
			run: func(i invocation) error { return cutRaftLog(i, dir, yes) },
		},
	}}
}

func cutRaftLog(i invocation, dir string, yes bool) error {
	if dir == "" {
		return Usagef("give --dir, the data directory of the member")
	}
	if !yes {
		return Usagef("this may lose confirmed messages: if the other members have a quorum, replace this one instead; otherwise add --yes")
	}
	cut, err := cluster.CutLog(dir, config.NewLogger(i.client.Err, "warn", config.LogText))
	if err != nil {
		return err
	}
	if !i.out.IsTable() {
		return i.out.Data(cutLog{dir, cut})
	}
	if !cut {
		return i.out.Note("the log of %s has nothing to cut", dir)
	}
	return i.out.Note("the newest batch of %s was cut: start the member", dir)
}
