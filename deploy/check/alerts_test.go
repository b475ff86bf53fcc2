package check

import (
	"bytes"
	"encoding/json"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

const (
	rulesFile = "../alerts/peeklock.rules.yaml"
	rulesCopy = "../helm/peeklock/files/peeklock.rules.yaml"
	dashboard = "../grafana/peeklock.json"
	// entityBoard shows one queue, topic or subscription.
	entityBoard = "../grafana/peeklock-entity.json"
	metricsDoc  = "../../docs/metrics.md"
	runbook     = "../RUNBOOK.md"
	runbookURL  = "https://github.com/peeklock/peeklock/blob/main/deploy/RUNBOOK.md"
)

// rules is a file of rules as Prometheus reads it.
type rules struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []rule `json:"rules"`
	} `json:"groups"`
}

type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func alerts(t *testing.T) []rule {
	t.Helper()
	var file rules
	if err := yaml.UnmarshalStrict(read(t, rulesFile), &file); err != nil {
		t.Fatal(err)
	}
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 15 {
		t.Fatalf("only %d alerts: the test looks at the wrong place", len(all))
	}
	return all
}

// metric is a row of docs/metrics.md.
type metric struct {
	kind   string
	labels []string
}

// known are the metrics that exist, by the names that their series have.
func known(t *testing.T) map[string]metric {
	t.Helper()
	all := map[string]metric{
		// of the client library, for the runtime and the process
		"go_goroutines": {kind: "gauge"}, "process_cpu_seconds_total": {kind: "counter"},
		"process_resident_memory_bytes": {kind: "gauge"}, "process_open_fds": {kind: "gauge"},
	}
	own := len(all)
	for _, row := range regexp.MustCompile("(?m)^\\| `(peeklock_[a-z_]+)` \\| ([a-z]+) \\| ([^|]*) \\|").FindAllStringSubmatch(string(read(t, metricsDoc)), -1) {
		m := metric{kind: row[2]}
		if row[3] != "-" {
			m.labels = strings.Split(row[3], ", ")
		}
		if m.kind == "histogram" {
			all[row[1]+"_bucket"] = metric{"counter", append([]string{"le"}, m.labels...)}
			all[row[1]+"_sum"], all[row[1]+"_count"] = metric{"counter", m.labels}, metric{"counter", m.labels}
			continue
		}
		all[row[1]] = m
	}
	if len(all) < own+50 {
		t.Fatalf("docs/metrics.md lists only %d metrics", len(all)-own)
	}
	return all
}

// everyTarget are labels that Prometheus gives to all series of a target.
var everyTarget = []string{"job", "instance", "__name__"}

// checkExpr parses an expression and compares what it asks for with what there is.
func checkExpr(t *testing.T, where, expr string, have map[string]metric) {
	t.Helper()
	tree, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	labels := slices.Clone(everyTarget)
	parser.Inspect(tree, func(node parser.Node, _ []parser.Node) error {
		s, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		m, exists := have[s.Name]
		if !exists {
			t.Errorf("%s: there is no metric %s", where, s.Name)
		}
		labels = append(labels, m.labels...)
		for _, matcher := range s.LabelMatchers {
			if !slices.Contains(m.labels, matcher.Name) && !slices.Contains(everyTarget, matcher.Name) {
				t.Errorf("%s: %s has no label %s", where, s.Name, matcher.Name)
			}
		}
		return nil
	})
	parser.Inspect(tree, func(node parser.Node, path []parser.Node) error {
		switch n := node.(type) {
		case *parser.AggregateExpr:
			for _, by := range n.Grouping {
				if !slices.Contains(labels, by) {
					t.Errorf("%s: nothing here has a label %s to group by", where, by)
				}
			}
		case *parser.Call:
			if name := n.Func.Name; name == "rate" || name == "increase" {
				checkCounter(t, where, n, have)
			}
		}
		return nil
	})
}

// checkCounter: only what rises has a rate.
func checkCounter(t *testing.T, where string, call *parser.Call, have map[string]metric) {
	t.Helper()
	parser.Inspect(call, func(node parser.Node, _ []parser.Node) error {
		if s, ok := node.(*parser.VectorSelector); ok && have[s.Name].kind != "counter" {
			t.Errorf("%s: %s of %s, which is no counter", where, call.Func.Name, s.Name)
		}
		return nil
	})
}

// Every alert asks for what exists, and says to people what to do.
func TestAlertsUseExistingMetricsAndSayWhatToDo(t *testing.T) {
	have, book := known(t), string(read(t, runbook))
	_, section, ok := strings.Cut(book, "\n## Alerts\n")
	if !ok {
		t.Fatal("RUNBOOK.md has no section Alerts")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	seen := map[string]bool{}
	for _, r := range alerts(t) {
		if seen[r.Alert] || !strings.HasPrefix(r.Alert, "Peeklock") {
			t.Errorf("%q: the name is taken, or does not begin with Peeklock", r.Alert)
		}
		seen[r.Alert] = true
		checkExpr(t, r.Alert, r.Expr, have)
		if r.For != "" {
			if _, err := time.ParseDuration(r.For); err != nil {
				t.Errorf("%s: %v", r.Alert, err)
			}
		}
		if s := r.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s: severity %q", r.Alert, s)
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s has no summary or no description", r.Alert)
		}
		u, err := url.Parse(r.Annotations["runbook_url"])
		if err != nil || !strings.HasPrefix(u.String(), runbookURL+"#") || u.Fragment != strings.ToLower(r.Alert) {
			t.Errorf("%s: runbook_url %q", r.Alert, r.Annotations["runbook_url"])
		}
		_, entry, found := strings.Cut(section, "\n### "+r.Alert+"\n")
		entry, _, _ = strings.Cut(entry, "\n### ")
		for _, part := range []string{"*What it means.*", "*Look.*", "*Do.*"} {
			if !found || !strings.Contains(entry, part) {
				t.Errorf("RUNBOOK.md, %s: no %s", r.Alert, part)
			}
		}
	}
	for _, entry := range regexp.MustCompile(`(?m)^### (\S+)$`).FindAllStringSubmatch(section, -1) {
		if !seen[entry[1]] {
			t.Errorf("RUNBOOK.md explains %s, which is no alert", entry[1])
		}
	}
}

// The chart can only ship what lies in its own folder.
func TestChartHasTheAlerts(t *testing.T) {
	want := read(t, rulesFile)
	if *update {
		if err := os.WriteFile(rulesCopy, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(want, read(t, rulesCopy)) {
		t.Errorf("%s is not %s (go test -update)", rulesCopy, rulesFile)
	}
}

// board is what is looked at of a dashboard of Grafana.
type board struct {
	UID           string `json:"uid"`
	SchemaVersion int    `json:"schemaVersion"`
	Templating    struct {
		List []struct{ Name, Type string } `json:"list"`
	} `json:"templating"`
	Panels []panel `json:"panels"`
}

type panel struct {
	ID         int                  `json:"id"`
	Type       string               `json:"type"`
	Title      string               `json:"title"`
	Datasource struct{ UID string } `json:"datasource"`
	GridPos    struct{ H, W, X, Y int }
	Options    struct{ Content string }
	Targets    []struct {
		RefID string `json:"refId"`
		Expr  string `json:"expr"`
	} `json:"targets"`
}

// Every panel asks for what exists, in the place and of the source that is chosen.
func TestPanelsUseExistingMetrics(t *testing.T) {
	rows, asked := checkBoard(t, dashboard)
	want := []string{"Overview", "Clients", "Messages", "Partitions and failover", "Storage", "Members and runtime"}
	if !slices.Equal(rows, want) {
		t.Errorf("rows %q, want %q", rows, want)
	}
	if asked < 50 {
		t.Errorf("only %d metrics are shown", asked)
	}
	if _, asked := checkBoard(t, entityBoard); asked < 15 {
		t.Errorf("only %d metrics of an entity are shown", asked)
	}
}

// checkBoard checks the panels of a dashboard, and returns the titles of its rows and the number of metrics that it shows.
func checkBoard(t *testing.T, path string) (rows []string, shown int) {
	t.Helper()
	var b board
	if err := json.Unmarshal(read(t, path), &b); err != nil {
		t.Fatal(err)
	}
	if b.UID == "" || b.SchemaVersion < 39 {
		t.Errorf("uid %q, schema %d", b.UID, b.SchemaVersion)
	}
	if first := b.Panels[0]; first.Type != "text" || !strings.Contains(first.Options.Content, "metrics: all") {
		t.Errorf("the first panel of %s does not say how to show the names of entities", path)
	}
	variables := map[string]string{}
	for _, v := range b.Templating.List {
		variables[v.Name] = v.Type
	}
	if variables["datasource"] != "datasource" || variables["job"] != "query" {
		t.Errorf("variables %v", variables)
	}
	have, asked, ids := known(t), map[string]bool{}, map[int]bool{}
	fill := strings.NewReplacer("$__rate_interval", "5m", "$job", "j", "$sb_namespace", "n", "$entity", "e")
	taken := map[[2]int]string{}
	for _, p := range b.Panels {
		if ids[p.ID] {
			t.Errorf("%s: id %d is taken", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%s lies over %s, or beside the grid", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			rows = append(rows, p.Title)
		}
		if p.Type == "row" || p.Type == "text" {
			continue
		}
		if p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
			t.Errorf("%s: source %q, %d targets", p.Title, p.Datasource.UID, len(p.Targets))
		}
		for _, target := range p.Targets {
			expr := fill.Replace(target.Expr)
			if !strings.Contains(target.Expr, `job=~"$job"`) {
				t.Errorf("%s: %s mixes clusters", p.Title, target.Expr)
			}
			checkExpr(t, p.Title, expr, have)
			for name := range have {
				if strings.Contains(expr, name) {
					asked[name] = true
				}
			}
		}
	}
	return rows, len(asked)
}

// The queries of KEDA's Prometheus scaler ask for what exists.
func TestExamplesOfKEDAUseExistingMetrics(t *testing.T) {
	have, queries := known(t), 0
	for _, document := range strings.Split(string(read(t, "../examples/keda.yaml")), "\n---") {
		var object struct {
			Kind string
			Spec struct {
				Triggers []struct {
					Type     string
					Metadata map[string]string
				}
			}
		}
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		for _, trigger := range object.Spec.Triggers {
			if trigger.Type == "prometheus" {
				queries++
				checkExpr(t, "keda.yaml", trigger.Metadata["query"], have)
			}
		}
	}
	if queries != 2 {
		t.Errorf("%d queries", queries)
	}
}
