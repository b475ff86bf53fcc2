package config

import "github.com/peeklock/peeklock/cmd/peeklock/internal/quantity"

// Member holds the settings of a member. Table describes them; each field has the name of its setting without
// underscores.
type Member struct {
	Name, Dir                     string
	AMQP, Admin, Peer, Gossip     string
	Also, Join                    []string
	Advertise                     string
	ProxyProtocolFrom             []string
	ControlSocket                 string
	TrustLoopback                 bool
	Console                       string
	ConfigEmulator                string
	Expect                        int
	Partitions, Replication       int
	Zone                          string
	Rebalance                     bool
	ReplaceAfter                  quantity.Duration
	RejoinRemoved                 bool
	AcceptRollback                bool
	RebalanceInterval             quantity.Duration
	LogStore                      string
	SnapshotBytes, DiskReserve    quantity.Bytes
	KeyName, Key                  string
	KeySecondary, KeyFile         string
	Keys                          []OperatorKey
	OIDCIssuer, OIDCAudience      string
	OIDCRolesClaim                string
	OIDCAllNamespaces             bool
	OIDCClientID, OIDCScopes      string
	OIDCTokenOrigin               string
	LoginFailures                 int
	LoginFailuresPerMinute        int
	LoginDelay                    quantity.Duration
	LoginVerifications            int
	TLSCert, TLSKey, TLSClientCA  string
	RequireTLS                    bool
	PeerCert, PeerKey, PeerCA     string
	GossipKey                     string
	AllowRemotePlain              bool
	MemoryLimit                   quantity.Bytes
	ConnectionsPerAddress         int
	LogLevel, LogFormat, AuditLog string
	Metrics                       string
	MetricsEntities               int
	Slow                          quantity.Duration
	OTLPEndpoint                  string
}

// OperatorKey is an element of the setting keys. Rights are read, send, listen and manage, separated by commas.
type OperatorKey struct{ Name, Primary, Secondary, Rights string }

// Values of the setting metrics: which callers see what at /metrics (docs/metrics.md).
const (
	MetricsOpen      = "open"      // everything except entity names to everyone, entity names to operators
	MetricsAll       = "all"       // everything to everyone
	MetricsOperators = "operators" // everything to operators, nothing to others
	MetricsOff       = "off"
)
