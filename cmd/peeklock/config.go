package main

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/amqp"
	"github.com/peeklock/peeklock/cmd/metrics"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// memberConfig is everything that makes a member. The koanf tag is the name in the
// file; the flag has dashes for underscores, the environment variable is PEEKLOCK_ and
// the name in capitals.
type memberConfig struct {
	Name             string   `koanf:"name"`               // what people call the member; default: the host name
	Dir              string   `koanf:"dir"`                // data folder
	AMQP             string   `koanf:"amqp"`               // host:port for AMQP clients
	Admin            string   `koanf:"admin"`              // host:port of the control API
	Peer             string   `koanf:"peer"`               // host:port for other members
	Gossip           string   `koanf:"gossip"`             // host:port for gossip, TCP and UDP
	Advertise        string   `koanf:"advertise"`          // host told to others; empty: as bound
	Join             []string `koanf:"join"`               // gossip addresses of other members
	Expect           int      `koanf:"expect"`             // members that found a cluster together
	Partitions       int      `koanf:"partitions"`         // of a new cluster, 1 to 1024
	Replication      int      `koanf:"replication"`        // replicas of a partition, 1 to 7
	Zone             string   `koanf:"zone"`               // where the member stands
	Rebalance        bool     `koanf:"rebalance"`          // members that join get their share unasked
	ReplaceAfter     string   `koanf:"replace_after"`      // a member away for so long is made up for; 0: never
	KeyName          string   `koanf:"key_name"`           // name of the access key
	Key              string   `koanf:"key"`                // its secret
	KeySecondary     string   `koanf:"key_secondary"`      // a second secret of the same key
	KeyFile          string   `koanf:"key_file"`           // file that holds the secret, instead of key
	Keys             []keyRow `koanf:"keys"`               // further keys; file only
	SnapshotBytes    int64    `koanf:"snapshot_bytes"`     // log of a partition between two snapshots
	DiskReserve      int64    `koanf:"disk_reserve"`       // bytes that stay free, else the member is read-only; 0: 5 %, 1 to 16 GiB
	LogLevel         string   `koanf:"log_level"`          // debug, info, warn, error
	AllowRemotePlain bool     `koanf:"allow_remote_plain"` // listen beyond loopback without TLS
	Also             []string `koanf:"also"`               // further host:port for clients
	TLSCert          string   `koanf:"tls_cert"`           // PEM file; with it clients may use TLS
	TLSKey           string   `koanf:"tls_key"`            // PEM file of its key
	RequireTLS       bool     `koanf:"require_tls"`        // refuse clients without TLS
	TLSClientCA      string   `koanf:"tls_client_ca"`      // PEM file; who signs the certificates of clients
	PeerCert         string   `koanf:"peer_cert"`          // PEM file; with it members speak TLS to each other
	PeerKey          string   `koanf:"peer_key"`           // PEM file of its key
	PeerCA           string   `koanf:"peer_ca"`            // PEM file; who signs the certificates of members
	GossipKey        string   `koanf:"gossip_key"`         // file with keys in base64, one a line; the first encrypts
	OIDCIssuer       string   `koanf:"oidc_issuer"`        // URL of who issues tokens of kind jwt
	OIDCAudience     string   `koanf:"oidc_audience"`      // audience that these tokens must name
	OIDCRolesClaim   string   `koanf:"oidc_roles_claim"`   // claim that holds the roles
	// OIDCAllNamespaces lets tokens without a claim of namespaces into all, not only the default one.
	OIDCAllNamespaces bool   `koanf:"oidc_all_namespaces"`
	AuditLog          string `koanf:"audit_log"`        // file for the audit log; empty: the ordinary log
	ConfigEmulator    string `koanf:"config_emulator"`  // Config.json of the emulator, to be created
	Metrics           string `koanf:"metrics"`          // what /metrics tells strangers: open, all, operators, off
	MetricsEntities   int    `koanf:"metrics_entities"` // how many entities it shows
	Slow              string `koanf:"slow"`             // operations that take so long are logged; 0: none
	OTLPEndpoint      string `koanf:"otlp_endpoint"`    // URL of who takes traces; empty: there are none

	MemoryLimit           string `koanf:"memory_limit"`            // bytes that the process may use; empty: those of the cgroup, or a part of the machine's
	ConnectionsPerAddress int    `koanf:"connections_per_address"` // AMQP connections of one address; 0: no limit

	LoginFailures          int    `koanf:"login_failures"`            // failures of one address with one key name until it is told to wait
	LoginFailuresPerMinute int    `koanf:"login_failures_per_minute"` // how many of them are forgotten in a minute
	LoginDelay             string `koanf:"login_delay"`               // how late a failure is answered at most; 0: at once
	LoginVerifications     int    `koanf:"login_verifications"`       // credentials of one address verified at a time

	ProxyProtocolFrom []string `koanf:"proxy_protocol_from"` // networks of proxies that tell the address of clients
	ControlSocket     string   `koanf:"control_socket"`      // Unix socket for operators; empty: peeklock.sock in dir
	TrustLoopback     bool     `koanf:"trust_loopback"`      // who comes from loopback is an operator
}

// keyRow is a key in the configuration file.
type keyRow struct {
	Name      string `koanf:"name"`
	Primary   string `koanf:"primary"`
	Secondary string `koanf:"secondary"`
	Rights    string `koanf:"rights"` // send, listen, manage, by commas
}

// The limits of disk_reserve and snapshot_bytes. A follower that was away for longer than half
// of the latter needs a snapshot instead of the log.
const (
	diskReserveMin   = 64 << 20 // the log must be able to grow, snapshots to be written
	snapshotBytesMin = 64 << 10
	snapshotBytesMax = 1 << 30
)

// The layers of configuration, from weak to strong.
const (
	fromDefault = "default"
	fromFile    = "file"
	fromEnv     = "environment"
	fromFlag    = "flag"
)

// envPrefix begins every environment variable of the configuration.
const envPrefix = "PEEKLOCK_"

// settings is a member's configuration with the origin of each value.
type settings struct {
	memberConfig
	ownKey bool   // the keys are not known to everybody; set by keys
	file   string // read, or ""
	layers map[string]*koanf.Koanf
	merged *koanf.Koanf
}

func defaults() map[string]any {
	name, err := os.Hostname()
	if err != nil || name == "" {
		name = "member"
	}
	all := map[string]any{
		"name": name, "dir": "peeklock-data",
		"amqp": "127.0.0.1:5672", "admin": "127.0.0.1:5300", "peer": "127.0.0.1:7947", "gossip": "127.0.0.1:7946",
		"advertise": "", "join": []string{}, "expect": 1, "partitions": 16, "replication": 3,
		"zone": "", "rebalance": false, "replace_after": "0",
		"key_name": auth.DevKeyName, "key": "", "key_secondary": "", "key_file": "", "keys": []any{},
		"snapshot_bytes": partition.DefaultSizes().Snapshot, "disk_reserve": 0, "log_level": "info", "allow_remote_plain": false,
		"also": []string{}, "tls_cert": "", "tls_key": "", "require_tls": false, "tls_client_ca": "",
		"peer_cert": "", "peer_key": "", "peer_ca": "", "gossip_key": "",
		"oidc_issuer": "", "oidc_audience": "", "oidc_roles_claim": "roles", "oidc_all_namespaces": false, "audit_log": "", "config_emulator": "",
		"metrics": metricsOpen, "metrics_entities": metrics.EntitiesDefault,
		"slow": "1s", "otlp_endpoint": "",
		"memory_limit":            "",
		"connections_per_address": amqp.DefaultConfig().ConnectionsPerPeerMax,
		"proxy_protocol_from":     []string{}, "control_socket": "", "trust_loopback": false,
	}
	loginDefaults(all)
	return all
}

// configFlags adds a flag for every setting, under its name with dashes. The flags have no
// defaults of their own: only those that were given count.
func configFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringP("config", "c", "", "configuration file, YAML (env PEEKLOCK_CONFIG)")
	f.String("name", "", "what people call this member (default: the host name)")
	f.String("dir", "", "data folder (default peeklock-data)")
	f.String("amqp", "", "host:port for AMQP clients (default 127.0.0.1:5672)")
	f.String("admin", "", "host:port of the control API (default 127.0.0.1:5300)")
	f.String("peer", "", "host:port for other members (default 127.0.0.1:7947)")
	f.String("gossip", "", "host:port for gossip, TCP and UDP (default 127.0.0.1:7946)")
	f.String("advertise", "", "host that others reach this member by (default: as bound)")
	f.StringSlice("join", nil, "gossip addresses of other members, or a DNS name for all of them; repeatable")
	f.Int("expect", 0, "how many members found the cluster together; 1 alone, 0 to join only (default 1, with join 0)")
	f.Int("partitions", 0, "message partitions of a new cluster (default 16)")
	f.Int("replication", 0, "replicas of each partition of a new cluster (default 3)")
	f.String("key-secondary", "", "a second secret of the access key, for changing keys")
	f.String("key-file", "", "file that holds the access key")
	f.Int64("snapshot-bytes", 0, "log of a partition between two snapshots, 64 KiB to 1 GiB; half of it is kept for followers that lag (default 64 MiB)")
	f.Int64("disk-reserve", 0, "bytes of the volume that stay free, 64 MiB or more: with less the member takes no new messages (default 5 %, at least 1 and at most 16 GiB)")
	f.String("log-level", "", "debug, info, warn or error (default info)")
	f.Bool("allow-remote-plain", false, "listen beyond loopback although it is not encrypted: to members without --peer-cert and --gossip-key, to clients without --tls-cert")
	f.StringSlice("also", nil, "further host:port for clients, like :5671 or :443; every port takes AMQP, WebSocket and HTTP, plain and in TLS; repeatable")
	f.String("tls-cert", "", "certificate, PEM file; read anew when it changes")
	f.String("tls-key", "", "key of the certificate, PEM file")
	f.Bool("require-tls", false, "refuse clients without TLS although --allow-remote-plain is given, on loopback as well")
	policyFlags(f)
	secureFlags(f)
	loginFlags(f)
	metricsFlags(f)
	slowFlags(f)
	traceFlags(f)
	networkFlags(f)
	memoryFlag(f, nil)
	f.Int("connections-per-address", 0, "AMQP connections that one IP address, or one /64 of IPv6, may have; 0: no limit (default 5000, or half of the connections that memory-limit allows)")
	f.String("config-emulator", "", "create what this Config.json of the Service Bus emulator lists; every member may have the same")
}

// loadSettings lays the layers over each other: file < environment < flags.
func loadSettings(p process, flags *pflag.FlagSet) (*settings, error) {
	s := &settings{layers: make(map[string]*koanf.Koanf), merged: koanf.New(".")}
	known := defaults()
	s.file, _ = flags.GetString("config")
	if s.file == "" {
		s.file = p.getenv(envPrefix + "CONFIG")
	}
	layers := []struct {
		name string
		load func(*koanf.Koanf) error
	}{
		{fromDefault, func(k *koanf.Koanf) error { return k.Load(confmap.Provider(known, ""), nil) }},
		{fromFile, func(k *koanf.Koanf) error {
			if s.file == "" {
				return nil
			}
			return k.Load(file.Provider(s.file), yamlParser{})
		}},
		{fromEnv, func(k *koanf.Koanf) error { return k.Load(confmap.Provider(environment(p), ""), nil) }},
		{fromFlag, func(k *koanf.Koanf) error { return k.Load(confmap.Provider(changedFlags(flags, known), ""), nil) }},
	}
	for _, layer := range layers {
		k := koanf.New(".")
		if err := layer.load(k); err != nil {
			return nil, usagef("read the configuration from the %s: %w", layer.name, err)
		}
		for _, key := range k.Keys() {
			if _, ok := known[key]; !ok {
				return nil, usagef("unknown setting %q in the %s: possible are %s", key, layer.name, strings.Join(settingNames(), ", "))
			}
		}
		s.layers[layer.name] = k
		if err := s.merged.Merge(k); err != nil {
			return nil, usagef("read the configuration from the %s: %w", layer.name, err)
		}
	}
	if len(s.merged.Strings("join")) > 0 && s.origin("expect") == fromDefault {
		// Who names others wants to be with them. Were it to found alone by default, it would do
		// so before it has heard of anybody.
		if err := s.merged.Set("expect", 0); err != nil {
			return nil, usagef("read the configuration: %w", err)
		}
	}
	if err := s.merged.UnmarshalWithConf("", &s.memberConfig, koanf.UnmarshalConf{DecoderConfig: strictDecoder(&s.memberConfig)}); err != nil {
		return nil, usagef("read the configuration: %w", err)
	}
	return s, nil
}

// environment is the settings among the environment variables. Those that the command
// line reads as a client are not for a member, nor are those that Kubernetes makes up
// for a Service that is called peeklock (PEEKLOCK_SERVICE_HOST, PEEKLOCK_PORT_5672_TCP).
func environment(p process) map[string]any {
	out := make(map[string]any)
	for _, pair := range p.env {
		name, value, _ := strings.Cut(pair, "=")
		name, found := strings.CutPrefix(name, envPrefix)
		if !found || slices.Contains([]string{"SERVER", "CONFIG", "CA", "NAMESPACE"}, name) || fromKubernetes(name) {
			continue
		}
		key := strings.ToLower(name)
		if key == "join" || key == "also" || key == "proxy_protocol_from" {
			out[key] = splitList(value)
			continue
		}
		out[key] = value
	}
	return out
}

func fromKubernetes(name string) bool {
	return strings.HasPrefix(name, "SERVICE_") || strings.Contains(name, "_SERVICE_") ||
		name == "PORT" || strings.HasPrefix(name, "PORT_") || strings.Contains(name, "_PORT_") || strings.HasSuffix(name, "_PORT")
}

// changedFlags is the flags that were set, under the names of settings.
func changedFlags(flags *pflag.FlagSet, known map[string]any) map[string]any {
	out := make(map[string]any)
	flags.Visit(func(f *pflag.Flag) {
		key := strings.ReplaceAll(f.Name, "-", "_")
		if _, ok := known[key]; !ok {
			return
		}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			out[key] = list.GetSlice()
			return
		}
		out[key] = f.Value.String()
	})
	return out
}

func splitList(text string) []string {
	var out []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

func settingNames() []string {
	var names []string
	for name := range defaults() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// origin names the strongest layer that holds the setting.
func (s *settings) origin(key string) string {
	for _, layer := range []string{fromFlag, fromEnv, fromFile} {
		if s.layers[layer].Exists(key) {
			return layer
		}
	}
	return fromDefault
}

// validate says what cannot work before anything is opened.
func (s *settings) validate() error {
	for _, a := range s.listenAddresses() {
		if _, _, err := net.SplitHostPort(a.address); err != nil {
			return usagef("%s: %q is no address: write host:port", a.setting, a.address)
		}
	}
	switch {
	case s.Name == "" || len(s.Name) > 64:
		return usagef("name: 1 to 64 bytes")
	case s.Dir == "":
		return usagef("dir: name the data folder")
	case s.Expect < 0 || s.Expect > 7:
		return usagef("expect: 0 to 7, not %d", s.Expect)
	case s.Expect > 1 && len(s.Join) == 0:
		return usagef("expect is %d: name at least one other member with join", s.Expect)
	case s.Partitions < 1 || s.Partitions > 1024:
		return usagef("partitions: 1 to 1024, not %d", s.Partitions)
	case s.Replication < 1 || s.Replication > 7:
		return usagef("replication: 1 to 7, not %d", s.Replication)
	case s.SnapshotBytes < snapshotBytesMin || s.SnapshotBytes > snapshotBytesMax:
		return usagef("snapshot_bytes: %d to %d, not %d", snapshotBytesMin, snapshotBytesMax, s.SnapshotBytes)
	case s.DiskReserve != 0 && s.DiskReserve < diskReserveMin:
		return usagef("disk_reserve: 0 or at least %d bytes, not %d", diskReserveMin, s.DiskReserve)
	case s.ConnectionsPerAddress < 0:
		return usagef("connections_per_address: 0 or more, not %d", s.ConnectionsPerAddress)
	case s.Key != "" && s.KeyFile != "":
		return usagef("give key or key_file, not both")
	case (s.TLSCert == "") != (s.TLSKey == ""):
		return usagef("tls_cert and tls_key belong together: give both")
	case s.RequireTLS && s.TLSCert == "":
		return usagef("require_tls needs a certificate: give tls_cert and tls_key")
	}
	if err := s.validateSecurity(); err != nil {
		return err
	}
	for _, validate := range []func() error{s.validateNetwork, s.validatePolicy, s.validateLogin, s.validateMetrics, s.validateSlow, s.validateTraces, s.validateMemory} {
		if err := validate(); err != nil {
			return err
		}
	}
	var level slog.Level
	if level.UnmarshalText([]byte(s.LogLevel)) != nil {
		return usagef("log_level: debug, info, warn or error, not %q", s.LogLevel)
	}
	return nil
}

// listenAddress is an address that the member will listen on.
type listenAddress struct {
	setting, address string
	clients          bool // for clients, not for other members
}

func (s *settings) listenAddresses() []listenAddress {
	all := []listenAddress{{"amqp", s.AMQP, true}, {"admin", s.Admin, true}, {"peer", s.Peer, false}, {"gossip", s.Gossip, false}}
	for _, address := range s.Also {
		all = append(all, listenAddress{"also", address, true})
	}
	return all
}

// keys reads the keys and refuses to be reachable with none, or without encryption
// unless told so. Between a key that everybody knows and the world there must be
// somebody's decision.
func (s *settings) keys() (auth.Config, error) {
	secret := s.Key
	if s.KeyFile != "" {
		var err error
		if secret, err = readSecret(s.KeyFile); err != nil {
			return auth.Config{}, usageError{err}
		}
	}
	own := secret != "" || len(s.Keys) > 0
	s.ownKey = own && secret != auth.DevKey
	if err := s.checkListenAddresses(s.ownKey); err != nil {
		return auth.Config{}, err
	}
	if !own && !s.TrustLoopback {
		// With the emulator's key, every client that reaches a loopback port would be an operator, through a proxy too.
		return auth.Config{}, usagef("no key of operators is configured: write one to a file (head -c 32 /dev/urandom | base64) and give key_file, or say trust_loopback where every process and forwarded connection of this machine may administer the cluster")
	}
	var config auth.Config
	if secret != "" || len(s.Keys) == 0 {
		if secret == "" {
			secret = auth.DevKey
		}
		config.Keys = append(config.Keys, auth.Key{Name: s.KeyName, Primary: secret, Secondary: s.KeySecondary, Rights: fsm.Manage})
	}
	for _, row := range s.Keys {
		rights, err := auth.ParseRights(row.Rights)
		if err != nil {
			return auth.Config{}, usagef("keys: %s: %w", row.Name, err)
		}
		config.Keys = append(config.Keys, auth.Key{Name: row.Name, Primary: row.Primary, Secondary: row.Secondary, Rights: rights})
	}
	if err := config.Validate(); err != nil {
		return auth.Config{}, usagef("keys: %w", err)
	}
	var err error
	if config.Limits, err = s.loginLimits(); err != nil {
		return auth.Config{}, err
	}
	if config.Issuer, err = s.issuer(); err != nil {
		return auth.Config{}, err
	}
	return config, nil
}

func (s *settings) checkListenAddresses(ownKey bool) error {
	for _, a := range s.listenAddresses() {
		if isLoopback(a.address) {
			continue
		}
		if missing := s.missingEncryption(a); missing != "" && !s.AllowRemotePlain {
			return usagef("%s: %s can be reached from other machines and nothing is encrypted: give %s, or say --allow-remote-plain if the network is trusted", a.setting, a.address, missing)
		}
		if !ownKey {
			return usagef("%s: %s can be reached from other machines: configure a key of your own first (key or key_file)", a.setting, a.address)
		}
	}
	return nil
}

// isLoopback says whether the address is reachable from this machine only.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// advertised is the address that others should use for one that is bound.
func (s *settings) advertised(bound string) string {
	_, port, err := net.SplitHostPort(bound)
	if err != nil || s.Advertise == "" {
		return bound
	}
	return net.JoinHostPort(s.Advertise, port)
}

// setting is one line of config print.
type setting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
}

func newConfig(p process) *cobra.Command {
	show := &cobra.Command{
		Use: "print", Short: "Print every setting of serve, its value and where it comes from", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			form, _ := cmd.Flags().GetString("output")
			out, err := newOutput(p.out, form)
			if err != nil {
				return err
			}
			s, err := loadSettings(p, cmd.Flags())
			if err != nil {
				return err
			}
			list := s.list()
			rows := make([][]any, len(list))
			for i, l := range list {
				rows[i] = []any{l.Name, l.Value, l.Origin}
			}
			return out.rows(list, []any{"setting", "value", "from"}, rows)
		},
	}
	configFlags(show)
	return group("config", "Look at the configuration of serve", show)
}

// list is every setting by name. Secrets are not shown, only whether they are there.
func (s *settings) list() []setting {
	var out []setting
	for _, name := range settingNames() {
		value := fmt.Sprint(s.merged.Get(name))
		switch name {
		case "join":
			value = strings.Join(s.Join, ",")
		case "also":
			value = strings.Join(s.Also, ",")
		case "proxy_protocol_from":
			value = strings.Join(s.ProxyProtocolFrom, ",")
		case "keys":
			names := make([]string, len(s.Keys))
			for i, k := range s.Keys {
				names[i] = k.Name
			}
			value = strings.Join(names, ",")
		case "key", "key_secondary":
			if value != "" {
				value = "(hidden)"
			}
		}
		out = append(out, setting{Name: name, Value: value, Origin: s.origin(name)})
	}
	return out
}
