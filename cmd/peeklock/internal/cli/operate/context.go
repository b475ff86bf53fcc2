package operate

import (
	"strings"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/contexts"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
)

func contextNoun() command.Noun {
	complete := func(args []string, c *client.Client) (names []string) {
		if set, err := contexts.Load(c.Process); err == nil && len(args) == 0 {
			for _, each := range set.Contexts {
				names = append(names, each.Name)
			}
		}
		return names
	}
	one, named := cli.ArgCount(1, 1), command.LocalNames(complete)
	return command.Noun{Name: "context", Short: "Name clusters and choose between them", Long: `Name clusters and choose between them. A context has the servers of a cluster and the credentials for it. Contexts are stored in
peeklock/contexts.json in the folder of your configuration (XDG_CONFIG_HOME, default ~/.config), which has mode 0600. Commands use the
context that "context use" chose, unless --server, --context or PEEKLOCK_SERVER names another target; an error says which it was.`, Verbs: []command.Verb{
		{
			Use: "add NAME [CONNECTION-STRING]", Short: "Add a context, or replace it",
			Long: `Add a context, or replace it, from a connection string or from --server, --key-name, --key-file, --ca and --namespace. With "-", the
connection string is read from standard input, so that other users of this machine do not see it. --key-file is read whenever
a command runs, so a rotated key needs no change here. The first context is used at once.`,
			Example: `  peeklock context add prod --server https://a:5300,https://b:5300,https://c:5300 --key-file key --ca clients-ca.crt
  peeklock context add shop - < connection-string.txt`,
			Args: cli.ArgCount(1, 2), Run: addContext, Would: wouldChangeContexts(addContext, "add"),
		},
		{Use: "use NAME", Short: "Use a context from now on", Example: "  peeklock context use prod", Args: one, Complete: named, Run: useContext, Would: wouldChangeContexts(useContext, "use")},
		{Use: "list", Short: "List contexts, without their secrets", Run: listContexts},
		{Use: "remove NAME", Short: "Remove a context and its credentials from this machine", Example: "  peeklock context remove prod", Args: one, Complete: named, Run: removeContext, Would: wouldChangeContexts(removeContext, "remove")},
	}}
}

func addContext(i command.Invocation) error {
	var given contexts.Context
	if len(i.Args) == 2 {
		parsed, err := contexts.ReadConnectionString(i.Args[1], i.Client.In)
		if err != nil {
			return err
		}
		given = parsed.Context()
	}
	given, err := i.Client.GivenContext(given)
	if err != nil {
		return err
	}
	given.Name = i.Args[0]
	return changeContexts(i, "added", func(set *contexts.Set) error {
		if len(set.Contexts) == 0 {
			set.Current = given.Name
		}
		return set.Put(given)
	})
}

func useContext(i command.Invocation) error {
	return changeContexts(i, "in use", func(set *contexts.Set) error {
		if _, found := set.Find(i.Args[0]); !found {
			return noContext(i.Args[0])
		}
		set.Current = i.Args[0]
		return nil
	})
}

func removeContext(i command.Invocation) error {
	return changeContexts(i, "removed", func(set *contexts.Set) error {
		if !set.Remove(i.Args[0]) {
			return noContext(i.Args[0])
		}
		return nil
	})
}

func noContext(name string) error {
	return cli.Usagef("there is no context %q: see peeklock context list", output.Printable(name, 100))
}

// contextChange is the answer of the commands that change a context.
type contextChange struct {
	Context string `json:"context"`
	Did     string `json:"did"`
}

// wouldChangeContexts runs a command without saving what it changes.
func wouldChangeContexts(run func(command.Invocation) error, verb string) func(command.Invocation) (command.Would, error) {
	return func(i command.Invocation) (command.Would, error) {
		if err := run(i); err != nil {
			return command.Would{}, err
		}
		return command.Wouldf("%s context %s", verb, i.Args[0])
	}
}

func changeContexts(i command.Invocation, did string, change func(*contexts.Set) error) error {
	set, err := contexts.Load(i.Client.Process)
	if err != nil {
		return err
	}
	if err := change(&set); err != nil {
		return err
	}
	if i.Client.IsReadOnly() {
		return nil
	}
	if err := set.Save(i.Client.Process); err != nil {
		return err
	}
	if i.Out.IsTable() {
		return i.Out.Note("context %s %s", i.Args[0], did)
	}
	return i.Out.Data(contextChange{i.Args[0], did})
}

// listedContext is a context without its secret.
type listedContext struct {
	Name      string   `json:"name"`
	InUse     bool     `json:"inUse"`
	Servers   []string `json:"servers"`
	KeyName   string   `json:"keyName,omitempty"`
	KeyFile   string   `json:"keyFile,omitempty"`
	CA        string   `json:"ca,omitempty"`
	Namespace string   `json:"namespace,omitempty"`
}

func listContexts(i command.Invocation) error {
	set, err := contexts.Load(i.Client.Process)
	if err != nil {
		return err
	}
	list, rows := make([]listedContext, len(set.Contexts)), make([][]any, len(set.Contexts))
	for at, c := range set.Contexts {
		list[at] = listedContext{c.Name, c.Name == set.Current, c.Servers, c.KeyName, c.KeyFile, c.CA, c.Namespace}
		mark := ""
		if c.Name == set.Current {
			mark = "in use"
		}
		rows[at] = []any{c.Name, mark, strings.Join(c.Servers, ","), c.KeyName, c.Namespace}
	}
	return i.Out.Rows(list, []any{"context", "", "servers", "key", "namespace"}, rows)
}
