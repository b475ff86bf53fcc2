package cli

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

func memberNoun() noun {
	list := &memberListFlags{}
	set := &memberSetFlags{}
	one, two := ArgCount(1, 1), ArgCount(2, 2)
	drain := func(name, did string) func(invocation) error {
		return func(i invocation) error {
			return changeMember(i, name, nil, memberDone{Member: i.args[0], Did: did})
		}
	}
	return noun{name: "member", short: "List, set, drain, remove and replace members", long: `List, set, drain, remove and replace members. A member is given by its name, or by its id where several members have
had that name. Long operations continue in the cluster when the command is interrupted.`, verbs: []verb{
		{
			use: "list", short: "List members with their zones, weights, replicas and leaderships",
			flags: func(cmd *cobra.Command) {
				cmd.Flags().BoolVar(&list.all, "all", false, "include members that were removed")
			},
			run: func(i invocation) error { return listMembers(i, list.all) },
		},
		{use: "show MEMBER", short: "Show one member", args: one, complete: completeMember(0, 1), run: showMember},
		{
			use: "set MEMBER", short: "Set the zone and weight of a member", long: `Set the zone and weight of a member. Replicas of a partition are placed in different zones where possible. A member
of weight 20 gets twice as many replicas as one of weight 10, the default. Existing replicas move with the next
rebalance.`, example: "  peeklock member set a --zone eu-1 --weight 20", args: one, complete: completeMember(0, 1),
			flags: func(cmd *cobra.Command) {
				cmd.Flags().Var(stringFlag(&set.Zone), "zone", "failure domain of the member, up to 64 bytes; '' for none")
				cmd.Flags().Var(uint32Flag(&set.Weight), "weight", "share of replicas, 1 to 100")
			}, run: func(i invocation) error { return setMember(i, set.MemberChange) },
		},
		{use: "drain MEMBER", short: "Transfer the leaderships of a member to others before it is stopped", long: `Transfer the leaderships of a member to others, and give it no further ones until it is undrained. Its replicas stay
and follow. Drain a member before you stop it: clients then see no errors and keep their locks. The command returns
when the member leads no partition that another member could lead.`, args: one, complete: completeMember(0, 1), run: drain("drain", "drained")},
		{
			use: "undrain MEMBER", short: "Return a drained member to service",
			long: "Return a drained member to service. Partitions that prefer it as their leader return to it automatically.",
			args: one, complete: completeMember(0, 1), run: drain("undrain", "undrained"),
		},
		removalVerb(verb{use: "remove MEMBER", short: "Move all replicas away from a member and remove it for good", long: `Move all replicas of a member to others and remove it from the cluster. The member may be dead. A removed member never
comes back under its id: a new process with an empty data directory is a new member. When too few other members
are left, partitions have fewer replicas afterwards.`, example: `  peeklock member remove c --dry-run
  peeklock member remove c --yes`, args: one, complete: completeMember(0, 1)}),
		removalVerb(verb{use: "replace OLD NEW", short: "Move all replicas of a member to a new one and remove the old one for good", long: `Move all replicas of a member to another one, which must be running and hold none of the same partitions, and remove
the old member from the cluster. The old member may be dead.`, example: "  peeklock member replace c d --yes", args: two, complete: completeMember(0, 2)}),
	}}
}

// memberListFlags has the flags of member list, memberSetFlags those of member set.
type (
	memberListFlags struct{ all bool }
	memberSetFlags  struct{ admin.MemberChange }
)

// memberStateText returns the state of a member for a table.
func memberStateText(m admin.Member) string {
	if m.Removed {
		return "removed"
	}
	return aliveStateText(m.Member)
}

func listMembers(i invocation, all bool) error {
	r, err := readMembers(i.ctx, i.client)
	if err != nil {
		return err
	}
	shown := slices.DeleteFunc(slices.Clone(r.members), func(m admin.Member) bool { return m.Removed && !all })
	rows := make([][]any, len(shown))
	for at, m := range shown {
		rows[at] = []any{m.Name, memberStateText(m), m.Zone, m.Weight, m.Leads, m.Holds, m.AMQP, m.HTTP, m.Version}
	}
	return i.out.Rows(admin.Members{Members: shown}, []any{"member", "state", "zone", "weight", "leads", "holds", "amqp", "http", "version"}, rows)
}

func showMember(i invocation) error {
	r, err := readMembers(i.ctx, i.client)
	if err != nil {
		return err
	}
	m, err := r.find(i.args[0])
	if err != nil {
		return err
	}
	return i.out.fields(m)
}

func setMember(i invocation, change admin.MemberChange) error {
	if change == (admin.MemberChange{}) {
		return Usagef("give --zone or --weight, or both")
	}
	var m admin.Member
	if err := i.client.Call(i.ctx, http.MethodPatch, MemberPath(i.args[0], ""), change, &m); err != nil {
		return err
	}
	return i.out.fields(m)
}

// memberDone is the answer of commands that change a member.
type memberDone struct {
	Member string `json:"member"`
	Did    string `json:"did"`            // drained, undrained, removed, replaced
	With   string `json:"with,omitempty"` // the replacement, of replaced only
}

// removalVerb completes remove, which takes one member, and replace, which takes two.
func removalVerb(v verb) verb {
	var yes, dryRun bool
	v.flags = func(cmd *cobra.Command) {
		cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only show what would move")
		cmd.Flags().BoolVar(&yes, "yes", false, "confirm that the member never comes back; its disk can be discarded")
	}
	v.run = func(i invocation) error {
		name, replacement := i.args[0], ""
		if len(i.args) > 1 {
			replacement = i.args[1]
		}
		switch {
		case !yes && !dryRun:
			return Usagef("a member that is removed never comes back: add --yes, or preview the removal with --dry-run")
		case dryRun:
			return printRemovalPlan(i, name, replacement)
		case replacement != "":
			return changeMember(i, "replace", admin.MemberReplacement{With: replacement}, memberDone{Member: name, Did: "replaced", With: replacement})
		}
		return changeMember(i, "remove", nil, memberDone{Member: name, Did: "removed"})
	}
	return v
}

// removalPlan is the answer of a removal with --dry-run.
type removalPlan struct {
	Member     fsm.MemberID      `json:"member"`
	With       fsm.MemberID      `json:"with,omitempty"`
	Partitions []fsm.PartitionID `json:"partitions"` // of which the member has replicas
	Leads      int               `json:"leads"`
}

func printRemovalPlan(i invocation, name, replacement string) error {
	r, err := readMembers(i.ctx, i.client)
	if err != nil {
		return err
	}
	m, err := r.find(name)
	if err != nil {
		return err
	}
	plan := removalPlan{Member: m.ID, Leads: m.Leads, Partitions: []fsm.PartitionID{}}
	to := "others, which the cluster chooses"
	if replacement != "" {
		with, err := r.find(replacement)
		if err != nil {
			return err
		}
		plan.With, to = with.ID, replacement
	}
	var st topology.Status
	if err := i.client.Call(i.ctx, http.MethodGet, "/v1/status", nil, &st); err != nil {
		return err
	}
	for _, p := range st.Partitions {
		if p.ID != fsm.CatalogPartition && slices.Contains(p.Replicas, m.ID) {
			plan.Partitions = append(plan.Partitions, p.ID)
		}
	}
	if !i.out.IsTable() {
		return i.out.Data(plan)
	}
	return i.out.Note("%s holds %d partitions %v and leads %d: they would go to %s", name, len(plan.Partitions), plan.Partitions, m.Leads, to)
}

// changeMember repeats a change until it is complete and prints the answer.
func changeMember(i invocation, verb string, body any, done memberDone) error {
	name := done.Member
	what := fmt.Sprintf("%s %s", verb, name)
	m := NewMeter(i.client.Process, what, 1)
	most := int64(0)
	look := func(ctx context.Context) {
		left, detail := remainingAt(ctx, i.client, name, verb)
		if left < 0 {
			return
		}
		most = max(most, left)
		m.set(most-left, most)
		m.say(what + detail)
	}
	err := retryUntilDone(i.ctx, i.client, what, func(ctx context.Context) error {
		_, err := i.client.CallOnce(ctx, http.MethodPost, MemberPath(name, verb), body, nil)
		return err
	}, look)
	m.End(err != nil)
	if err != nil {
		return err
	}
	if !i.out.IsTable() {
		return i.out.Data(done)
	}
	if done.With != "" {
		return i.out.Note("%s replaced by %s", name, done.With)
	}
	return i.out.Note("%s %s", name, done.Did)
}

// remainingAt returns how many leaderships (for drain) or replicas (otherwise) a member still has, or -1 if that
// is unknown.
func remainingAt(ctx context.Context, c *Client, name, verb string) (left int64, detail string) {
	r, err := readMembers(ctx, c)
	if err != nil {
		return -1, ""
	}
	m, err := r.find(name)
	if err != nil {
		return -1, ""
	}
	if verb == "drain" {
		return int64(m.Leads), fmt.Sprintf(" (leads %d)", m.Leads)
	}
	return int64(m.Holds), fmt.Sprintf(" (holds %d)", m.Holds)
}
