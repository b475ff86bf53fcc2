package main

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin"
	"github.com/peeklock/peeklock/admin/entity"
)

// inNamespace adds the namespace that was asked for to the path of a request. What is about
// the cluster as a whole has none; there it must not be looked for either, or a variable in
// the environment would keep the namespace that it names from being made.
func inNamespace(path, namespace string) string {
	if namespace == "" {
		return path
	}
	for _, whole := range []string{"namespaces", "status", "members", "partitions", "moves", "rebalance", "verify", "backup"} {
		if rest, found := strings.CutPrefix(path, "/v1/"+whole); found && (rest == "" || strings.ContainsAny(rest[:1], "/?")) {
			return path
		}
	}
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	return path + separator + "namespace=" + url.QueryEscape(namespace)
}

func namespacePath(name string) string { return "/v1/namespaces/" + url.PathEscape(name) }

func newNamespace(c *client) *cobra.Command {
	cmd := group("namespace", "Create, list, show, change and delete namespaces",
		newNamespacePut(c, false), newNamespacePut(c, true), newNamespaceList(c), newNamespaceShow(c), newNamespaceDelete(c))
	cmd.Long = `Create, list, show, change and delete namespaces. A namespace has entities, keys and limits
of its own. Clients choose it by the host name that they connect to: NAME.anything, as in
orders.localhost or orders.sb.example.com, or one of its hosts. Who names no other is in
the namespace "default". Every command takes --namespace NAME.`
	return cmd
}

// namespaceFlags are those of create and update. What is not given is left to the server.
type namespaceFlags struct {
	hosts    []string
	bytes    uint32
	lock     *entity.Duration
	entities uint32
	metadata string
}

func (n *namespaceFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&n.hosts, "host", nil, "host name that selects it, besides NAME.anything; several by commas or repeated; '' takes all away")
	f.Uint32Var(&n.bytes, "max-message-bytes", 0, "largest --max-message-bytes of its entities, 1 KiB to 100 MiB; 0: as large as the cluster allows (server default)")
	f.Var(durationFlag{&n.lock}, "max-lock-duration", "longest --lock-duration of its entities, 5s to 24h; 0s: 5m (server default)")
	f.Uint32Var(&n.entities, "max-entities", 0, "how many queues and topics it holds; 0: no limit (server default)")
	f.StringVar(&n.metadata, "user-metadata", "", "text of your own, up to 1024 bytes")
}

func (n *namespaceFlags) body(cmd *cobra.Command) admin.NamespaceSettings {
	given := cmd.Flags().Changed
	out := admin.NamespaceSettings{MaxLockDuration: n.lock}
	if given("host") {
		out.Hosts = append([]string{}, n.hosts...)
	}
	if given("max-message-bytes") {
		out.MaxMessageBytes = &n.bytes
	}
	if given("max-entities") {
		out.MaxEntities = &n.entities
	}
	if given("user-metadata") {
		out.UserMetadata = &n.metadata
	}
	return out
}

func newNamespacePut(c *client, update bool) *cobra.Command {
	var n namespaceFlags
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create a namespace", Args: wantArgs(1),
		Long: `Create a namespace. It gets a key with every right, RootManageSharedAccessKey, whose
connection string is printed.`,
		Example: `  peeklock namespace create orders
  peeklock namespace create orders --host orders.example.com --max-message-bytes 1048576 --max-lock-duration 1h`,
	}
	method, done := http.MethodPut, "created"
	if update {
		method, done = http.MethodPatch, "updated"
		cmd.Use, cmd.Short, cmd.ValidArgsFunction = "update NAME", "Change settings of a namespace; what is not given stays", c.completeNamespace
		cmd.Long = "Change settings of a namespace. Entities that are over a new limit stay as they are."
		cmd.Example = "  peeklock namespace update orders --max-entities 100\n  peeklock namespace update orders --host ''"
	}
	n.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		out, err := c.output()
		if err != nil {
			return err
		}
		var made admin.Namespace
		if err := c.call(cmd.Context(), method, namespacePath(args[0]), n.body(cmd), &made); err != nil {
			return err
		}
		if !out.isTable() {
			return out.data(made)
		}
		if err := out.note("namespace %s %s", made.Name, done); err != nil {
			return err
		}
		for i := range made.AccessRules {
			if err := out.note("  %s", keyText(&made.AccessRules[i])); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

func newNamespaceList(c *client) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List namespaces", Args: noArgs, Example: "  peeklock namespace list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := c.output()
			if err != nil {
				return err
			}
			list, err := c.namespaces(cmd.Context())
			if err != nil {
				return err
			}
			rows := make([][]any, len(list))
			for i := range list {
				n := &list[i]
				rows[i] = []any{n.Name, printable(strings.Join(n.Hosts, " "), 80), limitText(n.MaxMessageBytes), limitText(n.MaxEntities), durationFlag{&n.MaxLockDuration}.String()}
			}
			return out.rows(list, []any{"name", "hosts", "max message bytes", "max entities", "max lock duration"}, rows)
		},
	}
}

// limitText is a bound, of which 0 is none.
func limitText(bound *uint32) any {
	if bound == nil || *bound == 0 {
		return "-"
	}
	return *bound
}

func (c *client) namespaces(ctx context.Context) ([]admin.Namespace, error) {
	return allPages(ctx, c, "/v1/namespaces?max=1000", "after", func(p *admin.NamespacePage) ([]admin.Namespace, string) { return p.Namespaces, p.Next })
}

func newNamespaceShow(c *client) *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Show the settings of a namespace", Args: wantArgs(1),
		Example: "  peeklock namespace show orders", ValidArgsFunction: c.completeNamespace,
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := c.output()
			if err != nil {
				return err
			}
			var n admin.Namespace
			if err := c.call(cmd.Context(), http.MethodGet, namespacePath(args[0]), nil, &n); err != nil {
				return err
			}
			return out.fields(n)
		},
	}
}

func newNamespaceDelete(c *client) *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete a namespace that has no entities, with its keys", Args: wantArgs(1),
		Example: "  peeklock namespace delete orders", ValidArgsFunction: c.completeNamespace,
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := c.output()
			if err != nil {
				return err
			}
			if err := c.call(cmd.Context(), http.MethodDelete, namespacePath(args[0]), nil, nil); err != nil {
				return err
			}
			if out.isTable() {
				return out.note("namespace %s deleted", args[0])
			}
			return out.data(deleted{Name: args[0], Deleted: true})
		},
	}
}
