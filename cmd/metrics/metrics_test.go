package metrics

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/peeklock/peeklock/amqp"
	"github.com/peeklock/peeklock/amqp/budget"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/cluster"
	"github.com/peeklock/peeklock/cluster/clocks"
	"github.com/peeklock/peeklock/cluster/quota"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/totals"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/topology"
)

// memberStats returns the stats of a member in which every kind of value occurs.
func memberStats() cluster.Stats {
	var times partition.Histogram
	times.Observe(time.Millisecond)
	times.Observe(time.Minute)
	part := cluster.PartitionStats{Entities: 2, Messages: 3}
	part.ID, part.IsLeader, part.Leader, part.Halted, part.LogFirst, part.LogLast = 7, true, "m", errors.New("x"), 5, 9
	part.Stages = partition.Stages{Queued: time.Second, Raft: 2 * time.Second, Quorum: 3 * time.Second, Applied: 4 * time.Second}
	part.Moving, part.Missing, part.ReadOnly, part.Ahead = true, 2, true, 90*time.Second
	part.Proposals, part.SnapshotAt = times.Durations(), time.Now().Add(-time.Minute)
	s := cluster.Stats{
		Member: "m", Cluster: "c", Alive: 3, Led: 1,
		Partitions: []cluster.PartitionStats{{}, part},
		Entities: []cluster.EntityStats{
			{Namespace: "default", Name: "a-secret-name", Counts: fsm.Counts{Active: 4, Locked: 1, DeadLetter: 2}, Oldest: time.Second, MaxBytes: 9, WaitingSessions: 3, Totals: shardTotals()},
			{Namespace: "default", Name: "topic/Subscriptions/strange \"\\\n\xff", Kind: fsm.SubscriptionEntity},
		},
		Omitted: 1,
	}
	s.Namespaces = quota.Stats{Namespaces: []quota.NamespaceStats{
		{Name: "default", Led: fsm.Usage{Messages: 5, Rules: 6, DiskBytes: 7}, QueuesAndTopics: 8, MemoryBytes: 9, DiskBytes: 10},
		{Limits: fsm.NamespaceSettings{EntitiesMax: 11, MessagesMax: 12, BytesMax: 13, RulesMax: 14}},
	}, Omitted: 2, MemoryShare: 15}
	s.Clocks = clocks.Comparison{Agreed: true, Offset: -1500 * time.Millisecond, Held: true, Step: -3 * time.Hour}
	s.Store.DiskSpace = partition.DiskSpace{Reserve: 9, ReadOnly: true, LowMemory: true, Exhausted: true}
	s.Store.CommitTimes, s.Requests.Took = times.Durations(), times.Durations()
	return s
}

// shardTotals returns totals of two shards, each value another number.
func shardTotals() []cluster.ShardTotals {
	shards := []cluster.ShardTotals{{Partition: 7}, {Partition: 8}}
	n := uint64(100)
	for i := range shards {
		for total := range shards[i].Counters() {
			*total = n
			n++
		}
	}
	shards[1].DeadLettered = [totals.Reasons]uint64{}
	return shards
}

func newMember(t *testing.T, change func(*Config)) *Collector {
	t.Helper()
	c := Config{
		Consumers: func() []topology.Consumers {
			return []topology.Consumers{{Namespace: 1, Name: "a-secret-name", Links: 5}, {Namespace: 1, Kind: fsm.TopicEntity, Name: "a-secret-name", Links: 1}}
		},
		Throttled: func() []amqp.Throttled {
			return []amqp.Throttled{{Namespace: 1, Name: "a-secret-name", Requests: 17}, {Requests: 18}}
		},
		NamespaceName: func(fsm.NamespaceID) string { return "default" },
		Name:          "m0", Version: "v1", Node: func(int) cluster.Stats { return memberStats() }, Ready: func() bool { return true },
		Gateway: func() amqp.Stats {
			return amqp.Stats{
				Connections: 2, Received: 5, Refused: map[wire.Symbol]uint64{wire.ConditionUnauthorizedAccess: 3},
				Memory: budget.Stats{Used: 11, Limit: 12, Unauthenticated: 13, Restricted: 14, Evictions: 15}, MemoryRefused: 16,
			}
		},
		Memory:         func() Memory { return Memory{Limit: 7, Index: 8, IndexMax: 9} },
		ConnectionsMax: 50, Expiries: func() map[string]time.Time { return map[string]time.Time{"clients": time.Unix(1_900_000_000, 0)} },
		Entities: EntitiesDefault, Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&c)
	}
	m := kit.Must(New(c))(t)
	return m
}

func scrape(t *testing.T, m *Collector, names bool) string {
	t.Helper()
	h := kit.Must(m.Handler(names))(t)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// TestNamesFollowTheConventions checks names and help texts against the conventions of Prometheus and our own.
func TestNamesFollowTheConventions(t *testing.T) {
	t.Parallel()
	text := scrape(t, newMember(t, nil), true)
	problems := kit.Must(promlint.New(strings.NewReader(text)).Lint())(t)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	name := regexp.MustCompile(`^peeklock_(member|amqp|cluster|partition|store|entity|namespace)_[a-z_]+$`)
	for _, f := range families() {
		if !name.MatchString(f.name) || (f.kind == counter) != strings.HasSuffix(f.name, "_total") || !strings.HasSuffix(f.help, ".") {
			t.Errorf("%s, a %s: %s", f.name, f.kind, f.help)
		}
		if !strings.Contains(text, "\n# TYPE "+f.name+" "+string(f.kind)+"\n") {
			t.Errorf("%s is not in the scrape as a %s", f.name, f.kind)
		}
	}
	for _, other := range []string{"go_goroutines", "process_open_fds"} {
		if !strings.Contains(text, "\n"+other+" ") {
			t.Errorf("%s is not in the scrape", other)
		}
	}
}

// TestValuesComeFromTheStats checks that stats are exported unchanged, under their labels.
func TestValuesComeFromTheStats(t *testing.T) {
	t.Parallel()
	text := scrape(t, newMember(t, nil), true)
	for _, line := range []string{
		`peeklock_member_info{cluster="c",id="m",name="m0",version="v1"} 1`,
		`peeklock_member_ready 1`,
		`peeklock_member_memory_limit_bytes 7`,
		`peeklock_member_index_bytes 8`,
		`peeklock_member_index_max_bytes 9`,
		`peeklock_store_short_of_memory 1`,
		`peeklock_amqp_memory_bytes 11`,
		`peeklock_amqp_memory_max_bytes 12`,
		`peeklock_amqp_memory_unauthenticated_bytes 13`,
		`peeklock_amqp_memory_restricted_connections 14`,
		`peeklock_amqp_memory_ended_connections_total 15`,
		`peeklock_amqp_memory_refused_messages_total 16`,
		`peeklock_member_certificate_expiry_timestamp_seconds{shown_to="clients"} 1.9e+09`,
		`peeklock_amqp_connections_max 50`,
		`peeklock_partition_moving{partition="7"} 1`,
		`peeklock_partition_moving{partition="0"} 0`,
		`peeklock_partition_missing_replicas{partition="7"} 2`,
		`peeklock_partition_read_only{partition="7"} 1`,
		`peeklock_partition_time_ahead_seconds{partition="7"} 90`,
		`peeklock_cluster_clock_offset_seconds -1.5`,
		`peeklock_cluster_clock_agreed 1`,
		`peeklock_store_read_only 1`,
		`peeklock_store_exhausted 1`,
		`peeklock_store_disk_reserve_bytes 9`,
		`peeklock_cluster_members{state="alive"} 3`,
		`peeklock_partition_leader{partition="7"} 1`,
		`peeklock_partition_leader{partition="0"} 0`,
		`peeklock_partition_halted{partition="7"} 1`,
		`peeklock_partition_log_entries{partition="0"} 0`,
		`peeklock_partition_log_entries{partition="7"} 5`,
		`peeklock_partition_proposal_duration_seconds_bucket{partition="7",le="0.001"} 1`,
		`peeklock_partition_proposal_duration_seconds_bucket{partition="7",le="8.192"} 1`,
		`peeklock_partition_proposal_duration_seconds_bucket{partition="7",le="+Inf"} 2`,
		`peeklock_partition_stage_seconds_total{partition="7",stage="queued"} 1`,
		`peeklock_partition_stage_seconds_total{partition="7",stage="raft"} 2`,
		`peeklock_partition_stage_seconds_total{partition="7",stage="quorum"} 3`,
		`peeklock_partition_stage_seconds_total{partition="7",stage="applied"} 4`,
		`peeklock_store_commit_duration_seconds_sum 60.001`,
		`peeklock_amqp_connections 2`,
		`peeklock_amqp_refusals_total{condition="amqp:unauthorized-access"} 3`,
		`peeklock_entity_messages{entity="a-secret-name",kind="queue",sb_namespace="default",state="active"} 4`,
		`peeklock_entity_messages{entity="a-secret-name",kind="queue",sb_namespace="default",state="dead_letter"} 2`,
		`peeklock_entity_oldest_message_age_seconds{entity="a-secret-name",kind="queue",sb_namespace="default"} 1`,
		`peeklock_entity_consumers{entity="a-secret-name",kind="queue",sb_namespace="default"} 5`,
		`peeklock_entity_throttled_requests_total{entity="a-secret-name",kind="queue",sb_namespace="default"} 17`,
		`peeklock_entity_throttled_requests_total{entity="(others)",kind="",sb_namespace="(others)"} 18`,
		`peeklock_entity_max_bytes{entity="a-secret-name",kind="queue",sb_namespace="default"} 9`,
		`peeklock_entity_waiting_sessions{entity="a-secret-name",kind="queue",sb_namespace="default"} 3`,
		`peeklock_entity_incoming_messages_total{entity="a-secret-name",kind="queue",partition="7",sb_namespace="default"} 100`,
		`peeklock_entity_removed_messages_total{entity="a-secret-name",kind="queue",partition="7",sb_namespace="default"} 110`,
		`peeklock_entity_dead_lettered_messages_total{entity="a-secret-name",kind="queue",partition="7",reason="forwarding_refused",sb_namespace="default"} 117`,
		`peeklock_entity_incoming_messages_total{entity="a-secret-name",kind="queue",partition="8",sb_namespace="default"} 118`,
		`peeklock_entity_dead_lettered_messages_total{entity="a-secret-name",kind="queue",partition="8",reason="other",sb_namespace="default"} 0`,
		`peeklock_entity_omitted 1`,
		`peeklock_namespace_used{resource="messages",sb_namespace="default"} 5`,
		`peeklock_namespace_used{resource="rules",sb_namespace="default"} 6`,
		`peeklock_namespace_used{resource="bytes",sb_namespace="default"} 7`,
		`peeklock_namespace_used{resource="queues_and_topics",sb_namespace="default"} 8`,
		`peeklock_namespace_limit{resource="messages",sb_namespace="(others)"} 12`,
		`peeklock_namespace_limit{resource="bytes",sb_namespace="(others)"} 13`,
		`peeklock_namespace_held_bytes{resource="memory",sb_namespace="default"} 9`,
		`peeklock_namespace_held_bytes{resource="disk",sb_namespace="default"} 10`,
		`peeklock_namespace_share_bytes{resource="memory"} 15`,
		`peeklock_namespace_omitted 2`,
	} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("not in the scrape: %s", line)
		}
	}
}

// Callers that may not see the names of entities see none, and everything else.
func TestEntityNamesAreHidden(t *testing.T) {
	t.Parallel()
	m := newMember(t, nil)
	text := scrape(t, m, false)
	if strings.Contains(text, "a-secret-name") || strings.Contains(text, "default") {
		t.Error("names are shown")
	}
	if !strings.Contains(text, "peeklock_partition_messages") || !strings.Contains(text, "peeklock_entity_omitted") {
		t.Error("the rest is not")
	}
}

// Stats are collected at most once a second, even if many scrape, or without pause.
func TestScrapesShareASnapshot(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	m := newMember(t, func(c *Config) {
		c.Entities = 12
		c.Node = func(entities int) cluster.Stats {
			if asked.Add(1); entities != 12 {
				t.Errorf("asked for %d entities", entities)
			}
			return memberStats()
		}
	})
	start := time.Now()
	var scrapes sync.WaitGroup
	for range scrapesMax {
		scrapes.Go(func() {
			for range 5 {
				scrape(t, m, true)
			}
		})
	}
	scrapes.Wait()
	if most := int32(time.Since(start)/snapshotEvery) + 1; asked.Load() > most {
		t.Errorf("looked %d times, at most %d are fine", asked.Load(), most)
	}
	m.mu.Lock()
	m.last.at = m.last.at.Add(-snapshotEvery)
	m.mu.Unlock()
	before := asked.Load()
	if scrape(t, m, true); asked.Load() != before+1 {
		t.Error("an old picture was shown")
	}
}

// Concurrent scrapes above the limit are refused.
func TestScrapesAreBounded(t *testing.T) {
	t.Parallel()
	hold, held := make(chan struct{}), make(chan struct{}, 1)
	m := newMember(t, func(c *Config) {
		c.Node = func(int) cluster.Stats {
			held <- struct{}{}
			<-hold
			return memberStats()
		}
	})
	h := kit.Must(m.Handler(true))(t)
	server := httptest.NewServer(h)
	defer server.Close()
	codes := make(chan int, scrapesMax+1)
	get := func() {
		resp, err := http.Get(server.URL)
		if err != nil {
			t.Error(err)
			codes <- 0
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		codes <- resp.StatusCode
	}
	for range scrapesMax + 1 {
		go get()
	}
	<-held
	if code := <-codes; code != http.StatusServiceUnavailable { // the surplus one returns while the others wait
		t.Errorf("status %d", code)
	}
	close(hold)
	for range scrapesMax {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("status %d", code)
		}
	}
}

// Scrapes within a second get the same bytes, and each form of the answer is one that the client accepts.
func TestScrapesShareAnAnswer(t *testing.T) {
	t.Parallel()
	encoded := 0
	h := newCache(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		encoded++
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write([]byte(r.Header.Get("Accept-Encoding") + r.Header.Get("Accept")))
	}))
	get := func(encoding, accept string) string {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Header.Set("Accept-Encoding", encoding)
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != http.StatusOK || w.Header().Get("Content-Type") != "text/plain" {
			t.Errorf("%d %v", w.Code, w.Header())
		}
		return w.Body.String()
	}
	for range 100 {
		if got := get("", "text/plain"); got != "" {
			t.Errorf("plain text: %q", got)
		}
		if got := get("gzip, br", "*/*"); got != "gzip" {
			t.Errorf("compressed: %q", got)
		}
		if got := get("", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"); !strings.Contains(got, "protobuf") {
			t.Errorf("protobuf: %q", got)
		}
	}
	if encoded != 3 {
		t.Errorf("encoded %d times", encoded)
	}
	h.answers[0].at = h.answers[0].at.Add(-snapshotEvery)
	if get("", "text/plain"); encoded != 4 {
		t.Errorf("an old answer was given")
	}
}

func TestInvalidConfigIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []Config{
		{},
		{Node: func(int) cluster.Stats { return cluster.Stats{} }, Ready: func() bool { return true }, Logger: slog.New(slog.DiscardHandler), Entities: EntitiesMax + 1},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
	if text := scrape(t, newMember(t, func(c *Config) { c.Gateway = nil }), true); strings.Contains(text, "peeklock_amqp") {
		t.Error("metrics of a gateway that is not there")
	}
}

// BenchmarkScrapeOfManyEntities is a scrape of a member that shows as many entities as it may.
func BenchmarkScrapeOfManyEntities(b *testing.B) {
	stats := memberStats()
	stats.Entities = nil
	for i := range EntitiesMax {
		stats.Entities = append(stats.Entities, cluster.EntityStats{Namespace: "default", Name: fmt.Sprintf("department/queue-%04d", i), Totals: shardTotals()[1:]})
	}
	m, err := New(Config{
		Name: "m0", Node: func(int) cluster.Stats { return stats }, Ready: func() bool { return true }, Entities: EntitiesMax, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(handlerCollector{member: m, entityNames: true})
	handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	for b.Loop() {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		b.ReportMetric(float64(answer.Body.Len()), "bytes")
	}
}
