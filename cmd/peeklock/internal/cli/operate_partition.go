package cli

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

func partitionNoun() noun {
	one := ArgCount(1, 1)
	var noWait bool
	var balance rebalanceOptions
	change := func(name, short, did string) verb {
		return verb{use: name + " ID", short: short, args: one, complete: completeMember(1, 1), run: func(i invocation) error {
			return changeMove(i, name, did)
		}}
	}
	return noun{name: "partition", short: "List, move, rebalance and add partitions", long: `List, move, rebalance and add partitions. A move is recorded in the cluster. It continues when the command is
interrupted and when members fail. Two partitions are copied at a time. Clients are not interrupted.`, verbs: []verb{
		{use: "list", short: "List partitions with their leaders and replicas", run: listPartitions},
		{use: "show ID", short: "Show one partition", args: one, complete: completeMember(1, 1), run: showPartition},
		{
			use: "move ID MEMBER...", short: "Move a partition to other members", long: `Move a partition to these members, 1 to 16, the preferred leader first. The new replicas are copied completely before
the first old one is removed. Until then the move can be paused and cancelled.`, example: `  peeklock partition move 3 a b d
  peeklock partition move 3 a b d --no-wait`, args: ArgCount(2, -1), complete: completeMember(1, -1),
			flags: func(cmd *cobra.Command) {
				cmd.Flags().BoolVar(&noWait, "no-wait", false, "return when the move is recorded")
			}, run: func(i invocation) error { return movePartition(i, noWait) },
		},
		{
			use: "transfer ID MEMBER", short: "Transfer the leadership of a partition to another of its members",
			long:    "Transfer the leadership of a partition to another member that has a replica of it. That member is its preferred leader from\nthen on.",
			example: "  peeklock partition transfer 3 b", args: ArgCount(2, 2), complete: completeMember(1, 2), run: transferPartition,
		},
		change("pause", "Pause the move of a partition", "paused"),
		change("resume", "Resume the paused move of a partition", "resumed"),
		change("cancel", "Cancel the move of a partition and return it to its former members", "cancelled"),
		{use: "moves", short: "List the moves of partitions with their progress", run: listMoves},
		{use: "rebalance", short: "Distribute partitions and leaders evenly over the members", long: `Distribute replicas and leaders over the members that are available and not drained, by zones and weights, with as few
moves as possible. The command prints the plan, carries it out without a question, and watches it; look at the plan first
with --dry-run. The moves continue when the command is interrupted, and can be paused or cancelled one by one.`, example: `  peeklock partition rebalance --dry-run
  peeklock partition rebalance`, flags: func(cmd *cobra.Command) {
			cmd.Flags().BoolVar(&balance.dryRun, "dry-run", false, "only print the plan")
			cmd.Flags().BoolVar(&balance.noWait, "no-wait", false, "return when the moves are recorded")
		}, run: func(i invocation) error { return rebalance(i, balance) }},
		{use: "grow N", short: "Add partitions", long: `Add N partitions on the members with the most free capacity. Existing entities stay where they are; new ones are placed in
the new partitions first. Partitions cannot be removed.`, example: "  peeklock partition grow 8", args: one, run: growPartitions},
	}}
}

// partitionID parses a partition number.
func partitionID(text string) (fsm.PartitionID, error) {
	id, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, Usagef("%q is not a partition: they are numbers, which peeklock partition list shows", Printable(text, 100))
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
func partitions(ctx context.Context, c *Client) ([]PartitionInfo, *memberNames, error) {
	r, err := readMembers(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	var st topology.Status
	if err := c.Call(ctx, http.MethodGet, "/v1/status", nil, &st); err != nil {
		return nil, nil, err
	}
	var moves admin.Moves
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

func listPartitions(i invocation) error {
	list, r, err := partitions(i.ctx, i.client)
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
	return i.out.Rows(map[string]any{"partitions": list}, []any{"partition", "leader", "replicas", "entities", "messages", "move"}, rows)
}

func moveText(r *memberNames, m topology.Move) string {
	text := m.State + ", to " + r.names(m.To)
	if m.Bytes > 0 {
		text += fmt.Sprintf(", %s of %s", SignedBytesText(m.Copied), SignedBytesText(m.Bytes))
	}
	return text
}

func showPartition(i invocation) error {
	id, err := partitionID(i.args[0])
	if err != nil {
		return err
	}
	list, r, err := partitions(i.ctx, i.client)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(list, func(p PartitionInfo) bool { return p.ID == id })
	if at < 0 {
		return fmt.Errorf("there is no partition %d: peeklock partition list shows them", id)
	}
	p := list[at]
	if i.out.IsTable() { // the table shows names
		replaceMemberIDs(r, &p)
	}
	return i.out.fields(p)
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
func (d partitionDone) print(out *Output, detail string) error {
	if !out.IsTable() {
		return out.Data(d)
	}
	return out.Note("partition %d %s %s", d.Partition, d.Did, detail)
}

func movePartition(i invocation, noWait bool) error {
	id, err := partitionID(i.args[0])
	if err != nil {
		return err
	}
	done := partitionDone{Partition: id, Did: "ordered", Members: i.args[1:]}
	if err := i.client.Call(i.ctx, http.MethodPost, partitionPath(id, "move"), admin.MoveRequest{Members: i.args[1:]}, nil); err != nil {
		return err
	}
	if !noWait {
		done.Did = "moved"
		if err := watchMoves(i.ctx, i.client, fmt.Sprintf("moving partition %d", id), map[fsm.PartitionID]int64{id: 0}); err != nil {
			return err
		}
	}
	return done.print(i.out, fmt.Sprintf("to %v", i.args[1:]))
}

func transferPartition(i invocation) error {
	id, err := partitionID(i.args[0])
	if err != nil {
		return err
	}
	if err := i.client.Call(i.ctx, http.MethodPost, partitionPath(id, "transfer"), admin.TransferRequest{To: i.args[1]}, nil); err != nil {
		return err
	}
	return partitionDone{Partition: id, Did: "transferred", Members: i.args[1:]}.print(i.out, "to "+i.args[1])
}

// changeMove pauses, resumes or cancels the move of a partition.
func changeMove(i invocation, verb, did string) error {
	id, err := partitionID(i.args[0])
	if err != nil {
		return err
	}
	if err := i.client.Call(i.ctx, http.MethodPost, partitionPath(id, verb), nil, nil); err != nil {
		return err
	}
	if !i.out.IsTable() {
		return i.out.Data(partitionDone{Partition: id, Did: did})
	}
	return i.out.Note("move of partition %d %s", id, did)
}

func listMoves(i invocation) error {
	r, err := readMembers(i.ctx, i.client)
	if err != nil {
		return err
	}
	var list admin.Moves
	if err := i.client.Call(i.ctx, http.MethodGet, "/v1/moves", nil, &list); err != nil {
		return err
	}
	if i.out.IsTable() && len(list.Moves) == 0 {
		return i.out.Note("no moves")
	}
	rows := make([][]any, len(list.Moves))
	for at, m := range list.Moves {
		copied := ""
		if m.Bytes > 0 {
			copied = fmt.Sprintf("%s of %s, %d %%", SignedBytesText(m.Copied), SignedBytesText(m.Bytes), m.Copied*100/m.Bytes)
		}
		rows[at] = []any{uint32(m.Partition), r.names(m.From), r.names(m.To), m.State, copied}
	}
	return i.out.Rows(list, []any{"partition", "from", "to", "state", "copied"}, rows)
}

func growPartitions(i invocation) error {
	n, err := strconv.Atoi(i.args[0])
	if err != nil || n < 1 {
		return Usagef("%q is not a number of partitions", Printable(i.args[0], 100))
	}
	var grown admin.GrowResult
	if err := i.client.Call(i.ctx, http.MethodPost, "/v1/partitions", admin.GrowRequest{Add: n}, &grown); err != nil {
		return err
	}
	if !i.out.IsTable() {
		return i.out.Data(grown)
	}
	return i.out.Note("%d added: the cluster has %d partitions", n, grown.Partitions)
}
