package operate

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

func memberNoun() command.Noun {
	list := &memberListFlags{}
	set := &memberSetFlags{}
	one, two := cli.ArgCount(1, 1), cli.ArgCount(2, 2)
	var force api.MemberForce
	return command.Noun{Name: "member", Short: "List, set, drain, remove and replace members", Long: `List, set, drain, remove and replace members. A member is given by its name, or by its id where several members have
had that name. Long operations continue in the cluster when the command is interrupted.`, Verbs: []command.Verb{
		{
			Use: "list", Short: "List members with their zones, weights, replicas and leaderships",
			Flags: func(cmd *cobra.Command) {
				cmd.Flags().BoolVar(&list.all, "all", false, "include members that were removed")
			},
			Run: func(i command.Invocation) error { return listMembers(i, list.all) },
		},
		{Use: "show MEMBER", Short: "Show one member", Args: one, Complete: completeMember(0, 1), Run: showMember},
		{
			Use: "set MEMBER", Short: "Set the zone and weight of a member", Long: `Set the zone and weight of a member. Replicas of a partition are placed in different zones where possible. A member
of weight 20 gets twice as many replicas as one of weight 10, the default. Existing replicas move with the next
rebalance.`, Example: "  peeklock member set a --zone eu-1 --weight 20", Args: one, Complete: completeMember(0, 1),
			Flags: func(cmd *cobra.Command) {
				cmd.Flags().Var(command.StringFlag(&set.Zone), "zone", "failure domain of the member, up to 64 bytes; '' for none")
				cmd.Flags().Var(command.Uint32Flag(&set.Weight), "weight", "share of replicas, 1 to 100")
			}, Run: func(i command.Invocation) error { return setMember(i, set.MemberChange) },
			Would: func(i command.Invocation) (command.Would, error) { return wouldSetMember(i, set.MemberChange) },
		},
		{Use: "drain MEMBER", Short: "Transfer the leaderships of a member to others before it is stopped", Long: `Transfer the leaderships of a member to others, and give it no further ones until it is undrained. Its replicas stay
and follow. Drain a member before you stop it: clients then see no errors and keep their locks. The command returns
when the member leads no partition that another member could lead.`, Args: one, Complete: completeMember(0, 1), Flags: func(cmd *cobra.Command) { forceFlag(cmd, &force) }, Run: func(i command.Invocation) error {
			return changeMember(i, "drain", force, memberDone{Member: i.Args[0], Did: "drained"})
		}, Would: func(i command.Invocation) (command.Would, error) { return wouldDrain(i, force.Force) }},
		{
			Use: "undrain MEMBER", Short: "Return a drained member to service",
			Long: "Return a drained member to service. Partitions that prefer it as their leader return to it automatically.",
			Args: one, Complete: completeMember(0, 1), Run: func(i command.Invocation) error {
				return changeMember(i, "undrain", nil, memberDone{Member: i.Args[0], Did: "undrained"})
			}, Would: wouldUndrain,
		},
		removalVerb(command.Verb{Use: "remove MEMBER", Short: "Move all replicas away from a member and remove it for good", Long: `Move all replicas of a member to others and remove it from the cluster. The member may be dead. A removed member never
comes back under its id: a new process with an empty data directory is a new member. When too few other members
are left, partitions have fewer replicas afterwards.`, Example: `  peeklock member remove c --dry-run
  peeklock member remove c --yes`, Args: one, Complete: completeMember(0, 1)}),
		removalVerb(command.Verb{Use: "replace OLD NEW", Short: "Move all replicas of a member to a new one and remove the old one for good", Long: `Move all replicas of a member to another one, which must be running and hold none of the same partitions, and remove
the old member from the cluster. The old member may be dead.`, Example: "  peeklock member replace c d --yes", Args: two, Complete: completeMember(0, 2)}),
	}}
}

// memberListFlags has the flags of member list, memberSetFlags those of member set.
type (
	memberListFlags struct{ all bool }
	memberSetFlags  struct{ api.MemberChange }
)

// memberStateText returns the state of a member for a table.
func memberStateText(m api.Member) string {
	if m.Removed {
		return "removed"
	}
	return aliveStateText(m.Member)
}

func listMembers(i command.Invocation, all bool) error {
	r, err := readMembers(i.Ctx, i.Client)
	if err != nil {
		return err
	}
	shown := slices.DeleteFunc(slices.Clone(r.members), func(m api.Member) bool { return m.Removed && !all })
	rows := make([][]any, len(shown))
	for at, m := range shown {
		rows[at] = []any{m.Name, memberStateText(m), m.Zone, m.Weight, m.Leads, m.Holds, m.AMQP, m.HTTP, m.Version}
	}
	return i.Out.Rows(api.Members{Members: shown}, []any{"member", "state", "zone", "weight", "leads", "holds", "amqp", "http", "version"}, rows)
}

func showMember(i command.Invocation) error {
	m, err := oneMember(i)
	if err != nil {
		return err
	}
	return i.Out.Fields(m)
}

func setMember(i command.Invocation, change api.MemberChange) error {
	if change == (api.MemberChange{}) {
		return errNoChange
	}
	var m api.Member
	if err := i.Client.Call(i.Ctx, http.MethodPatch, client.MemberPath(i.Args[0], ""), change, &m); err != nil {
		return err
	}
	return i.Out.Fields(m)
}

// memberDone is the answer of commands that change a member.
type memberDone struct {
	Member string `json:"member"`
	Did    string `json:"did"`            // drained, undrained, removed, replaced
	With   string `json:"with,omitempty"` // the replacement, of replaced only
}

// removalVerb completes remove, which takes one member, and replace, which takes two.
func removalVerb(v command.Verb) command.Verb {
	var yes, dryRun bool
	var force api.MemberForce
	v.Flags = func(cmd *cobra.Command) {
		forceFlag(cmd, &force)
		cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only show what would move")
		cmd.Flags().BoolVar(&yes, "yes", false, "confirm that the member never comes back; its disk can be discarded")
	}
	v.Run = func(i command.Invocation) error {
		name, replacement := i.Args[0], ""
		if len(i.Args) > 1 {
			replacement = i.Args[1]
		}
		if dryRun {
			return printRemovalPlan(i, name, replacement)
		}
		if err := i.Client.Confirm(i.Ctx, yes, name, "removes member "+name+" for good (preview it with --dry-run)"); err != nil {
			return err
		}
		switch {
		case replacement != "":
			return changeMember(i, "replace", api.MemberReplacement{With: replacement, MemberForce: force}, memberDone{Member: name, Did: "replaced", With: replacement})
		}
		return changeMember(i, "remove", force, memberDone{Member: name, Did: "removed"})
	}
	return v
}

func forceFlag(cmd *cobra.Command, force *api.MemberForce) {
	cmd.Flags().BoolVar(&force.Force, "force", false, "go on while another member is dead and partitions are one failure from standing still")
}

// removalPlan is the answer of a removal with --dry-run.
type removalPlan struct {
	Member     fsm.MemberID      `json:"member"`
	With       fsm.MemberID      `json:"with,omitempty"`
	Partitions []fsm.PartitionID `json:"partitions"` // of which the member has replicas
	Leads      int               `json:"leads"`
	AtRisk     []fsm.PartitionID `json:"atRisk,omitempty"` // which would be one failure from standing still: the removal needs --force
}

func printRemovalPlan(i command.Invocation, name, replacement string) error {
	r, err := readMembers(i.Ctx, i.Client)
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
	if err := i.Client.Call(i.Ctx, http.MethodGet, "/v1/status", nil, &st); err != nil {
		return err
	}
	for _, p := range st.Partitions {
		if p.ID != fsm.CatalogPartition && slices.Contains(p.Replicas, m.ID) {
			plan.Partitions = append(plan.Partitions, p.ID)
		}
	}
	var dead []string
	plan.AtRisk, dead = api.AtRisk(st, m.ID)
	if !i.Out.IsTable() {
		return i.Out.Data(plan)
	}
	if len(plan.AtRisk) > 0 {
		if err := i.Out.Note("%s is dead: without %s the partitions %v are one failure from standing still: this needs --force", strings.Join(dead, ", "), name, plan.AtRisk); err != nil {
			return err
		}
	}
	return i.Out.Note("%s holds %d partitions %v and leads %d: they would go to %s", name, len(plan.Partitions), plan.Partitions, m.Leads, to)
}

// changeMember repeats a change until it is complete and prints the answer.
func changeMember(i command.Invocation, verb string, body any, done memberDone) error {
	name := done.Member
	what := fmt.Sprintf("%s %s", verb, name)
	m := output.NewMeter(i.Client.Process, what, 1)
	most := int64(0)
	look := func(ctx context.Context) {
		left, detail := remainingAt(ctx, i.Client, name, verb)
		if left < 0 {
			return
		}
		most = max(most, left)
		m.Set(most-left, most)
		m.Say(what + detail)
	}
	err := retryUntilDone(i.Ctx, i.Client, what, func(ctx context.Context) error {
		_, err := i.Client.CallOnce(ctx, http.MethodPost, client.MemberPath(name, verb), body, nil)
		return err
	}, look)
	m.End(err != nil)
	if err != nil {
		return err
	}
	if !i.Out.IsTable() {
		return i.Out.Data(done)
	}
	if done.With != "" {
		return i.Out.Note("%s replaced by %s", name, done.With)
	}
	return i.Out.Note("%s %s", name, done.Did)
}

// remainingAt returns how many leaderships (for drain) or replicas (otherwise) a member still has, or -1 if that
// is unknown.
func remainingAt(ctx context.Context, c *client.Client, name, verb string) (left int64, detail string) {
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
