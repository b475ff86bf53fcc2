package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/admin/console"
	"github.com/peeklock/peeklock/admin/emulator"
	"github.com/peeklock/peeklock/cluster"
	"github.com/peeklock/peeklock/cmd/metrics"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/quantity"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

const (
	// emulatorConfigFolder is where images of the official emulator have their configuration.
	emulatorConfigFolder = "/ServiceBus_Emulator/ConfigFiles"
	// emulatorUp is the line of the official emulator that tools wait for.
	emulatorUp           = "Emulator Service is Successfully Up!"
	emulatorSegmentBytes = 8 << 20                // of the journal, which may be in memory
	emulatorCloseMax     = 700 * time.Millisecond // the process ends within a second of SIGTERM
)

// emulatorOptions has the flags of emulator. Port 0 selects a free port.
type emulatorOptions struct {
	amqpPort, httpPort  int
	config              string // a file or folder; "": see readConfig
	dir                 string // the data; temporary: removed at the end
	temporary           bool
	lenient, requireKey bool
	tls                 bool
	tlsNames            []string // beside those of loopback
	level, format       string
	memoryLimit         quantity.Bytes
}

// emulatorReady is the output of emulator as JSON.
type emulatorReady struct {
	devMember

	Dir    string     `json:"dir"`
	TLS    *devTLS    `json:"tls,omitempty"`
	Config *devConfig `json:"config"`
}

func newEmulator(p cli.Process) *cobra.Command {
	var o emulatorOptions
	cmd := &cobra.Command{
		Use: "emulator", Short: "Take the place of the Service Bus emulator, for tests",
		Long: `Run one member on all addresses in the place of the official Service Bus emulator: with its ports, its Config.json, its keys,
GET /health, and its line "` + emulatorUp + `" on standard output once every entity exists. Messages are in a
temporary folder that is removed at the end, unless --dir names another one.

The configuration is the file or folder of --config, else the text in PEEKLOCK_CONFIG_JSON, else Config.json in
` + emulatorConfigFolder + `, else the sample of the official emulator. What cannot be created is an error before any port is
bound; with --lenient it is left out.

THE KEYS ARE PUBLIC: RootManageSharedAccessKey is accepted with any secret, and requests without a key may administer
everything. Each other key name with the secret SAS_KEY_VALUE gets a namespace of its own, with the entities of the
configuration, which is removed 10 minutes after its last use; the names of further namespaces of the configuration are key
names of these. With --require-key there are no such key names, and the secret has to be SAS_KEY_VALUE, which everybody knows,
too. Never run this where others can reach it.

dev runs several members that keep their data; serve runs a member of a real cluster. Both can create the entities of a
Config.json, too.`,
		Example: `  peeklock emulator
  peeklock emulator --config Config.json`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			form, _ := cmd.Flags().GetString("output")
			out, err := output.NewOutput(p.Out, form)
			if err != nil {
				return err
			}
			if port := p.Getenv("EMULATOR_HTTP_PORT"); port != "" && !cmd.Flags().Changed("http-port") {
				if o.httpPort, err = strconv.Atoi(port); err != nil {
					return cli.Usagef("EMULATOR_HTTP_PORT is a port, not %q", port)
				}
			}
			return emulate(cmd.Context(), p, out, &o)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.amqpPort, "amqp-port", 5672, "AMQP port; 0: any free port")
	f.IntVar(&o.httpPort, "http-port", 5300, "port of health and administration (env EMULATOR_HTTP_PORT); 0: any free port")
	f.StringVar(&o.config, "config", "", "Config.json, or the folder that it is in")
	f.StringVar(&o.dir, "dir", "", "keep the data in this directory")
	f.BoolVar(&o.lenient, "lenient", false, "leave out what the configuration lists and cannot be created, instead of refusing it")
	f.BoolVar(&o.requireKey, "require-key", false, "refuse requests without a key, wrong secrets of "+auth.DevKeyName+", and unknown key names")
	f.BoolVar(&o.tls, "tls", false, "accept TLS too, also on ports 5671 and 443 if they are free, with a certificate of a development CA: GET /ca.pem, and ca.pem in "+emulatorTLSFolder+" if that exists, else in tls of the data folder")
	f.StringSliceVar(&o.tlsNames, "tls-names", nil, "names and addresses of the certificate, beside localhost (default: host.docker.internal and the name of this host)")
	f.Var(&o.memoryLimit, "memory-limit", config.MemoryLimitHelp+" (default: "+config.MemoryLimitDefault+")")
	f.StringVar(&o.level, "log-level", "error", "least severe level that is logged: debug, info, warn or error")
	f.StringVar(&o.format, "log-format", "", "format of the log on standard error: text or json (env PEEKLOCK_LOG_FORMAT, default text)")
	return cmd
}

func (o *emulatorOptions) check() error {
	for flag, port := range map[string]int{"--amqp-port": o.amqpPort, "--http-port": o.httpPort} {
		if port < 0 || port > portMax {
			return cli.Usagef("%s is a port from 0 to %d, not %d", flag, portMax, port)
		}
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

// emulate runs the member until the context ends.
func emulate(ctx context.Context, p cli.Process, out *output.Output, o *emulatorOptions) (err error) {
	o.format = cmp.Or(o.format, p.Getenv("PEEKLOCK_LOG_FORMAT"), config.LogText)
	if err := o.check(); err != nil {
		return err
	}
	listed, err := o.readConfig(p.Getenv)
	if err != nil {
		return err
	}
	logger := config.NewLogger(p.Err, o.level, o.format)
	parts := memberParts{
		logger: logger, audit: logger.With("component", "audit"), gate: listed.gate(), trustAll: !o.requireKey,
		origins: origins(false), processors: raiseProcs(procsDev), metrics: metricsParts{config.MetricsOpen, metrics.EntitiesDefault},
		auth: devKeys(o.requireKey), console: console.On,
	}
	clock := &movedClock{start: time.Now()}
	parts.operations = func(m *member) map[string]func(*http.Request) (any, error) { return o.operations(m, listed, clock) }
	var perKey *keyNamespaces
	if !o.requireKey {
		parts.ownNamespace = func(m *member) func(context.Context, string) (fsm.NamespaceID, func() bool, error) {
			perKey = newKeyNamespaces(emulatorNamespaces{control{m.node.Router(), m.node.Operator()}, listed, o.lenient}, logger)
			return perKey.open
		}
	}
	remove, err := o.prepareDir()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	if err := o.bind(ctx, &parts); err != nil {
		return err
	}
	files, err := o.loadTLS(ctx, p, &parts)
	if err != nil {
		parts.closeListeners()
		return err
	}
	if parts.cluster, err = o.cluster(ctx, &parts); err != nil {
		parts.closeListeners()
		return err
	}
	if o.temporary {
		parts.cluster.Now, parts.cluster.Monotonic = clock.now, clock.monotonic
	}
	parts.memory = guardMemory(ctx, p, int64(o.memoryLimit), memoryOfMachineDevPercent, 1, logger)
	defer parts.memory.start(ctx)()
	if err := o.announce(p, out); err != nil {
		parts.closeListeners()
		return err
	}
	m, err := openMember(ctx, parts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.close(ctx, m)) }()
	if err := o.start(ctx, p, out, m, listed, files); err != nil {
		return err
	}
	if perKey != nil {
		perKey.run(ctx)
	}
	<-ctx.Done()
	return nil
}

// readConfig reads the configuration before a port is bound.
func (o *emulatorOptions) readConfig(getenv func(string) string) (*emulatorConfig, error) {
	read, parse := emulator.Read, emulator.Parse
	if o.lenient {
		read, parse = emulator.ReadLenient, emulator.ParseLenient
	}
	const variable = "PEEKLOCK_CONFIG_JSON"
	var err error
	listed := &emulatorConfig{path: "the built-in configuration", opened: make(chan struct{})}
	inImage := filepath.Join(emulatorConfigFolder, emulator.FileName)
	_, missing := os.Stat(inImage)
	switch text := getenv(variable); {
	case o.config != "" || text == "" && missing == nil:
		listed.path = cmp.Or(o.config, inImage)
		listed.file, err = read(listed.path)
	case text != "":
		listed.path = variable
		if listed.file, err = parse([]byte(text)); err != nil {
			err = fmt.Errorf("%s: %w", variable, err)
		}
	default:
		listed.file = emulator.Default()
	}
	if err == nil && !o.lenient && o.dir == "" {
		if err = listed.file.Check(); err != nil {
			err = fmt.Errorf("%s: %w", listed.path, err)
		}
	}
	return listed, err
}

// devKeys are the keys of the emulator. Without requireKey their secrets are not compared.
func devKeys(requireKey bool) auth.Config {
	keys := auth.Config{Keys: []auth.Key{{Name: auth.DevKeyName, Primary: auth.DevKey, Rights: fsm.Manage}}}
	if !requireKey {
		keys.OpenKey = auth.DevKeyName
	}
	return keys
}

// prepareDir creates the data folder; remove deletes it if it is temporary.
func (o *emulatorOptions) prepareDir() (remove func() error, err error) {
	if o.dir != "" {
		return func() error { return nil }, nil
	}
	o.temporary = true
	if o.dir, err = os.MkdirTemp("", "peeklock-emulator-"); err != nil {
		return nil, fmt.Errorf("create a temporary folder: %w: mount a writable file system at %s, as with --tmpfs %s, or name a folder with --dir", err, os.TempDir(), os.TempDir())
	}
	return func() error { return os.RemoveAll(o.dir) }, nil
}

// bind binds both ports on all addresses.
func (o *emulatorOptions) bind(ctx context.Context, parts *memberParts) error {
	for _, l := range []struct {
		port int
		flag string
		to   *net.Listener
	}{{o.amqpPort, "--amqp-port", &parts.amqp}, {o.httpPort, "--http-port", &parts.admin}} {
		if l.port != 0 && parts.amqp != nil && o.amqpPort == o.httpPort {
			return nil // every port accepts every protocol
		}
		var err error
		if *l.to, err = listenOn(ctx, ":"+strconv.Itoa(l.port)); err != nil {
			*l.to = nil
			parts.closeListeners()
			return fmt.Errorf("%w (choose another with %s)", err, l.flag)
		}
	}
	return nil
}

// cluster is the configuration of the member. Without --dir nothing is synced, because nothing is kept.
func (o *emulatorOptions) cluster(ctx context.Context, parts *memberParts) (cluster.Config, error) {
	c := cluster.Default()
	var err error
	if c.GossipAddr, err = freeGossipPort(ctx); err != nil {
		return c, err
	}
	c.Name, c.Dir, c.PeerAddr = "emulator", filepath.Join(o.dir, "member-1"), "127.0.0.1:0"
	c.Expect, c.Partitions, c.Replication = 1, devPartitions, 1
	c.AMQPAddr, c.HTTPAddr = localhost(parts.amqp), localhost(cmp.Or(parts.admin, parts.amqp))
	c.Version = cli.Version()
	c.Sizes = partition.DefaultSizes()
	c.Sizes.Reserve, c.Sizes.Ballast, c.Sizes.LogSegment = -1, -1, emulatorSegmentBytes
	if o.temporary {
		c.FS = partition.NoSyncFS{}
	}
	c.Logger = parts.logger.With("component", "cluster")
	return c, nil
}

// announce prints what everybody must know before the first client, and which variables have no effect.
func (o *emulatorOptions) announce(p cli.Process, out *output.Output) error {
	if !out.IsTable() {
		return nil
	}
	who := "every key named " + auth.DevKeyName + " is accepted, and requests without a key may administer everything"
	if o.requireKey {
		who = "its key " + auth.DevKey + " is public"
	}
	if err := out.Note("Peeklock %s in the place of the Service Bus emulator. NEVER EXPOSE IT: %s.", cli.Version(), who); err != nil {
		return err
	}
	var ignored []string
	for _, pair := range p.Env {
		name, _, _ := strings.Cut(pair, "=")
		if name == "ACCEPT_EULA" || strings.HasPrefix(name, "SQL_") || strings.HasPrefix(name, "MSSQL_") {
			ignored = append(ignored, name)
		}
	}
	if ignored == nil {
		return nil
	}
	slices.Sort(ignored)
	return out.Note("Ignored, because there is no SQL server and no license to accept: %s", strings.Join(slices.Compact(ignored), ", "))
}

// start waits until the member is ready, creates the entities, and prints that clients may come.
func (o *emulatorOptions) start(ctx context.Context, p cli.Process, out *output.Output, m *member, listed *emulatorConfig, files *devTLS) error {
	if err := waitReady(ctx, []*member{m}); err != nil || ctx.Err() != nil {
		return err
	}
	address, health := m.cluster.AMQPAddr, m.cluster.HTTPAddr
	created, err := listed.applyDev(ctx, p, m, address, !o.requireKey)
	if err != nil || created == nil { // nil: the context has ended
		return err
	}
	if len(created.Problems) > 0 && !o.lenient {
		return fmt.Errorf("%s cannot be created as it is (--lenient leaves that out): %s", listed.path, strings.Join(created.Problems, "; "))
	}
	select {
	case <-m.started:
	case <-ctx.Done():
		return nil
	}
	ready := emulatorReady{Dir: o.dir, Config: created, TLS: files, devMember: devMember{
		Name: "emulator", AMQP: address, Admin: "http://" + health, ConnectionString: connectionString(address, auth.DevKeyName, auth.DevKey),
	}}
	if !out.IsTable() {
		return out.Data(ready)
	}
	if err := errors.Join(created.note(out), files.note(out, nil)); err != nil {
		return err
	}
	return errors.Join(out.Note("%s\nconsole on %s%s\nhealth and administration on %s", ready.ConnectionString, ready.Admin, console.Path, ready.Admin), out.Note(emulatorUp))
}

// close closes the member. Data that is not kept needs no orderly end.
func (o *emulatorOptions) close(ctx context.Context, m *member) error {
	if !o.temporary {
		return closeMembers(ctx, []*member{m})
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), emulatorCloseMax)
	defer cancel()
	_ = m.close(ctx)
	return nil
}
