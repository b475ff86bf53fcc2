package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/amqp/account"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

// host sends requests to a server under a host name other than localhost.
func host(name string) func(*http.Request) {
	return func(r *http.Request) { r.Host = name }
}

func TestNamespacesAreCreatedChangedAndDeleted(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	for _, step := range []struct {
		method, path, body string
		change             func(*http.Request)
		status             int
		want               string
	}{
		{"GET", "/v1/namespaces/default", "", nil, 200, `{"name":"default","hosts":[],"maxMessageBytes":0,"maxLockDuration":"5m0s","maxEntities":0,"maxBytes":0,"maxMessages":0,"maxRules":0,"userMetadata":"","version":1,`},
		{"PUT", "/v1/namespaces/Orders", `{"hosts":["SB.example.com."],"maxMessageBytes":65536,"maxLockDuration":"2h"}`, nil, 201, `{"name":"Orders","hosts":["sb.example.com"],"maxMessageBytes":65536,"maxLockDuration":"2h0m0s","maxEntities":0,`},
		{"PUT", "/v1/namespaces/orders", "", nil, 409, `"code":"EntityExists"`},
		{"GET", "/v1/namespaces?max=1", "", nil, 200, `"next":"default"`},
		{"GET", "/v1/namespaces?after=default", "", nil, 200, `{"namespaces":[{"name":"Orders",`},
		{"PATCH", "/v1/namespaces/orders", `{"maxEntities":9,"maxBytes":10737418240,"maxMessages":7,"maxRules":8,"userMetadata":"ours"}`, nil, 200, `"hosts":["sb.example.com"],"maxMessageBytes":65536,"maxLockDuration":"2h0m0s","maxEntities":9,"maxBytes":10737418240,"maxMessages":7,"maxRules":8,"userMetadata":"ours","version":2`},
		{"PATCH", "/v1/namespaces/orders", `{"hosts":[]}`, nil, 200, `"hosts":[],`},
		{"PATCH", "/v1/namespaces/none", `{}`, nil, 404, `there is no namespace 'none'`},

		// Every way to select a namespace refers to the entities of that namespace; defaults respect its
		// limits.
		{"PUT", "/v1/queues/q?namespace=orders", "", nil, 201, `"maxMessageBytes":65536`},
		{"GET", "/v1/queues/q", "", host("ORDERS.localhost:5300"), 200, `"name":"q"`},
		{"GET", "/q", "", host("orders.localhost"), 200, `<MaxMessageSizeInKilobytes>64</MaxMessageSizeInKilobytes>`},
		{"GET", "/v1/queues/q", "", nil, 404, `'q' could not be found`},
		{"GET", "/v1/queues?namespace=orders&max=9", "", nil, 200, `"name":"q"`},
		{"GET", "/v1/queues?namespace=default", "", host("orders.localhost"), 200, `{"queues":[]}`},
		{"GET", "/v1/queues?namespace=none", "", nil, 404, `there is no namespace 'none'`},
		{"GET", "/v1/queues?namespace=", "", nil, 400, `the name of a namespace`},
		{"PATCH", "/v1/queues/q?namespace=orders", `{"lockDuration":"2h"}`, nil, 200, `"lockDuration":"2h0m0s"`},
		{"PATCH", "/v1/queues/q?namespace=orders", `{"lockDuration":"2h1s"}`, nil, 400, `lockDuration is 1s to 2h0m0s`},
		{"PATCH", "/v1/queues/q?namespace=orders", `{"maxMessageBytes":65537}`, nil, 400, `maxMessageBytes is 1024 to 65536`},
		{"PUT", "/big", entryOf("QueueDescription", "<MaxMessageSizeInKilobytes>65</MaxMessageSizeInKilobytes>"), host("orders.localhost"), 400, "MaxMessageSizeInKilobytes 65: this property can only be set in a Premium namespace"},

		// A setting above a limit that was lowered later may remain.
		{"PATCH", "/v1/namespaces/orders", `{"maxLockDuration":"0s","maxMessageBytes":1024}`, nil, 200, `"maxLockDuration":"5m0s"`},
		{"PATCH", "/v1/queues/q?namespace=orders", `{"lockDuration":"2h","maxMessageBytes":65536,"maxDeliveryCount":3}`, nil, 200, `"maxDeliveryCount":3`},
		{"PATCH", "/v1/queues/q?namespace=orders", `{"lockDuration":"2h1s"}`, nil, 400, `lockDuration is 1s to 2h0m0s`},

		{"GET", "/$namespaceinfo", "", host("orders.localhost"), 200, `<CreatedTime>2026-11-20T`},
		{"GET", "/$namespaceinfo", "", host("orders.localhost"), 200, `<MessagingSKU>Standard</MessagingSKU><ModifiedTime>2026-11-20T`},
		{"PATCH", "/v1/namespaces/orders", `{"maxMessageBytes":262145}`, nil, 200, `"maxMessageBytes":262145`},
		{"GET", "/$namespaceinfo", "", host("orders.localhost"), 200, `<MessagingSKU>Premium</MessagingSKU><MessagingUnits>1</MessagingUnits>`},
		{"GET", "/$namespaceinfo", "", host("orders.localhost"), 200, `<Name>orders</Name>`},

		{"DELETE", "/v1/namespaces/orders", "", nil, 412, `"code":"PreconditionFails"`},
		{"DELETE", "/v1/queues/q?namespace=orders", "", nil, 204, ""},
		{"DELETE", "/v1/namespaces/orders", "", nil, 204, ""},
		{"DELETE", "/v1/namespaces/orders", "", nil, 404, `there is no namespace 'orders'`},
		{"DELETE", "/v1/namespaces/default", "", nil, 403, `cannot be deleted`},
	} {
		status, body := r.request(step.method, step.path, step.body, step.change)
		if status != step.status || !strings.Contains(body, step.want) {
			t.Errorf("%s %s: %d %s\nwant %d with %s", step.method, step.path, status, body, step.status, step.want)
		}
	}
}

func TestWrongNamespacesAreRefused(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	hosts := func(n int) string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf("h%d.example.com", i)
		}
		text, _ := json.Marshal(api.NamespaceSettings{Hosts: list})
		return string(text)
	}
	long := strings.Repeat(strings.Repeat("a", 49)+".", 5) // 250 bytes
	for _, c := range []struct{ name, body, want string }{
		{strings.Repeat("n", namespaceNameMax+1), "", "1 to 50"},
		{"a.b", "", "letters, digits"},
		{"a_b", "", "letters, digits"},
		{"-a", "", "letters, digits"},
		{"a-", "", "letters, digits"},
		{"LocalHost", "", "cannot be called localhost"},
		{"n", hosts(namespaceHostsMax + 1), "at most 16 hosts"},
		{"n", `{"hosts":["` + long + `abcd"]}`, "not a host name"},
		{"n", `{"hosts":["` + strings.Repeat("a", hostLabelMax+1) + `.com"]}`, "not a host name"},
		{"n", `{"hosts":["10.0.0.1"]}`, "not a host name"},
		{"n", `{"hosts":["localhost"]}`, "not a host name"},
		{"n", `{"hosts":["a:5672"]}`, "not a host name"},
		{"n", `{"hosts":[""]}`, "not a host name"},
		{"n", `{"hosts":["a.b","A.B."]}`, "given twice"},
		{"n", `{"maxMessageBytes":1023}`, "1024 to 104857600"},
		{"n", `{"maxMessageBytes":104857601}`, "1024 to 104857600"},
		{"n", `{"maxLockDuration":"999ms"}`, "1s to 24h0m0s"},
		{"n", `{"maxLockDuration":"24h1s"}`, "1s to 24h0m0s"},
		{"n", `{"userMetadata":"` + strings.Repeat("x", entity.UserMetadataBytesMax+1) + `"}`, "1024 bytes"},
		{"n", `{"maxEntitys":1}`, "possible are hosts"},
		{"n", `{"accessRules":[{"name":"a"}]}`, "it has no rights"},
	} {
		if status, body := r.request("PUT", "/v1/namespaces/"+c.name, c.body, nil); status != 400 || !strings.Contains(body, c.want) {
			t.Errorf("%.60s %.80s: %d %s, want %s", c.name, c.body, status, body, c.want)
		}
	}
	if len(r.others) > 0 {
		t.Error("something was made")
	}
	// Values equal to the limits are accepted, by the catalog too.
	for i, body := range []string{
		hosts(namespaceHostsMax), `{"hosts":["` + long + `abc","` + strings.Repeat("a", hostLabelMax) + `.com","a_b.c"]}`,
		`{"maxMessageBytes":104857600,"maxLockDuration":"24h"}`, `{"maxMessageBytes":1024,"maxLockDuration":"5s"}`, `{"userMetadata":"` + strings.Repeat("x", entity.UserMetadataBytesMax) + `"}`,
	} {
		name := strings.Repeat("n", namespaceNameMax-1) + strconv.Itoa(i)
		if status, answer := r.request("PUT", "/v1/namespaces/"+name, body, nil); status != 201 {
			t.Errorf("%.80s: %d %s", body, status, answer)
			continue
		}
		made, err := r.Namespace(t.Context(), name)
		if err != nil || made.Settings.Validate() != nil {
			t.Errorf("%.80s: %v, %v", body, err, made.Settings.Validate())
		}
	}
}

// A new namespace has a key, which is shown once, with a host that selects the namespace.
func TestNamespaceIsCreatedWithKeys(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	make := func(name, body string, change func(*http.Request)) api.Namespace {
		t.Helper()
		status, answer := r.request("PUT", "/v1/namespaces/"+name, body, change)
		var made api.Namespace
		if err := json.Unmarshal([]byte(answer), &made); err != nil || status != 201 {
			t.Fatal(status, answer, err)
		}
		return made
	}
	made := make("a", "", nil)
	if len(made.AccessRules) != 1 {
		t.Fatalf("%+v", made.AccessRules)
	}
	root := made.AccessRules[0]
	if root.Name != rootRuleName || strings.Join(root.Rights, " ") != "Manage Send Listen" || len(root.PrimaryKey) != 44 || len(root.SecondaryKey) != 44 || root.PrimaryKey == root.SecondaryKey {
		t.Errorf("%+v", root)
	}
	if want := "Endpoint=sb://a.localhost:5300;SharedAccessKeyName=" + rootRuleName + ";SharedAccessKey=" + root.PrimaryKey + ";UseDevelopmentEmulator=true"; root.PrimaryConnectionString != want {
		t.Errorf("%s\nwant %s", root.PrimaryConnectionString, want)
	}
	r.server.config.ControlPort, r.server.config.ClientPort = "5300", "5672" // applications get the port for clients
	if got := make("p", "", nil).AccessRules[0].PrimaryConnectionString; !strings.HasPrefix(got, "Endpoint=sb://p.localhost:5672;") {
		t.Error(got)
	}
	if got := make("mapped", "", func(q *http.Request) { q.Host = "localhost:15300" }).AccessRules[0].PrimaryConnectionString; !strings.HasPrefix(got, "Endpoint=sb://mapped.localhost:15300;") {
		t.Error(got)
	}
	r.server.config.ControlPort = ""
	if _, shown := r.request("GET", "/v1/namespaces/a", "", nil); strings.Contains(shown, root.PrimaryKey) {
		t.Error("the key is told again")
	}
	status, body := r.request("GET", "/v1/access", "", func(q *http.Request) {
		signed("http://a.localhost/", root.Name, root.PrimaryKey)(q)
		q.Host = "a.localhost:5300"
	})
	if status != 200 || !strings.Contains(body, root.SecondaryKey) {
		t.Errorf("its own key: %d %s", status, body)
	}
	ours := make("b", `{"hosts":["b.example.com"],"accessRules":[{"name":"app","rights":["send"],"primaryKey":"ours-and-only-ours"}]}`, nil).AccessRules
	if len(ours) != 1 || ours[0].PrimaryKey != "ours-and-only-ours" || len(ours[0].SecondaryKey) != 44 || !strings.HasPrefix(ours[0].PrimaryConnectionString, "Endpoint=sb://b.example.com:5300;") {
		t.Errorf("%+v", ours)
	}
	// An address that is not loopback has no labels that could select a namespace.
	if far := make("c", "", func(q *http.Request) {
		signed("http://10.0.0.1/", "root", "root-secret")(q)
		q.Host = "10.0.0.1:5300"
	}).AccessRules[0]; far.PrimaryConnectionString != "" {
		t.Error(far.PrimaryConnectionString)
	}
}

// A namespace shows what it holds beside its shares, of what is stored and of what requests hold, and who holds the most above
// its share.
func TestNamespaceShowsItsShares(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	c := &r.server.config
	c.Accounts = account.New(account.For(1 << 30))
	c.NamespaceUsage = func(fsm.NamespaceID) (fsm.Usage, int) {
		return fsm.Usage{Messages: 3, Sessions: 4, RememberedIDs: 5}, 1
	}
	c.NamespaceShares = func(fsm.NamespaceID) []topology.Holding {
		return []topology.Holding{{Resource: "memory", Held: 10, Share: 20}, {Resource: "disk", Held: 40, Share: 30, Largest: "greedy"}}
	}
	for key, links := range map[string]int64{"a": 3, "b": 4} {
		c.Accounts.Open(account.Owner{Namespace: uint32(fsm.DefaultNamespace), Key: key}).Add(account.Links, links)
	}
	c.Accounts.Open(account.Owner{Namespace: uint32(fsm.DefaultNamespace) + 1, Key: "a"}).Add(account.Links, 100)
	status, body := r.request(http.MethodGet, "/v1/namespaces/default", "", nil)
	var n api.Namespace
	if err := json.Unmarshal([]byte(body), &n); status != http.StatusOK || err != nil || n.Usage == nil {
		t.Fatalf("%d %s: %v", status, body, err)
	}
	want := []api.NamespaceShare{
		{Resource: "memory", Held: 10, Share: 20},
		{Resource: "disk", Held: 40, Share: 30, Largest: "greedy"},
		{Resource: "links", Held: 7, Share: 1<<18 - 107},
	}
	if !slices.Equal(n.Usage.Shares, want) || n.Usage.Sessions != 4 || n.Usage.RememberedIDs != 5 {
		t.Errorf("the usage is %+v, want the shares %+v", n.Usage, want)
	}
}
