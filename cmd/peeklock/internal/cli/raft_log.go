package cli

import (
	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/cluster"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
	"github.com/peeklock/peeklock/partition"
)

// convertedLog is the answer of raft-log convert.
type convertedLog struct {
	Dir       string `json:"dir"`
	LogStore  string `json:"logStore"`
	Converted bool   `json:"converted"` // false: it was there already
}

// cutLog is the answer of raft-log cut.
type cutLog struct {
	Dir string `json:"dir"`
	Cut bool   `json:"cut"` // false: there was nothing to cut
}

// raftLogOptions are the flags of the commands of raft-log.
type raftLogOptions struct {
	dir, to string
	yes     bool
}

func raftLogNoun(c *Client) noun {
	var o raftLogOptions
	dirFlag := func(cmd *cobra.Command) { cmd.Flags().StringVar(&o.dir, "dir", "", "data directory of the member") }
	return noun{"raft-log", "Work on the Raft log of a member that is not running", "", []verb{
		{
			use: "convert --dir DATA --to bolt|journal", short: "Move the Raft log into the other log store",
			long: `Move the entries of the Raft log of a member that is not running: from raft.db into a journal, as the first start of the member
with --log-store journal does, or back. Start the member with the same --log-store afterwards.

The data directory needs free space for a second copy of the log. After an interruption, run the command again. Until it
has ended, the member starts with --log-store journal only.`,
			example: "  peeklock raft-log convert --dir /var/lib/peeklock --to bolt",
			flags: func(cmd *cobra.Command) {
				dirFlag(cmd)
				cmd.Flags().StringVar(&o.to, "to", "", "bolt or journal")
			},
			run: func(i invocation) error { return c.convertRaftLog(i, &o) },
		},
		{
			use: "cut --dir DATA --yes", short: "Cut a batch at the end of a journal that may have been confirmed",
			long: `Cut a batch at the end of the journal of a member that does not start because "the newest batch cannot be read, and may have
been confirmed". That is a batch that was on disk as a whole when the member crashed, and in which bits have changed since.

Use it only if too few other members are left for a quorum of the partitions, or if there are none: messages that only this
batch confirmed are lost. If the others have a quorum, remove this member instead and start it with an empty data directory: it
gets everything from them.`,
			example: "  peeklock raft-log cut --dir /var/lib/peeklock --yes",
			flags: func(cmd *cobra.Command) {
				dirFlag(cmd)
				cmd.Flags().BoolVar(&o.yes, "yes", false, "confirm that what only this batch holds may be lost")
			},
			run: func(i invocation) error { return c.cutRaftLog(i, &o) },
		},
	}}
}

// open returns the log that a command works on.
func (o *raftLogOptions) open(c *Client) (*cluster.StoppedLog, error) {
	if o.dir == "" {
		return nil, Usagef("give --dir, the data directory of the member")
	}
	return &cluster.StoppedLog{Dir: o.dir, Logger: config.NewLogger(c.Err, "warn", config.LogText)}, nil
}

func (c *Client) convertRaftLog(i invocation, o *raftLogOptions) error {
	log, err := o.open(c)
	if err != nil {
		return err
	}
	if !config.IsLogStore(o.to) {
		return Usagef("--to: bolt or journal, not %q", o.to)
	}
	converted, err := log.Convert(partition.LogKind(o.to))
	if err != nil {
		return err
	}
	if !i.out.IsTable() {
		return i.out.Data(convertedLog{o.dir, o.to, converted})
	}
	if !converted {
		return i.out.Note("the log of %s is in the log store %s already", o.dir, o.to)
	}
	return i.out.Note("the log of %s is in the log store %s: start the member with --log-store %s", o.dir, o.to, o.to)
}

func (c *Client) cutRaftLog(i invocation, o *raftLogOptions) error {
	log, err := o.open(c)
	if err != nil {
		return err
	}
	if !o.yes {
		return Usagef("this may lose confirmed messages: if the other members have a quorum, replace this one instead; otherwise add --yes")
	}
	cut, err := log.Cut()
	if err != nil {
		return err
	}
	if !i.out.IsTable() {
		return i.out.Data(cutLog{o.dir, cut})
	}
	if !cut {
		return i.out.Note("the log of %s has nothing to cut", o.dir)
	}
	return i.out.Note("the newest batch of %s was cut: start the member", o.dir)
}
