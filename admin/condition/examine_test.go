package condition

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

// names returns the findings as "condition subject".
func names(f Findings) []string {
	list := []string{}
	for _, each := range Sort(f) {
		list = append(list, string(each.Condition)+" "+each.Subject)
	}
	return list
}

func wantFindings(t *testing.T, f Findings, want ...string) {
	t.Helper()
	if got := names(f); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestStatusShowsConditions(t *testing.T) {
	t.Parallel()
	member := func(name, state, version string) topology.Member {
		return topology.Member{ID: fsm.MemberID(name), Name: name, State: state, Version: version}
	}
	st := topology.Status{
		Members:    []topology.Member{member("a", topology.Alive, "v1"), member("b", topology.Alive, "v1"), member("c", topology.Alive, "v1")},
		Partitions: []topology.Partition{{ID: 3, Leader: "a", Replicas: []fsm.MemberID{"a", "b", "c"}}},
	}
	wantFindings(t, OfStatus(st))
	st.Members[1], st.Members[2].ReadOnly, st.Members[0].ClockOff = member("b", topology.Dead, ""), true, true
	st.Members[2].Version, st.TimeHeld = "v2", true
	st.Partitions[0].Leader = "b"
	f := OfStatus(st)
	wantFindings(t, f, "PartitionWithoutLeader partition 3", "MemberReadOnly member c", "TimeHeld cluster",
		"MemberAway member b", "ClockOff member a", "VersionsDiffer cluster")
	if f[0].Detail != "the other members elect one" {
		t.Errorf("%+v", f[0])
	}
	st.Members[0].State, st.Partitions[0].Leader = topology.Dead, ""
	if f := Sort(OfStatus(st)); f[0].Detail != "no quorum; it waits for a, b" {
		t.Errorf("%+v", f[0])
	}
}

func TestMetricsShowConditions(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"": "",
		"peeklock_member_ready 1\npeeklock_store_slow 0\nprocess_open_fds 40\nprocess_max_fds 65536\n": "",
		"# HELP\npeeklock_member_ready 0":                                                                                             "MemberNotReady",
		"peeklock_store_disk_free_bytes 1.5e+09\npeeklock_store_disk_reserve_bytes 1e+09":                                             "DiskNearlyFull",
		"peeklock_store_slow 1\npeeklock_store_commit_duration_seconds_sum 4\npeeklock_store_commit_duration_seconds_count 10":        "DiskSlow",
		"peeklock_store_stalled_seconds 2.5":                                                                                          "DiskStalled",
		"process_open_fds 60000\nprocess_max_fds 65536":                                                                               "FewOpenFiles",
		"process_open_fds 10\nprocess_max_fds 1024":                                                                                   "FewOpenFiles",
		"process_open_fds lots\nprocess_max_fds\nx y z\n":                                                                             "",
		fmt.Sprintf("peeklock_member_certificate_expiry_timestamp_seconds{shown_to=\"members\"} %d", now.Add(13*24*time.Hour).Unix()): "CertificateEnds",
		fmt.Sprintf("peeklock_member_certificate_expiry_timestamp_seconds{shown_to=\"clients\"} %d", now.Add(15*24*time.Hour).Unix()): "",
	} {
		f, _ := OfMetrics("member a", now, []byte(text))
		if got := strings.Join(names(f), " "); got != strings.TrimSpace(want+" member a") && (want != "" || got != "") {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	f, _ := OfMetrics("member a", now, []byte("peeklock_store_slow 1\npeeklock_store_commit_duration_seconds_sum 4\npeeklock_store_commit_duration_seconds_count 10"))
	if f[0].Detail != "a sync of the log takes 400 ms on average" {
		t.Error(f[0].Detail)
	}
}
