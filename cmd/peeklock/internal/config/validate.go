package config

import (
	"fmt"
	"log/slog"
	"net"
	"time"
	"unicode/utf8"

	"github.com/peeklock/peeklock/admin/console"
	"github.com/peeklock/peeklock/cmd/metrics"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/quantity"
	"github.com/peeklock/peeklock/partition"
)

// Limits of settings.
const (
	nameBytesMax     = 64
	zoneBytesMax     = 64
	diskReserveMin   = quantity.Bytes(64 << 20) // the log must have space to grow, and for snapshots
	snapshotBytesMin = quantity.Bytes(64 << 10)
	snapshotBytesMax = quantity.Bytes(1 << 30)
	replaceAfterMin  = quantity.Duration(time.Minute)      // so that a restart is not mistaken for a loss
	rebalanceMin     = quantity.Duration(10 * time.Second) // the moves of a rebalance are planned and submitted in less
)

// Validate returns the first error in the settings. It opens nothing.
func (s *Settings) Validate() error {
	for _, a := range s.ListenAddresses() {
		if _, _, err := net.SplitHostPort(a.Address); err != nil {
			return s.invalid(a.Setting, "%q is not an address: write host:port", a.Address)
		}
	}
	for _, validate := range []func() error{
		s.validateMember, s.validateTLS, s.validateIssuer, s.validateNetwork, s.validatePlacement, s.validateLogin, s.validateObservation,
	} {
		if err := validate(); err != nil {
			return err
		}
	}
	return nil
}

func (s *Settings) validateMember() error {
	switch {
	case s.Name == "" || len(s.Name) > nameBytesMax:
		return s.invalid("name", "1 to %d bytes, not %.100q", nameBytesMax, s.Name)
	case s.Dir == "":
		return s.invalid("dir", "name the data directory")
	case s.Expect < 0 || s.Expect > 7:
		return s.invalid("expect", "0 to 7, not %d", s.Expect)
	case s.Expect > 1 && len(s.Join) == 0:
		return fmt.Errorf("expect is %d: name at least one other member with join", s.Expect)
	case s.Partitions < 1 || s.Partitions > 1024:
		return s.invalid("partitions", "1 to 1024, not %d", s.Partitions)
	case s.Replication < 1 || s.Replication > 7:
		return s.invalid("replication", "1 to 7, not %d", s.Replication)
	case !IsLogStore(s.LogStore):
		return s.invalid("log_store", "%s or %s, not %q", partition.JournalLog, partition.BoltLog, s.LogStore)
	case s.SnapshotBytes < snapshotBytesMin || s.SnapshotBytes > snapshotBytesMax:
		return s.invalid("snapshot_bytes", "%s to %s, not %s", snapshotBytesMin, snapshotBytesMax, s.SnapshotBytes)
	case s.DiskReserve != 0 && s.DiskReserve < diskReserveMin:
		return s.invalid("disk_reserve", "0 or at least %s, not %s", diskReserveMin, s.DiskReserve)
	case s.ConnectionsPerAddress < 0:
		return s.invalid("connections_per_address", "0 or more, not %d", s.ConnectionsPerAddress)
	case s.Key != "" && s.KeyFile != "":
		return fmt.Errorf("give key or key_file, not both")
	}
	return nil
}

// IsLogStore reports whether a text names a log store.
func IsLogStore(text string) bool {
	return text == string(partition.BoltLog) || text == string(partition.JournalLog)
}

func (s *Settings) validatePlacement() error {
	if len(s.Zone) > zoneBytesMax || !utf8.ValidString(s.Zone) {
		return s.invalid("zone", "at most %d bytes of UTF-8, not %.100q", zoneBytesMax, s.Zone)
	}
	if s.RebalanceInterval < rebalanceMin {
		return s.invalid("rebalance_interval", "%s and more, such as 5m, not %s", rebalanceMin, s.RebalanceInterval)
	}
	if s.ReplaceAfter != 0 && s.ReplaceAfter < replaceAfterMin {
		return s.invalid("replace_after", "0 for never, or %s and more, such as 10m, not %s", replaceAfterMin, s.ReplaceAfter)
	}
	return nil
}

func (s *Settings) validateObservation() error {
	switch s.Metrics {
	case MetricsOpen, MetricsAll, MetricsOperators, MetricsOff:
	default:
		return s.invalid("metrics", "%s, %s, %s or %s, not %q", MetricsOpen, MetricsAll, MetricsOperators, MetricsOff, s.Metrics)
	}
	if s.MetricsEntities < 0 || s.MetricsEntities > metrics.EntitiesMax {
		return s.invalid("metrics_entities", "0 to %d, not %d", metrics.EntitiesMax, s.MetricsEntities)
	}
	if err := validateURL(s.OTLPEndpoint); s.OTLPEndpoint != "" && err != nil {
		return s.invalid("otlp_endpoint", "a URL such as http://localhost:4318, not %q", s.OTLPEndpoint)
	}
	if _, err := console.ParseMode(s.Console); err != nil {
		return s.invalid("console", "%w", err)
	}
	if err := CheckMemoryLimit(s.MemoryLimit); err != nil {
		return s.invalid("memory_limit", "%w", err)
	}
	if err := CheckLogLevel(s.LogLevel); err != nil {
		return s.invalid("log_level", "%w", err)
	}
	if err := CheckLogFormat(s.LogFormat); err != nil {
		return s.invalid("log_format", "%w", err)
	}
	return nil
}

// CheckLogLevel refuses unknown log levels.
func CheckLogLevel(text string) error {
	var level slog.Level
	if level.UnmarshalText([]byte(text)) != nil {
		return fmt.Errorf("debug, info, warn or error, not %q", text)
	}
	return nil
}

// CheckLogFormat refuses unknown log formats.
func CheckLogFormat(text string) error {
	if text != LogText && text != LogJSON {
		return fmt.Errorf("%s or %s, not %q", LogText, LogJSON, text)
	}
	return nil
}
