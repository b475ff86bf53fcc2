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

func raftLogNoun(c *Client) noun {
	var dir, to string
	return noun{"raft-log", "Work on the Raft log of a member that is not running", "", []verb{
		{
			use: "convert --dir DATA --to bolt|journal", short: "Move the Raft log into the other log store",
			long: `Move the entries of the Raft log of a member that is not running: from raft.db into a journal, as the first start of the member
with --log-store journal does, or back. Start the member with the same --log-store afterwards.

The data directory needs free space for a second copy of the log. After an interruption, run the command again. Until it
has ended, the member starts with --log-store journal only.`,
			example: "  peeklock raft-log convert --dir /var/lib/peeklock --to bolt",
			flags: func(cmd *cobra.Command) {
				f := cmd.Flags()
				f.StringVar(&dir, "dir", "", "data directory of the member")
				f.StringVar(&to, "to", "", "bolt or journal")
			},
			run: func(i invocation) error {
				switch {
				case dir == "":
					return Usagef("give --dir, the data directory of the member")
				case !config.IsLogStore(to):
					return Usagef("--to: bolt or journal, not %q", to)
				}
				converted, err := cluster.ConvertLog(cluster.LogConversion{
					Dir: dir, To: partition.LogKind(to), Logger: config.NewLogger(c.Err, "warn", config.LogText),
				})
				if err != nil {
					return err
				}
				if !i.out.IsTable() {
					return i.out.Data(convertedLog{dir, to, converted})
				}
				if !converted {
					return i.out.Note("the log of %s is in the log store %s already", dir, to)
				}
				return i.out.Note("the log of %s is in the log store %s: start the member with --log-store %s", dir, to, to)
			},
		},
	}}
}
