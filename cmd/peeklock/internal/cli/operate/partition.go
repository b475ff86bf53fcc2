package operate

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

func partitionNoun() command.Noun {
	one := cli.ArgCount(1, 1)
	var noWait bool
	var balance rebalanceOptions
	change := func(name, short, did string) command.Verb {
		return command.Verb{Use: name + " ID", Short: short, Args: one, Complete: completeMember(1, 1), Run: func(i command.Invocation) error {
			return changeMove(i, name, did)
		}, Would: wouldChangeMove(name)}
	}
	return command.Noun{Name: "partition", Short: "List, move, rebalance and add partitions", Long: `List, move, rebalance and add partitions. A move is recorded in the cluster. It continues when the command is
interrupted and when members fail. Two partitions are copied at a time. Clients are not interrupted.`, Verbs: []command.Verb{
		{Use: "list", Short: "List partitions with their leaders and replicas", Run: listPartitions},
		{Use: "show ID", Short: "Show one partition", Args: one, Complete: completeMember(1, 1), Run: showPartition},
		{
			Use: "move ID MEMBER...", Short: "Move a partition to other members", Long: `Move a partition to these members, 1 to 16, the preferred leader first. The new replicas are copied completely before
the first old one is removed. Until then the move can be paused and cancelled.`, Example: `  peeklock partition move 3 a b d
  peeklock partition move 3 a b d --no-wait`, Args: cli.ArgCount(2, -1), Complete: completeMember(1, -1),
			Flags: func(cmd *cobra.Command) {
				cmd.Flags().BoolVar(&noWait, "no-wait", false, "return when the move is recorded")
			}, Run: func(i command.Invocation) error { return movePartition(i, noWait) }, Would: wouldMovePartition,
		},
		{
			Use: "transfer ID MEMBER", Short: "Transfer the leadership of a partition to another of its members",
			Long:    "Transfer the leadership of a partition to another member that has a replica of it. That member is its preferred leader from\nthen on.",
			Example: "  peeklock partition transfer 3 b", Args: cli.ArgCount(2, 2), Complete: completeMember(1, 2), Run: transferPartition, Would: wouldTransferPartition,
		},
		change("pause", "Pause the move of a partition", "paused"),
		change("resume", "Resume the paused move of a partition", "resumed"),
		change("cancel", "Cancel the move of a partition and return it to its former members", "cancelled"),
		{Use: "moves", Short: "List the moves of partitions with their progress", Run: listMoves},
		{Use: "rebalance", Short: "Distribute partitions and leaders evenly over the members", Long: `Distribute replicas and leaders over the members that are available and not drained, by zones and weights, with as few
moves as possible. The command prints the plan, carries it out without a question, and watches it; look at the plan first
with --dry-run. The moves continue when the command is interrupted, and can be paused or cancelled one by one.`, Example: `  peeklock partition rebalance --dry-run
  peeklock partition rebalance`, Flags: func(cmd *cobra.Command) {
			cmd.Flags().BoolVar(&balance.dryRun, "dry-run", false, "only print the plan")
			cmd.Flags().BoolVar(&balance.noWait, "no-wait", false, "return when the moves are recorded")
		}, Run: func(i command.Invocation) error { return rebalance(i, balance) }},
		{Use: "grow N", Short: "Add partitions", Long: `Add N partitions on the members with the most free capacity. Existing entities stay where they are; new ones are placed in
the new partitions first. Partitions cannot be removed.`, Example: "  peeklock partition grow 8", Args: one, Run: growPartitions, Would: wouldGrow},
	}}
}

// partitionID parses a partition number.
func partitionID(text string) (fsm.PartitionID, error) {
	id, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, cli.Usagef("%q is not a partition: they are numbers, which peeklock partition list shows", output.Printable(text, 100))
	}
	return fsm.PartitionID(id), nil
}

func partitionPath(id fsm.PartitionID, verb string) string {
	return fmt.Sprintf("/v1/partitions/%d/%s", id, verb)
}

// PartitionInfo is a partition and its move, if there is one.
type PartitionInfo struct {
	topology.Partition
	Move *topology.Move `json:"move,omitempty"`
}

// partitions fetches all partitions, their moves and the members.
func partitions(ctx context.Context, c *client.Client) ([]PartitionInfo, *memberNames, error) {
	r, err := readMembers(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	var st topology.Status
	if err := c.Call(ctx, http.MethodGet, "/v1/status", nil, &st); err != nil {
		return nil, nil, err
	}
	var moves api.Moves
	if err := c.Call(ctx, http.MethodGet, "/v1/moves", nil, &moves); err != nil {
		return nil, nil, err
	}
	list := make([]PartitionInfo, len(st.Partitions))
	for i, p := range st.Partitions {
		list[i].Partition = p
		if at := slices.IndexFunc(moves.Moves, func(m topology.Move) bool { return m.Partition == p.ID }); at >= 0 {
			list[i].Move = &moves.Moves[at]
		}
	}
	return list, r, nil
}

func listPartitions(i command.Invocation) error {
	list, r, err := partitions(i.Ctx, i.Client)
	if err != nil {
		return err
	}
	rows := make([][]any, len(list))
	for at, p := range list {
		leader, move := "none", ""
		if p.Leader != "" {
			leader = r.name(p.Leader)
		}
		if p.Move != nil {
			move = moveText(r, *p.Move)
		}
		rows[at] = []any{uint32(p.ID), leader, r.names(p.Replicas), p.Entities, p.Messages, move}
	}
	return i.Out.Rows(map[string]any{"partitions": list}, []any{"partition", "leader", "replicas", "entities", "messages", "move"}, rows)
}

func moveText(r *memberNames, m topology.Move) string {
	text := m.State + ", to " + r.names(m.To)
	if m.Bytes > 0 {
		text += fmt.Sprintf(", %s of %s", output.SignedBytesText(m.Copied), output.SignedBytesText(m.Bytes))
	}
	return text
}

func showPartition(i command.Invocation) error {
	p, r, err := onePartition(i)
	if err != nil {
		return err
	}
	if i.Out.IsTable() { // the table shows names
		replaceMemberIDs(r, &p)
	}
	return i.Out.Fields(p)
}

// replaceMemberIDs replaces the ids of members with their names.
func replaceMemberIDs(r *memberNames, p *PartitionInfo) {
	if p.Leader != "" {
		p.Leader = fsm.MemberID(r.name(p.Leader))
	}
	lists := []*[]fsm.MemberID{&p.Replicas}
	if p.Move != nil {
		move := *p.Move
		p.Move, lists = &move, append(lists, &move.From, &move.To)
	}
	for _, list := range lists {
		names := make([]fsm.MemberID, len(*list))
		for i, id := range *list {
			names[i] = fsm.MemberID(r.name(id))
		}
		*list = names
	}
}

// partitionDone is the answer of commands that change a partition.
type partitionDone struct {
	Partition fsm.PartitionID `json:"partition"`
	Did       string          `json:"did"` // moved, ordered, transferred, paused, resumed, cancelled
	Members   []string        `json:"members,omitempty"`
}

// print prints the answer; detail appears only in the table output.
func (d partitionDone) print(out *output.Output, detail string) error {
	if !out.IsTable() {
		return out.Data(d)
	}
	return out.Note("partition %d %s %s", d.Partition, d.Did, detail)
}

func movePartition(i command.Invocation, noWait bool) error {
	id, err := partitionID(i.Args[0])
	if err != nil {
		return err
	}
	done := partitionDone{Partition: id, Did: "ordered", Members: i.Args[1:]}
	if err := i.Client.Call(i.Ctx, http.MethodPost, partitionPath(id, "move"), api.MoveRequest{Members: i.Args[1:]}, nil); err != nil {
		return err
	}
	if !noWait {
		done.Did = "moved"
		if err := watchMoves(i.Ctx, i.Client, fmt.Sprintf("moving partition %d", id), map[fsm.PartitionID]int64{id: 0}); err != nil {
			return err
		}
	}
	return done.print(i.Out, fmt.Sprintf("to %v", i.Args[1:]))
}

func transferPartition(i command.Invocation) error {
	id, err := partitionID(i.Args[0])
	if err != nil {
		return err
	}
	if err := i.Client.Call(i.Ctx, http.MethodPost, partitionPath(id, "transfer"), api.TransferRequest{To: i.Args[1]}, nil); err != nil {
		return err
	}
	return partitionDone{Partition: id, Did: "transferred", Members: i.Args[1:]}.print(i.Out, "to "+i.Args[1])
}

// changeMove pauses, resumes or cancels the move of a partition.
func changeMove(i command.Invocation, verb, did string) error {
	id, err := partitionID(i.Args[0])
	if err != nil {
		return err
	}
	if err := i.Client.Call(i.Ctx, http.MethodPost, partitionPath(id, verb), nil, nil); err != nil {
		return err
	}
	if !i.Out.IsTable() {
		return i.Out.Data(partitionDone{Partition: id, Did: did})
	}
	return i.Out.Note("move of partition %d %s", id, did)
}

func listMoves(i command.Invocation) error {
	r, err := readMembers(i.Ctx, i.Client)
	if err != nil {
		return err
	}
	var list api.Moves
	if err := i.Client.Call(i.Ctx, http.MethodGet, "/v1/moves", nil, &list); err != nil {
		return err
	}
	if i.Out.IsTable() && len(list.Moves) == 0 {
		return i.Out.Note("no moves")
	}
	rows := make([][]any, len(list.Moves))
	for at, m := range list.Moves {
		copied := ""
		if m.Bytes > 0 {
			copied = fmt.Sprintf("%s of %s, %d %%", output.SignedBytesText(m.Copied), output.SignedBytesText(m.Bytes), m.Copied*100/m.Bytes)
		}
		rows[at] = []any{uint32(m.Partition), r.names(m.From), r.names(m.To), m.State, copied}
	}
	return i.Out.Rows(list, []any{"partition", "from", "to", "state", "copied"}, rows)
}

func growPartitions(i command.Invocation) error {
	n, err := growCount(i.Args[0])
	if err != nil {
		return err
	}
	var grown api.GrowResult
	if err := i.Client.Call(i.Ctx, http.MethodPost, "/v1/partitions", api.GrowRequest{Add: n}, &grown); err != nil {
		return err
	}
	if !i.Out.IsTable() {
		return i.Out.Data(grown)
	}
	return i.Out.Note("%d added: the cluster has %d partitions", n, grown.Partitions)
}
