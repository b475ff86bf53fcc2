package operate

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
	"github.com/peeklock/peeklock/topology"
)

// connectionNoun returns the commands of the connections of clients.
func connectionNoun() command.Noun {
	count, links := 100, false
	return command.Noun{Name: "connection", Short: "List the AMQP connections of clients, close one", Verbs: []command.Verb{
		{
			Use: "list", Short: "List the connections of clients at all members",
			Long: `List the AMQP connections of clients at all members: whose key they use, since when they are open, their library, and with --links
their links with credit and unsettled messages. An operator sees every namespace, or one with --namespace; a key with Manage
on a namespace sees that namespace. "peeklock message peek NAME --state locked -o json" names the connection that holds each
lock.`,
			Example: `  peeklock connection list
  peeklock connection list --links --count 0
  peeklock connection list -o json`,
			Flags: func(cmd *cobra.Command) {
				cmd.Flags().IntVar(&count, "count", count, "stop after this many connections; 0: all")
				cmd.Flags().BoolVar(&links, "links", false, "list the links of each connection, at most 32")
			},
			Run: func(i command.Invocation) error { return listConnections(i, count, links) },
		},
		command.DeleteVerb(command.Verb{
			Use: "close ID", Short: "Close a connection",
			Long: `Close the connection of a client. Messages that it has locked stay locked until their locks end. Clients of Service Bus connect
again at once: to keep one out, change its key (peeklock key regenerate).`,
			Example: "  peeklock connection close a-651a2b3c4d5e6", Args: cli.ArgCount(1, 1), Would: wouldClose,
		}, func(args []string) string { return client.NamePath("/v1/connections/", args[0]) }, command.FirstArg,
			func(args []string) string { return fmt.Sprintf("connection %s closed", args[0]) }),
	}}
}

// connections lists up to count connections of all members, 0 for all.
func connections(i command.Invocation, count int) (all topology.ConnectionPage, err error) {
	all.Connections = []topology.Connection{}
	for {
		most := topology.ConnectionsMax
		if count > 0 {
			most = min(most, count-len(all.Connections))
		}
		var page topology.ConnectionPage
		path := fmt.Sprintf("/v1/connections?max=%d&after=%s", most, url.QueryEscape(all.Next))
		if err := i.Client.Call(i.Ctx, http.MethodGet, path, nil, &page); err != nil {
			return all, err
		}
		all.Connections, all.Next, all.Unreachable = append(all.Connections, page.Connections...), page.Next, page.Unreachable
		if page.Next == "" || len(all.Connections) == count {
			return all, nil
		}
	}
}

func listConnections(i command.Invocation, count int, links bool) error {
	if count < 0 {
		return cli.Usagef("--count is 0 or more")
	}
	all, err := connections(i, count)
	if err != nil {
		return err
	}
	rows := make([][]any, 0, len(all.Connections))
	for at := range all.Connections {
		c := &all.Connections[at]
		rows = append(rows, []any{
			c.ID, c.Namespace, output.Printable(strings.Join(c.Keys, " "), 40), output.Printable(c.Remote, 50), c.Since.Format(time.DateTime),
			output.Printable(strings.TrimSpace(c.Product+" "+c.Version), 40), c.LinkCount,
		})
		if !links {
			continue
		}
		for _, l := range c.Links {
			address := l.Entity
			if l.Session != nil {
				address += " (" + *l.Session + ")"
			}
			text := fmt.Sprintf("  %s %s", l.Role, output.Printable(address, 80))
			rows = append(rows, []any{text, "", "", "", "", fmt.Sprintf("credit %d, unsettled %d", l.Credit, l.Unsettled), ""})
		}
	}
	if !i.Out.IsTable() {
		return i.Out.Data(all)
	}
	if err := i.Out.Rows(nil, []any{"connection", "namespace", "key", "client", "since (UTC)", "library", "links"}, rows); err != nil {
		return err
	}
	if len(all.Unreachable) > 0 {
		return i.Out.Note("no answer from %s: their connections are missing", strings.Join(all.Unreachable, ", "))
	}
	return nil
}
