package condition

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

// Thresholds of conditions. Those that an alert has, too, are its thresholds.
const (
	CertificateEndsWithin = 14 * 24 * time.Hour // of a certificate, before it is reported

	stalledMax       = 2.0 // seconds
	openFilesMin     = 4096
	openFilesUsedMax = 0.8 // share of the limit
)

// Finding is a condition of something.
type Finding struct {
	Condition Name     `json:"condition"`
	Severity  Severity `json:"severity"`
	Subject   string   `json:"subject"` // such as member a, or partition 3
	Detail    string   `json:"detail,omitempty"`
	Mend      string   `json:"mend"`
}

// Findings collects what was found. It is not safe for concurrent use.
type Findings []Finding

// Add adds a condition of a subject, such as member a, with a detail.
func (f *Findings) Add(name Name, subject, format string, args ...any) {
	c := Of(name)
	*f = append(*f, Finding{name, c.Severity, subject, fmt.Sprintf(format, args...), c.Mend})
}

// Sort sorts findings, the most severe first, in the order of the list of conditions, and returns them.
func Sort(f Findings) Findings {
	order := map[Name]int{}
	for i, c := range All() {
		order[c.Name] = i
	}
	severities := []Severity{Critical, Warning, Info}
	slices.SortStableFunc(f, func(a, b Finding) int {
		return cmp.Or(slices.Index(severities, a.Severity)-slices.Index(severities, b.Severity), order[a.Condition]-order[b.Condition], strings.Compare(a.Subject, b.Subject))
	})
	return f
}

// OfStatus finds the conditions that the status of the cluster shows.
func OfStatus(st topology.Status) (f Findings) {
	versions := map[string]bool{}
	for _, m := range st.Members {
		subject := "member " + cmp.Or(m.Name, string(m.ID))
		if m.State != topology.Alive {
			if m.State == topology.Dead {
				f.Add(MemberAway, subject, "it is %s", m.State)
			}
			continue
		}
		versions[m.Version] = true
		if m.ReadOnly {
			f.Add(MemberReadOnly, subject, "its disk or memory is nearly full")
		}
		if m.ClockOff {
			f.Add(ClockOff, subject, "its clock differs from those of a quorum")
		}
	}
	for _, u := range UnservedPartitions(st) {
		detail := "the other members elect one"
		if !u.HasQuorum && len(u.WaitsFor) > 0 {
			detail = "no quorum; it waits for " + strings.Join(u.WaitsFor, ", ")
		}
		f.Add(PartitionWithoutLeader, fmt.Sprintf("partition %d", u.Partition), "%s", detail)
	}
	if st.TimeHeld {
		f.Add(TimeHeld, "cluster", "the clocks were set by %s", st.TimeStep)
	}
	if len(versions) > 1 {
		f.Add(VersionsDiffer, "cluster", "%s", strings.Join(slices.Sorted(maps.Keys(versions)), ", "))
	}
	return f
}

// Unserved is a partition whose leader is unknown or not alive.
type Unserved struct {
	Partition fsm.PartitionID
	HasQuorum bool     // a majority of its replicas is on living members, which will elect a leader
	WaitsFor  []string // names of the members that are away and have replicas of it
}

// UnservedPartitions returns the partitions that nobody serves.
func UnservedPartitions(st topology.Status) (list []Unserved) {
	away := make(map[fsm.MemberID]string)
	for _, m := range st.Members {
		if m.State != topology.Alive {
			away[m.ID] = cmp.Or(m.Name, string(m.ID))
		}
	}
	for _, p := range st.Partitions {
		if _, isAway := away[p.Leader]; p.Leader != "" && !isAway {
			continue
		}
		u := Unserved{Partition: p.ID}
		for _, holder := range p.Replicas {
			if name, isAway := away[holder]; isAway {
				u.WaitsFor = append(u.WaitsFor, name)
			}
		}
		u.HasQuorum = 2*len(u.WaitsFor) < len(p.Replicas)
		list = append(list, u)
	}
	return list
}

// OfMetrics finds the conditions that the metrics of a member show, in the text format of Prometheus. examined is false if the text has none.
func OfMetrics(subject string, now time.Time, text []byte) (f Findings, examined bool) {
	m := parseMetrics(text)
	is := func(name string) bool { return m[name] == 1 }
	if ready, known := m["peeklock_member_ready"]; known && ready == 0 {
		f.Add(MemberNotReady, subject, "/readyz?verbose names the component")
	}
	free, reserve := m["peeklock_store_disk_free_bytes"], m["peeklock_store_disk_reserve_bytes"]
	if reserve > 0 && free < 2*reserve {
		f.Add(DiskNearlyFull, subject, "%.1f GiB are free, of which %.1f GiB must stay free", free/(1<<30), reserve/(1<<30))
	}
	if is("peeklock_store_slow") {
		f.Add(DiskSlow, subject, "a sync of the log takes %.0f ms on average", 1000*m["peeklock_store_commit_duration_seconds_sum"]/max(1, m["peeklock_store_commit_duration_seconds_count"]))
	}
	if age := m["peeklock_store_stalled_seconds"]; age > stalledMax {
		f.Add(DiskStalled, subject, "a write of the log has taken %.1f s so far", age)
	}
	for _, shown := range []string{"clients", "members"} {
		ends, known := m[`peeklock_member_certificate_expiry_timestamp_seconds{shown_to="`+shown+`"}`]
		if at := time.Unix(int64(ends), 0); known && at.Sub(now) < CertificateEndsWithin {
			f.Add(CertificateEnds, subject, "the certificate for %s ends at %s", shown, at.UTC().Format(time.RFC3339))
		}
	}
	open, most := m["process_open_fds"], m["process_max_fds"]
	if most > 0 && (most < openFilesMin || open > openFilesUsedMax*most) {
		f.Add(FewOpenFiles, subject, "%.0f of %.0f are open", open, most)
	}
	return f, len(m) > 0
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
