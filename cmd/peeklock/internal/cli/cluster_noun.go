package cli

// OperateNouns returns the commands of the cluster, its members and its partitions.
func OperateNouns() []noun { return []noun{clusterNoun(), memberNoun(), partitionNoun()} }

func clusterNoun() noun {
	return noun{name: "cluster", short: "Show the cluster, compare its replicas, back it up", verbs: []verb{
		{use: "status", short: "Show members, partitions and leaders", run: status},
		{use: "format-level auto|LEVEL", short: "Let the format level rise, or hold it", long: `Hold the format level of the cluster: it does not rise above LEVEL when all members can read a higher one, so that members
can go back to the release before. With auto, the default, it rises by itself. The level never falls.
"peeklock cluster status" shows it.`, example: `  peeklock cluster format-level 1
  peeklock cluster format-level auto`, args: ArgCount(1, 1), run: holdFormatLevel},
		{use: "verify", short: "Compare the state of all replicas", long: `Let the leader of every partition compare the whole state of its replicas, at a log index that all of them reach, and
print the results. Clients are not delayed; each replica does as much work as for a snapshot. Message bodies are not
read: their checksums are verified whenever they are read. The exit code is 1 when replicas differ or do not answer.
Members of different releases may differ without a fault.`, run: verify},
		backupVerb(),
	}}
}
