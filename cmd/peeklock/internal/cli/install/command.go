package install

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
)

// New returns the command init, which writes the files of a new cluster.
func New(p cli.Process) *cobra.Command {
	c := &cluster{}
	write := &cobra.Command{
		Use: "cluster", Short: "Write certificates, keys and configuration files for the machines of a new cluster",
		Long: `Write everything that the machines of a new cluster need, one folder for each: a configuration file, the operator key,
the keys of gossip, and certificates for clients and for the other members. The command contacts nobody and prints what
to copy where.

A member has the name of its machine: a host name that the other machines can resolve, or an IP address. The folder
authority signs further certificates: keep it off the machines of members. Run the command again with the same folder to
renew the certificates, which are valid for 397 days, or to add members; authorities, keys and existing configuration
files stay.`,
		Example: `  peeklock init cluster --members a.example.com,b.example.com,c.example.com --client-name broker.example.com`,
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			form, _ := cmd.Flags().GetString("output")
			out, err := output.NewOutput(p.Out, form)
			if err != nil {
				return err
			}
			if err := c.validate(); err != nil {
				return cli.Usage(err)
			}
			if dry, _ := cmd.Flags().GetBool("dry-run"); dry {
				return c.explainDry(out)
			}
			if err := c.write(time.Now()); err != nil {
				return err
			}
			if !out.IsTable() {
				return out.Data(written{Dir: c.dir, Members: c.members})
			}
			return c.explain(out)
		},
	}
	flags := write.Flags()
	flags.StringSliceVar(&c.members, "members", nil, "hosts of the members, 1 to 7, separated by commas")
	flags.StringSliceVar(&c.clientNames, "client-name", nil, "further name at which clients connect, such as that of a load balancer; repeatable")
	flags.StringVar(&c.dir, "dir", "peeklock-cluster", "folder to write to")
	flags.Bool("dry-run", false, "only say what would be written")
	return cli.Group("init", "Prepare the machines of a new cluster", write)
}

// written is the answer of init cluster.
type written struct {
	Dir     string   `json:"dir"`
	Members []string `json:"members"`
}

// explainDry prints what would be written.
func (c *cluster) explainDry(out *output.Output) error {
	verb := "create"
	if _, err := os.Stat(filepath.Join(c.dir, authorityFolder)); err == nil {
		verb = "renew certificates, keep authorities, keys and configuration files, and add what is missing"
	}
	would := fmt.Sprintf("%s in %s: %s, %s, %s, %s.crt, and a folder for each of %s", verb, c.dir, authorityFolder, operatorKey, gossipKeys, clientsCA, strings.Join(c.members, ", "))
	if !out.IsTable() {
		return out.Data(map[string]string{"would": would})
	}
	return out.Note("would %s", would)
}

// explain prints what to do with the files.
func (c *cluster) explain(out *output.Output) error {
	notes := []string{
		"wrote the files of " + c.dir + "\n",
		"Install the binary, peeklock.service and peeklock.sysusers of deploy/systemd on each machine, and copy its files there:",
	}
	for _, m := range c.members {
		notes = append(notes, "  tar -C "+c.dir+"/"+m+" -c . | ssh root@"+m+" 'systemd-sysusers && mkdir -p "+configFolder+" && tar -C "+configFolder+
			" -x && chown root:peeklock "+configFolder+"/* && chmod 640 "+configFolder+"/* && systemctl enable --now peeklock'")
	}
	name := append(append([]string{}, c.clientNames...), c.members...)[0]
	notes = append(notes, "\nClients trust "+c.dir+"/"+clientsCA+".crt and connect with",
		"  Endpoint=sb://"+name+":5671;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=<the content of "+c.dir+"/"+operatorKey+">",
		"Operators name the cluster once: peeklock context add "+name+" --server https://"+strings.Join(c.members, ":5300,https://")+":5300 --key-file "+
			c.dir+"/"+operatorKey+" --ca "+c.dir+"/"+clientsCA+".crt",
		"Keep "+c.dir+"/"+authorityFolder+" off these machines: its keys sign members.")
	for _, note := range notes {
		if err := out.Note("%s", note); err != nil {
			return err
		}
	}
	return nil
}
