package emulator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// fakeCluster is a cluster in memory: namespaces, entities and rules by name, ignoring case.
type fakeCluster struct {
	mu       sync.Mutex
	busy     int // number of remaining calls that return ServerBusy
	calls    int // calls that changed the cluster
	spaces   []fsm.Namespace
	entities map[string]*fsm.Entity
	rules    map[string][]fsm.Rule
	order    []string // names in the order of creation
}

func newFakeCluster() *fakeCluster {
	return &fakeCluster{
		spaces:   []fsm.Namespace{{ID: fsm.DefaultNamespace, Name: fsm.DefaultNamespaceName}},
		entities: map[string]*fsm.Entity{}, rules: map[string][]fsm.Rule{},
	}
}

// enter locks the cluster, unless it must return ServerBusy.
func (h *fakeCluster) enter() error {
	h.mu.Lock()
	if h.busy > 0 {
		h.busy--
		h.mu.Unlock()
		return fmt.Errorf("ask: %w", fsm.ServerBusy)
	}
	return nil
}

func (h *fakeCluster) Namespace(_ context.Context, name string) (fsm.Namespace, error) {
	if err := h.enter(); err != nil {
		return fsm.Namespace{}, err
	}
	defer h.mu.Unlock()
	for _, n := range h.spaces {
		if strings.EqualFold(n.Name, name) {
			return n, nil
		}
	}
	return fsm.Namespace{}, fsm.EntityNotFound
}

func (h *fakeCluster) CreateNamespace(_ context.Context, name string, settings fsm.NamespaceSettings, _ []fsm.AccessRule) (fsm.Namespace, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls++
	n := fsm.Namespace{ID: fsm.NamespaceID(len(h.spaces) + 1), Name: name, Settings: settings}
	h.spaces = append(h.spaces, n)
	return n, nil
}

func (h *fakeCluster) In(namespace fsm.Namespace) Entities {
	return fakeNamespace{cluster: h, id: namespace.ID}
}

type fakeNamespace struct {
	cluster *fakeCluster
	id      fsm.NamespaceID
}

func (s fakeNamespace) key(name string) string {
	return fmt.Sprintf("%d/%s", s.id, strings.ToLower(name))
}

func (s fakeNamespace) CreateEntity(_ context.Context, kind fsm.EntityKind, name string, settings fsm.EntitySettings, rule *fsm.Rule, _ []fsm.AccessRule) (fsm.Entity, error) {
	if err := s.cluster.enter(); err != nil {
		return fsm.Entity{}, err
	}
	defer s.cluster.mu.Unlock()
	if s.cluster.entities[s.key(name)] != nil {
		return fsm.Entity{}, fmt.Errorf("create: %w", fsm.EntityExists)
	}
	if err := s.destinations(settings); err != nil {
		return fsm.Entity{}, err
	}
	if limits := entity.LimitsOf(fsm.NamespaceSettings{}); settings.LockDuration > entity.ToMillis(entity.Duration(limits.LockDuration)) {
		return fsm.Entity{}, fmt.Errorf("create: %w", fsm.InvalidArgument)
	}
	s.cluster.calls++
	s.cluster.order = append(s.cluster.order, name)
	s.cluster.entities[s.key(name)] = &fsm.Entity{Kind: kind, Name: name, Settings: settings}
	if kind == fsm.SubscriptionEntity {
		if rule == nil {
			rule = &fsm.Rule{Name: fsm.DefaultRuleName, Filter: fsm.RuleFilter{Kind: fsm.TrueFilter}}
		}
		s.cluster.rules[s.key(name)] = []fsm.Rule{*rule}
	}
	return *s.cluster.entities[s.key(name)], nil
}

func (s fakeNamespace) destinations(settings fsm.EntitySettings) error {
	for _, to := range []string{settings.ForwardTo, settings.ForwardDeadLettersTo} {
		if to != "" && s.cluster.entities[s.key(to)] == nil {
			return fmt.Errorf("%w: there is no such queue or topic as %s", fsm.InvalidArgument, to)
		}
	}
	return settings.Validate()
}

func (s fakeNamespace) Entity(_ context.Context, kind fsm.EntityKind, name string) (fsm.Entity, fsm.Counts, error) {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	e := s.cluster.entities[s.key(name)]
	if e == nil || e.Kind != kind {
		return fsm.Entity{}, fsm.Counts{}, fsm.EntityNotFound
	}
	return *e, fsm.Counts{}, nil
}

func (s fakeNamespace) UpdateEntity(_ context.Context, _ fsm.EntityKind, name string, settings fsm.EntitySettings) (fsm.Entity, error) {
	if err := s.cluster.enter(); err != nil {
		return fsm.Entity{}, err
	}
	defer s.cluster.mu.Unlock()
	if err := s.destinations(settings); err != nil {
		return fsm.Entity{}, err
	}
	s.cluster.calls++
	s.cluster.entities[s.key(name)].Settings = settings
	return *s.cluster.entities[s.key(name)], nil
}

func (s fakeNamespace) Rules(_ context.Context, name string, skip, most int) ([]fsm.Rule, error) {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	all := s.cluster.rules[s.key(name)]
	return slices.Clone(all[min(skip, len(all)):min(skip+most, len(all))]), nil
}

func (s fakeNamespace) PutRule(_ context.Context, name string, rule fsm.Rule, replace bool) error {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	s.cluster.calls++
	all := s.cluster.rules[s.key(name)]
	at := slices.IndexFunc(all, func(r fsm.Rule) bool { return strings.EqualFold(r.Name, rule.Name) })
	switch {
	case replace && at >= 0:
		all[at] = rule
	case at >= 0:
		return fsm.RuleExists
	default:
		s.cluster.rules[s.key(name)] = append(all, rule)
	}
	return nil
}

func (s fakeNamespace) DropRule(_ context.Context, name, rule string) error {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	s.cluster.calls++
	s.cluster.rules[s.key(name)] = slices.DeleteFunc(s.cluster.rules[s.key(name)], func(r fsm.Rule) bool { return r.Name == rule })
	return nil
}

func (h *fakeCluster) ruleNames(name string) []string {
	var names []string
	for _, r := range h.rules["1/"+strings.ToLower(name)] {
		names = append(names, r.Name)
	}
	return names
}

func parse(t *testing.T, text string) *File {
	t.Helper()
	file, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func apply(t *testing.T, h *fakeCluster, f *File, want Report) {
	t.Helper()
	got, err := f.Apply(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

func sample(t *testing.T) *File {
	t.Helper()
	file, err := Read(filepath.Join("testdata", "Config.json"))
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// Apply creates what the file lists, a destination before the entities that forward to it; a second Apply changes nothing.
func TestSampleIsCreatedOnce(t *testing.T) {
	t.Parallel()
	h := newFakeCluster()
	file := sample(t)
	if len(file.Warnings) > 0 {
		t.Error(file.Warnings)
	}
	h.busy = 3
	apply(t, h, file, Report{Created: 7})
	if diff := cmp.Diff([]string{"intake", "once/a-day", "lost", "orders"}, h.order[:4]); diff != "" {
		t.Error(diff)
	}
	intake := fsm.DefaultSettings()
	intake.LockDuration, intake.MaxDeliveryCount, intake.MaxMessageBytes = 60_000, 3, 256<<10
	intake.DefaultTimeToLive, intake.DuplicateWindow = 3_600_000, 20_000
	intake.ForwardTo, intake.ForwardDeadLettersTo = "orders", "lost"
	if diff := cmp.Diff(intake, h.entities["1/intake"].Settings); diff != "" {
		t.Error(diff)
	}
	once := h.entities["1/once/a-day"].Settings
	if !once.RequiresSession || !once.RequiresDuplicateDetection || !once.DeadLetterOnExpiry || once.DuplicateWindow != 300_000 || once.DefaultTimeToLive != 86_400_000 || once.LockDuration != 30_000 {
		t.Errorf("%+v", once)
	}
	// Omitted settings have the values of the emulator, except the time to live.
	lost := h.entities["1/lost"].Settings
	if lost.MaxDeliveryCount != 3 || lost.LockDuration != 60_000 || lost.DefaultTimeToLive != fsm.Forever {
		t.Errorf("%+v", lost)
	}
	for name, want := range map[string][]string{
		"web": {"from-the-web", "from-a-partner"}, "everything": {fsm.DefaultRuleName}, "large": {"by-size"},
	} {
		if diff := cmp.Diff(want, h.ruleNames("orders/Subscriptions/"+name)); diff != "" {
			t.Error(name, diff)
		}
	}
	if n := len(h.rules["1/orders/subscriptions/web"][0].Filter.Conditions); n != 8 {
		t.Errorf("%d conditions", n)
	}
	calls := h.calls
	apply(t, h, sample(t), Report{Unchanged: 7})
	if h.calls != calls {
		t.Errorf("%d changes by the second time", h.calls-calls)
	}
}

// Several members that apply the same file have the result of one. The member that creates or updates an
// entity reports it.
func TestMembersMayApplyTheSameFileAtOnce(t *testing.T) {
	t.Parallel()
	h := newFakeCluster()
	var group sync.WaitGroup
	for range 5 {
		file := sample(t)
		group.Go(func() {
			if report, err := file.Apply(t.Context(), h); err != nil || report.Problems != nil {
				t.Error(report, err)
			}
		})
	}
	group.Wait()
	if len(h.entities) != 7 || h.entities["1/intake"].Settings.ForwardTo != "orders" {
		t.Errorf("%d entities", len(h.entities))
	}
	if diff := cmp.Diff([]string{"from-the-web", "from-a-partner"}, h.ruleNames("orders/Subscriptions/web")); diff != "" {
		t.Error(diff)
	}
}

// An existing entity gets the settings in the file and keeps the others. Settings that cannot be changed are
// reported, and so are entities that remain; only the first rule is deleted.
func TestExistingEntitiesAreUpdated(t *testing.T) {
	t.Parallel()
	h := newFakeCluster()
	apply(t, h, parse(t, `{"UserConfig":{"Namespaces":[{"Name":"n","Queues":[
		{"Name":"a","Properties":{"MaxDeliveryCount":7,"LockDuration":"PT2M"}},{"Name":"b"}],
		"Topics":[{"Name":"t","Subscriptions":[{"Name":"s"}]}]}]}}`), Report{Created: 4})
	own := fsm.Rule{Name: "own", Filter: fsm.RuleFilter{Kind: fsm.SQLFilter, SQL: fsm.SQLText{Text: "a = 1"}}}
	h.rules["1/t/subscriptions/s"] = append(h.rules["1/t/subscriptions/s"], own)
	file := parse(t, `{"userConfig":{"namespaces":[{"name":"n","queues":[
		{"name":"A","properties":{"maxDeliveryCount":8,"requiresSession":true,"forwardDeadLetteredMessagesTo":"B"}},
		{"name":"t"},{"name":"c","properties":{"ForwardTo":"nowhere"}}],
		"topics":[{"name":"t2","subscriptions":[]},
		{"name":"b2"}]},
		{"name":"other","topics":[{"name":"t","subscriptions":[{"name":"s","rules":[{"name":"own","properties":{"filterType":"sql","sqlFilter":{"sqlExpression":"a = 2"}}}]}]}]}]}}`)
	apply(t, h, file, Report{Created: 6, Updated: 1, Problems: []string{
		"Namespaces[0].Queues[0] (A): Properties.RequiresSession is false in the queue that exists, and cannot be changed: delete it first",
		"Namespaces[0].Queues[1] (t): the name is taken by an entity of another kind: entity already exists",
		"Namespaces[0].Queues[2] (c): invalid argument: there is no such queue or topic as nowhere",
	}})
	a := h.entities["1/a"].Settings
	if a.MaxDeliveryCount != 8 || a.LockDuration != 120_000 || a.RequiresSession || a.ForwardDeadLettersTo != "B" {
		t.Errorf("%+v", a)
	}
	if h.entities["2/t"] == nil || len(h.rules["2/t/subscriptions/s"]) != 1 {
		t.Error("the second namespace has not its own entities")
	}

	rules := parse(t, `{"UserConfig":{"Namespaces":[{"Topics":[{"Name":"t","Subscriptions":[{"Name":"s","Rules":[
		{"Name":"x","Properties":{"FilterType":"Sql","SqlFilter":{"SqlExpression":"1=1"}}}]}]}]}]}}`)
	apply(t, h, rules, Report{Unchanged: 1, Updated: 1, Problems: []string{
		`Namespaces[0].Topics[0].Subscriptions[0] (t/Subscriptions/s): the subscription also has the rule "own", which stays: remove it if it is not wanted`,
	}})
	if diff := cmp.Diff([]string{"own", "x"}, h.ruleNames("t/Subscriptions/s")); diff != "" {
		t.Error(diff)
	}
}

// The largest message is limited by the namespace, if that limit is below the default.
func TestNamespaceLimitsBoundNewEntities(t *testing.T) {
	t.Parallel()
	h := newFakeCluster()
	h.spaces[0].Settings.MessageBytesMax = 1000
	apply(t, h, parse(t, `{"UserConfig":{"Namespaces":[{"Queues":[{"Name":"a"}]}]}}`), Report{Created: 1})
	if got := h.entities["1/a"].Settings.MaxMessageBytes; got != 1000 {
		t.Error(got)
	}
}

// A time above the limit of the namespace is reported as the file writes it, with the way out.
func TestValuesAboveALimitOfTheNamespaceAreNamed(t *testing.T) {
	t.Parallel()
	apply(t, newFakeCluster(), parse(t, `{"UserConfig":{"Namespaces":[{"Queues":[{"Name":"a","Properties":{"LockDuration":"PT1H"}}]}]}}`), Report{Problems: []string{
		"Namespaces[0].Queues[0] (a): invalid argument: Properties.LockDuration is PT1S to PT5M, not PT1H; maxLockDuration of the namespace (peeklock namespace update --max-lock-duration) raises the limit, up to 24h",
	}})
}

// A cluster that remains busy is retried until the time is up, which is an error.
func TestApplyEndsWithItsContext(t *testing.T) {
	t.Parallel()
	h := newFakeCluster()
	h.busy = 1 << 30
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := sample(t).Apply(ctx, h); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, fsm.ServerBusy) {
		t.Error(err)
	}
}

// Wrong values are refused with their position, and so are names that would collide.
func TestMistakesHaveTheirPath(t *testing.T) {
	t.Parallel()
	queue := func(text string) string {
		return `{"UserConfig":{"Namespaces":[{"Name":"n","Queues":[{"Name":"ok"},` + text + `]}]}}`
	}
	rule := func(text string) string {
		return `{"UserConfig":{"Namespaces":[{"Topics":[{"Name":"t","Subscriptions":[{"Name":"s","Rules":[{"Name":"r","Properties":` + text + `}]}]}]}]}}`
	}
	for text, want := range map[string]string{
		``:                                    "unexpected end of JSON input",
		"{\n\"UserConfig\":\n\n{]}":           "line 4: invalid character ']'",
		`{}`:                                  "UserConfig.Namespaces: is missing",
		`{"Queues":[]}`:                       "UserConfig.Namespaces: is missing",
		`[]`:                                  "is an object in braces",
		`{"UserConfig":[]}`:                   "UserConfig: is an object in braces",
		`{"UserConfig":{"Namespaces":{}}}`:    "Namespaces: is a list in brackets",
		`/* no end {}`:                        "invalid character",
		queue(`{}`):                           "Namespaces[0].Queues[1].Name: is missing",
		queue(`{"Name":7}`):                   "Namespaces[0].Queues[1].Name: is a text in quotes, not 7",
		queue(`{"Name":"a b"}`):               `Namespaces[0].Queues[1].Name: "a b": a name has only letters`,
		queue(`{"Name":"a//b"}`):              `Name: "a//b": a name begins with a letter or digit and has no empty part`,
		queue(`{"Name":"t/Subscriptions/s"}`): `Name: "t/Subscriptions/s": "t/Subscriptions/s" names a subscription, not a queue`,
		queue(`{"Name":"-a"}`):                `"-a": a name begins with a letter or digit`,
		queue(`{"Name":"` + strings.Repeat("a", entity.NameCharactersMax+1) + `"}`): "at most 260 characters",
		queue(`{"Name":"OK"}`): `Namespaces[0].Queues[1].Name: an entity "OK" is in the file already: Namespaces[0].Queues[0]`,
		queue(`{"Name":"a","Properties":{"LockDuration":"PT0.5S"}}`):                     "Namespaces[0].Queues[1].Properties.LockDuration: is PT1S to P1D, not PT0.5S",
		queue(`{"Name":"a","Properties":{"LockDuration":"P2D"}}`):                        "Properties.LockDuration: is PT1S to P1D, not P2D",
		queue(`{"Name":"a","Properties":{"LockDuration":60}}`):                           "Properties.LockDuration: is text like \"PT30S\", not 60",
		queue(`{"Name":"a","Properties":{"DefaultMessageTimeToLive":"P1S"}}`):            `Properties.DefaultMessageTimeToLive: "P1S" is not a duration`,
		queue(`{"Name":"a","Properties":{"DuplicateDetectionHistoryTimeWindow":"P8D"}}`): "DuplicateDetectionHistoryTimeWindow: is PT20S to P7D",
		queue(`{"Name":"a","Properties":{"MaxDeliveryCount":0}}`):                        "Properties.MaxDeliveryCount: is 1 to 2147483647, not 0",
		queue(`{"Name":"a","Properties":{"MaxDeliveryCount":2147483648}}`):               "not 2147483648",
		queue(`{"Name":"a","Properties":{"RequiresSession":"yes"}}`):                     `Properties.RequiresSession: is true or false, not "yes"`,
		queue(`{"Name":"a","Properties":{"ForwardTo":["b"]}}`):                           `Properties.ForwardTo: is the name of a queue or topic, at most 260 characters long, not ["b"]`,
		rule(`{}`):                    "Namespaces[0].Topics[0].Subscriptions[0].Rules[0].Properties.FilterType: is missing",
		rule(`{"FilterType":"Best"}`): `FilterType: is Sql or Correlation, not "Best"`,
		rule(`{"FilterType":"Sql"}`):  "Properties.SqlFilter: is missing",
		rule(`{"FilterType":"Sql","SqlFilter":{"SqlExpression":"a = = 1"}}`):                                  `Rules[0]: invalid argument: filter: `,
		rule(`{"FilterType":"Sql","SqlFilter":{"SqlExpression":"a=1"},"Action":{"SqlExpression":"SOT a=1"}}`): "action: ",
		rule(`{"FilterType":"Correlation"}`):                                                                  "Properties.CorrelationFilter: is missing",
		rule(`{"FilterType":"Correlation","CorrelationFilter":{"Properties":{"a":[1]}}}`):                     "CorrelationFilter.Properties.a: a value is a boolean",
		`{"UserConfig":{"Namespaces":[{"Name":"a"},{"Name":"a b"}]}}`:                                         `Namespaces[1].Name: "a b": a namespace has 1 to 50 letters`,
		`{"UserConfig":{"Namespaces":[{"Name":"a"},{"Name":"A"}]}}`:                                           `Namespaces[1].Name: the namespace "A" is in the file already`,
		`{"UserConfig":{"Namespaces":[{"Name":"a"},{"Name":"Default"}]}}`:                                     "what the first namespace of the file becomes",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.120s\n  says %v\n  want %s", text, err, want)
		}
	}
	if _, err := Parse(make([]byte, fileBytesMax+1)); err == nil || !strings.Contains(err.Error(), "larger than 1 MiB") {
		t.Error(err)
	}
	many := `{"UserConfig":{"Namespaces":[{"Queues":[` + strings.Repeat(`{},`, 1000) + `]}]}}`
	if _, err := Parse([]byte(many)); err == nil || strings.Count(err.Error(), "\n") != errorsMax-1 {
		t.Error(err)
	}
}

// A file that is too large is not read to its end; a missing file is an error.
func TestLargeFilesAreRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "c.json")
	if err := os.WriteFile(path, []byte(strings.Repeat(" ", fileBytesMax+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "larger than 1 MiB") || !strings.Contains(err.Error(), path) {
		t.Error(err)
	}
	if _, err := Read(path + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// Unknown fields, and values that are raised to the minimum, cause warnings.
func TestUnknownFieldsAndRaisedValuesAreWarnedOf(t *testing.T) {
	t.Parallel()
	file := parse(t, "\uFEFF"+`{"UserConfig":{"Namespaces":[{"Queues":[{"Name":"a/b","Propertys":1,"Properties":{"DuplicateDetectionHistoryTimeWindow":"PT5S","ForwardTo":null}}],
		"Topics":null}],"Logging":{"Type":"Console"}},"Extra":"// no comment, /* nor this */ ,]",}`)
	want := []string{
		"Extra: unknown and ignored",
		"Namespaces[0].Queues[0].Properties.DuplicateDetectionHistoryTimeWindow: 5s is raised to 20s, the shortest window",
		"Namespaces[0].Queues[0].Propertys: unknown and ignored",
	}
	if diff := cmp.Diff(want, file.Warnings); diff != "" {
		t.Error(diff)
	}
	many := `{"UserConfig":{"Namespaces":[{"Queues":[`
	for i := range warningsMax + 5 {
		many += fmt.Sprintf(`{"Name":"q%d","X":1},`, i)
	}
	file = parse(t, many+`]}]}}`)
	if n := len(file.Warnings); n != warningsMax+1 || file.Warnings[n-1] != "and 5 more" {
		t.Error(n, file.Warnings[n-1])
	}
}

// The largest file is read quickly, whatever it contains.
func TestLargestFileIsParsedQuickly(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"//\n", "/**/", "[", "{\"a\":", `{"UserConfig":{"Namespaces":[{"Queues":[{"Name":"`, ","} {
		began := time.Now()
		_, _ = Parse([]byte(strings.Repeat(text, fileBytesMax/len(text))))
		// 10 ms on an idle machine; anything quadratic in a MiB takes far longer.
		if took := time.Since(began); took > 60*time.Second {
			t.Errorf("%q: %s", text, took)
		}
	}
}

// Reading a file never panics, whatever it contains, and accepted entities have names.
func FuzzParse(f *testing.F) {
	data, err := os.ReadFile(filepath.Join("testdata", "Config.json"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"UserConfig":{"Namespaces":[{"Name":"a"},{"Name":"b","Queues":[{"Name":"q",}]} // x` + "\n]}}"))
	f.Add([]byte(`"\`))
	f.Add([]byte(`/*`))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse(data)
		if err != nil {
			return
		}
		for i, n := range file.namespaces {
			if i > 0 && n.name == "" {
				t.Error("a namespace without a name")
			}
			for _, e := range n.entities {
				if e.name == "" {
					t.Error("an entity without a name")
				}
			}
		}
	})
}

// The built-in configuration has the entities of the official emulator's sample.
func TestDefaultIsTheSampleOfTheEmulator(t *testing.T) {
	t.Parallel()
	h, file := newFakeCluster(), Default()
	if err := file.Check(); err != nil || len(file.Warnings) > 0 {
		t.Error(err, file.Warnings)
	}
	apply(t, h, file, Report{Created: 6})
	for name, want := range map[string]string{
		"subscription.1": "app-prop-filter-1", "subscription.2": "user-prop-filter-1", "subscription.3": fsm.DefaultRuleName, "subscription.4": "sql-filter-1",
	} {
		if diff := cmp.Diff([]string{want}, h.ruleNames("topic.1/Subscriptions/"+name)); diff != "" {
			t.Error(name, diff)
		}
	}
}

// The file takes what administration takes: its names, its settings, and the durations of templates.
func TestFileTakesWhatAdministrationTakes(t *testing.T) {
	t.Parallel()
	h, file := newFakeCluster(), parse(t, `{"UserConfig":{"Namespaces":[{"Name":"sb-shop-dev","Queues":[{"Name":"MassTransit/Fault--Ns/Msg--"},{"Name":"queue_"},{"Name":"my~queue"},
		{"Name":"all","Properties":{"DefaultMessageTimeToLive":"P10675199DT2H48M5.477S","AutoDeleteOnIdle":"PT10M","EnablePartitioning":true,"Status":"SendDisabled",
			"MaxSizeInMegabytes":"2048","MaxMessageSizeInKilobytes":512,"EnableBatchedOperations":false,"SupportOrdering":true,"EnableExpress":"false","UserMetadata":"", "LockDuration":""}},
		{"Name":"month","Properties":{"DefaultMessageTimeToLive":"P1M"}},{"Name":"year","Properties":{"DefaultMessageTimeToLive":"P1Y"}}],
		"Topics":[{"Name":"t","Subscriptions":[{"Name":"sub_","Properties":{"AutoDeleteOnIdle":"P7D"}},{"Name":"sub-"}]}]}]}}`)
	if err := file.Check(); err != nil || len(file.Warnings) > 0 {
		t.Error(err, file.Warnings)
	}
	apply(t, h, file, Report{Created: 9})
	want := (&task{resource: &resource{kind: fsm.QueueEntity}}).defaults()
	want.AutoDeleteOnIdle, want.EnablePartitioning, want.Status = 600_000, true, fsm.SendDisabled
	want.MaxBytes, want.MaxMessageBytes = 2<<30, 512<<10
	want.BatchedOperations, want.Ordering = fsm.Choose(false), fsm.Choose(true)
	if diff := cmp.Diff(want, h.entities["1/all"].Settings); diff != "" {
		t.Error(diff)
	}
	for name, days := range map[string]fsm.Millis{"month": 30, "year": 365} {
		if got, want := h.entities["1/"+name].Settings.DefaultTimeToLive, days*86_400_000; got != want {
			t.Errorf("%s: time to live %d, want %d", name, got, want)
		}
	}
}

// Objects that were written to a file have an empty text for each of the eight system properties that they do not set.
func TestEmptySystemConditionsAreAbsent(t *testing.T) {
	t.Parallel()
	file := parse(t, `{"UserConfig":{"Namespaces":[{"Topics":[{"Name":"t","Subscriptions":[{"Name":"s","Rules":[{"Name":"r","Properties":{"FilterType":"Correlation",
		"CorrelationFilter":{"ContentType":"","CorrelationId":"","Label":"order","MessageId":"","ReplyTo":"","ReplyToSessionId":"","SessionId":"","To":"","Properties":{"a":""}}}}]}]}]}]}}`)
	got := file.namespaces[0].entities[1].rules[0].Filter.Conditions
	want := []filter.Condition{
		{Property: filter.Property{Name: filter.Label, Scope: filter.System}, Value: filter.Text("order")},
		{Property: filter.Property{Name: "a"}, Value: filter.Text("")},
	}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("conditions %+v, want %+v", got, want)
	}
}

// A cluster refuses settings beyond the limits of its namespace, which may be raised, and what excludes each other.
func TestCheckFindsWhatAnEmptyClusterRefuses(t *testing.T) {
	t.Parallel()
	for properties, want := range map[string]string{
		`"LockDuration":"PT6M"`:                               "Namespaces[0].Queues[0].Properties.LockDuration: is PT1S to PT5M, not PT6M",
		`"ForwardTo":"other"`:                                 `Namespaces[0].Queues[0].Properties.ForwardTo: "other" is not a queue or topic of the file`,
		`"ForwardTo":"a","RequiresSession":true`:              "Namespaces[0].Queues[0].Properties.ForwardTo: an entity that requires sessions cannot forward its messages",
		`"ForwardDeadLetteredMessagesTo":"a"`:                 "",
		`"ForwardDeadLetteredMessagesTo":"t/Subscriptions/s"`: `messages can be forwarded to a queue or topic, and "t/Subscriptions/s" is a subscription`,
	} {
		err := parse(t, `{"UserConfig":{"Namespaces":[{"Queues":[{"Name":"a","Properties":{`+properties+`}}],"Topics":[{"Name":"t","Subscriptions":[{"Name":"s"}]}]}]}}`).Check()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", properties, err, want)
		}
	}
}

// A lenient reader leaves out the values, entities and rules that have mistakes, each with a warning.
func TestLenientReaderLeavesOutMistakes(t *testing.T) {
	t.Parallel()
	file, err := ParseLenient([]byte(`{"UserConfig":{"Namespaces":[{"Name":"n","Queues":[{"Name":"a","Properties":{"LockDuration":"PT0S","MaxDeliveryCount":7}},{"Name":"b c"},{"Name":"A"}],
		"Topics":[{"Name":"t","Subscriptions":[{"Name":"s","Rules":[{"Name":"r","Properties":{}},{"Name":"r2","Properties":{"FilterType":"Sql","SqlFilter":{"SqlExpression":"1=1"}}}]}]},
		{"Name":"t t","Subscriptions":[{"Name":"s"}]}]},{"Name":"-"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	h := newFakeCluster()
	apply(t, h, file, Report{Created: 3})
	if a := h.entities["1/a"].Settings; a.LockDuration != 60_000 || a.MaxDeliveryCount != 7 {
		t.Errorf("a has a lock of %d and %d deliveries, want 60000 and 7", a.LockDuration, a.MaxDeliveryCount)
	}
	if diff := cmp.Diff([]string{"r2"}, h.ruleNames("t/Subscriptions/s")); diff != "" {
		t.Error(diff)
	}
	if len(file.Warnings) != 6 {
		t.Errorf("warnings: %q, want 6", file.Warnings)
	}
	if _, err := ParseLenient([]byte(`{`)); err == nil {
		t.Error("a text that is not JSON was read")
	}
}
