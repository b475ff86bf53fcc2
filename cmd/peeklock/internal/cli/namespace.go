package cli

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin"
)

func namespacePath(name string) string { return "/v1/namespaces/" + url.PathEscape(name) }

func namespaces(ctx context.Context, c *Client) ([]admin.Namespace, error) {
	return allPages(ctx, c, "/v1/namespaces?max=1000", "after", func(p *admin.NamespacePage) ([]admin.Namespace, string) { return p.Namespaces, p.Next })
}

func namespaceNoun() noun {
	path := func(args []string) string { return namespacePath(args[0]) }
	return noun{name: "namespace", short: "Create, list, show, update and delete namespaces", long: `Create, list, show, update and delete namespaces. A namespace has its own entities, keys and limits. Clients select it
by the host name that they connect to: NAME.anything, such as orders.localhost or orders.sb.example.com, or one of
its hosts. Any other host name selects the namespace "default". All commands accept --namespace NAME.`, verbs: []verb{
		putNamespaceVerb(verb{
			use: "create NAME", short: "Create a namespace",
			long: `Create a namespace with a key that has all rights, RootManageSharedAccessKey, and print the connection string of the key.`,
			example: `  peeklock namespace create orders
  peeklock namespace create orders --host orders.example.com --max-message-bytes 1048576 --max-lock-duration 1h`,
		}, http.MethodPut, "created"),
		putNamespaceVerb(verb{
			use: "update NAME", short: "Change settings of a namespace; settings that are not given stay", complete: completeNamespace,
			long:    "Change settings of a namespace. Settings that are not given stay. Entities that exceed a new limit stay as they are.",
			example: "  peeklock namespace update orders --max-entities 100\n  peeklock namespace update orders --host ''",
		}, http.MethodPatch, "updated"),
		listVerb(verb{use: "list", short: "List namespaces", example: "  peeklock namespace list"},
			func(i invocation) ([]admin.Namespace, error) { return namespaces(i.ctx, i.client) },
			[]any{"name", "hosts", "max message bytes", "max entities", "max lock duration"}, func(n *admin.Namespace) []any {
				return []any{n.Name, Printable(strings.Join(n.Hosts, " "), 80), limitText(n.MaxMessageBytes), limitText(n.MaxEntities), durationFlag(&n.MaxLockDuration).String()}
			}),
		getVerb[admin.Namespace](verb{
			use: "show NAME", short: "Show the settings of a namespace", args: ArgCount(1, 1),
			example: "  peeklock namespace show orders", complete: completeNamespace,
		}, path),
		deleteVerb(verb{
			use: "delete NAME", short: "Delete a namespace that has no entities, with its keys", args: ArgCount(1, 1),
			example: "  peeklock namespace delete orders", complete: completeNamespace,
		},
			path, firstArg, func(args []string) string { return "namespace " + args[0] + " deleted" }),
	}}
}

func putNamespaceVerb(v verb, method, done string) verb {
	var s admin.NamespaceSettings
	var hosts []string
	v.args = ArgCount(1, 1)
	v.flags = func(cmd *cobra.Command) {
		f := cmd.Flags()
		f.StringSliceVar(&hosts, "host", nil, "host name that selects the namespace, in addition to NAME.anything; separated by commas or repeated; '' removes all")
		f.Var(uint32Flag(&s.MaxMessageBytes), "max-message-bytes", "upper limit of --max-message-bytes of its entities, 1 KiB to 100 MiB, of which AMQP accepts 16 MiB; 0: the limit of the cluster (server default)")
		f.Var(durationFlag(&s.MaxLockDuration), "max-lock-duration", "upper limit of --lock-duration of its entities, 5s to 24h; 0s: 5m (server default)")
		f.Var(uint32Flag(&s.MaxEntities), "max-entities", "number of queues and topics that it may have; 0: no limit (server default)")
		f.Var(stringFlag(&s.UserMetadata), "user-metadata", "text of your own, up to 1024 bytes")
	}
	v.run = func(i invocation) error {
		if i.changed("host") {
			s.Hosts = append([]string{}, hosts...)
		}
		var made admin.Namespace
		if err := i.client.Call(i.ctx, method, namespacePath(i.args[0]), s, &made); err != nil {
			return err
		}
		if !i.out.IsTable() {
			return i.out.Data(made)
		}
		if err := i.out.Note("namespace %s %s", made.Name, done); err != nil {
			return err
		}
		for k := range made.AccessRules {
			if err := i.out.Note("  %s", keyText(&made.AccessRules[k])); err != nil {
				return err
			}
		}
		return nil
	}
	return v
}

// limitText returns a limit for a table; 0 is no limit.
func limitText(limit *uint32) any {
	if limit == nil || *limit == 0 {
		return "-"
	}
	return *limit
}
