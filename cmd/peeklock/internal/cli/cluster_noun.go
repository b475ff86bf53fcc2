package cli

import (
	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/cmd/objects"
)

func clusterNoun() noun {
	var rate rateFlag
	return noun{name: "cluster", short: "Show the cluster, compare its replicas, back it up", verbs: []verb{
		{use: "status", short: "Show members, partitions and leaders", run: status},
		{use: "format-level auto|LEVEL", short: "Let the format level rise, or hold it", long: `Hold the format level of the cluster: it does not rise above LEVEL when all members can read a higher one, so that members
can go back to the release before. With auto, the default, it rises by itself. The level never falls.
"peeklock cluster status" shows it.`, example: `  peeklock cluster format-level 1
  peeklock cluster format-level auto`, args: argCount(1, 1), run: holdFormatLevel},
		{use: "verify", short: "Compare the state of all replicas", long: `Let the leader of every partition compare the whole state of its replicas, at a log index that all of them reach, and
print the results. Clients are not delayed; each replica does as much work as for a snapshot. Message bodies are not
read: their checksums are verified whenever they are read. The exit code is 1 when replicas differ or do not answer.
Members of different releases may differ without a fault.`, run: verify},
		{
			use: "backup DIR|s3://BUCKET/PREFIX", short: "Copy the cluster to a directory or an object store while it runs", long: `Copy all partitions to a directory, which must be empty or missing, or to an object store, where no object may have the
prefix. The cluster keeps running. The copies come from the leaders, through any member. Each partition is consistent as
of a moment between the start and the end of the backup, but the partitions are not consistent with each other: of two
messages sent to different partitions during the backup, one may be missing, and a message that was being forwarded may
be in neither partition or in both ("Backup" in the operations guide). The catalog is copied first and last; the last copy counts, and the manifest says
whether it changed. {time} in the target is replaced by the time of the start, as in 20261120T020000Z.

A copy keeps disk space on its leader until it is written, so a slow target costs disk space there. The files contain
all messages and keys: protect them. "peeklock restore" reads them.

Any object store that speaks S3 works. The data goes through this command, not from the members to the store.
` + objects.EnvironmentHelp, example: `  peeklock cluster backup /backups/2026-11-20
  AWS_ENDPOINT_URL_S3=https://store.example:9000 peeklock cluster backup s3://backups/2026-11-20 --rate 50MiB
  peeklock cluster backup s3://backups/nightly/{time}`,
			args: argCount(1, 1),
			flags: func(cmd *cobra.Command) {
				cmd.Flags().Var(&rate, "rate", "maximum bytes per second, 64KiB or more; 0: no limit")
			},
			run: func(i invocation) error { return backUp(i, rate) },
		},
	}}
}
