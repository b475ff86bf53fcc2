package entities

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
)

func namespacePath(name string) string { return "/v1/namespaces/" + url.PathEscape(name) }

func namespaces(ctx context.Context, c *client.Client) ([]api.Namespace, error) {
	return allPages(ctx, c, "/v1/namespaces?max=1000", "after", func(p *api.NamespacePage) ([]api.Namespace, string) { return p.Namespaces, p.Next })
}

func namespaceNoun() command.Noun {
	path := func(args []string) string { return namespacePath(args[0]) }
	return command.Noun{Name: "namespace", Short: "Create, list, show, update and delete namespaces", Long: `Create, list, show, update and delete namespaces. A namespace has its own entities, keys and limits. Clients select it
by the host name that they connect to: NAME.anything, such as orders.sb.example.com (which must resolve; orders.localhost needs a hosts entry on most systems), or one of
its hosts. Any other host name selects the namespace "default". All commands accept --namespace NAME.`, Verbs: []command.Verb{
		putNamespaceVerb(command.Verb{
			Use: "create NAME", Short: "Create a namespace",
			Long: `Create a namespace with a key that has all rights, RootManageSharedAccessKey, and print the connection string of the key.`,
			Example: `  peeklock namespace create orders
  peeklock namespace create orders --host orders.example.com --max-message-bytes 1MiB --max-lock-duration 1h`,
		}, http.MethodPut, "created"),
		putNamespaceVerb(command.Verb{
			Use: "update NAME", Short: "Change settings of a namespace; settings that are not given stay", Complete: command.CompleteNamespace,
			Long: `Change settings of a namespace. Settings that are not given stay. Entities that exceed a new limit stay as they are. While a namespace
holds more than a new limit, it is refused what adds to that.`,
			Example: "  peeklock namespace update orders --max-entities 100\n  peeklock namespace update orders --max-messages 1000000 --max-bytes 10GiB --max-rules 2000\n  peeklock namespace update orders --host ''",
		}, http.MethodPatch, "updated"),
		command.ListVerb(command.Verb{Use: "list", Short: "List namespaces", Example: "  peeklock namespace list"},
			func(i command.Invocation) ([]api.Namespace, error) { return namespaces(i.Ctx, i.Client) },
			[]any{"name", "hosts", "max message bytes", "max entities", "max lock duration"}, func(n *api.Namespace) []any {
				return []any{n.Name, output.Printable(strings.Join(n.Hosts, " "), 80), limitText(n.MaxMessageBytes), limitText(n.MaxEntities), command.DurationFlag(&n.MaxLockDuration).String()}
			}),
		showNamespaceVerb(),
		command.DeleteVerb(command.Verb{
			Use: "delete NAME", Short: "Delete a namespace that has no entities, with its keys", Args: cli.ArgCount(1, 1),
			Example: "  peeklock namespace delete orders", Complete: command.CompleteNamespace,
			Would: func(i command.Invocation) (command.Would, error) {
				var n api.Namespace
				if err := i.Client.Call(i.Ctx, http.MethodGet, path(i.Args), nil, &n); err != nil {
					return command.Would{}, err
				}
				if n.Usage != nil && n.Usage.QueuesAndTopics > 0 {
					return command.Would{}, fmt.Errorf("namespace %s has %d queues and topics: delete them first", n.Name, n.Usage.QueuesAndTopics)
				}
				return command.Wouldf("delete namespace %s with its keys", n.Name)
			},
		},
			path, command.FirstArg, func(args []string) string { return "namespace " + args[0] + " deleted" }),
	}}
}

// showNamespaceVerb shows a namespace. In the table format, the use of each resource stands beside its limit.
func showNamespaceVerb() command.Verb {
	return command.Verb{
		Use: "show NAME", Short: "Show the settings of a namespace, and what it holds of its limits", Args: cli.ArgCount(1, 1),
		Example: "  peeklock namespace show orders", Complete: command.CompleteNamespace,
		Run: func(i command.Invocation) error {
			var n api.Namespace
			if err := i.Client.Call(i.Ctx, http.MethodGet, namespacePath(i.Args[0]), nil, &n); err != nil {
				return err
			}
			if u := n.Usage; u != nil && i.Out.IsTable() {
				n.Usage = nil
				return i.Out.Fields(struct {
					api.Namespace
					Usage usageOfLimits `json:"usage"`
				}{n, usageOfLimits{
					QueuesAndTopics: ofLimit(u.QueuesAndTopics, n.MaxEntities), Entities: u.Entities, Messages: ofLimit(u.Messages, n.MaxMessages),
					Rules: ofLimit(u.Rules, n.MaxRules), Sessions: u.Sessions, RememberedIDs: u.RememberedIDs, MemoryBytes: u.MemoryBytes, DiskBytes: ofLimit(u.DiskBytes, n.MaxBytes),
					Shares: shareTexts(u.Shares),
				}})
			}
			return i.Out.Fields(n)
		},
	}
}

// usageOfLimits is an api.NamespaceUsage beside the limits.
type usageOfLimits struct {
	QueuesAndTopics string `json:"queuesAndTopics"`
	Entities        uint64 `json:"entities"`
	Messages        string `json:"messages"`
	Rules           string `json:"rules"`
	Sessions        uint64 `json:"sessions"`
	RememberedIDs   uint64 `json:"rememberedIds"`
	MemoryBytes     uint64 `json:"memoryBytes"`
	DiskBytes       string `json:"diskBytes"`
	Shares          string `json:"shares"`
}

// shareTexts returns what a namespace holds beside its shares.
func shareTexts(shares []api.NamespaceShare) string {
	var texts []string
	for _, s := range shares {
		text := fmt.Sprintf("%s: %s", s.Resource, ofLimit(s.Held, &s.Share))
		if s.Largest != "" {
			text += fmt.Sprintf(" (most above its share: %s)", s.Largest)
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "; ")
}

// ofLimit returns a use beside its limit, of which 0 is none.
func ofLimit[H int | uint64, L uint32 | uint64](held H, limit *L) string {
	if limit == nil || *limit == 0 {
		return fmt.Sprint(held)
	}
	return fmt.Sprintf("%d of %d", held, *limit)
}

func putNamespaceVerb(v command.Verb, method, done string) command.Verb {
	var s api.NamespaceSettings
	var hosts []string
	v.Args = cli.ArgCount(1, 1)
	v.Flags = func(cmd *cobra.Command) {
		f := cmd.Flags()
		f.StringSliceVar(&hosts, "host", nil, "host name that selects the namespace, in addition to NAME.anything; separated by commas or repeated; '' removes all")
		f.Var(command.BytesFlag(&s.MaxMessageBytes), "max-message-bytes", "upper limit of --max-message-bytes of its entities, 1 KiB to 100 MiB, of which AMQP accepts 16 MiB; 0: the limit of the cluster (server default)")
		f.Var(command.DurationFlag(&s.MaxLockDuration), "max-lock-duration", "upper limit of --lock-duration of its entities, 1s to 24h; 0s: 5m (server default)")
		f.Var(command.Uint32Flag(&s.MaxEntities), "max-entities", "number of queues and topics that it may have; 0: no limit (server default)")
		f.Var(command.BytesFlag(&s.MaxBytes), "max-bytes", "space on disk that it may take (diskBytes of its usage); 0: no limit (server default)")
		f.Var(command.Uint64Flag(&s.MaxMessages), "max-messages", "messages that it may hold, each copy in a subscription counted; 0: no limit (server default)")
		f.Var(command.Uint64Flag(&s.MaxRules), "max-rules", "rules that its subscriptions may have together; 0: no limit (server default)")
		f.Var(command.StringFlag(&s.UserMetadata), "user-metadata", "text of your own, up to 1024 bytes")
	}
	v.Run = func(i command.Invocation) error {
		if i.Changed("host") {
			s.Hosts = append([]string{}, hosts...)
		}
		var made api.Namespace
		if err := i.Client.Call(i.Ctx, method, namespacePath(i.Args[0]), s, &made); err != nil {
			return err
		}
		if !i.Out.IsTable() {
			return i.Out.Data(made)
		}
		if err := i.Out.Note("namespace %s %s", made.Name, done); err != nil {
			return err
		}
		for k := range made.AccessRules {
			if err := i.Out.Note("  %s", keyText(&made.AccessRules[k])); err != nil {
				return err
			}
		}
		if len(made.AccessRules) > 0 {
			return noteUnresolved(i.Out, &made.AccessRules[0])
		}
		return nil
	}
	v.Would = func(i command.Invocation) (command.Would, error) {
		if i.Changed("host") {
			s.Hosts = append([]string{}, hosts...)
		}
		name := "namespace " + i.Args[0]
		if method == http.MethodPut {
			if err := mustNotExist(i, namespacePath(i.Args[0]), name); err != nil {
				return command.Would{}, err
			}
			changes, err := command.Changes(s, struct{}{})
			return command.Would{Would: "create " + name + " with a key", Changes: changes}, err
		}
		var now api.Namespace
		if err := i.Client.Call(i.Ctx, http.MethodGet, namespacePath(i.Args[0]), nil, &now); err != nil {
			return command.Would{}, err
		}
		return command.WouldUpdate(name, s, now)
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
