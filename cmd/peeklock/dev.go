package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/admin/console"
	"github.com/peeklock/peeklock/cluster"
	"github.com/peeklock/peeklock/cmd/metrics"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/quantity"
	"github.com/peeklock/peeklock/partition"
)

const (
	devPortStep   = 10 // between the ports of two members
	devPartitions = 4
	devReplicas   = 3
	devReadyMax   = 60 * time.Second
	// The disk of a developer may be nearly full, and all members share it.
	devReserveBytes = 256 << 20
	devBallastBytes = 8 << 20
	portMax         = 65535
)

// devOptions has the flags of dev. Port 0 selects free ports.
type devOptions struct {
	unbound []string // why --tls does not serve the ports of the cloud service; set by bind

	amqpPort, adminPort int
	members             int
	dir                 string
	level, format       string
	pprof               string
	tls                 bool
	memoryLimit         quantity.Bytes
	config              string // the emulator's Config.json, or ""
	requireKey          bool
}

// devMember describes one member in the output.
type devMember struct {
	Name             string `json:"name"`
	AMQP             string `json:"amqp"`
	Admin            string `json:"admin"`
	ConnectionString string `json:"connectionString"`
	// With --tls: the connection string for clients that trust the development CA, and additional addresses.
	TLSConnectionString string   `json:"tlsConnectionString,omitempty"`
	Also                []string `json:"also,omitempty"`
}

// devReady is the output of dev when the members are ready.
type devReady struct {
	Dir     string      `json:"dir"`
	Members []devMember `json:"members"`
	TLS     *devTLS     `json:"tls,omitempty"`
	Config  *devConfig  `json:"config,omitempty"`
}

func newDev(p cli.Process) *cobra.Command {
	var o devOptions
	cmd := &cobra.Command{
		Use: "dev", Short: "Run a whole cluster in this process, for development",
		Long: `Run three members in this process, each with its own data directory, with Raft replication between them, on loopback
addresses. Clients on this machine need no key, and RootManageSharedAccessKey is accepted with any secret, unless --require-key
is given. The command stays in the foreground until Ctrl-C. A second start with the same
directory finds all messages again.

--config creates the entities that a Config.json of the Service Bus emulator lists. The first namespace of the file becomes
the default namespace, whatever its name; each further one is created under its name and reached as
sb://NAME.localhost, which takes an entry in the hosts file for .NET, Python and Java on most systems.
Entities that exist get the settings of the file; nothing is deleted, except the rule $Default where the file lists
other rules.`,
		Example: `  peeklock dev
  peeklock dev --config Config.json`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			form, _ := cmd.Flags().GetString("output")
			out, err := output.NewOutput(p.Out, form)
			if err != nil {
				return err
			}
			return dev(cmd.Context(), p, out, &o)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.amqpPort, "amqp-port", 5672, "AMQP port of the first member; each further member uses one 10 higher; 0: any free port")
	f.IntVar(&o.adminPort, "admin-port", 5300, "control API port of the first member; each further member uses one 10 higher; 0: any free port")
	f.IntVar(&o.members, "members", 3, "number of members: 1, 3 or 5")
	f.StringVar(&o.dir, "dir", ".peeklock-dev", "data directory")
	f.StringVar(&o.config, "config", "", "create the entities that this Config.json of the Service Bus emulator lists")
	f.BoolVar(&o.requireKey, "require-key", false, "refuse requests without a key and wrong secrets of "+auth.DevKeyName)
	f.BoolVar(&o.tls, "tls", false, "create a development CA and a certificate in the data directory and accept TLS too; also on ports 5671 and 443 if they are free")
	f.Var(&o.memoryLimit, "memory-limit", config.MemoryLimitHelp+" (default: "+config.MemoryLimitDefault+")")
	f.StringVar(&o.level, "log-level", "error", "least severe level that is logged: debug, info, warn or error")
	f.StringVar(&o.format, "log-format", "", "format of the log on standard error: text or json (env PEEKLOCK_LOG_FORMAT, default text)")
	pprofFlag(cmd, &o.pprof)
	return cmd
}

func (o *devOptions) check() error {
	if o.members != 1 && o.members != 3 && o.members != 5 {
		return cli.Usagef("--members is 1, 3 or 5, not %d: an even number tolerates no more failures than one member fewer", o.members)
	}
	last := (o.members - 1) * devPortStep
	for _, f := range []struct {
		flag string
		port int
	}{{"--amqp-port", o.amqpPort}, {"--admin-port", o.adminPort}} {
		if f.port < 0 || f.port+last > portMax {
			return cli.Usagef("%s: %d members need ports from %d to %d", f.flag, o.members, f.port, f.port+last)
		}
	}
	apart := o.amqpPort - o.adminPort
	if o.amqpPort != 0 && o.adminPort != 0 && apart%devPortStep == 0 && max(apart, -apart) <= last {
		return cli.Usagef("--amqp-port %d and --admin-port %d collide", o.amqpPort, o.adminPort)
	}
	if err := config.CheckMemoryLimit(o.memoryLimit); err != nil {
		return cli.Usagef("--memory-limit: %w", err)
	}
	if err := config.CheckLogLevel(o.level); err != nil {
		return cli.Usagef("--log-level is %w", err)
	}
	if err := config.CheckLogFormat(o.format); err != nil {
		return cli.Usagef("--log-format is %w", err)
	}
	return nil
}

// dev runs the members until the context ends.
func dev(ctx context.Context, p cli.Process, out *output.Output, o *devOptions) error {
	o.format = cmp.Or(o.format, p.Getenv("PEEKLOCK_LOG_FORMAT"), config.LogText)
	if err := o.check(); err != nil {
		return err
	}
	listed, err := readEmulator(o.config)
	if err != nil {
		return err
	}
	processors := raiseProcs(procsDev)
	logger := config.NewLogger(p.Err, o.level, o.format)
	stopProfile, err := servePprof(ctx, o.pprof, logger)
	if err != nil {
		return err
	}
	defer stopProfile()
	// Bind the ports first: when a port is in use, no data must have been changed yet.
	parts, err := o.bind(ctx)
	if err != nil {
		return err
	}
	if err := o.prepareDir(); err != nil {
		closeListeners(parts)
		return err
	}
	files, err := o.loadTLS(parts, logger)
	if err != nil {
		closeListeners(parts)
		return err
	}
	if err := o.configureMembers(ctx, parts, logger); err != nil {
		closeListeners(parts)
		return err
	}
	memory := guardMemory(ctx, p, int64(o.memoryLimit), memoryOfMachineDevPercent, o.members, logger)
	defer memory.start(ctx)()
	for i := range parts {
		parts[i].gate, parts[i].memory, parts[i].processors = listed.gate(), memory, processors
		parts[i].metrics = metricsParts{config.MetricsOpen, metrics.EntitiesDefault}
	}
	members, err := openMembers(ctx, parts)
	if ctx.Err() != nil { // Ctrl-C during the start is not a failure
		return closeMembers(ctx, members)
	}
	if err != nil {
		return errors.Join(err, closeMembers(ctx, members))
	}
	if err := waitReady(ctx, members); err != nil {
		return errors.Join(err, closeMembers(ctx, members))
	}
	created, err := listed.applyDev(ctx, p, members[0], parts[0].cluster.AMQPAddr, false)
	if err == nil && ctx.Err() == nil {
		err = o.print(out, parts, files, created)
	}
	if err != nil {
		return errors.Join(err, closeMembers(ctx, members))
	}
	<-ctx.Done()
	return errors.Join(out.Note("stopping"), closeMembers(ctx, members))
}

// bind binds all client ports, or none.
func (o *devOptions) bind(ctx context.Context) ([]memberParts, error) {
	parts := make([]memberParts, o.members)
	for i := range parts {
		for _, l := range []struct {
			first int
			flag  string
			to    *net.Listener
		}{{o.amqpPort, "--amqp-port", &parts[i].amqp}, {o.adminPort, "--admin-port", &parts[i].admin}} {
			port := 0
			if l.first != 0 {
				port = l.first + i*devPortStep
			}
			var err error
			if *l.to, err = listenLoopback(ctx, port); err != nil {
				*l.to = nil
				closeListeners(parts)
				return nil, fmt.Errorf("%w (choose another with %s)", err, l.flag)
			}
		}
	}
	o.unbound = o.bindTLS(ctx, &parts[0])
	return parts, nil
}

func closeListeners(parts []memberParts) {
	for _, p := range parts {
		p.closeListeners()
	}
}

// devFile records the number of members for which the directory was created: its partitions have replicas on that
// many members and cannot work with fewer.
type devFile struct {
	Version int `json:"version"` // 1
	Members int `json:"members"`
}

const devFileVersion = 1

// prepareDir creates the directory, or checks that it was created for the same number of members.
func (o *devOptions) prepareDir() error {
	if err := os.MkdirAll(o.dir, 0o750); err != nil {
		return fmt.Errorf("create the data folder: %w", err)
	}
	path := filepath.Join(o.dir, "dev.json")
	data, err := os.ReadFile(path) //nolint:gosec // the user names the folder
	if err == nil {
		var f devFile
		if err := json.Unmarshal(data, &f); err != nil || f.Version != devFileVersion {
			return fmt.Errorf("%s was not written by this version of peeklock dev", path)
		}
		if f.Members != o.members {
			return cli.Usagef("%s holds the data of %d members: start with --members %d or another --dir", o.dir, f.Members, f.Members)
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the data folder: %w", err)
	}
	// The directory is usually inside a project: keep it out of the project's commits.
	if err := os.WriteFile(filepath.Join(o.dir, ".gitignore"), []byte("*\n"), 0o600); err != nil {
		return fmt.Errorf("write the data folder: %w", err)
	}
	data, err = json.Marshal(devFile{Version: devFileVersion, Members: o.members})
	if err != nil {
		return fmt.Errorf("write the data folder: %w", err)
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("write the data folder: %w", err)
	}
	return nil
}

// configureMembers sets the configuration of every member. The ports between members are free ports, chosen at
// each start, because nothing outside needs to know them.
func (o *devOptions) configureMembers(ctx context.Context, parts []memberParts, logger *slog.Logger) error {
	keys := devKeys(o.requireKey)
	gossip := make([]string, len(parts))
	for i := range gossip {
		var err error
		if gossip[i], err = freeGossipPort(ctx); err != nil {
			return err
		}
	}
	for i := range parts {
		c := cluster.Default()
		c.Name = "member-" + strconv.Itoa(i+1)
		c.Dir = filepath.Join(o.dir, c.Name)
		c.PeerAddr, c.GossipAddr = "127.0.0.1:0", gossip[i]
		if len(parts) > 1 {
			c.Join = gossip
		}
		c.Expect, c.Partitions, c.Replication = len(parts), devPartitions, min(devReplicas, len(parts))
		c.AMQPAddr, c.HTTPAddr = localhost(parts[i].amqp), localhost(parts[i].admin)
		c.Version = cli.Version()
		c.Sizes = partition.DefaultSizes()
		c.Sizes.Reserve, c.Sizes.Ballast = devReserveBytes, devBallastBytes
		parts[i].logger = logger.With("node", c.Name)
		c.Logger = parts[i].logger.With("component", "cluster")
		parts[i].audit = parts[i].logger.With("component", "audit")
		parts[i].cluster, parts[i].auth, parts[i].trustLoopback = c, keys, !o.requireKey
		parts[i].console = console.On
	}
	return nil
}

// localhost returns the address of a loopback listener with the host name "localhost".
func localhost(l net.Listener) string {
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return net.JoinHostPort("localhost", port)
}

// openMembers opens all members at the same time, because they bootstrap the cluster together. If some fail, it
// returns the others with the error.
func openMembers(ctx context.Context, parts []memberParts) ([]*member, error) {
	members := make([]*member, len(parts))
	var group errgroup.Group
	for i, p := range parts {
		group.Go(func() error {
			m, err := openMember(ctx, p)
			members[i] = m
			return err
		})
	}
	return members, group.Wait()
}

// waitReady waits until every member serves clients, or ctx ends.
func waitReady(ctx context.Context, members []*member) error {
	waiting, cancel := context.WithTimeout(ctx, devReadyMax)
	defer cancel()
	for _, m := range members {
		err := m.node.Ready(waiting)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the members did not become ready within %s (--log-level info says more): %w", devReadyMax, err)
		}
	}
	return nil
}

// print prints the addresses and files of the members.
func (o *devOptions) print(out *output.Output, parts []memberParts, files *devTLS, created *devConfig) error {
	ready := devReady{Dir: o.dir, TLS: files, Config: created}
	if full, err := filepath.Abs(o.dir); err == nil {
		ready.Dir = full
	}
	for _, p := range parts {
		m := devMember{
			Name: p.cluster.Name, AMQP: p.cluster.AMQPAddr, Admin: "http://" + p.cluster.HTTPAddr,
			ConnectionString: connectionString(p.cluster.AMQPAddr, auth.DevKeyName, auth.DevKey),
		}
		m.addTLS(p)
		ready.Members = append(ready.Members, m)
	}
	if !out.IsTable() {
		return out.Data(ready)
	}
	if err := out.Note("Peeklock is ready: %d members, data in %s", len(parts), ready.Dir); err != nil {
		return err
	}
	if !o.requireKey {
		if err := out.Note("Every process on this machine, and every client whose connection is forwarded here, can administer it without a key.\n"); err != nil {
			return err
		}
	}
	for _, m := range ready.Members {
		if err := out.Note("%s  admin %s  console %s%s\n  %s", m.Name, m.Admin, m.Admin, console.Path, m.ConnectionString); err != nil {
			return err
		}
	}
	if err := files.note(out, ready.Members); err != nil {
		return err
	}
	if err := created.note(out); err != nil {
		return err
	}
	return out.Note("\nCtrl-C stops; the data stays.")
}
