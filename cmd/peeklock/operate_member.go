package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin"
	"github.com/peeklock/peeklock/fsm"
)

func newMembers(c *client) *cobra.Command {
	cmd := group("member", "List, set, drain, remove and replace members",
		newMemberList(c), newMemberShow(c), newMemberSet(c),
		newMemberDrain(c, true), newMemberDrain(c, false), newMemberRemove(c), newMemberReplace(c))
	cmd.Long = `List, set, drain, remove and replace members. A member is named by its name, or by its id
where several had that name. What takes long goes on in the cluster, whoever watches it.`
	return cmd
}

func memberPath(name, verb string) string {
	path := "/v1/members/" + url.PathEscape(name)
	if verb != "" {
		path += "/" + verb
	}
	return path
}

// memberStateText is what people want to know of a member at a glance.
func memberStateText(m admin.Member) string {
	switch {
	case m.Removed:
		return "removed"
	case m.Drained:
		return aliveStateText(m.MemberStatus) + ", drained"
	}
	return aliveStateText(m.MemberStatus)
}

func newMemberList(c *client) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "list", Short: "List members with zone, weight and what they hold", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := c.output()
			if err != nil {
				return err
			}
			r, err := c.memberList(cmd.Context())
			if err != nil {
				return err
			}
			shown := slices.DeleteFunc(slices.Clone(r.members), func(m admin.Member) bool { return m.Removed && !all })
			rows := make([][]any, len(shown))
			for i, m := range shown {
				rows[i] = []any{m.Name, memberStateText(m), m.Zone, m.Weight, m.Leads, m.Holds, m.AMQP, m.HTTP, m.Version}
			}
			return out.rows(admin.Members{Members: shown}, []any{"member", "state", "zone", "weight", "leads", "holds", "amqp", "http", "version"}, rows)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also those that were removed")
	return cmd
}

func newMemberShow(c *client) *cobra.Command {
	return &cobra.Command{
		Use: "show MEMBER", Short: "Show one member", Args: wantArgs(1), ValidArgsFunction: c.completeMember(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := c.output()
			if err != nil {
				return err
			}
			r, err := c.memberList(cmd.Context())
			if err != nil {
				return err
			}
			m, err := r.find(args[0])
			if err != nil {
				return err
			}
			return out.fields(m)
		},
	}
}

func newMemberSet(c *client) *cobra.Command {
	var zone string
	var weight uint32
	cmd := &cobra.Command{
		Use: "set MEMBER", Short: "Set zone and weight of a member",
		Long: `Set zone and weight of a member. Replicas of a partition lie in different zones as far as
there are some; a member of weight 20 holds twice as much as one of weight 10, the usual. What
lies already moves with the next rebalance.`,
		Example: `  peeklock member set a --zone eu-1 --weight 20`,
		Args:    wantArgs(1), ValidArgsFunction: c.completeMember(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := c.output()
			if err != nil {
				return err
			}
			var change admin.MemberChange
			if cmd.Flags().Changed("zone") {
				change.Zone = &zone
			}
			if cmd.Flags().Changed("weight") {
				change.Weight = &weight
			}
			if change == (admin.MemberChange{}) {
				return usagef("give --zone or --weight, or both")
			}
			var m admin.Member
			if err := c.call(cmd.Context(), http.MethodPatch, memberPath(args[0], ""), change, &m); err != nil {
				return err
			}
			return out.fields(m)
		},
	}
	f := cmd.Flags()
	f.StringVar(&zone, "zone", "", "where it stands, up to 64 bytes; '' for nowhere in particular")
	f.Uint32Var(&weight, "weight", 0, "its share of replicas, 1 to 100")
	return cmd
}

// memberDone is the answer of what was done to a member.
type memberDone struct {
	Member string `json:"member"`
	Did    string `json:"did"`            // drained, undrained, removed, replaced
	With   string `json:"with,omitempty"` // of replaced
}

func newMemberDrain(c *client, drain bool) *cobra.Command {
	cmd := &cobra.Command{
		Use: "drain MEMBER", Short: "Hand over what a member leads, before it is stopped",
		Long: `Hand over what a member leads, and give it nothing further until it is undrained. Its
replicas stay and follow. This is what stands before stopping a member: its clients see
no error and keep their locks. It returns when the member leads nothing that another could.`,
		Args: wantArgs(1), ValidArgsFunction: c.completeMember(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.changeMember(cmd.Context(), args[0], "drain", nil, memberDone{Member: args[0], Did: "drained"})
		},
	}
	if !drain {
		cmd.Use, cmd.Short = "undrain MEMBER", "Take a drained member back into service"
		cmd.Long = `Take a drained member back into service. What it leads by preference comes back by itself.`
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			return c.changeMember(cmd.Context(), args[0], "undrain", nil, memberDone{Member: args[0], Did: "undrained"})
		}
	}
	return cmd
}

// removalFlags are those of what is for good.
type removalFlags struct{ yes, dryRun bool }

func (d *removalFlags) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&d.dryRun, "dry-run", false, "only show what would move")
	cmd.Flags().BoolVar(&d.yes, "yes", false, "yes: the member never comes back, its disk can be thrown away")
}

func newMemberRemove(c *client) *cobra.Command {
	var d removalFlags
	cmd := &cobra.Command{
		Use: "remove MEMBER", Short: "Move everything away from a member, for good",
		Long: `Move everything that a member holds to others and take it out of the cluster. It may be dead.
It never comes back under its id: a new process in an empty folder is a new member. With too
few other members, partitions have fewer replicas afterwards.`,
		Example: `  peeklock member remove c --dry-run
  peeklock member remove c --yes`,
		Args: wantArgs(1), ValidArgsFunction: c.completeMember(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.removeMember(cmd.Context(), args[0], "", d)
		},
	}
	d.flags(cmd)
	return cmd
}

func newMemberReplace(c *client) *cobra.Command {
	var d removalFlags
	cmd := &cobra.Command{
		Use: "replace OLD NEW", Short: "Move everything from one member to a new one, for good",
		Long: `Move everything that a member holds to another one, which must be there and hold none of the
same partitions, and take the old one out of the cluster. It may be dead.`,
		Example: `  peeklock member replace c d --yes`,
		Args:    exactArgs(2), ValidArgsFunction: c.completeMember(0, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.removeMember(cmd.Context(), args[0], args[1], d)
		},
	}
	d.flags(cmd)
	return cmd
}

// removeMember removes a member, or replaces it where fresh is not "".
func (c *client) removeMember(ctx context.Context, name, fresh string, d removalFlags) error {
	out, err := c.output()
	if err != nil {
		return err
	}
	if !d.yes && !d.dryRun {
		return usagef("a member that is removed never comes back: add --yes, or look first with --dry-run")
	}
	if d.dryRun {
		return c.printRemovalPlan(ctx, out, name, fresh)
	}
	if fresh == "" {
		return c.changeMember(ctx, name, "remove", nil, memberDone{Member: name, Did: "removed"})
	}
	return c.changeMember(ctx, name, "replace", admin.MemberReplacement{With: fresh}, memberDone{Member: name, Did: "replaced", With: fresh})
}

// removalPlan is the answer of --dry-run.
type removalPlan struct {
	Member     fsm.MemberID      `json:"member"`
	With       fsm.MemberID      `json:"with,omitempty"`
	Partitions []fsm.PartitionID `json:"partitions"` // that it holds
	Leads      int               `json:"leads"`
}

func (c *client) printRemovalPlan(ctx context.Context, out *output, name, fresh string) error {
	r, err := c.memberList(ctx)
	if err != nil {
		return err
	}
	m, err := r.find(name)
	if err != nil {
		return err
	}
	d := removalPlan{Member: m.ID, Leads: m.Leads, Partitions: []fsm.PartitionID{}}
	to := "others, which the cluster chooses"
	if fresh != "" {
		with, err := r.find(fresh)
		if err != nil {
			return err
		}
		d.With, to = with.ID, fresh
	}
	var st admin.Status
	if err := c.call(ctx, http.MethodGet, "/v1/status", nil, &st); err != nil {
		return err
	}
	for _, p := range st.Partitions {
		if p.ID != fsm.CatalogPartition && slices.Contains(p.Replicas, m.ID) {
			d.Partitions = append(d.Partitions, p.ID)
		}
	}
	if !out.isTable() {
		return out.data(d)
	}
	return out.note("%s holds %d partitions %v and leads %d: they would go to %s", name, len(d.Partitions), d.Partitions, m.Leads, to)
}

// changeMember asks for something until it is done and says so.
func (c *client) changeMember(ctx context.Context, name, verb string, body any, done memberDone) error {
	out, err := c.output()
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%s %s", verb, name)
	m := c.meter(what, 1)
	most := int64(0)
	look := func(ctx context.Context) {
		left, detail := c.remainingAt(ctx, name, verb)
		if left < 0 {
			return
		}
		most = max(most, left)
		m.set(most-left, most)
		m.say(what + detail)
	}
	err = c.retryUntilDone(ctx, what, func(ctx context.Context) error {
		return c.call(ctx, http.MethodPost, memberPath(name, verb), body, nil)
	}, look)
	m.end(err != nil)
	if err != nil {
		return err
	}
	if !out.isTable() {
		return out.data(done)
	}
	if done.With != "" {
		return out.note("%s replaced by %s", name, done.With)
	}
	return out.note("%s %s", name, done.Did)
}

// remainingAt says how much of a member is left to go: leaderships for drain, replicas otherwise;
// -1 when that is not known.
func (c *client) remainingAt(ctx context.Context, name, verb string) (left int64, detail string) {
	r, err := c.memberList(ctx)
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
