package operate

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
	"github.com/peeklock/peeklock/topology"
)

// auditNoun returns the command that shows the audit log.
func auditNoun() command.Noun {
	count := 100
	return command.Noun{Name: "audit", Short: "Show the newest events of the audit log", Verbs: []command.Verb{{
		Use: "list", Short: "List the newest audit events of all members",
		Long: `List the newest audit events of all members, newest first: changes with their callers, missing rights, refused logins. Each member
keeps the last 1,000 in memory, since it started; the setting audit_log writes all of them to a file. An operator's key is needed.`,
		Example: `  peeklock audit list
  peeklock audit list --count 0 -o json`,
		Flags: func(cmd *cobra.Command) {
			cmd.Flags().IntVar(&count, "count", count, "stop after this many events; 0: all")
		},
		Run: func(i command.Invocation) error { return listAudit(i, count) },
	}}}
}

func listAudit(i command.Invocation, count int) error {
	if count < 0 {
		return cli.Usagef("--count is 0 or more")
	}
	all := topology.AuditPage{Events: []topology.AuditEvent{}}
	for first := true; first || all.Next != "" && len(all.Events) != count; first = false {
		most := topology.AuditPageMax
		if count > 0 {
			most = min(most, count-len(all.Events))
		}
		var page topology.AuditPage
		if err := i.Client.Call(i.Ctx, http.MethodGet, fmt.Sprintf("/v1/audit?max=%d&after=%s", most, url.QueryEscape(all.Next)), nil, &page); err != nil {
			return err
		}
		all.Events, all.Next, all.Unreachable = append(all.Events, page.Events...), page.Next, page.Unreachable
	}
	if !i.Out.IsTable() {
		return i.Out.Data(all)
	}
	rows := make([][]any, 0, len(all.Events))
	for at := range all.Events {
		e := &all.Events[at]
		var fields []string
		for _, name := range slices.Sorted(maps.Keys(e.Fields)) {
			if e.Fields[name] != "" {
				fields = append(fields, name+"="+e.Fields[name])
			}
		}
		rows = append(rows, []any{e.At.Format(time.DateTime), e.Member, e.Event, output.Printable(strings.Join(fields, " "), 200)})
	}
	if err := i.Out.Rows(nil, []any{"time (UTC)", "member", "event", "what"}, rows); err != nil {
		return err
	}
	if len(all.Unreachable) > 0 {
		return i.Out.Note("no answer from %s: their events are missing", strings.Join(all.Unreachable, ", "))
	}
	return nil
}
