package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/admin/console"
	"github.com/peeklock/peeklock/amqp"
	"github.com/peeklock/peeklock/cmd/metrics"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/quantity"
	"github.com/peeklock/peeklock/partition"
)

// Setting describes one setting. Everything that is derived from a setting comes from here: its flag, its
// environment variable, its key in the file, its row in config print and in docs/configuration.md. The field of
// Member has the same name without underscores.
type Setting struct {
	// Name is the key in the file. The flag has dashes instead of underscores, the environment variable is PEEKLOCK_
	// and the name in capitals.
	Name string
	// Default is the default value; its type is the type of the flag: string, int, bool, []string, quantity.Bytes or quantity.Duration.
	Default any
	// DefaultText describes a default that depends on the machine or on other settings.
	DefaultText string
	Help        string
	// IsSecret hides the value in config print.
	IsSecret bool
	// NoFlag omits the flag: the setting has none, or shares one with all commands.
	NoFlag bool
}

// The values of log_format.
const (
	LogText = "text"
	LogJSON = "json"
)

// Table lists all settings in the order of the help.
func Table() []Setting {
	var all []Setting
	for _, part := range [][]Setting{memberTable(), clusterTable(), keyTable(), tlsTable(), limitTable(), observationTable()} {
		all = append(all, part...)
	}
	return all
}

func memberTable() []Setting {
	return []Setting{
		{Name: "name", Default: "", DefaultText: "the host name", Help: "name of this member, 1 to 64 bytes"},
		{Name: "dir", Default: "peeklock-data", Help: "data directory"},
		{Name: "amqp", Default: "127.0.0.1:5672", Help: "host:port for AMQP clients"},
		{Name: "admin", Default: "127.0.0.1:5300", Help: "host:port of the control API"},
		{Name: "also", Default: []string{}, Help: "additional host:port for clients, such as :5671 or :443; every client port serves AMQP, WebSocket and HTTP, with and without TLS; repeatable"},
		{Name: "peer", Default: "127.0.0.1:7947", Help: "host:port for connections from other members"},
		{Name: "gossip", Default: "127.0.0.1:7946", Help: "host:port for gossip, TCP and UDP"},
		{Name: "advertise", Default: "", DefaultText: "the bound address", Help: "host name or IP address at which clients and other members reach this member; a name is resolved at the start, because gossip announces an IP address: to one that other machines can reach"},
		{Name: "proxy_protocol_from", Default: []string{}, Help: "networks of load balancers that begin every connection with a PROXY protocol header (version 1 or 2), such as 10.1.0.0/16; the header is required from these networks and refused from all others; repeatable"},
		{Name: "control_socket", Default: "", DefaultText: SocketName + " in the data directory", Help: "path of the Unix socket for commands on this machine, which need no key there; at most 103 bytes"},
		{Name: "trust_loopback", Default: false, Help: "treat clients with a loopback address as operators, without key and TLS; this includes all clients of a proxy, sidecar or port forward on this machine"},
		{Name: "console", Default: string(console.On), Help: "the web console at /console on every client port, over TLS or from this machine: on, off, or read-only, which offers no changes"},
		{Name: "config_emulator", Default: "", Help: "create the entities that this Config.json of the Service Bus emulator lists; all members may use the same file"},
	}
}

func clusterTable() []Setting {
	return []Setting{
		{Name: "join", Default: []string{}, Help: "gossip addresses of other members, or a DNS name that resolves to them; repeatable"},
		{Name: "expect", Default: 1, DefaultText: "1, or 0 with --join", Help: "number of members that bootstrap the cluster together; 1 bootstraps alone, 0 only joins"},
		{Name: "partitions", Default: 16, Help: "message partitions of a new cluster, 1 to 1024"},
		{Name: "replication", Default: 3, Help: "replicas of each partition of a new cluster, 1 to 7"},
		{Name: "zone", Default: "", Help: "failure domain of this member, such as an availability zone: replicas of a partition are placed in different zones; recorded at each start"},
		{Name: "rebalance", Default: false, Help: "move a share of the partitions to members that join, without a command; set it to the same value on all members"},
		{Name: "rebalance_interval", Default: quantity.Duration(5 * time.Minute), Help: "least time between two automatic rebalances, at least 10s: members that join within it after a rebalance wait for their share; set it to the same value on all members"},
		{Name: "replace_after", Default: quantity.Duration(0), Help: "time after which the replicas of an unreachable member are recreated on other members, such as 10m, at least 1m; 0: never; set it to the same value on all members"},
		{Name: "rejoin_removed", Default: false, Help: "start as a new member in the data directory of a member that was removed from its cluster: its data is moved to the folder removed in the directory, which keeps the last one; without it serve refuses to start there"},
		{Name: "accept_rollback", Default: false, Help: "start although the data directory is older than what other members have seen of this member, or another process has used its identity: only after a restore of the volumes of all members, or if no other process with this identity ever ran. Remove the setting afterwards: with it, a copied directory is not found"},
		{Name: "log_store", Default: string(partition.JournalLog), Help: "where a new data directory keeps the entries of the Raft log: journal, in append-only files; or bolt, in raft.db, which needs more writes and syncs. A data directory keeps the log store that it was created with, and the member refuses to start with another one"},
		{Name: "snapshot_bytes", Default: quantity.Bytes(partition.DefaultSizes().Snapshot), Help: "log after which a partition writes a snapshot, 64 KiB to 1 GiB; if its newest snapshot is larger, after as much log as that has, up to four times this setting. Half of this setting is kept as log for followers that lag"},
		{Name: "disk_reserve", Default: quantity.Bytes(0), DefaultText: "5 %, at least 1 and at most 16 GiB", Help: "bytes of the volume that stay free, 64 MiB or more: with less free space the member refuses new messages"},
	}
}

func keyTable() []Setting {
	limits := auth.DefaultLimits()
	return []Setting{
		{Name: "key_name", Default: auth.DevKeyName, Help: "name of the operator key", NoFlag: true},
		{Name: "key", Default: "", Help: "secret of the operator key; prefer key_file, because command lines and environments are visible to others", IsSecret: true, NoFlag: true},
		{Name: "key_secondary", Default: "", Help: "second secret of the operator key, for key rotation", IsSecret: true},
		{Name: "key_file", Default: "", Help: "file with the secret of the operator key; a second line may hold the secret that it replaces. Read again when it changes"},
		{Name: "keys", Default: []any{}, Help: "further operator keys: a list of mappings with name, primary, secondary and rights (read, send, listen, manage, separated by commas)", NoFlag: true},
		{Name: "oidc_issuer", Default: "", Help: "URL of the identity provider whose JSON Web Tokens are accepted"},
		{Name: "oidc_audience", Default: "", Help: "audience that these tokens must have"},
		{Name: "oidc_roles_claim", Default: "roles", Help: "claim of these tokens that holds the roles"},
		{Name: "oidc_all_namespaces", Default: false, DefaultText: "false: in the default namespace only", Help: "accept these tokens in every namespace when they have no claim peeklock_namespaces"},
		{Name: "oidc_client_id", Default: "", Help: "client id of the web console at the identity provider, as a public client (authorization code flow with PKCE, S256); without it people sign in to the console by key alone"},
		{Name: "oidc_scopes", Default: "openid", Help: "scopes that the console asks for, separated by spaces: openid, what gives an access token for oidc_audience, and where the identity provider wants it offline_access, which gives a refresh token"},
		{Name: "oidc_token_origin", Default: "", DefaultText: "that of oidc_issuer", Help: "scheme and host of the identity provider's token endpoint, such as https://oauth2.example.com: beside its own member and oidc_issuer, the console may call it alone"},
		{Name: "login_failures", Default: limits.FailuresMax, Help: "failed logins of one address, or one /64 of IPv6, with one key name before further ones are refused as too many (HTTP 429, AMQP server-busy); a valid key is never refused"},
		{Name: "login_failures_per_minute", Default: limits.FailuresPerMinute, Help: "number of these failures that are forgotten per minute"},
		{Name: "login_delay", Default: quantity.Duration(limits.DelayMax), Help: "longest delay of the answer to a failed login, up to 5s; 0: no delay"},
		{Name: "login_verifications", Default: limits.VerificationsMax, Help: "credentials of one address that are verified at the same time; others wait"},
	}
}

func tlsTable() []Setting {
	return []Setting{
		{Name: "tls_cert", Default: "", Help: "PEM file with the certificate for clients; reloaded when it changes"},
		{Name: "tls_key", Default: "", Help: "PEM file with the private key of tls_cert"},
		{Name: "tls_client_ca", Default: "", Help: "PEM file with the authorities that sign client certificates (SASL EXTERNAL); reloaded when it changes"},
		{Name: "require_tls", Default: false, Help: "refuse clients without TLS even with --allow-remote-plain, on loopback as well"},
		{Name: "peer_cert", Default: "", Help: "PEM file with the certificate for TLS between members, used by both ends; reloaded when it changes"},
		{Name: "peer_key", Default: "", Help: "PEM file with the private key of peer_cert"},
		{Name: "peer_ca", Default: "", Help: "PEM file with the authorities that sign the certificates of members; every member needs peer_cert, peer_key and peer_ca"},
		{Name: "gossip_key", Default: "", Help: "file with 1 to 8 gossip keys, one per line: 16, 24 or 32 bytes in base64; the first encrypts, all decrypt; read again when it changes"},
		{Name: "allow_remote_plain", Default: false, Help: "allow unencrypted addresses beyond loopback: for members without --peer-cert and --gossip-key, for clients without --tls-cert"},
	}
}

func limitTable() []Setting {
	return []Setting{
		{Name: "memory_limit", Default: quantity.Bytes(0), DefaultText: MemoryLimitDefault, Help: MemoryLimitHelp},
		{Name: "connections_per_address", Default: amqp.DefaultConfig().ConnectionsPerPeerMax, DefaultText: "5000, or half of the connections that memory_limit allows", Help: "AMQP connections that one IP address, or one /64 of IPv6, may have; 0: no limit"},
	}
}

func observationTable() []Setting {
	return []Setting{
		{Name: "log_level", Default: "info", Help: "least severe level that is logged: debug, info, warn or error"},
		{Name: "log_format", Default: LogText, Help: "format of the log on standard error: text or json; the container image sets json"},
		{Name: "audit_log", Default: "", DefaultText: "the ordinary log", Help: "file to which security decisions and administrative changes are appended as JSON"},
		{Name: "metrics", Default: MetricsOpen, Help: "what /metrics shows to callers without a credential: open (everything but the names of entities), all, operators (nothing), or off (no metrics at all)"},
		{Name: "metrics_entities", Default: metrics.EntitiesDefault, Help: "number of entities that /metrics shows, those used in the last hour first, then those with the most messages; 0 to 3000"},
		{Name: "slow", Default: quantity.Duration(time.Second), Help: "log operations that take at least this long, with the time of each step, such as 500ms; 0: none"},
		{Name: "otlp_endpoint", Default: "", DefaultText: "no traces", Help: "URL of a collector that accepts traces by OTLP over HTTP, such as http://localhost:4318; OTEL_EXPORTER_OTLP_HEADERS sets headers"},
	}
}

// Help texts of --memory-limit, which dev has as well.
const (
	MemoryLimitHelp    = "memory that the process may use, 256MiB or more, such as 4GiB; the member refuses sends before it is used up"
	MemoryLimitDefault = "the limit of the cgroup, else a part of the machine's memory"
)

// AddFlags adds the flags of all settings, and --config. The flags have no defaults of their own: only flags that
// were given take effect.
func AddFlags(f *pflag.FlagSet) {
	f.StringP("config", "c", "", "configuration file, YAML (env PEEKLOCK_CONFIG)")
	for _, s := range Table() {
		if s.NoFlag {
			continue
		}
		usage := s.usage()
		switch s.Default.(type) {
		case string:
			f.String(s.flag(), "", usage)
		case int:
			f.Int(s.flag(), 0, usage)
		case quantity.Bytes:
			f.Var(new(quantity.Bytes), s.flag(), usage)
		case quantity.Duration:
			f.Var(new(quantity.Duration), s.flag(), usage)
		case bool:
			f.Bool(s.flag(), false, usage)
		case []string:
			f.StringSlice(s.flag(), nil, usage)
		}
	}
}

func (s *Setting) flag() string { return strings.ReplaceAll(s.Name, "_", "-") }

// usage returns the help text of the flag.
func (s *Setting) usage() string {
	switch text := s.defaultText(); {
	case s.DefaultText != "":
		return s.Help + " (default: " + s.DefaultText + ")"
	case text != "" && s.Default != false:
		return s.Help + " (default " + text + ")"
	}
	return s.Help
}

// defaultText returns the default value in the syntax of the file, or "" if it is empty.
func (s *Setting) defaultText() string { return strings.Trim(fmt.Sprint(s.Default), "[]") }

// Reference returns the table of settings in docs/configuration.md.
func Reference() string {
	var b strings.Builder
	b.WriteString("| setting | flag | default | meaning |\n|---|---|---|---|\n")
	for _, s := range sortedTable() {
		flag := "`--" + s.flag() + "`"
		if s.Name == "keys" {
			flag = "file only"
		}
		shown := s.DefaultText
		switch text := s.defaultText(); {
		case shown != "":
		case text == "":
			shown = "none"
		default:
			shown = "`" + text + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", s.Name, flag, shown, strings.ReplaceAll(s.Help, "|", `\|`))
	}
	return b.String()
}
