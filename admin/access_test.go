package admin

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/admin/atom"
	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

// accessShown is the form of a queue's rule for callers that may manage the queue.
const accessShown = `{"name":"app","rights":["Send","Listen"],"primaryKey":"first-of-the-app","secondaryKey":"other-of-the-app",` +
	`"primaryConnectionString":"Endpoint=sb://localhost:5300;SharedAccessKeyName=app;SharedAccessKey=first-of-the-app;EntityPath=a/b;UseDevelopmentEmulator=true",`

func TestAccessRulesAreCreatedChangedAndDeleted(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	r.request("PUT", "/v1/queues/a/b", "", nil)
	r.request("PUT", "/v1/topics/t", "", nil)
	for _, step := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/v1/access", "", 200, `{"rules":[]}`},
		{"GET", "/v1/access/a/b", "", 200, `{"rules":[]}`},
		{"GET", "/v1/access/none", "", 404, `'none' could not be found`},
		{"PUT", "/v1/access/a/b?rule=app", `{"rights":["SEND"],"primaryKey":"first-of-the-app"}`, 201, `{"name":"app","rights":["Send"],"primaryKey":"first-of-the-app","secondaryKey":"`},
		{"PUT", "/v1/access/a/b?rule=app", `{"rights":["Send"]}`, 409, `"code":"RuleExists"`},
		{"PUT", "/v1/access/A/B?rule=app&replace=true", `{"rights":["listen","send"],"secondaryKey":"other-of-the-app"}`, 200, accessShown},
		{"PUT", "/v1/access/a/b?rule=none&replace=true", `{"rights":["Send"]}`, 404, `"code":"RuleNotFound"`},
		{"PUT", "/v1/access?rule=all", `{"rights":["Manage"],"primaryKey":"key-of-everything","name":"all"}`, 201, `"rights":["Manage","Send","Listen"]`},
		{"PUT", "/v1/access/t?rule=a%20b%2Fc", `{"rights":["Listen"]}`, 201, `{"name":"a b/c",`},
		{"GET", "/v1/access/t?rule=a%20b%2Fc", "", 200, `{"name":"a b/c",`},
		{"GET", "/v1/access?rule=all", "", 200, `SharedAccessKeyName=all;SharedAccessKey=key-of-everything;UseDevelopmentEmulator=true"`},
		{"GET", "/v1/access?rule=app", "", 404, `there is no access rule 'app'`},
		{"POST", "/v1/regenerate/a/b", `{"rule":"app","which":"primary"}`, 200, `"secondaryKey":"other-of-the-app"`},
		{"POST", "/v1/regenerate", `{"rule":"all","which":"secondary"}`, 200, `"primaryKey":"key-of-everything"`},
		{"POST", "/v1/regenerate", `{"rule":"app","which":"secondary"}`, 404, `"code":"RuleNotFound"`},
		{"DELETE", "/v1/access/a/b?rule=app", "", 204, ""},
		{"DELETE", "/v1/access/a/b?rule=app", "", 404, `"code":"RuleNotFound"`},
		{"DELETE", "/v1/access?rule=all", "", 204, ""},
		{"GET", "/v1/access/a/b", "", 200, `{"rules":[]}`},
		{"GET", "/v1/access/t", "", 200, `{"rules":[{"name":"a b/c"`},

		{"GET", "/v1/access/t/Subscriptions/s", "", 400, "a subscription has the access rules of its topic"},
		{"GET", "/v1/access/", "", 400, "names no queue"},
		{"PUT", "/v1/access/", `{"rights":["Send"]}`, 400, "name the access rule with ?rule="},
		{"PUT", "/v1/access/?rule=r", `{"rights":["Send"]}`, 400, "names no queue"},
		{"PUT", "/v1/access/t?rule=r", `{"name":"s","rights":["Send"]}`, 400, "the body"},
		{"PUT", "/v1/access/t?rule=r", `{}`, 400, "it has no rights"},
		{"PUT", "/v1/access/t?rule=r", `{"rights":["own"]}`, 400, "rights are Read, Send, Listen and Manage"},
		{"PUT", "/v1/access/t?rule=r", `{"rights":["Send"],"key":"x"}`, 400, "possible are name, rights"},
		{"PUT", "/v1/access/t?rule=" + strings.Repeat("r", entity.AccessNameBytesMax+1), `{"rights":["Send"]}`, 400, "1 to 256 bytes"},
		{"PUT", "/v1/access/t?rule=a%0Ab", `{"rights":["Send"]}`, 400, "control characters"},
		{"PUT", "/v1/access/t?rule=r", `{"rights":["Send"],"primaryKey":"` + strings.Repeat("s", entity.AccessSecretBytesMax+1) + `"}`, 400, "a key is 1 to 256 bytes"},
		{"PUT", "/v1/access/t?rule=r", `{"rights":["Send"],"secondaryKey":"a\nb-and-long-enough"}`, 400, "a key is 1 to 256 bytes"},
		{"PUT", "/v1/access/t?role=r", `{"rights":["Send"]}`, 400, "unknown parameter"},
		{"POST", "/v1/regenerate/t", `{"rule":"a b/c","which":"both"}`, 400, "which is primary or secondary"},
		{"POST", "/v1/regenerate/t?rule=x", `{}`, 400, "unknown parameter"},
	} {
		status, body := r.request(step.method, step.path, step.body, nil)
		if status != step.status || !strings.Contains(body, step.want) {
			t.Errorf("%s %.80s: %d %s\nwant %d with %s", step.method, step.path, status, body, step.status, step.want)
		}
		if strings.Contains(body, "sssss") {
			t.Errorf("an error tells a key: %s", body)
		}
	}
}

// New keys have a minimum length. A short key that exists is kept when other parts of its rule change, and may
// be moved to another field, but cannot be restored after it is removed.
func TestNewSecretsAreLong(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	short, long := strings.Repeat("s", auth.SecretBytesMin-1), strings.Repeat("l", auth.SecretBytesMin)
	keys := func(primary, secondary string) string {
		return `{"rights":["Send"],"primaryKey":"` + primary + `","secondaryKey":"` + secondary + `"}`
	}
	r.request("PUT", "/v1/queues/q", "", nil)
	for _, path := range []string{"/v1/access/q?rule=r", "/v1/access?rule=r"} {
		steps := []struct {
			path, body string
			status     int
		}{
			{path, keys(short, long), 400},
			{path, keys(long, short), 400},
			{path, keys(long, long), 201},
			{path + "&replace=true", keys(short, ""), 400},
			{path + "&replace=true", keys("", short), 400},
			{"", "", 0}, // a short key that exists already
			{path + "&replace=true", `{"rights":["Listen"]}`, 200},
			{path + "&replace=true", keys(short, long), 200},
			{path + "&replace=true", keys(long, short), 200},
			{path + "&replace=true", keys(long, "t"), 400},
			{path + "&replace=true", keys(long, long+"2"), 200},
			{path + "&replace=true", keys(long, short), 400},
		}
		for i, step := range steps {
			if step.path == "" {
				r.shorten(strings.Trim(strings.TrimSuffix(strings.TrimPrefix(path, "/v1/access"), "?rule=r"), "/"), "r", short)
				continue
			}
			status, body := r.request("PUT", step.path, step.body, nil)
			if status != step.status || status == 400 && !strings.Contains(body, "at least 16 bytes: give a longer one, or none to get a random one") || status == 400 && strings.Contains(body, short) {
				t.Errorf("step %d of %s: %d %s", i, path, status, body)
			}
		}
	}
	if status, body := r.request("PUT", "/v1/namespaces/n", `{"accessRules":[{"name":"r","rights":["Send"],"primaryKey":"`+short+`"}]}`, nil); status != 400 {
		t.Errorf("a namespace: %d %s", status, body)
	}
	rule := func(key string) string {
		return entryOf("QueueDescription", "<AuthorizationRules><AuthorizationRule><Rights><AccessRights>Send</AccessRights></Rights><KeyName>r</KeyName><PrimaryKey>"+key+"</PrimaryKey></AuthorizationRule></AuthorizationRules>")
	}
	r.shorten("q", "r", short)
	for key, want := range map[string]int{short: 200, "t": 400} {
		if status, body := r.request("PUT", "/q", rule(key), update); status != want {
			t.Errorf("%s: %d %s", key, status, body)
		}
	}
}

// Values that this check accepts are accepted by the catalog, at every limit.
func TestLargestAccessRulesFitIntoAnAnswer(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	for i := range entity.AccessRulesMax {
		name := fmt.Sprintf("%02d", i) + strings.Repeat("n", entity.AccessNameBytesMax-2)
		body := `{"rights":["Send"],"primaryKey":"` + strings.Repeat("p", entity.AccessSecretBytesMax) + `"}`
		if status, answer := r.request("PUT", "/v1/access?rule="+name, body, nil); status != http.StatusCreated {
			t.Fatal(status, answer)
		}
	}
	if status, body := r.request("PUT", "/v1/access?rule=more", `{"rights":["Send"]}`, nil); status != http.StatusForbidden || !strings.Contains(body, "at most 12") {
		t.Error(status, body)
	}
	for _, rule := range r.namespace.Access {
		if rule.Validate() != nil {
			t.Errorf("the catalog would refuse %+v", rule)
		}
	}
}

// Concurrent changes of access rules are not lost; a change is refused after several attempts.
func TestConcurrentAccessChangesAreRetried(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	for rivals, want := range map[int]int{accessTriesMax - 1: http.StatusCreated, accessTriesMax: http.StatusServiceUnavailable} {
		r.rivals = rivals
		if status, body := r.request("PUT", fmt.Sprintf("/v1/access?rule=after%d", rivals), `{"rights":["Send"]}`, nil); status != want {
			t.Errorf("%d rivals: %d %s", rivals, status, body)
		}
	}
}

// atomAccess is a rule as the Go client reads it.
type atomAccess struct {
	Type      string   `xml:"http://www.w3.org/2001/XMLSchema-instance type,attr"`
	ClaimType string   `xml:"ClaimType"`
	Claim     string   `xml:"ClaimValue"`
	Rights    []string `xml:"Rights>AccessRights"`
	Name      string   `xml:"KeyName"`
	Primary   string   `xml:"PrimaryKey"`
	Secondary string   `xml:"SecondaryKey"`
	Created   string   `xml:"CreatedTime"`
	Modified  string   `xml:"ModifiedTime"`
}

func readATOMRules(t *testing.T, body string) []atomAccess {
	t.Helper()
	var entry struct {
		Rules []atomAccess `xml:"content>QueueDescription>AuthorizationRules>AuthorizationRule"`
	}
	if err := xml.Unmarshal([]byte(body), &entry); err != nil {
		t.Fatal(err, body)
	}
	return entry.Rules
}

// The rules of a description are the complete list: rules that it omits are deleted, also if there is no list,
// which is how the Go and JavaScript clients send an empty one.
func TestATOMDescriptionsReplaceAccessRules(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	// As JavaScript (prefix p5) and .NET (no times) write them, and one without keys.
	given := `<AuthorizationRules><AuthorizationRule p5:type="SharedAccessAuthorizationRule" xmlns:p5="` + instanceXMLNS + `"><ClaimType>SharedAccessKey</ClaimType><ClaimValue>None</ClaimValue>` +
		`<Rights><AccessRights>Manage</AccessRights><AccessRights>Send</AccessRights><AccessRights>Listen</AccessRights></Rights><KeyName>all</KeyName><PrimaryKey>a&lt;b-and-long-enough</PrimaryKey><SecondaryKey>and-the-second-one</SecondaryKey></AuthorizationRule>` +
		`<AuthorizationRule i:type="SharedAccessAuthorizationRule"><Rights><AccessRights>Send</AccessRights></Rights><CreatedTime>2026-01-01T00:00:00Z</CreatedTime><KeyName>app</KeyName></AuthorizationRule></AuthorizationRules>`
	put := func(children string, status int, change func(*http.Request)) []atomAccess {
		t.Helper()
		got, body := r.request("PUT", "/q", entryOf("QueueDescription", children), change)
		if got != status {
			t.Fatal(got, body)
		}
		return readATOMRules(t, body)
	}
	made := put(given, 201, nil)
	if len(made) != 2 || len(made[1].Primary) != 44 || len(made[1].Secondary) != 44 {
		t.Fatalf("%+v", made)
	}
	want := atomAccess{
		Type: "SharedAccessAuthorizationRule", ClaimType: "SharedAccessKey", Claim: "None", Rights: []string{"Manage", "Send", "Listen"}, Name: "all", Primary: "a<b-and-long-enough", Secondary: "and-the-second-one",
	}
	if diff := cmp.Diff(want, made[0]); diff != "" {
		t.Error(diff)
	}
	_, body := r.request("GET", "/q", "", nil)
	if diff := cmp.Diff(made, readATOMRules(t, body)); diff != "" {
		t.Error(diff)
	}
	// Keys that a rule omits are kept; a new rule gets random keys.
	if again := put(given, 200, update); cmp.Diff(made, again) != "" {
		t.Error(cmp.Diff(made, again))
	}
	version := r.entities["q"].AccessVersion
	put(given+"<LockDuration>PT5S</LockDuration>", 200, update)
	if r.entities["q"].AccessVersion != version {
		t.Error("rules that are the same were written")
	}
	if one := put(`<AuthorizationRules><AuthorizationRule><Rights><AccessRights>Listen</AccessRights></Rights><KeyName>app</KeyName><PrimaryKey>new-and-long-enough</PrimaryKey></AuthorizationRule></AuthorizationRules>`, 200, update); len(one) != 1 || one[0].Primary != "new-and-long-enough" || one[0].Secondary != made[1].Secondary || one[0].Rights[0] != "Listen" {
		t.Errorf("%+v", one)
	}
	if none := put("", 200, update); len(none) != 0 {
		t.Errorf("%+v", none)
	}
	// A refused request changes no key.
	put(given, 200, update)
	put(given+"<LockDuration>PT0S</LockDuration>", 400, update)
	if _, body := r.request("GET", "/q", "", nil); len(readATOMRules(t, body)) != 2 {
		t.Error("a refused update took rules away")
	}
}

func TestInvalidATOMAccessRulesAreRefused(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	r.request("PUT", "/t", entryOf("TopicDescription", ""), nil)
	rule := func(name string) string {
		return "<AuthorizationRule><Rights><AccessRights>Send</AccessRights></Rights><KeyName>" + name + "</KeyName></AuthorizationRule>"
	}
	many := ""
	for i := range entity.AccessRulesMax + 1 {
		many += rule(fmt.Sprintf("r%d", i))
	}
	for _, c := range []struct {
		path, kind, rules string
		status            int
		want              string
	}{
		{"/q", "QueueDescription", rule("a") + rule("a"), 400, "given twice"},
		{"/q", "QueueDescription", many, 403, "at most 12"},
		{"/q", "QueueDescription", "<Rule/>", 400, "holds AuthorizationRule"},
		{"/q", "QueueDescription", `<AuthorizationRule i:type="AllowRule"/>`, 501, "AllowRule"},
		{"/q", "QueueDescription", "<AuthorizationRule><KeyName>a</KeyName></AuthorizationRule>", 400, "no rights"},
		{"/t/Subscriptions/s", "SubscriptionDescription", rule("a"), 400, "of its topic"},
	} {
		body := entryOf(c.kind, "<AuthorizationRules>"+c.rules+"</AuthorizationRules>")
		if status, answer := r.request("PUT", c.path, body, nil); status != c.status || !strings.Contains(answer, c.want) {
			t.Errorf("%s %.80s: %d %s, want %d %s", c.path, c.rules, status, answer, c.status, c.want)
		}
	}
	if len(r.entities) != 1 {
		t.Error("something was made")
	}
}

// Connection strings cannot represent a semicolon.
func TestConnectionStringHasNoUnwritableValue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ endpoint, rule, secret, want string }{
		{"Endpoint=sb://h", "r", "s=", "Endpoint=sb://h;SharedAccessKeyName=r;SharedAccessKey=s=;EntityPath=q"},
		{"Endpoint=sb://h" + emulatorFlag, "r", "s", "Endpoint=sb://h;SharedAccessKeyName=r;SharedAccessKey=s;EntityPath=q;UseDevelopmentEmulator=true"},
		{"Endpoint=sb://h", "a;b", "s", ""},
		{"Endpoint=sb://h", "r", "a;b", ""},
		{"Endpoint=sb://h", "r", "", ""},
		{"", "r", "s", ""},
	} {
		if got := connectionString(c.endpoint, c.rule, c.secret, "q"); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// FuzzAccess checks that a rule that a client sends is either refused or accepted by the catalog.
func FuzzAccess(f *testing.F) {
	f.Add([]byte(`{"name":"a","rights":["Send","manage"],"primaryKey":"k"}`))
	f.Add([]byte(`{"name":"\u0085","rights":["listen"],"secondaryKey":"\u2028"}`))
	f.Add([]byte(entryOf("QueueDescription", `<AuthorizationRules><AuthorizationRule><Rights><AccessRights>Send</AccessRights></Rights><KeyName>a</KeyName></AuthorizationRule></AuthorizationRules>`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		var one entity.AccessRuleRequest
		asked := []entity.AccessRuleRequest{one}
		if json.Unmarshal(data, &asked[0]) != nil {
			description, err := atom.ReadDescription(strings.NewReader(string(data)))
			if err != nil {
				return
			}
			if asked, err = description.AccessRules(); err != nil {
				return
			}
		}
		rules, err := entity.CompleteAccessRules(asked, nil)
		if err != nil {
			if codeOf(err) == fsm.Internal {
				t.Errorf("%q: %v", data, err)
			}
			return
		}
		for _, rule := range rules {
			if rule.Validate() != nil {
				t.Errorf("%q: the catalog refuses %+v", data, rule)
			}
		}
	})
}
