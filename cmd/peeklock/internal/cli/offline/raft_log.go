package offline

import (
	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/cluster"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
)

// cutLog is the answer of raft-log cut.
type cutLog struct {
	Dir string `json:"dir"`
	Cut bool   `json:"cut"` // false: there was nothing to cut
}

// Nouns returns the commands that need no member.
func Nouns() []command.Noun {
	return []command.Noun{raftLogNoun(), debugNoun(), {Verbs: []command.Verb{versionVerb()}}}
}

func raftLogNoun() command.Noun {
	var dir string
	var yes bool
	return command.Noun{Name: "raft-log", Short: "Work on the Raft log of a member that is not running", Verbs: []command.Verb{
		{
			Use: "cut --dir DATA --yes", Short: "Cut a batch at the end of a journal that may have been confirmed",
			Long: `Cut a batch at the end of the journal of a member that does not start because "the newest batch cannot be read, and may have
been confirmed". That is a batch that was on disk as a whole when the member crashed, and in which bits have changed since.

Use it only if too few other members are left for a quorum of the partitions, or if there are none: messages that only this
batch confirmed are lost. If the others have a quorum, remove this member instead and start it with an empty data directory: it
gets everything from them.`,
			Example: "  peeklock raft-log cut --dir /var/lib/peeklock --yes",
			Flags: func(cmd *cobra.Command) {
				cmd.Flags().StringVar(&dir, "dir", "", "data directory of the member")
				cmd.Flags().BoolVar(&yes, "yes", false, "confirm that what only this batch holds may be lost")
			},
			Run: func(i command.Invocation) error { return cutRaftLog(i, dir, yes) },
		},
		showVerb(),
		skipVerb(),
	}}
}

func cutRaftLog(i command.Invocation, dir string, yes bool) error {
	if dir == "" {
		return cli.Usagef("give --dir, the data directory of the member")
	}
	if !yes {
		return cli.Usagef("this may lose confirmed messages: if the other members have a quorum, replace this one instead; otherwise add --yes")
	}
	cut, err := cluster.CutLog(dir, config.NewLogger(i.Client.Err, "warn", config.LogText))
	if err != nil {
		return err
	}
	if !i.Out.IsTable() {
		return i.Out.Data(cutLog{dir, cut})
	}
	if !cut {
		return i.Out.Note("the log of %s has nothing to cut", dir)
	}
	return i.Out.Note("the newest batch of %s was cut: start the member", dir)
}
