package cli

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin"
	"github.com/peeklock/peeklock/admin/entity"
)

// accessPath returns the path of the keys of an entity, or of the namespace if no entity is named.
func accessPath(noun string, entity []string) string {
	if len(entity) == 0 {
		return "/v1/" + noun
	}
	return NamePath("/v1/"+noun+"/", entity[0])
}

// keyPath returns the path of one key: args are its name and optionally an entity.
func keyPath(args []string) string {
	return accessPath("access", args[1:]) + "?rule=" + url.QueryEscape(args[0])
}

// keyText returns a key as text: the connection string that an application needs, if it is known.
func keyText(k *admin.AccessRule) string {
	return Printable(cmp.Or(k.PrimaryConnectionString, k.Name+"  "+k.PrimaryKey), FieldCharactersMax)
}

// completeKey offers the keys of the namespace, and then queues and topics: the shell completes the key before it
// knows the entity.
func completeKey(ctx context.Context, c *Client, args []string) []string {
	switch len(args) {
	case 0:
		return pageNames(ctx, c, "/v1/access")
	case 1:
		return completeNames("queues", "topics")(ctx, c, nil)
	}
	return nil
}

// keyHelp explains the scope of keys.
const keyHelp = `A key gives access to the queue or topic that is named, or, without a name, to the whole namespace. Its rights are
send, listen and manage; manage includes the other two. A key has two secrets, so that one can be replaced while
clients use the other.`

func keyNoun() noun {
	const arguments = " NAME [QUEUE-OR-TOPIC]"
	return noun{
		name: "key", short: "Create, list, show, update, regenerate and delete access keys",
		long: "Create, list, show, update, regenerate and delete access keys (shared access authorization rules).\n\n" + keyHelp + `

The keys in the configuration of members are not listed: they give access to all namespaces.`,
		verbs: []verb{
			putKeyVerb(verb{
				use: "create" + arguments, short: "Create a key and print its connection string",
				long: "Create a key and print its connection string. Secrets that are not given are generated.\n\n" + keyHelp,
				example: `  peeklock key create reader orders --rights listen
  peeklock key create backend --rights send,listen --namespace shop`,
			}, false),
			putKeyVerb(verb{
				use: "update" + arguments, short: "Change the rights or secrets of a key; what is not given stays",
				long:    "Change the rights or secrets of a key. What is not given stays. Clients that use a removed right or secret are\ndisconnected within ten seconds.\n\n" + keyHelp,
				example: "  peeklock key update reader orders --rights send,listen",
			}, true),
			listVerb(verb{
				use: "list [QUEUE-OR-TOPIC]", short: "List keys, without their secrets", args: ArgCount(0, 1),
				example: "  peeklock key list\n  peeklock key list orders", complete: completeNames("queues", "topics"),
			},
				listKeys, []any{"name", "rights", "changed (UTC)"}, func(k *listedKey) []any {
					return []any{Printable(k.Name, 60), strings.Join(k.Rights, ","), TimeText(&k.Updated)}
				}),
			getVerb[admin.AccessRule](verb{
				use: "show" + arguments, short: "Show a key with its secrets and connection strings", args: ArgCount(1, 2),
				example: "  peeklock key show RootManageSharedAccessKey --namespace shop\n  peeklock key show reader orders", complete: completeKey,
			}, keyPath),
			regenerateKeyVerb(verb{
				use: "regenerate" + arguments, short: "Regenerate a key's primary or secondary secret",
				long: `Regenerate a key's primary or secondary secret. Clients that use the old secret are disconnected within ten seconds.
To replace both without an interruption: regenerate the secondary secret, move the clients to it, and then
regenerate the primary one.`, example: "  peeklock key regenerate reader orders --which secondary",
			}),
			deleteVerb(verb{
				use: "delete" + arguments, short: "Delete a key; its clients are disconnected within ten seconds", args: ArgCount(1, 2),
				example: "  peeklock key delete reader orders", complete: completeKey,
			},
				keyPath, firstArg, func(args []string) string { return "key " + args[0] + " deleted" }),
		},
	}
}

func putKeyVerb(v verb, update bool) verb {
	var request entity.AccessRuleRequest
	v.args, v.complete = ArgCount(1, 2), completeKey
	v.flags = func(cmd *cobra.Command) {
		f := cmd.Flags()
		f.StringSliceVar(&request.Rights, "rights", nil, "send, listen, manage; separated by commas")
		f.StringVar(&request.PrimaryKey, "primary-key", "", "primary secret, 16 to 256 bytes")
		f.StringVar(&request.SecondaryKey, "secondary-key", "", "secondary secret, 16 to 256 bytes")
		_ = cmd.RegisterFlagCompletionFunc("rights", cobra.FixedCompletions([]string{"send", "listen", "manage", "send,listen"}, cobra.ShellCompDirectiveNoFileComp))
	}
	v.run = func(i invocation) error {
		path, done := keyPath(i.args), "created"
		var key admin.AccessRule
		switch {
		case update:
			if err := i.client.Call(i.ctx, http.MethodGet, path, nil, &key); err != nil {
				return err
			}
			if !i.changed("rights") {
				request.Rights = key.Rights
			}
			path, done = path+"&replace=true", "updated"
		case len(request.Rights) == 0:
			return Usagef("a key needs rights: give --rights with some of send, listen, manage")
		}
		var made admin.AccessRule // not key: fields that are missing in the answer would keep their values
		if err := i.client.Call(i.ctx, http.MethodPut, path, request, &made); err != nil {
			return err
		}
		return printKey(i.out, &made, done)
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

func listKeys(i invocation) ([]listedKey, error) {
	var page admin.AccessPage
	if err := i.client.Call(i.ctx, http.MethodGet, accessPath("access", i.args), nil, &page); err != nil {
		return nil, err
	}
	list := make([]listedKey, len(page.Rules))
	for at, k := range page.Rules {
		list[at] = listedKey{k.Name, k.Rights, k.Created, k.Updated}
	}
	return list, nil
}

func regenerateKeyVerb(v verb) verb {
	which := admin.KeyPrimary
	v.args, v.complete = ArgCount(1, 2), completeKey
	v.flags = func(cmd *cobra.Command) {
		cmd.Flags().StringVar(&which, "which", which, "primary or secondary")
		_ = cmd.RegisterFlagCompletionFunc("which", cobra.FixedCompletions([]string{admin.KeyPrimary, admin.KeySecondary}, cobra.ShellCompDirectiveNoFileComp))
	}
	v.run = func(i invocation) error {
		if which != admin.KeyPrimary && which != admin.KeySecondary {
			return Usagef("--which is %s or %s, not %q", admin.KeyPrimary, admin.KeySecondary, Printable(which, 60))
		}
		var key admin.AccessRule
		if err := i.client.Call(i.ctx, http.MethodPost, accessPath("regenerate", i.args[1:]), admin.RegenerateRequest{Rule: i.args[0], Which: which}, &key); err != nil {
			return err
		}
		if which == admin.KeySecondary && i.out.IsTable() { // the table shows the new secret
			key.PrimaryKey, key.PrimaryConnectionString = key.SecondaryKey, key.SecondaryConnectionString
		}
		return printKey(i.out, &key, "has a new "+which+" secret")
	}
	return v
}

// printKey prints a key after it was created or changed.
func printKey(out *Output, k *admin.AccessRule, done string) error {
	if out.IsTable() {
		return out.Note("key %s %s\n  %s", k.Name, done, keyText(k))
	}
	return out.fields(k)
}
