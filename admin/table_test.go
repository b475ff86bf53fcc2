package admin

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/admin/inspect"
	"github.com/peeklock/peeklock/admin/operation"
	"github.com/peeklock/peeklock/amqp/account"
	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/amqp/work"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/topology"
)

// generousControl answers every request with as much as it may.
type generousControl struct {
	*fakeControl

	all      map[fsm.EntityKind][]fsm.Entity
	counts   []fsm.Counts
	rules    []fsm.Rule
	sessions []fsm.Session
	spaces   []fsm.Namespace
	seen     topology.Status
}

// worst is a text of so many characters that take the most bytes in JSON and XML.
func worst(characters int) string { return strings.Repeat("<", characters) }

// newGenerousControl returns a control with so many entries of each kind.
func newGenerousControl(entries int) *generousControl {
	c := &generousControl{fakeControl: newFakeControl(), all: make(map[fsm.EntityKind][]fsm.Entity), counts: make([]fsm.Counts, entries)}
	var access []fsm.AccessRule
	for i := range 12 {
		name := fmt.Sprintf("%0256d", i)
		access = append(access, fsm.AccessRule{Name: name, Primary: worst(256), Secondary: worst(256), Rights: fsm.Manage})
	}
	for _, kind := range []fsm.EntityKind{fsm.QueueEntity, fsm.TopicEntity, fsm.SubscriptionEntity} {
		for i := range entries {
			e := fsm.Entity{Kind: kind, Name: fmt.Sprintf("%0260d", i), Settings: fsm.DefaultSettings()}
			e.Settings.UserMetadata, e.Settings.ForwardTo, e.Settings.ForwardDeadLettersTo = worst(1024), e.Name, e.Name
			if kind == fsm.SubscriptionEntity {
				e.Name = fsm.SubscriptionPath("t", fmt.Sprintf("%050d", i))
			} else {
				e.Access = access[:1]
			}
			c.all[kind] = append(c.all[kind], e)
		}
	}
	for i := range min(entries, pageRulesMax) {
		c.rules = append(c.rules, fsm.Rule{
			Name:   fmt.Sprintf("%050d", i),
			Filter: fsm.RuleFilter{Kind: fsm.SQLFilter, SQL: fsm.SQLText{Text: "'" + worst(1000) + "' = sys.Label"}},
			Action: fsm.SQLText{Text: "SET a = '" + worst(1000) + "'"},
		})
	}
	for range entries {
		c.sessions = append(c.sessions, fsm.Session{ID: worst(512), Until: 1, Updated: 1})
	}
	for i := range entries {
		n := fsm.Namespace{Name: fmt.Sprintf("n%049d", i), Settings: fsm.NamespaceSettings{UserMetadata: worst(1024), Hosts: slices.Repeat([]string{strings.Repeat("h", 253)}, 16)}}
		c.spaces = append(c.spaces, n)
	}
	c.namespace.Access = access
	for i := range 100 {
		c.seen.Members = append(c.seen.Members, topology.Member{ID: fsm.MemberID(fmt.Sprint(i)), Name: fmt.Sprintf("member-%d", i), State: topology.Alive, AMQP: "host:5672", HTTP: "host:5300"})
	}
	for i := range 2000 {
		c.seen.Partitions = append(c.seen.Partitions, topology.Partition{ID: fsm.PartitionID(i), Leader: "1", Replicas: []fsm.MemberID{"1", "2", "3"}})
	}
	for name, kind := range map[string]fsm.EntityKind{"q": fsm.QueueEntity, "sessions": fsm.QueueEntity, "t": fsm.TopicEntity} {
		e := fsm.Entity{Kind: kind, Name: name, Settings: fsm.DefaultSettings(), Access: access}
		e.Settings.RequiresSession = name == "sessions"
		c.entities[name] = e
	}
	c.entities["t/subscriptions/s"] = fsm.Entity{Kind: fsm.SubscriptionEntity, Name: "t/Subscriptions/s", Settings: fsm.DefaultSettings()}
	return c
}

func (c *generousControl) In(fsm.NamespaceID) NamespaceView { return c }

func (c *generousControl) Entities(_ context.Context, kind fsm.EntityKind, under, _ string, most int) ([]fsm.Entity, error) {
	if under != "" { // few subscriptions, or a rule test would not end
		most = min(most, 25)
	}
	return c.all[kind][:min(most, len(c.all[kind]))], nil
}

func (c *generousControl) Counts(_ context.Context, of []fsm.Entity) ([]fsm.Counts, error) {
	return c.counts[:len(of)], nil
}

func (c *generousControl) Rules(_ context.Context, path string, skip, most int) ([]fsm.Rule, error) {
	if skip >= 2*pageRulesMax {
		return nil, nil
	}
	return c.rules[:min(most, len(c.rules))], nil
}

func (c *generousControl) Sessions(_ context.Context, _ string, _, most int) ([]fsm.Session, error) {
	return c.sessions[:min(most, len(c.sessions))], nil
}

func (c *generousControl) Namespaces(_ context.Context, _ string, most int) ([]fsm.Namespace, error) {
	return c.spaces[:min(most, len(c.spaces))], nil
}

func (c *generousControl) Namespace(_ context.Context, _ string) (fsm.Namespace, error) {
	return c.spaces[0], nil
}

func (c *generousControl) CreateNamespace(_ context.Context, name string, settings fsm.NamespaceSettings, rules []fsm.AccessRule) (fsm.Namespace, error) {
	return fsm.Namespace{Name: name, Settings: settings, Access: rules}, nil
}

func (c *generousControl) UpdateNamespace(context.Context, string, fsm.NamespaceSettings) (fsm.Namespace, error) {
	return c.spaces[0], nil
}
func (*generousControl) DeleteNamespace(context.Context, string) error     { return nil }
func (c *generousControl) Status(context.Context) (topology.Status, error) { return c.seen, nil }
func (*generousControl) SetAccess(context.Context, string, uint64, []fsm.AccessRule) error {
	return nil
}
func (*generousControl) PutRule(context.Context, string, fsm.Rule, bool) error      { return nil }
func (*generousControl) DropRule(context.Context, string, string) error             { return nil }
func (*generousControl) DeleteEntity(context.Context, fsm.EntityKind, string) error { return nil }
func (*generousControl) PurgeEntity(context.Context, string, fsm.SubQueue, time.Time, int) (int, error) {
	return purgeMessagesMax, nil
}

// Connections returns a page of as many connections and links as one may have.
func (*generousControl) Connections(context.Context, fsm.NamespaceID, string, int) (topology.ConnectionPage, error) {
	links := slices.Repeat([]topology.Link{{Name: strings.Repeat("n", 64), Entity: strings.Repeat("e", 64), Role: topology.Sender}}, topology.ConnectionLinksMax)
	return topology.ConnectionPage{Connections: slices.Repeat([]topology.Connection{{ID: "a-1", Links: links}}, topology.ConnectionsMax)}, nil
}

func (*generousControl) CloseConnection(context.Context, fsm.NamespaceID, string) error { return nil }

// Rates returns the samples of an hour, and the rates of as many entities as an answer may have.
func (*generousControl) Rates(_ context.Context, q topology.RatesQuery) []topology.EntityRates {
	list := []topology.EntityRates{{Name: q.Name, Samples: slices.Repeat([]topology.Sample{{Incoming: 1 << 30, Outgoing: 1 << 30, Completed: 1 << 30, Active: 1 << 30}}, topology.RateSamplesMax)}}
	if q.Name != "" {
		return list
	}
	return append(list, slices.Repeat([]topology.EntityRates{{Name: strings.Repeat("x", 260)}}, ratesMax)...)
}

// Audit returns as many events as a page may have.
func (*generousControl) Audit(context.Context, string, int) (topology.AuditPage, error) {
	fields := make(map[string]string)
	for i := range 10 {
		fields[fmt.Sprint("field", i)] = worst(400)
	}
	return topology.AuditPage{Events: slices.Repeat([]topology.AuditEvent{{Event: "admin_change", Fields: fields}}, topology.AuditPageMax)}, nil
}

// Storage returns the disks of many members, and the backups of many partitions.
func (*generousControl) Storage(context.Context) topology.Storage {
	return topology.Storage{
		Members: slices.Repeat([]topology.MemberStorage{{ID: "0123456789abcdef", Name: strings.Repeat("x", 63), DiskBytes: 1 << 60, FreeBytes: 1 << 59}}, 100),
		Backups: slices.Repeat([]topology.Backup{{Partition: 1 << 30, At: time.Now(), Bytes: 1 << 60}}, 10_000),
	}
}

// Figures returns as many rows as a stream may have.
func (*generousControl) Figures(context.Context, topology.FiguresQuery) topology.Figures {
	rows := slices.Repeat([]topology.EntityFigures{{Name: strings.Repeat("x", 260), Kind: "subscription"}}, streamRowsMax)
	return topology.Figures{Deepest: rows[:topology.FiguresDeepestMax], DeadLettered: rows[:topology.FiguresDeepestMax], Rows: rows}
}

func (*generousControl) CreateEntity(_ context.Context, kind fsm.EntityKind, name string, s fsm.EntitySettings, _ *fsm.Rule, access []fsm.AccessRule) (fsm.Entity, error) {
	return fsm.Entity{Kind: kind, Name: name, Settings: s, Access: access}, nil
}

// generousMessages is a queue without end.
type generousMessages struct {
	fakeMessages

	page []fsm.Delivery
}

// newGenerousMessages returns a queue of messages with so many bytes.
func newGenerousMessages(t *testing.T, control *fakeControl, bytes int) *generousMessages {
	t.Helper()
	var buffer []byte
	stored, err := message.ParseWithID(&buffer, wire.AppendBinary(wire.AppendSectionDescriptor(nil, wire.SectionData), []byte(strings.Repeat("x", bytes))))
	if err != nil {
		t.Fatal(err)
	}
	m := &generousMessages{fakeMessages: fakeMessages{control: control}, page: make([]fsm.Delivery, 500)}
	for i := range m.page {
		m.page[i].Payload = stored.Payload
	}
	return m
}

func (m *generousMessages) Peek(_ context.Context, _ fsm.EntityRef, from fsm.SequenceNumber, most, mostBytes int) ([]fsm.Delivery, error) {
	page := m.page[:min(most, max(1, mostBytes/len(m.page[0].Payload)))]
	for i := range page {
		page[i].Lock.Sequence = from + fsm.SequenceNumber(i)
	}
	return page, nil
}

func (*generousMessages) SettleUnlocked(_ context.Context, _ fsm.EntityRef, numbers []fsm.SequenceNumber, _ fsm.Verb, _ fsm.StateSet) (int, error) {
	return len(numbers), nil
}

func (*generousMessages) Redrive(_ context.Context, _ fsm.EntityRef, numbers []fsm.SequenceNumber) (int, error) {
	return len(numbers), nil
}

func (*generousMessages) StateOfSession(context.Context, fsm.EntityRef, string) ([]byte, error) {
	return make([]byte, 256<<10), nil
}

func (*generousMessages) SetStateOfSession(context.Context, fsm.EntityRef, string, []byte) error {
	return nil
}

func (*generousMessages) ReleaseSession(context.Context, fsm.EntityRef, string) (bool, error) {
	return true, nil
}

// largest is the largest request of an operation. The path has its query.
type largest struct {
	path, body string
	header     map[string]string
	more       int // units that it pays while it reads
}

// maximalControl returns the largest requests of the control API, by operation.
func maximalControl() map[string]largest {
	quoted := func(n int) string { return `"` + strings.Repeat("x", n) + `"` }
	settings := `{"userMetadata":` + quoted(1024) + `}`
	sql := `{"kind":"sql","expression":"a in (` + strings.Repeat("1,", 126) + `1)"}`
	rule := `{"filter":` + sql + `,"action":{"expression":"SET a = '` + strings.Repeat("x", 1000) + `'"}}`
	key := `{"rights":["Manage"],"primaryKey":` + quoted(256) + `,"secondaryKey":` + quoted(256) + `}`
	change := `{"where":"size = 1","states":["active"]}`
	body := `{"body":` + quoted(120<<10) + `}`
	requests := map[string]largest{
		"getRules":   {path: "/t/Subscriptions/s?max=200&skip=0"},
		"putRule":    {path: "/t/Subscriptions/s?name=r&replace=true", body: rule},
		"deleteRule": {path: "/t/Subscriptions/s?name=r"},
		"testRules":  {path: "/t", body: body, more: 25 * 400 / testedPerUnit},

		"peekMessages":       {path: "/q?max=1000&bodyBytes=4194304"},
		"tailMessages":       {path: "/q?after=1&max=1000&bodyBytes=4194304"},
		"purgeMessages":      {path: "/q", body: `{"max":4000}`},
		"redriveMessages":    {path: "/q", body: change},
		"deleteMessages":     {path: "/q", body: change},
		"cancelMessages":     {path: "/q", body: `{"where":"size = 1"}`},
		"undeferMessages":    {path: "/q", body: `{"where":"size = 1"}`},
		"listSessions":       {path: "/sessions?max=1000&skip=2000000000"},
		"getSessionState":    {path: "/sessions?session=s"},
		"putSessionState":    {path: "/sessions?session=s", body: `{"state":` + quoted(120<<10) + `}`},
		"deleteSessionState": {path: "/sessions?session=s"},
		"releaseSession":     {path: "/sessions?session=s"},

		"listConnections": {path: "?max=500"},
		"closeConnection": {path: "a-1"},
		"listAudit":       {path: "?max=500"},
		"streamEvents":    {path: "?max=1&entities=" + strings.Repeat(strings.Repeat("x", 100)+",", streamRowsMax-1) + "q"},
		"listRates":       {path: "?max=1000&total=true"},
		"getRates":        {path: "/q"},

		"getDescription":  {},
		"listEndpoints":   {},
		"listNamespaces":  {path: "?max=1000"},
		"getNamespace":    {path: "n"},
		"createNamespace": {path: "n", body: `{"userMetadata":` + quoted(1024) + `}`},
		"updateNamespace": {path: "n", body: `{"userMetadata":` + quoted(1024) + `}`},
		"deleteNamespace": {path: "n"},

		"getAccess":             {},
		"putAccess":             {path: "?rule=" + fmt.Sprintf("%0256d", 1) + "&replace=true", body: key},
		"deleteAccess":          {path: "?rule=" + fmt.Sprintf("%0256d", 1)},
		"regenerateKey":         {body: `{"rule":"` + fmt.Sprintf("%0256d", 1) + `","which":"primary"}`},
		"getAccessOfEntity":     {path: "/q"},
		"putAccessOfEntity":     {path: "/q?rule=" + fmt.Sprintf("%0256d", 1) + "&replace=true", body: key},
		"deleteAccessOfEntity":  {path: "/q?rule=" + fmt.Sprintf("%0256d", 1)},
		"regenerateKeyOfEntity": {path: "/q", body: `{"rule":"` + fmt.Sprintf("%0256d", 1) + `","which":"primary"}`},

		"getStatus": {}, "getStorage": {}, "listConditions": {}, "listMembers": {}, "listMoves": {}, "planRebalance": {}, "addPartitions": {body: `{"add":1024}`}, "confirmTime": {},
		"updateMember": {path: "a", body: `{"weight":100}`}, "drainMember": {path: "a"}, "undrainMember": {path: "a"}, "removeMember": {path: "a"}, "replaceMember": {path: "a", body: `{"with":"b"}`},
		"movePartition": {path: "1", body: `{"members":["a","b","1"]}`}, "pauseMove": {path: "1"}, "resumeMove": {path: "1"}, "cancelMove": {path: "1"}, "transferLeader": {path: "1", body: `{"to":"a"}`},
		"logNote": {body: `{"source":"s","text":` + quoted(1024) + `}`}, "rebalance": {body: `{"moves":[` + strings.Repeat(`{"partition":1,"from":["1"],"to":["2"]},`, 255) + `{"partition":1,"from":["1"],"to":["2"]}]}`},
		"holdFormatLevel": {body: `{"max":1}`}, "verifyPartition": {path: "1"}, "backUpPartition": {path: "1"},
	}
	for one, name := range map[string]string{"Queue": "/q", "Topic": "/t", "Subscription": "/t/Subscriptions/s"} {
		requests["list"+one+"s"] = largest{path: "?max=1000&counts=true&available=true"}
		requests["get"+one] = largest{path: name}
		requests["create"+one] = largest{path: name, body: settings}
		requests["update"+one] = largest{path: name, body: settings}
		requests["delete"+one] = largest{path: name}
	}
	requests["listSubscriptions"] = largest{path: "?max=1000&counts=true&topic=t"}
	return requests
}

// maximalATOM returns the largest requests of the administration API, by operation.
func maximalATOM() map[string]largest {
	update := map[string]string{"If-Match": "*"}
	queue := entryOf("QueueDescription", "<UserMetadata>"+strings.Repeat("x", 1024)+"</UserMetadata>")
	name := fmt.Sprintf("%050d", 7)
	rule := entryOf("RuleDescription", `<Filter i:type="SqlFilter"><SqlExpression>a = 1</SqlExpression></Filter><Name>`+name+`</Name>`)
	const rules = "/t/Subscriptions/s/Rules"
	return map[string]largest{
		"getNamespaceInfo": {path: "/$namespaceinfo"}, "listEntities": {path: "/$Resources/Queues?$top=400&$skip=600", more: 1000 / entriesPerUnit},
		"getEntity": {path: "/q"}, "createEntity": {path: "/q", body: queue}, "updateEntity": {path: "/q", body: queue, header: update}, "deleteEntity": {path: "/q"},
		"listRules": {path: rules + "?$top=400", more: 400 / entriesPerUnit}, "createDefaultRule": {path: rules, body: rule}, "getRule": {path: rules + "/" + name},
		"createRule":  {path: rules + "/" + name, body: rule},
		"replaceRule": {path: rules + "/" + name, body: rule, header: update},
		"deleteRule":  {path: rules + "/r"},
	}
}

// counted is an answer of which only the status and the number of bytes are kept, and the beginning.
type counted struct {
	head   http.Header
	status int
	bytes  int
	begin  []byte
}

func (c *counted) Header() http.Header    { return c.head }
func (c *counted) WriteHeader(status int) { c.status = status }
func (c *counted) Write(b []byte) (int, error) {
	if c.bytes == 0 {
		c.begin = append(c.begin, b[:min(len(b), 200)]...)
	}
	c.bytes += len(b)
	return len(b), nil
}

// Every operation at its limits succeeds with a status of its row, allocates no more than it is charged for, answers with no more
// than its bound, and leaves nothing behind. A row without a maximal request fails, and so does one that takes an unknown parameter.
//
//nolint:paralleltest // it measures what the process allocates
func TestOperationsOverHTTPAtTheirLimits(t *testing.T) {
	s := newTestServer(t)
	s.server.onClose(func() {})()                                          // so that what it waits for is not part of the bubble
	synctest.Test(t, func(t *testing.T) { operationsAtTheirLimits(t, s) }) // requests wait until they are paid
}

func operationsAtTheirLimits(t *testing.T, s *testServer) {
	t.Helper()
	control := newGenerousControl(pageEntitiesMax)
	operations := newFakeOperations()
	operations.copies = func(_ context.Context, w io.Writer) error {
		_, err := w.Write(make([]byte, 1<<20))
		return err
	}
	control.Operations = operations
	messages := newGenerousMessages(t, control.fakeControl, 2000)
	c := s.server.core
	c.work = work.NewShared(work.NewLimiter(workPerSecondPerProcessor, workPerSecondPerProcessor/workBurstsPerSecond))
	outside := c.streams
	c.streams = newStreams(control)
	defer func() { c.streams.running.Wait(); c.streams = outside }()
	c.config.Control, c.config.Accounts = control, account.New(account.For(1<<30))
	c.config.Finder = inspect.New(messages)
	sign := auth.Sign("http://localhost/", "root", "root-secret", time.Now().Add(10_000*time.Hour))

	later := make(map[string]int) // units that a request pays when it is done, by operation
	check := func(o *operation.Operation, request largest, serve http.Handler) {
		var held *slot
		handler := c.limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			held = slotOf(r)
			serve.ServeHTTP(w, r)
		}))
		var answer *counted
		target, err := url.Parse("http://localhost" + request.path)
		if err != nil {
			t.Fatal(err)
		}
		perform := func() {
			<-time.After(time.Hour) // its owner owes nothing
			r := httptest.NewRequest(o.Method(), target.String(), strings.NewReader(request.body))
			r.RemoteAddr = "10.0.0.9:1"
			r.Header.Set("Authorization", sign)
			for name, value := range request.header {
				r.Header.Set(name, value)
			}
			answer = &counted{head: make(http.Header), status: http.StatusOK}
			handler.ServeHTTP(answer, r)
			operations.last()
		}
		each, retained := kit.Allocation(1, perform)
		query := target.Query()
		if !slices.Contains(o.Succeeds(), answer.status) {
			t.Errorf("%s is answered with %d: %s", o.Name, answer.status, answer.begin)
			return
		}
		later[o.Name] = held.due
		units := costOf(&http.Request{Method: o.Method()}) + o.WorkOf(query) + held.due + request.more + answer.bytes/answerUnitBytes
		t.Logf("%-22s %6d units, %9d bytes allocated, %6d a unit, answer of %8d bytes", o.Name, units, each, each/units, answer.bytes)
		most := units * kit.UnitBytesMax
		if kit.RaceDetector {
			most *= 2 // pools drop buffers at random
		}
		if each > most {
			t.Errorf("%s allocates %d bytes for %d units: %d for each", o.Name, each, units, each/units)
		}
		if most = o.AnswerBytesMax(query); answer.bytes > most && o.Name != "backUpPartition" {
			t.Errorf("%s: an answer of %d bytes, bound is %d", o.Name, answer.bytes, most)
		}
		if retained > kit.RetainedBytesMax || c.config.Accounts.Used(account.HTTPBytes) != 0 || len(c.requests) != 0 {
			t.Errorf("%s leaves %d bytes behind, counts %d and holds %d slots", o.Name, retained, c.config.Accounts.Used(account.HTTPBytes), len(c.requests))
		}
	}
	requests := maximalControl()
	api := &controlAPI{c}
	for _, to := range api.routes() {
		request, ok := requests[to.Name]
		if !ok {
			t.Errorf("%s has no maximal request: add one", to.Name)
			continue
		}
		delete(requests, to.Name)
		request.path = fillPath(to.Path(), request.path)
		mux := http.NewServeMux()
		mux.HandleFunc(to.Pattern, api.serveRoute(&to))
		check(&to.Operation, request, mux)
		separator := "?"
		if strings.Contains(request.path, "?") {
			separator = "&"
		}
		if status, text := s.request(to.Method(), request.path+separator+"misspelt=1", "", nil); status != http.StatusBadRequest || !strings.Contains(text, "misspelt") {
			t.Errorf("%s takes an unknown parameter: %d %s", to.Name, status, text)
		}
	}
	if peeked, tailed := later["peekMessages"], later["tailMessages"]; peeked == 0 || tailed != peeked {
		t.Errorf("a tail pays %d units for the messages that it looked at, want %d as a peek", tailed, peeked)
	}
	service := newServiceAPI(c)
	atomRequests := maximalATOM()
	for key, to := range service.routes {
		request, ok := atomRequests[to.Name]
		if !ok {
			t.Errorf("%s of the administration API has no maximal request: add one", to.Name)
			continue
		}
		if key.replaces != (request.header != nil) {
			t.Errorf("%s: the request does not match its row", to.Name)
		}
		delete(atomRequests, to.Name)
		check(&to.Operation, request, http.HandlerFunc(service.serveATOM))
	}
	for _, left := range []map[string]largest{requests, atomRequests} {
		for name := range left {
			t.Errorf("there is no operation %s", name)
		}
	}
}

// fillPath returns the path of a pattern with a name, an id or a query.
func fillPath(pattern, with string) string {
	before, after, found := strings.Cut(pattern, "{name}")
	if found {
		return before + with + after
	}
	before, _, _ = strings.Cut(pattern, "/{name...}")
	return before + with
}
