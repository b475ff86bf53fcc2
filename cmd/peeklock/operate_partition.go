package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin"
	"github.com/peeklock/peeklock/fsm"
)

func newPartition(c *client) *cobra.Command {
	cmd := group("partition", "List, move, hand over and add partitions",
		newPartitionList(c), newPartitionShow(c), newPartitionMove(c), newPartitionTransfer(c),
		newPartitionChange(c, "pause", "Let a move wait as it stands", "paused"),
		newPartitionChange(c, "resume", "Let a paused move go on", "resumed"),
		newPartitionChange(c, "cancel", "Bring a moving partition back to where it lay", "cancelled"),
		newPartitionMoves(c), newPartitionRebalance(c), newPartitionGrow(c))
	cmd.Long = `List, move, hand over and add partitions. A move is recorded in the cluster and goes on
whoever watches it, also when members die on the way; two partitions are copied at a
time. Clients see nothing of it.`
	return cmd
}

// partitionID reads an argument.
func partitionID(text string) (fsm.PartitionID, error) {
	id, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, usagef("%q is no partition: they are numbers, which peeklock partition list shows", printable(text, 100))
	}
	return fsm.PartitionID(id), nil
}

func partitionPath(id fsm.PartitionID, verb string) string {
	return fmt.Sprintf("/v1/partitions/%d/%s", id, verb)
}

// exactArgs asks for so many arguments.
func exactArgs(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usagef("wrong number of arguments: %s", cmd.UseLine())
		}
		return nil
	}
}

// partitionInfo is a partition with its move, if there is one.
type partitionInfo struct {
	admin.PartitionStatus
	Move *admin.Move `json:"move,omitempty"`
}

// partitions asks for all of them.
func (c *client) partitions(ctx context.Context) ([]partitionInfo, *memberList, error) {
	r, err := c.memberList(ctx)
	if err != nil {
		return nil, nil, err
	}
	var st admin.Status
	if err := c.call(ctx, http.MethodGet, "/v1/status", nil, &st); err != nil {
		return nil, nil, err
	}
	var moves admin.Moves
	if err := c.call(ctx, http.MethodGet, "/v1/moves", nil, &moves); err != nil {
		return nil, nil, err
	}
	list := make([]partitionInfo, len(st.Partitions))
	for i, p := range st.Partitions {
		list[i].PartitionStatus = p
		if at := slices.IndexFunc(moves.Moves, func(m admin.Move) bool { return m.Partition == p.ID }); at >= 0 {
			list[i].Move = &moves.Moves[at]
		}
	}
	return list, r, nil
}

func newPartitionList(c *client) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List partitions with their leaders and replicas", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := c.output()
			if err != nil {
				return err
			}
			list, r, err := c.partitions(cmd.Context())
			if err != nil {
				return err
			}
			rows := make([][]any, len(list))
			for i, p := range list {
				leader, move := "none", ""
				if p.Leader != "" {
					leader = r.name(p.Leader)
				}
				if p.Move != nil {
					move = moveText(r, *p.Move)
				}
				rows[i] = []any{uint32(p.ID), leader, r.names(p.Replicas), p.Entities, p.Messages, move}
			}
			return out.rows(map[string]any{"partitions": list}, []any{"partition", "leader", "replicas", "entities", "messages", "move"}, rows)
		},
	}
}

func moveText(r *memberList, m admin.Move) string {
	text := m.State + ", to " + r.names(m.To)
	if m.Bytes > 0 {
		text += fmt.Sprintf(", %s of %s", signedBytesText(m.Copied), signedBytesText(m.Bytes))
	}
	return text
}

func newPartitionShow(c *client) *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show one partition", Args: wantArgs(1), ValidArgsFunction: c.completePartition,
		RunE: func(cmd *cobra.Command, args []string) error {
			out, id, err := c.partitionCommand(args[0])
			if err != nil {
				return err
			}
			list, r, err := c.partitions(cmd.Context())
			if err != nil {
				return err
			}
			at := slices.IndexFunc(list, func(p partitionInfo) bool { return p.ID == id })
			if at < 0 {
				return fmt.Errorf("there is no partition %d: peeklock partition list shows them", id)
			}
			p := list[at]
			if out.isTable() { // names, not ids
				replaceMemberIDs(r, &p)
			}
			return out.fields(p)
		},
	}
}

// replaceMemberIDs puts names in the place of ids.
func replaceMemberIDs(r *memberList, p *partitionInfo) {
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

// partitionDone is the answer of what was done to a partition.
type partitionDone struct {
	Partition fsm.PartitionID `json:"partition"`
	Did       string          `json:"did"` // moved, ordered, transferred, paused, resumed, cancelled
	Members   []string        `json:"members,omitempty"`
}

func newPartitionMove(c *client) *cobra.Command {
	var noWait bool
	cmd := &cobra.Command{
		Use: "move ID MEMBER...", Short: "Move a partition to other members",
		Long: `Move a partition to these members, 1 to 16, the preferred leader first: all of them are
filled before the first of the former replicas goes. Until then it can be paused and cancelled.`,
		Example: `  peeklock partition move 3 a b d
  peeklock partition move 3 a b d --no-wait`,
		Args: atLeastArgs(2), ValidArgsFunction: c.completeMember(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out, id, err := c.partitionCommand(args[0])
			if err != nil {
				return err
			}
			ctx, done := cmd.Context(), partitionDone{Partition: id, Did: "ordered", Members: args[1:]}
			if err := c.call(ctx, http.MethodPost, partitionPath(id, "move"), admin.MoveRequest{Members: args[1:]}, nil); err != nil {
				return err
			}
			if !noWait {
				done.Did = "moved"
				if err := c.watchMoves(ctx, fmt.Sprintf("moving partition %d", id), map[fsm.PartitionID]int64{id: 0}); err != nil {
					return err
				}
			}
			return c.printPartition(out, done, fmt.Sprintf("to %v", args[1:]))
		},
	}
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "return when the move is recorded")
	return cmd
}

// atLeastArgs asks for so many arguments or more.
func atLeastArgs(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < n {
			return usagef("wrong number of arguments: %s", cmd.UseLine())
		}
		return nil
	}
}

func (c *client) printPartition(out *output, done partitionDone, detail string) error {
	if !out.isTable() {
		return out.data(done)
	}
	return out.note("partition %d %s %s", done.Partition, done.Did, detail)
}

func newPartitionTransfer(c *client) *cobra.Command {
	return &cobra.Command{
		Use: "transfer ID MEMBER", Short: "Hand the leadership of a partition to another of its members",
		Long: `Hand the leadership of a partition to another member that holds it, which is its preferred
leader from then on.`,
		Example: `  peeklock partition transfer 3 b`,
		Args:    exactArgs(2), ValidArgsFunction: c.completeMember(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			out, id, err := c.partitionCommand(args[0])
			if err != nil {
				return err
			}
			if err := c.call(cmd.Context(), http.MethodPost, partitionPath(id, "transfer"), admin.TransferRequest{To: args[1]}, nil); err != nil {
				return err
			}
			return c.printPartition(out, partitionDone{Partition: id, Did: "transferred", Members: args[1:]}, "to "+args[1])
		},
	}
}

// partitionCommand is what every command about one partition begins with.
func (c *client) partitionCommand(arg string) (out *output, id fsm.PartitionID, err error) {
	if out, err = c.output(); err == nil {
		id, err = partitionID(arg)
	}
	return out, id, err
}

func newPartitionChange(c *client, verb, short, did string) *cobra.Command {
	return &cobra.Command{
		Use: verb + " ID", Short: short, Args: wantArgs(1), ValidArgsFunction: c.completePartition,
		RunE: func(cmd *cobra.Command, args []string) error {
			out, id, err := c.partitionCommand(args[0])
			if err != nil {
				return err
			}
			if err := c.call(cmd.Context(), http.MethodPost, partitionPath(id, verb), nil, nil); err != nil {
				return err
			}
			if !out.isTable() {
				return out.data(partitionDone{Partition: id, Did: did})
			}
			return out.note("move of partition %d %s", id, did)
		},
	}
}

func newPartitionMoves(c *client) *cobra.Command {
	return &cobra.Command{
		Use: "moves", Short: "List partitions that move, and how far they are", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := c.output()
			if err != nil {
				return err
			}
			r, err := c.memberList(cmd.Context())
			if err != nil {
				return err
			}
			var list admin.Moves
			if err := c.call(cmd.Context(), http.MethodGet, "/v1/moves", nil, &list); err != nil {
				return err
			}
			if out.isTable() && len(list.Moves) == 0 {
				return out.note("nothing moves")
			}
			rows := make([][]any, len(list.Moves))
			for i, m := range list.Moves {
				copied := ""
				if m.Bytes > 0 {
					copied = fmt.Sprintf("%s of %s, %d %%", signedBytesText(m.Copied), signedBytesText(m.Bytes), m.Copied*100/m.Bytes)
				}
				rows[i] = []any{uint32(m.Partition), r.names(m.From), r.names(m.To), m.State, copied}
			}
			return out.rows(list, []any{"partition", "from", "to", "state", "copied"}, rows)
		},
	}
}

func newPartitionGrow(c *client) *cobra.Command {
	return &cobra.Command{
		Use: "grow N", Short: "Add partitions",
		Long: `Add N partitions where there is most room. Entities that are there stay where they are; new ones
go to the new partitions first. Partitions are never taken away.`,
		Example: `  peeklock partition grow 8`, Args: wantArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := c.output()
			if err != nil {
				return err
			}
			n, err := strconv.Atoi(args[0])
			if err != nil || n < 1 {
				return usagef("%q is no number of partitions", printable(args[0], 100))
			}
			var grown admin.GrowResult
			if err := c.call(cmd.Context(), http.MethodPost, "/v1/partitions", admin.GrowRequest{Add: n}, &grown); err != nil {
				return err
			}
			if !out.isTable() {
				return out.data(grown)
			}
			return out.note("%d added: the cluster has %d partitions", n, grown.Partitions)
		},
	}
}
