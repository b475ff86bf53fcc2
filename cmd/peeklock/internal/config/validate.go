package config

import (
	"fmt"
	"log/slog"
	"net"
	"time"
	"unicode/utf8"

	"github.com/peeklock/peeklock/admin/console"
	"github.com/peeklock/peeklock/cmd/metrics"
	"github.com/peeklock/peeklock/partition"
)

// Limits of settings.
const (
	nameBytesMax     = 64
	zoneBytesMax     = 64
	diskReserveMin   = 64 << 20 // the log must have space to grow, and for snapshots
	snapshotBytesMin = 64 << 10
	snapshotBytesMax = 1 << 30
	replaceAfterMin  = time.Minute      // so that a restart is not mistaken for a loss
	rebalanceMin     = 10 * time.Second // the moves of a rebalance are planned and submitted in less
)

// Validate returns the first error in the settings. It opens nothing.
func (s *Settings) Validate() error {
	for _, a := range s.ListenAddresses() {
		if _, _, err := net.SplitHostPort(a.Address); err != nil {
			return fmt.Errorf("%s: %q is not an address: write host:port", a.Setting, a.Address)
		}
	}
	for _, validate := range []func() error{
		s.validateMember, s.validateTLS, s.validateIssuer, s.validateNetwork, s.validatePlacement, s.validateLogin, s.validateObservation, s.validateMemory,
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
		return fmt.Errorf("name: 1 to %d bytes", nameBytesMax)
	case s.Dir == "":
		return fmt.Errorf("dir: name the data directory")
	case s.Expect < 0 || s.Expect > 7:
		return fmt.Errorf("expect: 0 to 7, not %d", s.Expect)
	case s.Expect > 1 && len(s.Join) == 0:
		return fmt.Errorf("expect is %d: name at least one other member with join", s.Expect)
	case s.Partitions < 1 || s.Partitions > 1024:
		return fmt.Errorf("partitions: 1 to 1024, not %d", s.Partitions)
	case s.Replication < 1 || s.Replication > 7:
		return fmt.Errorf("replication: 1 to 7, not %d", s.Replication)
	case !IsLogStore(s.LogStore):
		return fmt.Errorf("log_store: %s or %s, not %q", partition.JournalLog, partition.BoltLog, s.LogStore)
	case s.SnapshotBytes < snapshotBytesMin || s.SnapshotBytes > snapshotBytesMax:
		return fmt.Errorf("snapshot_bytes: %d to %d, not %d", snapshotBytesMin, snapshotBytesMax, s.SnapshotBytes)
	case s.DiskReserve != 0 && s.DiskReserve < diskReserveMin:
		return fmt.Errorf("disk_reserve: 0 or at least %d bytes, not %d", diskReserveMin, s.DiskReserve)
	case s.ConnectionsPerAddress < 0:
		return fmt.Errorf("connections_per_address: 0 or more, not %d", s.ConnectionsPerAddress)
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
		return fmt.Errorf("zone: at most %d bytes of UTF-8", zoneBytesMax)
	}
	if interval, err := time.ParseDuration(s.RebalanceInterval); err != nil || interval < rebalanceMin {
		return fmt.Errorf("rebalance_interval: %s and more, such as 5m, not %q", rebalanceMin, s.RebalanceInterval)
	}
	after, err := time.ParseDuration(s.ReplaceAfter)
	if err != nil || after != 0 && after < replaceAfterMin {
		return fmt.Errorf("replace_after: 0 for never, or %s and more, such as 10m, not %q", replaceAfterMin, s.ReplaceAfter)
	}
	return nil
}

// ReplaceAfterDuration returns the setting replace_after. The settings must be valid.
func (s *Settings) ReplaceAfterDuration() time.Duration { return duration(s.ReplaceAfter) }

// RebalanceEvery returns the setting rebalance_interval. The settings must be valid.
func (s *Settings) RebalanceEvery() time.Duration { return duration(s.RebalanceInterval) }

// SlowAfter returns the setting slow; with 0, no operation counts as slow. The settings must be valid.
func (s *Settings) SlowAfter() time.Duration { return duration(s.Slow) }

// duration parses a text that was validated.
func duration(text string) time.Duration {
	d, _ := time.ParseDuration(text)
	return d
}

func (s *Settings) validateObservation() error {
	switch s.Metrics {
	case MetricsOpen, MetricsAll, MetricsOperators, MetricsOff:
	default:
		return fmt.Errorf("metrics: %s, %s, %s or %s, not %q", MetricsOpen, MetricsAll, MetricsOperators, MetricsOff, s.Metrics)
	}
	if s.MetricsEntities < 0 || s.MetricsEntities > metrics.EntitiesMax {
		return fmt.Errorf("metrics_entities: 0 to %d, not %d", metrics.EntitiesMax, s.MetricsEntities)
	}
	if after, err := time.ParseDuration(s.Slow); err != nil || after < 0 {
		return fmt.Errorf("slow: a duration such as 500ms or 2s, or 0 for none, not %q", s.Slow)
	}
	if err := validateURL(s.OTLPEndpoint); s.OTLPEndpoint != "" && err != nil {
		return fmt.Errorf("otlp_endpoint: a URL such as http://localhost:4318, not %q", s.OTLPEndpoint)
	}
	if _, err := console.ParseMode(s.Console); err != nil {
		return fmt.Errorf("console: %w", err)
	}
	if err := CheckLogLevel(s.LogLevel); err != nil {
		return fmt.Errorf("log_level: %w", err)
	}
	if err := CheckLogFormat(s.LogFormat); err != nil {
		return fmt.Errorf("log_format: %w", err)
	}
	return nil
}

// ConsoleMode is the setting console, which Validate has checked.
func (s *Settings) ConsoleMode() console.Mode {
	mode, _ := console.ParseMode(s.Console)
	return mode
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
