package entities

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
)

// accessPath returns the path of the keys of an entity, or of the namespace if no entity is named.
func accessPath(noun string, entity []string) string {
	if len(entity) == 0 {
		return "/v1/" + noun
	}
	return client.NamePath("/v1/"+noun+"/", entity[0])
}

// keyPath returns the path of one key: args are its name and optionally an entity.
func keyPath(args []string) string {
	return accessPath("access", args[1:]) + "?rule=" + url.QueryEscape(args[0])
}

// keyText returns a key as text: the connection string that an application needs, if it is known.
func keyText(k *api.AccessRule) string {
	return output.Printable(cmp.Or(k.PrimaryConnectionString, k.Name+"  "+k.PrimaryKey), output.FieldCharactersMax)
}

// noteUnresolved says what clients need whose resolver does not know a name below localhost.
func noteUnresolved(out *output.Output, k *api.AccessRule) error {
	_, rest, _ := strings.Cut(k.PrimaryConnectionString, "Endpoint=sb://")
	address, _, _ := strings.Cut(rest, ";")
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	if !strings.HasSuffix(host, ".localhost") {
		return nil
	}
	custom := "localhost"
	if port != "" {
		custom += ":" + port
	}
	return out.Note("  %[1]s does not resolve for every client: add '127.0.0.1 %[1]s' to the hosts file, or set the client's custom endpoint address to %[2]s", host, custom)
}

// completeKey offers the keys of the namespace, and then queues and topics: the shell completes the key before it
// knows the entity.
func completeKey(ctx context.Context, c *client.Client, args []string) []string {
	switch len(args) {
	case 0:
		return command.PageNames(ctx, c, "/v1/access")
	case 1:
		return command.CompleteNames("queues", "topics")(ctx, c, nil)
	}
	return nil
}

// keyHelp explains the scope of keys.
const keyHelp = `A key gives access to the queue or topic that is named, or, without a name, to the whole namespace. Its rights are
read, send, listen and manage. With read it shows the settings and figures of entities (the web console, "peeklock queue list",
"peeklock top"), but no messages; manage includes all others. A key has two secrets, so that one can be replaced while
clients use the other.`

func keyNoun() command.Noun {
	const arguments = " NAME [QUEUE-OR-TOPIC]"
	return command.Noun{
		Name: "key", Short: "Create, list, show, update, regenerate and delete access keys",
		Long: "Create, list, show, update, regenerate and delete access keys (shared access authorization rules).\n\n" + keyHelp + `

The keys in the configuration of members are not listed: they give access to all namespaces.`,
		Verbs: []command.Verb{
			putKeyVerb(command.Verb{
				Use: "create" + arguments, Short: "Create a key and print its connection string",
				Long: "Create a key and print its connection string. Secrets that are not given are generated.\n\n" + keyHelp,
				Example: `  peeklock key create reader orders --rights listen
  peeklock key create backend --rights send,listen --namespace shop`,
			}, false),
			putKeyVerb(command.Verb{
				Use: "update" + arguments, Short: "Change the rights or secrets of a key; what is not given stays",
				Long:    "Change the rights or secrets of a key. What is not given stays. Clients that use a removed right or secret are\ndisconnected within ten seconds.\n\n" + keyHelp,
				Example: "  peeklock key update reader orders --rights send,listen",
			}, true),
			command.ListVerb(command.Verb{
				Use: "list [QUEUE-OR-TOPIC]", Short: "List keys, without their secrets", Args: cli.ArgCount(0, 1),
				Example: "  peeklock key list\n  peeklock key list orders", Complete: command.CompleteNames("queues", "topics"),
			},
				listKeys, []any{"name", "rights", "changed (UTC)"}, func(k *listedKey) []any {
					return []any{output.Printable(k.Name, 60), strings.Join(k.Rights, ","), output.TimeText(&k.Updated)}
				}),
			command.GetVerb[api.AccessRule](command.Verb{
				Use: "show" + arguments, Short: "Show a key with its secrets and connection strings", Args: cli.ArgCount(1, 2),
				Example: "  peeklock key show RootManageSharedAccessKey --namespace shop\n  peeklock key show reader orders", Complete: completeKey,
			}, keyPath),
			regenerateKeyVerb(command.Verb{
				Use: "regenerate" + arguments, Short: "Regenerate a key's primary or secondary secret",
				Long: `Regenerate a key's primary or secondary secret. Clients that use the old secret are disconnected within ten seconds.
To replace both without an interruption: regenerate the secondary secret, move the clients to it, and then
regenerate the primary one.`, Example: "  peeklock key regenerate reader orders --which secondary",
			}),
			command.DeleteVerb(command.Verb{
				Use: "delete" + arguments, Short: "Delete a key; its clients are disconnected within ten seconds", Args: cli.ArgCount(1, 2),
				Example: "  peeklock key delete reader orders", Complete: completeKey,
				Would: command.WouldIfFound(keyPath, func(args []string) string { return "delete key " + strings.Join(args, " of ") }),
			},
				keyPath, command.FirstArg, func(args []string) string { return "key " + args[0] + " deleted" }),
		},
	}
}

// errNoRights refuses a key without rights.
var errNoRights = cli.Usagef("a key needs rights: give --rights with some of read, send, listen, manage")

func putKeyVerb(v command.Verb, update bool) command.Verb {
	var request entity.AccessRuleRequest
	v.Args, v.Complete = cli.ArgCount(1, 2), completeKey
	v.Flags = func(cmd *cobra.Command) {
		f := cmd.Flags()
		f.StringSliceVar(&request.Rights, "rights", nil, "read, send, listen, manage; separated by commas")
		f.StringVar(&request.PrimaryKey, "primary-key", "", "primary secret, 16 to 256 bytes")
		f.StringVar(&request.SecondaryKey, "secondary-key", "", "secondary secret, 16 to 256 bytes")
		_ = cmd.RegisterFlagCompletionFunc("rights", cobra.FixedCompletions([]string{"send", "listen", "manage", "read", "send,listen"}, cobra.ShellCompDirectiveNoFileComp))
	}
	v.Run = func(i command.Invocation) error {
		path, done := keyPath(i.Args), "created"
		var key api.AccessRule
		switch {
		case update:
			if err := i.Client.Call(i.Ctx, http.MethodGet, path, nil, &key); err != nil {
				return err
			}
			if !i.Changed("rights") {
				request.Rights = key.Rights
			}
			path, done = path+"&replace=true", "updated"
		case len(request.Rights) == 0:
			return errNoRights
		}
		var made api.AccessRule // not key: fields that are missing in the answer would keep their values
		if err := i.Client.Call(i.Ctx, http.MethodPut, path, request, &made); err != nil {
			return err
		}
		return printKey(i.Out, &made, done)
	}
	v.Would = func(i command.Invocation) (command.Would, error) {
		if !update {
			if len(request.Rights) == 0 {
				return command.Would{}, errNoRights
			}
			name := "key " + strings.Join(i.Args, " of ")
			if err := mustNotExist(i, keyPath(i.Args), name); err != nil {
				return command.Would{}, err
			}
			return command.Wouldf("create %s with the rights %s", name, strings.Join(request.Rights, ","))
		}
		var key api.AccessRule
		if err := i.Client.Call(i.Ctx, http.MethodGet, keyPath(i.Args), nil, &key); err != nil {
			return command.Would{}, err
		}
		would := command.Would{Would: "update key " + strings.Join(i.Args, " of ")}
		if i.Changed("rights") {
			would.Changes = append(would.Changes, command.Change{Setting: "rights", From: strings.Join(key.Rights, ","), To: strings.Join(request.Rights, ",")})
		}
		for _, flag := range []string{"primary-key", "secondary-key"} {
			if i.Changed(flag) {
				would.Changes = append(would.Changes, command.Change{Setting: flag, To: "the given secret"})
			}
		}
		return would, nil
	}
	return v
}

// listedKey is a key without its secrets, because lists appear on screens and in logs.
type listedKey struct {
	Name    string    `json:"name"`
	Rights  []string  `json:"rights"`
	Created time.Time `json:"createdAt"`
	Updated time.Time `json:"updatedAt"`
}

func listKeys(i command.Invocation) ([]listedKey, error) {
	var page api.AccessPage
	if err := i.Client.Call(i.Ctx, http.MethodGet, accessPath("access", i.Args), nil, &page); err != nil {
		return nil, err
	}
	list := make([]listedKey, len(page.Rules))
	for at, k := range page.Rules {
		list[at] = listedKey{k.Name, k.Rights, k.Created, k.Updated}
	}
	return list, nil
}

func regenerateKeyVerb(v command.Verb) command.Verb {
	which := api.KeyPrimary
	v.Args, v.Complete = cli.ArgCount(1, 2), completeKey
	v.Flags = func(cmd *cobra.Command) {
		cmd.Flags().StringVar(&which, "which", which, "primary or secondary")
		_ = cmd.RegisterFlagCompletionFunc("which", cobra.FixedCompletions([]string{api.KeyPrimary, api.KeySecondary}, cobra.ShellCompDirectiveNoFileComp))
	}
	v.Run = func(i command.Invocation) error {
		if err := checkWhich(which); err != nil {
			return err
		}
		var key api.AccessRule
		if err := i.Client.Call(i.Ctx, http.MethodPost, accessPath("regenerate", i.Args[1:]), api.RegenerateRequest{Rule: i.Args[0], Which: which}, &key); err != nil {
			return err
		}
		if which == api.KeySecondary && i.Out.IsTable() { // the table shows the new secret
			key.PrimaryKey, key.PrimaryConnectionString = key.SecondaryKey, key.SecondaryConnectionString
		}
		return printKey(i.Out, &key, "has a new "+which+" secret")
	}
	v.Would = func(i command.Invocation) (command.Would, error) {
		if err := checkWhich(which); err != nil {
			return command.Would{}, err
		}
		return command.WouldIfFound(keyPath, func(args []string) string {
			return "replace the " + which + " secret of key " + strings.Join(args, " of ") + ": clients that use it are disconnected"
		})(i)
	}
	return v
}

// checkWhich refuses what is no name of a secret.
func checkWhich(which string) error {
	if which != api.KeyPrimary && which != api.KeySecondary {
		return cli.Usagef("--which is %s or %s, not %q", api.KeyPrimary, api.KeySecondary, output.Printable(which, 60))
	}
	return nil
}

// printKey prints a key after it was created or changed.
func printKey(out *output.Output, k *api.AccessRule, done string) error {
	if out.IsTable() {
		if err := out.Note("key %s %s\n  %s", k.Name, done, keyText(k)); err != nil {
			return err
		}
		return noteUnresolved(out, k)
	}
	return out.Fields(k)
}
