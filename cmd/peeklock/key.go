package main

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

// keyHelp explains whose keys the commands are about.
const keyHelp = `A key opens what it belongs to: a queue or topic that is named, or else the namespace with
all that is in it. Its rights are send, listen and manage, which means all three. It has
two secrets, so that one can be changed while clients use the other.`

func newKey(c *client) *cobra.Command {
	cmd := group("key", "Create, list, show, change and delete access keys",
		newKeyPut(c, false), newKeyPut(c, true), newKeyList(c), newKeyShow(c), newKeyRegenerate(c), newKeyDelete(c))
	cmd.Long = "Create, list, show, change and delete access keys (shared access authorization rules).\n\n" + keyHelp + `

Keys that members are configured with are not among them: those open every namespace.`
	return cmd
}

// accessPath is the path of the keys of an entity, or of the namespace where none is named.
func accessPath(noun string, entity []string) string {
	if len(entity) == 0 {
		return "/v1/" + noun
	}
	return namePath("/v1/"+noun+"/", entity[0])
}

// keyPath is the path of one key: args are its name and perhaps an entity.
func keyPath(args []string) string {
	return accessPath("access", args[1:]) + "?rule=" + url.QueryEscape(args[0])
}

// keyText is a key for people: what an application needs, where that is known.
func keyText(k *admin.AccessRule) string {
	return printable(cmp.Or(k.PrimaryConnectionString, k.Name+"  "+k.PrimaryKey), fieldCharactersMax)
}

// printKey prints a key that was made or changed.
func (c *client) printKey(k *admin.AccessRule, done string) error {
	out, err := c.output()
	if err != nil {
		return err
	}
	if out.isTable() {
		return out.note("key %s %s\n  %s", k.Name, done, keyText(k))
	}
	return out.fields(k)
}

func newKeyPut(c *client, update bool) *cobra.Command {
	var asked entity.AccessRuleRequest
	cmd := &cobra.Command{
		Use: "create NAME [QUEUE-OR-TOPIC]", Short: "Create a key and print its connection string", Args: wantArgs(2),
		Long: "Create a key and print its connection string. Secrets that are not given are drawn at random.\n\n" + keyHelp,
		Example: `  peeklock key create reader orders --rights listen
  peeklock key create backend --rights send,listen --namespace shop`,
		ValidArgsFunction: c.completeKey,
	}
	f := cmd.Flags()
	f.StringSliceVar(&asked.Rights, "rights", nil, "send, listen, manage, by commas")
	f.StringVar(&asked.PrimaryKey, "primary-key", "", "the first secret, 16 to 256 bytes")
	f.StringVar(&asked.SecondaryKey, "secondary-key", "", "the second secret, likewise")
	_ = cmd.RegisterFlagCompletionFunc("rights", cobra.FixedCompletions([]string{"send", "listen", "manage", "send,listen"}, cobra.ShellCompDirectiveNoFileComp))
	if update {
		cmd.Use, cmd.Short = "update NAME [QUEUE-OR-TOPIC]", "Change rights or secrets of a key; what is not given stays"
		cmd.Long = "Change rights or secrets of a key. What is not given stays. Clients that used what is gone are\nout within ten seconds.\n\n" + keyHelp
		cmd.Example = "  peeklock key update reader orders --rights send,listen"
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		path, done := keyPath(args), "created"
		var key admin.AccessRule
		switch {
		case update:
			if err := c.call(cmd.Context(), http.MethodGet, path, nil, &key); err != nil {
				return err
			}
			if !cmd.Flags().Changed("rights") {
				asked.Rights = key.Rights
			}
			path, done = path+"&replace=true", "updated"
		case len(asked.Rights) == 0:
			return usagef("what may the key do? Say --rights with some of send, listen, manage")
		}
		var made admin.AccessRule // not key: fields that are left out of the answer would stay
		if err := c.call(cmd.Context(), http.MethodPut, path, asked, &made); err != nil {
			return err
		}
		return c.printKey(&made, done)
	}
	return cmd
}

// listedKey is a key without its secrets: who lists keys seldom wants them on the screen.
type listedKey struct {
	Name    string    `json:"name"`
	Rights  []string  `json:"rights"`
	Created time.Time `json:"createdAt"`
	Updated time.Time `json:"updatedAt"`
}

func newKeyList(c *client) *cobra.Command {
	return &cobra.Command{
		Use: "list [QUEUE-OR-TOPIC]", Short: "List keys, without their secrets", Args: atMostOne,
		Example:           "  peeklock key list\n  peeklock key list orders",
		ValidArgsFunction: c.complete("queues", "topics"),
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := c.output()
			if err != nil {
				return err
			}
			var page admin.AccessPage
			if err := c.call(cmd.Context(), http.MethodGet, accessPath("access", args), nil, &page); err != nil {
				return err
			}
			list := make([]listedKey, len(page.Rules))
			rows := make([][]any, len(page.Rules))
			for i, k := range page.Rules {
				list[i] = listedKey{k.Name, k.Rights, k.Created, k.Updated}
				rows[i] = []any{printable(k.Name, 60), strings.Join(k.Rights, ","), timeText(&k.Updated)}
			}
			return out.rows(list, []any{"name", "rights", "changed (UTC)"}, rows)
		},
	}
}

func newKeyShow(c *client) *cobra.Command {
	return &cobra.Command{
		Use: "show NAME [QUEUE-OR-TOPIC]", Short: "Show a key with its secrets and connection strings", Args: wantArgs(2),
		Example:           "  peeklock key show RootManageSharedAccessKey --namespace shop\n  peeklock key show reader orders",
		ValidArgsFunction: c.completeKey,
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := c.output()
			if err != nil {
				return err
			}
			var key admin.AccessRule
			if err := c.call(cmd.Context(), http.MethodGet, keyPath(args), nil, &key); err != nil {
				return err
			}
			return out.fields(key)
		},
	}
}

func newKeyRegenerate(c *client) *cobra.Command {
	which := admin.KeyPrimary
	cmd := &cobra.Command{
		Use: "regenerate NAME [QUEUE-OR-TOPIC]", Short: "Draw a secret of a key anew", Args: wantArgs(2),
		Long: `Draw a secret of a key anew. Who signs with the old one is out within ten seconds. To change
both without a pause: regenerate the secondary, move clients to it, regenerate the
primary.`,
		Example: "  peeklock key regenerate reader orders --which secondary", ValidArgsFunction: c.completeKey,
		RunE: func(cmd *cobra.Command, args []string) error {
			if which != admin.KeyPrimary && which != admin.KeySecondary {
				return usagef("--which is %s or %s, not %q", admin.KeyPrimary, admin.KeySecondary, printable(which, 60))
			}
			var key admin.AccessRule
			if err := c.call(cmd.Context(), http.MethodPost, accessPath("regenerate", args[1:]), admin.RegenerateRequest{Rule: args[0], Which: which}, &key); err != nil {
				return err
			}
			if which == admin.KeySecondary { // the new one is what is wanted
				shown := key
				shown.PrimaryKey, shown.PrimaryConnectionString = key.SecondaryKey, key.SecondaryConnectionString
				if out, err := c.output(); err == nil && out.isTable() {
					key = shown
				}
			}
			return c.printKey(&key, "has a new "+which+" secret")
		},
	}
	cmd.Flags().StringVar(&which, "which", which, "primary or secondary")
	_ = cmd.RegisterFlagCompletionFunc("which", cobra.FixedCompletions([]string{admin.KeyPrimary, admin.KeySecondary}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func newKeyDelete(c *client) *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME [QUEUE-OR-TOPIC]", Short: "Delete a key; who uses it is out within ten seconds", Args: wantArgs(2),
		Example: "  peeklock key delete reader orders", ValidArgsFunction: c.completeKey,
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := c.output()
			if err != nil {
				return err
			}
			if err := c.call(cmd.Context(), http.MethodDelete, keyPath(args), nil, nil); err != nil {
				return err
			}
			if out.isTable() {
				return out.note("key %s deleted", args[0])
			}
			return out.data(deleted{Name: args[0], Deleted: true})
		},
	}
}

// completeKey offers the keys of the namespace, and then queues and topics: which entity is
// meant is not known before.
func (c *client) completeKey(cmd *cobra.Command, args []string, part string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		return c.pageNames(ctx, "/v1/access"), cobra.ShellCompDirectiveNoFileComp
	case 1:
		return c.complete("queues", "topics")(cmd, nil, part)
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}
