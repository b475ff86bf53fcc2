package operate

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

// clusterStatus asks for the status of the cluster.
func clusterStatus(i command.Invocation) (st topology.Status, err error) {
	err = i.Client.Call(i.Ctx, http.MethodGet, "/v1/status", nil, &st)
	return st, err
}

// wouldHoldFormatLevel says to which level the cluster would be held.
func wouldHoldFormatLevel(i command.Invocation) (command.Would, error) {
	asked, err := formatLevel(i.Args[0])
	if err != nil {
		return command.Would{}, err
	}
	st, err := clusterStatus(i)
	switch {
	case err != nil:
		return command.Would{}, err
	case asked.Max != 0 && asked.Max < st.FormatLevel:
		return command.Would{}, fmt.Errorf("the cluster has format level %d, which never falls: %d is lower", st.FormatLevel, asked.Max)
	case asked.Max == 0:
		return command.Wouldf("let the format level rise from %d by itself", st.FormatLevel)
	}
	return command.Wouldf("hold the format level, which is %d, at %d", st.FormatLevel, asked.Max)
}

// wouldConfirmTime says by how much wall time would move.
func wouldConfirmTime(i command.Invocation) (command.Would, error) {
	st, err := clusterStatus(i)
	switch {
	case err != nil:
		return command.Would{}, err
	case !st.TimeHeld:
		return command.Wouldf("change nothing: wall time is not held")
	}
	return command.Wouldf("move wall time by %s", st.TimeStep)
}

// onePartition returns the partition that the first argument names.
func onePartition(i command.Invocation) (p PartitionInfo, r *memberNames, err error) {
	id, err := partitionID(i.Args[0])
	if err != nil {
		return p, nil, err
	}
	list, r, err := partitions(i.Ctx, i.Client)
	if err != nil {
		return p, nil, err
	}
	at := slices.IndexFunc(list, func(p PartitionInfo) bool { return p.ID == id })
	if at < 0 {
		return p, nil, fmt.Errorf("there is no partition %d: peeklock partition list shows them", id)
	}
	return list[at], r, nil
}

// wouldMovePartition says from where to where a partition would move.
func wouldMovePartition(i command.Invocation) (command.Would, error) {
	p, r, err := onePartition(i)
	if err != nil {
		return command.Would{}, err
	}
	for at, name := range i.Args[1:] {
		m, err := r.find(name)
		switch {
		case err != nil:
			return command.Would{}, err
		case m.State != topology.Alive:
			return command.Would{}, fmt.Errorf("%s is %s", m.Name, m.State)
		case slices.Contains(i.Args[1:1+at], name):
			return command.Would{}, fmt.Errorf("%s is named twice", name)
		}
	}
	if p.Move != nil {
		return command.Would{}, fmt.Errorf("partition %d is moving already: %s", p.ID, moveText(r, *p.Move))
	}
	return command.Wouldf("move partition %d with %d messages from %s to %s", p.ID, p.Messages, r.names(p.Replicas), strings.Join(i.Args[1:], " "))
}

// wouldTransferPartition says from where to where a leadership would go.
func wouldTransferPartition(i command.Invocation) (command.Would, error) {
	p, r, err := onePartition(i)
	if err != nil {
		return command.Would{}, err
	}
	to, err := r.find(i.Args[1])
	switch {
	case err != nil:
		return command.Would{}, err
	case !slices.Contains(p.Replicas, to.ID):
		return command.Would{}, fmt.Errorf("%s has no replica of partition %d: those are on %s", to.Name, p.ID, r.names(p.Replicas))
	case p.Leader == to.ID:
		return command.Wouldf("change nothing but the preference: %s leads partition %d", to.Name, p.ID)
	}
	return command.Wouldf("transfer the leadership of partition %d from %s to %s", p.ID, r.name(p.Leader), to.Name)
}

// wouldChangeMove says what would happen to the move of a partition.
func wouldChangeMove(verb string) func(command.Invocation) (command.Would, error) {
	return func(i command.Invocation) (command.Would, error) {
		p, r, err := onePartition(i)
		switch {
		case err != nil:
			return command.Would{}, err
		case p.Move == nil:
			return command.Would{}, fmt.Errorf("partition %d is not moving", p.ID)
		}
		return command.Wouldf("%s the move of partition %d (%s)", verb, p.ID, moveText(r, *p.Move))
	}
}

// growCount parses the number of partitions to add.
func growCount(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, cli.Usagef("%q is not a number of partitions", output.Printable(text, 100))
	}
	return n, nil
}

// wouldGrow says how many partitions there would be.
func wouldGrow(i command.Invocation) (command.Would, error) {
	n, err := growCount(i.Args[0])
	if err != nil {
		return command.Would{}, err
	}
	st, err := clusterStatus(i)
	if err != nil {
		return command.Would{}, err
	}
	now := 0
	for _, p := range st.Partitions {
		if p.ID != fsm.CatalogPartition {
			now++
		}
	}
	return command.Wouldf("add %d partitions to the %d of the cluster, for good", n, now)
}

// wouldSetMember says how the zone and weight of a member would change.
func wouldSetMember(i command.Invocation, change api.MemberChange) (command.Would, error) {
	if change == (api.MemberChange{}) {
		return command.Would{}, errNoChange
	}
	m, err := oneMember(i)
	if err != nil {
		return command.Would{}, err
	}
	return command.WouldUpdate("member "+m.Name, change, m)
}

// errNoChange refuses a change of nothing.
var errNoChange = cli.Usagef("give --zone or --weight, or both")

func oneMember(i command.Invocation) (api.Member, error) {
	r, err := readMembers(i.Ctx, i.Client)
	if err != nil {
		return api.Member{}, err
	}
	return r.find(i.Args[0])
}

// wouldDrain says what a member leads, and whether the drain needs --force.
func wouldDrain(i command.Invocation, force bool) (command.Would, error) {
	m, err := oneMember(i)
	if err != nil {
		return command.Would{}, err
	}
	st, err := clusterStatus(i)
	if err != nil {
		return command.Would{}, err
	}
	if atRisk, dead := api.AtRisk(st, m.ID); len(atRisk) > 0 && !force {
		return command.Would{}, fmt.Errorf("%s is dead: without %s the partitions %v are one failure from standing still: this needs --force", strings.Join(dead, ", "), m.Name, atRisk)
	}
	return command.Wouldf("drain %s: transfer the %d leaderships that it has", m.Name, m.Leads)
}

// wouldUndrain says whether a member is drained.
func wouldUndrain(i command.Invocation) (command.Would, error) {
	m, err := oneMember(i)
	switch {
	case err != nil:
		return command.Would{}, err
	case !m.Drained:
		return command.Wouldf("change nothing: %s is not drained", m.Name)
	}
	return command.Wouldf("return %s to service", m.Name)
}

// wouldClose says whose connection would be closed.
func wouldClose(i command.Invocation) (command.Would, error) {
	all, err := connections(i, 0)
	if err != nil {
		return command.Would{}, err
	}
	for _, c := range all.Connections {
		if c.ID == i.Args[0] {
			return command.Wouldf("close connection %s of %s with the key %s and %d links", c.ID, output.Printable(c.Remote, 50), output.Printable(strings.Join(c.Keys, " "), 40), c.LinkCount)
		}
	}
	if len(all.Unreachable) > 0 {
		return command.Would{}, fmt.Errorf("no connection %s: %s did not answer", output.Printable(i.Args[0], 60), strings.Join(all.Unreachable, ", "))
	}
	return command.Would{}, errors.New("no connection " + output.Printable(i.Args[0], 60))
}
