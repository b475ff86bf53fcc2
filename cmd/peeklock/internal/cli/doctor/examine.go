package doctor

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/peeklock/peeklock/admin/condition"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/topology"
)

// Thresholds of conditions. Those that an alert has, too, are its thresholds.
const (
	certificateEndsWithin = 14 * 24 * time.Hour
	clientClockOffMax     = 30 * time.Second
	stalledMax            = 2.0 // seconds
	openFilesMin          = 4096
	openFilesUsedMax      = 0.8 // share of the limit
)

// finding is a condition of something.
type finding struct {
	Condition condition.Name     `json:"condition"`
	Severity  condition.Severity `json:"severity"`
	Subject   string             `json:"subject"` // such as member a, or partition 3
	Detail    string             `json:"detail,omitempty"`
	Mend      string             `json:"mend"`
}

// findings collects what was found.
type findings []finding

func (f *findings) add(name condition.Name, subject, format string, args ...any) {
	c := condition.Of(name)
	*f = append(*f, finding{name, c.Severity, subject, fmt.Sprintf(format, args...), c.Mend})
}

// sorted returns the findings with the most severe first, in the order of the list of conditions.
func sorted(f findings) findings {
	order := map[condition.Name]int{}
	for i, c := range condition.All() {
		order[c.Name] = i
	}
	severities := []condition.Severity{condition.Critical, condition.Warning, condition.Info}
	slices.SortStableFunc(f, func(a, b finding) int {
		return cmp.Or(slices.Index(severities, a.Severity)-slices.Index(severities, b.Severity), order[a.Condition]-order[b.Condition], strings.Compare(a.Subject, b.Subject))
	})
	return f
}

// examineStatus finds the conditions that the status of the cluster shows.
func examineStatus(st topology.Status) (f findings) {
	versions := map[string]bool{}
	for _, m := range st.Members {
		subject := "member " + cmp.Or(m.Name, string(m.ID))
		if m.State != topology.Alive {
			if m.State == topology.Dead {
				f.add(condition.MemberAway, subject, "it is %s", m.State)
			}
			continue
		}
		versions[m.Version] = true
		if m.ReadOnly {
			f.add(condition.MemberReadOnly, subject, "its disk or memory is nearly full")
		}
		if m.ClockOff {
			f.add(condition.ClockOff, subject, "its clock differs from those of a quorum")
		}
	}
	for _, u := range client.UnservedPartitions(st) {
		detail := "the other members elect one"
		if !u.HasQuorum && len(u.WaitsFor) > 0 {
			detail = "no quorum; it waits for " + strings.Join(u.WaitsFor, ", ")
		}
		f.add(condition.PartitionWithoutLeader, fmt.Sprintf("partition %d", u.Partition), "%s", detail)
	}
	if st.TimeHeld {
		f.add(condition.TimeHeld, "cluster", "the clocks were set by %s", st.TimeStep)
	}
	if len(versions) > 1 {
		f.add(condition.VersionsDiffer, "cluster", "%s", strings.Join(slices.Sorted(maps.Keys(versions)), ", "))
	}
	return f
}

// isUsable reports whether clients can dial an announced address.
func isUsable(address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "" || port == "0" {
		return false
	}
	ip := net.ParseIP(host)
	return host != "" && (ip == nil || !ip.IsUnspecified())
}

// examineTimes finds conditions of the clock of this machine and of the certificate that a member shows.
func examineTimes(subject string, now, date, ends time.Time) (f findings) {
	// The date has whole seconds.
	if off := now.Sub(date).Truncate(time.Second); !date.IsZero() && off.Abs() > clientClockOffMax {
		f.add(condition.ClientClockOff, "this machine", "its clock differs by %s from that of %s", off, subject)
	}
	if !ends.IsZero() && ends.Sub(now) < certificateEndsWithin {
		f.add(condition.CertificateEnds, subject, "the certificate for clients ends at %s", ends.UTC().Format(time.RFC3339))
	}
	return f
}

// examineMetrics finds the conditions that the metrics of a member show.
func examineMetrics(subject string, now time.Time, text []byte) (f findings) {
	m := parseMetrics(text)
	is := func(name string) bool { return m[name] == 1 }
	if ready, known := m["peeklock_member_ready"]; known && ready == 0 {
		f.add(condition.MemberNotReady, subject, "/readyz?verbose names the component")
	}
	free, reserve := m["peeklock_store_disk_free_bytes"], m["peeklock_store_disk_reserve_bytes"]
	if reserve > 0 && free < 2*reserve {
		f.add(condition.DiskNearlyFull, subject, "%.1f GiB are free, of which %.1f GiB must stay free", free/(1<<30), reserve/(1<<30))
	}
	if is("peeklock_store_slow") {
		f.add(condition.DiskSlow, subject, "a sync of the log takes %.0f ms on average", 1000*m["peeklock_store_commit_duration_seconds_sum"]/max(1, m["peeklock_store_commit_duration_seconds_count"]))
	}
	if age := m["peeklock_store_stalled_seconds"]; age > stalledMax {
		f.add(condition.DiskStalled, subject, "a write of the log has taken %.1f s so far", age)
	}
	for _, shown := range []string{"clients", "members"} {
		ends, known := m[`peeklock_member_certificate_expiry_timestamp_seconds{shown_to="`+shown+`"}`]
		if at := time.Unix(int64(ends), 0); known && at.Sub(now) < certificateEndsWithin {
			f.add(condition.CertificateEnds, subject, "the certificate for %s ends at %s", shown, at.UTC().Format(time.RFC3339))
		}
	}
	open, most := m["process_open_fds"], m["process_max_fds"]
	if most > 0 && (most < openFilesMin || open > openFilesUsedMax*most) {
		f.add(condition.FewOpenFiles, subject, "%.0f of %.0f are open", open, most)
	}
	return f
}

// parseMetrics returns the samples by name and labels, as they are written. Lines that it cannot read are left out.
func parseMetrics(text []byte) map[string]float64 {
	samples := map[string]float64{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		line := lines.Text()
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if value, err := strconv.ParseFloat(line[at+1:], 64); err == nil {
			samples[line[:at]] = value
		}
	}
	return samples
}
