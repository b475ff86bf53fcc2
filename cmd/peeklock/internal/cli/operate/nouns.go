package operate

import (
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/backups"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
)

// Nouns returns the commands of the cluster, its members, its partitions, the connections of clients and the rates of entities, and of contexts.
func Nouns() []command.Noun {
	return []command.Noun{clusterNoun(), memberNoun(), partitionNoun(), connectionNoun(), auditNoun(), contextNoun(), {Verbs: []command.Verb{topVerb()}}}
}

func clusterNoun() command.Noun {
	return command.Noun{Name: "cluster", Short: "Show the cluster, compare its replicas, back it up", Verbs: []command.Verb{
		statusVerb(),
		{Use: "format-level auto|LEVEL", Short: "Let the format level rise, or hold it", Long: `Hold the format level of the cluster: it does not rise above LEVEL when all members can read a higher one, so that members
can go back to the release before. With auto, the default, it rises by itself. The level never falls.
"peeklock cluster status" shows it.`, Example: `  peeklock cluster format-level 1
  peeklock cluster format-level auto`, Args: cli.ArgCount(1, 1), Run: holdFormatLevel, Would: wouldHoldFormatLevel},
		{Use: "confirm-time", Short: "Accept a time to which all clocks were set", Long: `Accept the time on which the clocks of the members agree, after they were set together by more than a minute. Until then
wall time does not follow them: it goes on by the boot-time clocks of the members, so that no message expires or becomes
active because one time server is wrong. "peeklock cluster status" shows by how much they were set. Look first which time
is right: messages whose time to live ends by the step expire at once, and after a step back, nothing expires or becomes
active until the clocks have passed the time that the partitions have reached. All members follow within some seconds.`, Args: cli.ArgCount(0, 0), Run: confirmTime, Would: wouldConfirmTime},
		{Use: "verify", Short: "Compare the state of all replicas", Long: `Let the leader of every partition compare the whole state of its replicas, at a log index that all of them reach, and
print the results. Clients are not delayed; each replica does as much work as for a snapshot. Message bodies are not
read: their checksums are verified whenever they are read. The exit code is 1 when replicas differ or do not answer.
Members of different releases may differ without a fault.`, Run: verify},
		backups.BackupVerb(),
	}}
}
