package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/cluster"
	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/audit"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/offline"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
	"github.com/peeklock/peeklock/partition"
)

func newServe(p cli.Process) *cobra.Command {
	var profile string
	cmd := &cobra.Command{
		Use: "serve", Short: "Run one member of a cluster",
		Long: `Run one member of a cluster. Settings come from a YAML file, from PEEKLOCK_ variables and from flags; later ones win.
"peeklock config print" shows the result.

Three members that name each other bootstrap a cluster:

  peeklock serve --name a --dir a --expect 3 --join host-b:7946,host-c:7946 ...

Addresses that other machines can reach must be encrypted: client addresses with --tls-cert and --tls-key, the peer address
with --peer-cert, --peer-key and --peer-ca, gossip with --gossip-key. If the network is trusted, use --allow-remote-plain
instead.

Commands on this machine, except those that send or receive messages, need no key at the Unix socket peeklock.sock in the data directory, which only its owner can open:
peeklock --server unix:///DIR/peeklock.sock member list. A loopback address proves nothing: --trust-loopback is for machines
on which no other user or process has access.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := config.Load(p.Env, cmd.Flags())
			if err != nil {
				return cli.Usage(err)
			}
			return serve(cmd.Context(), p, s, profile)
		},
	}
	config.AddFlags(cmd.Flags())
	pprofFlag(cmd, &profile)
	return cmd
}

// serve runs a member until the context ends.
func serve(ctx context.Context, p cli.Process, s *config.Settings, profile string) error {
	hangups := catchHangups()
	if err := s.Validate(); err != nil {
		return cli.Usage(err)
	}
	keys, err := s.AuthConfig()
	if err != nil {
		return cli.Usage(err)
	}
	listed, err := readEmulator(s.ConfigEmulator)
	if err != nil {
		return err
	}
	processors := raiseProcs(procsServe)
	logger := config.NewLogger(p.Err, s.LogLevel, s.LogFormat)
	auditLog, auditFile, err := audit.Open(s.AuditLog, s.Name, logger)
	if err != nil {
		return cli.Usage(fmt.Errorf("audit_log: %w", err))
	}
	defer auditFile.Close(logger) //nolint:contextcheck // the lines at its end outlive ctx
	stopProfile, err := servePprof(ctx, profile, logger)
	if err != nil {
		return err
	}
	defer stopProfile()
	tracer, endTraces, err := openTraces(ctx, s.OTLPEndpoint, s.Name, cli.Version(), logger)
	if err != nil {
		return err
	}
	defer endTraces()
	parts, err := bindParts(ctx, s, logger)
	if err != nil {
		return err
	}
	parts.tracer, parts.processors = tracer, processors
	parts.auth, parts.audit, parts.recentAudit, parts.gate = keys, auditLog, auditFile.Recent(), listed.gate()
	parts.metrics = metricsParts{s.Metrics, s.MetricsEntities}
	parts.connectionsPerAddress, parts.connectionsPerAddressIsGiven = s.ConnectionsPerAddress, s.IsGiven("connections_per_address")
	parts.socket, parts.trustLoopback, parts.console, parts.signIn = s.ControlSocketPath(), s.TrustLoopback, s.ConsoleMode(), s.ConsoleSignIn()
	if parts.proxyFrom, err = s.ProxyNetworks(); err != nil {
		parts.closeListeners()
		return cli.Usage(err)
	}
	parts.memory = guardMemory(ctx, p, int64(s.MemoryLimit), memoryOfMachineServePercent, 1, logger)
	m, err := openRejoining(ctx, s, parts, logger)
	if err != nil {
		return err
	}
	defer (&reloader{settings: s, parts: parts, member: m, file: auditFile, logger: logger, keys: keys.Keys, hangups: hangups}).start(ctx)()
	defer parts.memory.start(ctx)()
	logger.InfoContext(ctx, "member started", "name", s.Name, "dir", s.Dir,
		"amqp", parts.cluster.AMQPAddr, "http", parts.cluster.HTTPAddr, "tls", parts.tls != nil, "require_tls", parts.requireTLS, "control_socket", parts.socket, "version", cli.Version())
	logWarnings(ctx, s, logger)
	if err := m.node.Ready(ctx); err == nil {
		listed.applyServe(ctx, m, logger)
		logger.InfoContext(ctx, "member became ready", "name", s.Name)
	} else if !errors.Is(err, context.Canceled) {
		return errors.Join(fmt.Errorf("become ready: %w", err), closeMembers(ctx, []*member{m}))
	}
	select {
	case <-ctx.Done():
	case <-m.node.Removed(): // it no longer takes part in the cluster: the operator must learn of it
		err = datadir.ErrRemoved
	case <-m.node.Copied(): // another process is this member
		err = datadir.ErrCopied
	case <-m.node.Outdated(): // the cluster has moved to a newer release
		err = m.node.Ready(ctx)
	}
	logger.InfoContext(context.WithoutCancel(ctx), "member shutdown started", "name", s.Name)
	return errors.Join(err, closeMembers(ctx, []*member{m}))
}

// openRejoining opens the member. If the settings allow it, it first moves the data of a removed member aside, so that a
// new one starts in the directory; a member that is removed while it runs ends, and this happens at its next start.
func openRejoining(ctx context.Context, s *config.Settings, parts memberParts, logger *slog.Logger) (*member, error) {
	if s.RejoinRemoved {
		moved, err := datadir.SetAsideRemoved(s.Dir)
		if err != nil {
			parts.closeListeners()
			return nil, err
		}
		if moved {
			logger.WarnContext(ctx, "data of a removed member was moved aside to start a new member", "dir", s.Dir)
		}
	}
	if s.AcceptRollback {
		member, err := datadir.AcceptRollback(s.Dir)
		switch {
		case err == nil:
			parts.audit.WarnContext(ctx, "audit", "event", "rollback_accepted", "who", "--accept-rollback", "member", string(member), "dir", s.Dir)
		case !errors.Is(err, fs.ErrNotExist): // a new directory has nothing to accept
			parts.closeListeners()
			return nil, err
		}
	}
	skipped, _ := cluster.SkippedEntries(s.Dir) // openMember reports what is wrong with the directory
	for _, e := range skipped {
		parts.audit.WarnContext(ctx, "audit", "event", "entry_skipped", "who", "raft-log skip",
			"partition", uint32(e.Partition), "index", e.Index, "checksum", offline.ChecksumText(e.Checksum), "marked", e.Marked)
	}
	return openMember(ctx, parts)
}

// bindParts binds the client listeners and converts the settings to the configurations of the packages.
func bindParts(ctx context.Context, s *config.Settings, logger *slog.Logger) (memberParts, error) {
	gossipAdvertise, err := s.GossipAdvertise(ctx, net.DefaultResolver.LookupNetIP, logger)
	if err != nil {
		return memberParts{}, err
	}
	clients, err := listenOn(ctx, s.AMQP)
	if err != nil {
		return memberParts{}, fmt.Errorf("amqp: %w", err)
	}
	controls, err := listenOn(ctx, s.Admin)
	if err != nil {
		return memberParts{}, errors.Join(fmt.Errorf("admin: %w", err), clients.Close())
	}
	p := memberParts{amqp: clients, admin: controls, logger: logger}
	for _, address := range s.Also {
		l, err := listenOn(ctx, address)
		if err != nil {
			p.closeListeners()
			return memberParts{}, fmt.Errorf("also: %w", err)
		}
		p.also = append(p.also, l)
	}
	if err := applyTLS(s, &p); err != nil {
		p.closeListeners()
		return memberParts{}, err
	}
	c := cluster.Default()
	if c.PeerTLS, c.PeerAuthorities, err = s.PeerTLS(logger.With("component", "cluster")); err == nil {
		c.GossipKeys, err = s.GossipKeys()
	}
	if err != nil {
		p.closeListeners()
		return memberParts{}, cli.Usage(err)
	}
	c.Name, c.Dir = s.Name, s.Dir
	c.PeerAddr, c.GossipAddr = s.Peer, s.Gossip
	if s.Advertise != "" {
		c.PeerAdvertise, c.GossipAdvertise = s.AdvertisedAddress(s.Peer), gossipAdvertise
	}
	c.Join, c.Expect = s.Join, s.Expect
	c.Partitions, c.Replication = s.Partitions, s.Replication
	c.Zone, c.Rebalance, c.ReplaceAfter = s.Zone, s.Rebalance, time.Duration(s.ReplaceAfter)
	c.Timing.Policy = time.Duration(s.RebalanceInterval)
	c.AMQPAddr, c.HTTPAddr = s.AdvertisedAddress(clients.Addr().String()), s.AdvertisedAddress(controls.Addr().String())
	c.Version, c.BootTime = cli.Version(), bootTime()
	c.Sizes = partition.DefaultSizes()
	c.Sizes.Snapshot, c.Sizes.Trailing = int64(s.SnapshotBytes), int64(s.SnapshotBytes)/2
	c.Sizes.Reserve = int64(s.DiskReserve)
	c.LogStore = partition.LogKind(s.LogStore)
	c.Logger = logger.With("component", "cluster")
	c.Slow, c.SlowAfter = slowLogger(logger), time.Duration(s.Slow)
	p.cluster = c
	return p, nil
}

// logWarnings logs the settings that may give access to more clients than the operator intended.
func logWarnings(ctx context.Context, s *config.Settings, logger *slog.Logger) {
	if s.TrustLoopback {
		logger.WarnContext(ctx, "loopback addresses were made trusted: every connection from one has the rights of an operator", "setting", "trust_loopback")
	}
	if !s.HasOwnKey() {
		logger.WarnContext(ctx, "the emulator's key, which everybody knows, was configured for operators: configure another one", "setting", "key_file")
	}
}
