package main

import (
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/peeklock/peeklock/test/kit"
)

// scrape reads /metrics of a member.
func scrape(t *testing.T, m devMember) string {
	t.Helper()
	request := kit.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, m.Admin+"/metrics", nil))(t)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response := kit.Must(client.Do(request))(t)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", request.URL, response.Status, err)
	}
	return string(text)
}

// sum adds the samples whose lines begin with begin, over all scrapes.
func sum(t *testing.T, scrapes []string, begin string) (total float64) {
	t.Helper()
	for _, text := range scrapes {
		for line := range strings.Lines(text) {
			if rest, found := strings.CutPrefix(line, begin); found {
				value := kit.Must(strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' ')+1:]), 64))(t)
				total += value
			}
		}
	}
	return total
}

// TestMetricsOfMembersAddUp checks that Prometheus can parse the metrics of the members of a cluster, that they
// add up, and that they follow the actions of clients.
func TestMetricsOfMembersAddUp(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three members")
	}
	t.Parallel()
	ready, stop := startDev(t, filepath.Join(kit.MemoryDir(t), "data"))
	say(t, ready.Members[0], 0, "queue", "create", "orders")
	say(t, ready.Members[1], 0, "message", "send", "orders", "a", "b", "c")
	say(t, ready.Members[2], 0, "message", "receive", "orders", "--count", "1")
	want := map[string]float64{
		"peeklock_member_info{":                          3,
		"peeklock_member_ready ":                         3,
		`peeklock_cluster_members{state="alive"}`:        9,
		"peeklock_partition_leader{":                     1 + devPartitions,
		`peeklock_partition_leader{partition="0"}`:       1,
		"peeklock_partition_halted{":                     0,
		"peeklock_cluster_untrusted_streams_total ":      0,
		`peeklock_entity_messages{entity="orders",`:      2,
		`peeklock_entity_locked_messages{entity="order`:  0,
		"peeklock_entity_omitted ":                       0,
		"peeklock_amqp_received_messages_total ":         3,
		"peeklock_amqp_delivered_messages_total ":        1,
		`peeklock_amqp_settled_messages_total{verb="co`:  1,
		"peeklock_amqp_refused_presettled_deliveries_to": 0,
	}
	// While a leadership moves to its preferred member, there may be no member that reports the partition as its
	// own, so the test scrapes again until the metrics add up.
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	var all []string
	for deadline := time.Now().Add(60 * time.Second); ; <-tick.C {
		all = nil
		for _, m := range ready.Members {
			all = append(all, scrape(t, m))
		}
		got := map[string]float64{}
		for begin := range want {
			got[begin] = sum(t, all, begin)
		}
		d := cmp.Diff(want, got)
		if d == "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("does not add up (-want +got):\n%s", d)
		}
	}
	for _, text := range all {
		problems := kit.Must(promlint.New(strings.NewReader(text)).Lint())(t)
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	for _, begin := range []string{
		"peeklock_store_commit_duration_seconds_count ", "peeklock_store_disk_free_bytes ", "peeklock_cluster_requests_total ",
		"peeklock_partition_proposal_duration_seconds_count{", "peeklock_amqp_received_bytes_total ", "peeklock_amqp_sent_bytes_total ",
		"peeklock_amqp_accepted_connections_total ", "go_goroutines ", "process_open_fds ",
	} {
		if got := sum(t, all, begin); got <= 0 {
			t.Errorf("%s adds up to %g", begin, got)
		}
	}
	if code := stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
