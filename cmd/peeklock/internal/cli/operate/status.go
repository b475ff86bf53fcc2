package operate

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
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

// aliveStateText returns the state of a member for a table. A member whose disk is nearly full is alive but
// read-only, and one whose clock is wrong is alive but leads no partition.
func aliveStateText(m topology.Member) string {
	text := m.State
	if m.ReadOnly && m.State == "alive" {
		text += ", read-only"
	}
	if m.ClockOff && m.State == "alive" {
		text += ", clock off"
	}
	if m.Drained {
		text += ", drained"
	}
	return text
}

// printStatus prints the status as tables, with names instead of ids.
func printStatus(out *output.Output, st topology.Status) error {
	slices.SortFunc(st.Members, func(a, b topology.Member) int { return strings.Compare(a.Name, b.Name) })
	names := make(map[fsm.MemberID]string, len(st.Members))
	members := make([][]any, len(st.Members))
	for i, m := range st.Members {
		names[m.ID] = m.Name
		members[i] = []any{m.Name, aliveStateText(m), m.AMQP, m.HTTP, m.Leads, m.Holds, m.Version}
	}
	name := func(id fsm.MemberID) string {
		if n := names[id]; n != "" {
			return n
		}
		return string(id)
	}
	partitions := make([][]any, len(st.Partitions))
	for i, p := range st.Partitions {
		leader := "none"
		if p.Leader != "" {
			leader = name(p.Leader)
		}
		replicas := make([]string, len(p.Replicas))
		for j, r := range p.Replicas {
			replicas[j] = name(r)
		}
		partitions[i] = []any{uint32(p.ID), leader, p.Term, p.Applied, strings.Join(replicas, " "), p.Entities, p.Messages, output.SinceText(p.Contact)}
	}
	if text := client.Standstill(st); text != "" {
		if err := out.Note("%s\n", text); err != nil {
			return err
		}
	}
	held := ""
	if st.FormatLevelMax != 0 {
		held = fmt.Sprintf(", held at %d", st.FormatLevelMax)
	}
	if err := out.Note("cluster %s\nformat level %d%s\n", st.ClusterID, st.FormatLevel, held); err != nil {
		return err
	}
	if st.TimeHeld {
		if err := out.Note("wall time is held: the clocks were set together by %s (see: peeklock cluster confirm-time --help)\n", st.TimeStep); err != nil {
			return err
		}
	}
	if err := out.Rows(nil, []any{"member", "state", "amqp", "http", "leads", "holds", "version"}, members); err != nil {
		return err
	}
	if err := out.Note(""); err != nil {
		return err
	}
	return out.Rows(nil, []any{"partition", "leader", "term", "applied", "replicas", "entities", "messages", "contact"}, partitions)
}

// formatLevel parses a level, or auto.
func formatLevel(text string) (asked api.FormatLevelRequest, err error) {
	if text == "auto" {
		return asked, nil
	}
	level, err := strconv.ParseUint(text, 10, 32)
	if err != nil || level == 0 {
		return asked, cli.Usagef("%q is no format level: give auto or a number from 1 on", text)
	}
	asked.Max = uint32(level)
	return asked, nil
}

// holdFormatLevel sets the level above which the cluster does not rise.
func holdFormatLevel(i command.Invocation) error {
	asked, err := formatLevel(i.Args[0])
	if err != nil {
		return err
	}
	if err := i.Client.Call(i.Ctx, http.MethodPut, "/v1/format-level", asked, nil); err != nil {
		return err
	}
	if !i.Out.IsTable() {
		return i.Out.Data(asked)
	}
	return i.Out.Note("format level: %s", i.Args[0])
}

// confirmTime accepts the time to which the clocks of the members were set together.
func confirmTime(i command.Invocation) error {
	var result api.ConfirmedTime
	if err := i.Client.Call(i.Ctx, http.MethodPost, "/v1/confirm-time", nil, &result); err != nil {
		return err
	}
	if !i.Out.IsTable() {
		return i.Out.Data(result)
	}
	return i.Out.Note("wall time moves by %s", result.Step)
}

func statusVerb() command.Verb {
	check := false
	return command.Verb{
		Use: "status", Short: "Show members, partitions and leaders", Long: `Show members, partitions and leaders. If partitions have no leader, the first line says so, and which members they wait
for. With --check the exit code is then 1.`,
		Flags: func(cmd *cobra.Command) {
			cmd.Flags().BoolVar(&check, "check", false, "exit with 1 when a partition has no leader")
		},
		Run: func(i command.Invocation) error { return status(i, check) },
	}
}

// status prints the members and partitions.
func status(i command.Invocation, check bool) error {
	var st topology.Status
	err := i.Client.Call(i.Ctx, http.MethodGet, "/v1/status", nil, &st)
	switch {
	case err != nil:
		return err
	case i.Out.IsTable():
		err = printStatus(i.Out, st)
	default:
		err = i.Out.Data(st)
	}
	if text := client.Standstill(st); err == nil && check && text != "" {
		return errors.New(text)
	}
	return err
}
