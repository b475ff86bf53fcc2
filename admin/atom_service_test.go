package admin

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/admin/atom"
	"github.com/peeklock/peeklock/fsm"
)

// element returns the text of an element of a description; "" when it is omitted.
func element(body, name string) string {
	_, rest, _ := strings.Cut(body, "<"+name+">")
	text, _, found := strings.Cut(rest, "</"+name+">")
	if !found {
		return ""
	}
	return text
}

// Settings without effect are read back as they were given, and stay when an update omits them.
func TestSettingsWithoutEffectAreReadBackAsGiven(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	for _, c := range []struct{ path, kind, name, normal, other string }{
		{"/q", "Queue", "EnableBatchedOperations", "true", "false"},
		{"/q", "Queue", "SupportOrdering", "true", "false"},
		{"/q", "Queue", "EnableExpress", "false", "true"},
		{"/t", "Topic", "EnableExpress", "false", "true"},
		{"/t", "Topic", "EnableBatchedOperations", "true", "false"},
		{"/t", "Topic", "SupportOrdering", "true", "false"},
		{"/t/Subscriptions/s", "Subscription", "EnableBatchedOperations", "true", "false"},
	} {
		change := update
		if _, body := r.request("GET", c.path, "", nil); !strings.Contains(body, "<entry") {
			change = nil
		}
		for _, given := range []string{"", c.other, "", c.normal} {
			sent := ""
			if given != "" {
				sent = "<" + c.name + ">" + given + "</" + c.name + ">"
			}
			_, before := r.request("GET", c.path, "", nil)
			want := given
			if want == "" {
				want = element(before, c.name)
			}
			if want == "" {
				want = c.normal
			}
			if status, body := r.request("PUT", c.path, entryOf(c.kind+"Description", sent), change); status >= 300 || element(body, c.name) != want {
				t.Errorf("%s %s %q: %d %s", c.path, c.name, given, status, body)
			}
			change = update
			if _, body := r.request("GET", c.path, "", nil); element(body, c.name) != want {
				t.Errorf("%s %s %q: read back as %q", c.path, c.name, given, element(body, c.name))
			}
		}
	}
	if status, body := r.request("PUT", "/q", entryOf("QueueDescription", "<SupportOrdering>maybe</SupportOrdering>"), update); status != http.StatusBadRequest {
		t.Errorf("%d %s", status, body)
	}
}

// A destination is read back as the absolute URL that was sent, with scheme and host in lower case; a name alone becomes a URL of the host of the request.
// The control API and routing have the name.
func TestDestinationsAreReadBackAsGiven(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	r.request("PUT", "/q", entryOf("QueueDescription", ""), nil)
	for given, want := range map[string]string{
		"sb://bus.example.com/a/b":        "sb://bus.example.com/a/b",
		"https://bus.example.com/a/b":     "https://bus.example.com/a/b",
		"https://bus.example.com:443/a/b": "https://bus.example.com:443/a/b",
		"sb://localhost/a/b/":             "sb://localhost/a/b",
		"a/b":                             "sb://localhost:5300/a/b",
		"SB://BUS.Example.com/a/b":        "sb://bus.example.com/a/b",
	} {
		sent := fmt.Sprintf("<ForwardTo>%[1]s</ForwardTo><ForwardDeadLetteredMessagesTo>%[1]s</ForwardDeadLetteredMessagesTo>", given)
		r.request("PUT", "/q", entryOf("QueueDescription", sent), update)
		_, body := r.request("GET", "/q", "", nil)
		for _, name := range []string{"ForwardTo", "ForwardDeadLetteredMessagesTo"} {
			if got := element(body, name); got != want {
				t.Errorf("%s of %q is read back as %q, want %q", name, given, got, want)
			}
		}
		if e := r.entities["q"]; e.Settings.ForwardTo != "a/b" || e.Settings.ForwardDeadLettersTo != "a/b" || e.Settings.Validate() != nil {
			t.Errorf("%s is stored as %+v", given, e.Settings)
		}
		if _, body := r.request("GET", "/v1/queues/q", "", nil); !strings.Contains(body, `"forwardTo":"a/b"`) {
			t.Error(body)
		}
		// A client sends back what it has read.
		r.request("PUT", "/q", entryOf("QueueDescription", "<ForwardTo>"+element(body, "ForwardTo")+"</ForwardTo>"), update)
		if _, body = r.request("GET", "/q", "", nil); element(body, "ForwardTo") != want || element(body, "ForwardDeadLetteredMessagesTo") != "" {
			t.Errorf("sent back: %s", body)
		}
	}
	r.request("PATCH", "/v1/queues/q", `{"forwardTo":"c"}`, nil)
	if _, body := r.request("GET", "/q", "", nil); element(body, "ForwardTo") != "sb://localhost:5300/c" {
		t.Error(body)
	}
	r.request("PATCH", "/v1/queues/q", `{"forwardTo":""}`, nil)
	if e := r.entities["q"]; e.Settings.Validate() != nil {
		t.Errorf("%+v", e.Settings)
	}
}

// Elements that the service has added later are written for the versions of the API that have them.
func TestElementsDependOnTheVersionOfTheAPI(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	r.request("PUT", "/t", entryOf("TopicDescription", ""), nil)
	for version, want := range map[string][2]bool{ // MaxMessageSizeInKilobytes, SqlFilterCount
		"2017-04": {false, false},
		"2021-05": {true, false},
		"":        {true, false},
		"2024-05": {true, true},
		"2025-01": {true, true},
	} {
		path := "/t?api-version=" + version
		if version == "" {
			path = "/t"
		}
		_, body := r.request("GET", path, "", nil)
		got := [2]bool{element(body, "MaxMessageSizeInKilobytes") != "", element(body, "SqlFilterCount") != ""}
		if got != want || got[1] != (element(body, "CorrelationFilterCount") != "") {
			t.Errorf("version %q: %v in %s", version, got, body)
		}
		_, list := r.request("GET", "/$Resources/Topics?api-version="+version, "", nil)
		if (element(list, "MaxMessageSizeInKilobytes") != "") != want[0] && version != "" {
			t.Errorf("version %q: %s", version, list)
		}
	}
}

// AccessedAt is always there: the last use, for a fresh subscription its creation, and otherwise the zero time of .NET.
func TestAccessedAtIsTheLastUse(t *testing.T) {
	t.Parallel()
	for _, kind := range []fsm.EntityKind{fsm.QueueEntity, fsm.TopicEntity, fsm.SubscriptionEntity} {
		e := fsm.Entity{Kind: kind, Name: "t/Subscriptions/s", Created: 1795176000000, Updated: 1795176000000}
		fresh := "0001-01-01T00:00:00"
		if kind == fsm.SubscriptionEntity {
			fresh = "2026-11-20T12:00:00Z"
		}
		for at, want := range map[fsm.Instant]string{0: fresh, 1795176060000: "2026-11-20T12:01:00Z"} {
			x := atom.EntityDocument(atom.Origin{Host: "localhost"}, e, fsm.Counts{LastUse: at})
			if got := element(x.String(), "AccessedAt"); got != want {
				t.Errorf("%s used at %d: %q, want %q", kind, at, got, want)
			}
		}
	}
}

// Names that frameworks make are accepted, up to 260 characters, and MaxDeliveryCount up to the largest int of clients.
func TestNamesAndDeliveryCountsOfFrameworksAreAccepted(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	for _, name := range []string{
		"MassTransit/Fault--Ns/Msg--", "a~b", "bundle-1", "Ns.Messages.Event_", "a.", "x/y/z", "n" + strings.Repeat("a", 259),
	} {
		status, body := r.request("PUT", "/"+name, entryOf("TopicDescription", ""), nil)
		if status != http.StatusCreated {
			t.Errorf("%s: %d %s", name, status, body)
		}
		if status, body = r.request("GET", "/"+name, "", nil); status != http.StatusOK || !strings.Contains(body, `<title type="text">`+name+`</title>`) {
			t.Errorf("%s: %d %s", name, status, body)
		}
		if status, body = r.request("PUT", "/"+name+"/Subscriptions/s~-", entryOf("SubscriptionDescription", "<MaxDeliveryCount>2147483647</MaxDeliveryCount>"), nil); status != http.StatusCreated || element(body, "MaxDeliveryCount") != "2147483647" {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	for _, name := range []string{"n" + strings.Repeat("a", 260), "a b", "a/", "-a", "a%5Cb"} {
		if status, body := r.request("PUT", "/"+strings.ReplaceAll(name, " ", "%20")+"?", entryOf("QueueDescription", ""), nil); status == http.StatusCreated && !strings.HasSuffix(name, "/") {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	if status, _ := r.request("PUT", "/q", entryOf("QueueDescription", "<MaxDeliveryCount>2147483648</MaxDeliveryCount>"), nil); status != http.StatusBadRequest {
		t.Error(status)
	}
}

// Parameters and properties of rules are read back with the type and the value that was given, in the given order.
func TestValuesOfRulesAreReadBackAsGiven(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	r.request("PUT", "/t", entryOf("TopicDescription", ""), nil)
	r.request("PUT", "/t/Subscriptions/s", entryOf("SubscriptionDescription", ""), nil)
	const serial = "http://schemas.microsoft.com/2003/10/Serialization/"
	var pairs strings.Builder
	for i, v := range []struct{ kind, xmlns, text string }{
		{"string", schemaXMLNS, " text "},
		{"int", schemaXMLNS, "7"},
		{"long", schemaXMLNS, "7"},
		{"long", schemaXMLNS, "9007199254740993"},
		{"short", schemaXMLNS, "-3"},
		{"byte", schemaXMLNS, "-1"},
		{"unsignedByte", schemaXMLNS, "200"},
		{"unsignedInt", schemaXMLNS, "4294967295"},
		{"unsignedLong", schemaXMLNS, "18446744073709551615"},
		{"double", schemaXMLNS, "100.1"},
		{"float", schemaXMLNS, "0.1"},
		{"decimal", schemaXMLNS, "100.10"},
		{"boolean", schemaXMLNS, "true"},
		{"dateTime", schemaXMLNS, "2001-01-01T01:02:03Z"},
		{"dateTime", schemaXMLNS, "2026-11-22T20:30:40.1234567Z"},
		{"dateTime", schemaXMLNS, "2026-11-22T20:30:40.1234567+02:00"},
		{"duration", serial, "PT1M30.0000001S"},
		{"duration", serial, "-P1DT2H"},
		{"duration", serial, "P10675199DT2H48M5.4775807S"},
		{"guid", serial, "0d2c3a5e-1b2c-4d5e-8f90-a1b2c3d4e5f6"},
		{"base64Binary", schemaXMLNS, "AAEC"},
		{"anyURI", schemaXMLNS, "http://a/b"},
	} {
		// The names are in no order.
		fmt.Fprintf(&pairs, `<KeyValueOfstringanyType><Key>@p%d</Key><Value i:type="d6p1:%s" xmlns:d6p1="%s">%s</Value></KeyValueOfstringanyType>`, 97*(i+1)%31, v.kind, v.xmlns, v.text)
	}
	parameters := "<Parameters>" + pairs.String() + "</Parameters>"
	properties := "<Properties>" + strings.ReplaceAll(pairs.String(), "<Key>@", "<Key>") + "</Properties>"
	for _, c := range [][2]string{
		{`<Filter i:type="SqlFilter"><SqlExpression>a=@p1</SqlExpression>` + parameters + `</Filter><Action i:type="SqlRuleAction"><SqlExpression>SET a=@p2</SqlExpression>` + parameters + `</Action>`, parameters},
		{`<Filter i:type="CorrelationFilter"><Label>l</Label>` + properties + `</Filter>`, properties},
	} {
		r.request("DELETE", "/t/Subscriptions/s/Rules/r", "", nil)
		for range 2 { // what was read can be sent back
			if status, body := r.request("PUT", "/t/Subscriptions/s/Rules/r", entryOf("RuleDescription", c[0]), nil); status != http.StatusCreated && status != http.StatusConflict {
				t.Fatal(status, body)
			}
			_, body := r.request("GET", "/t/Subscriptions/s/Rules/r", "", nil)
			if got, want := strings.Count(body, c[1]), strings.Count(c[0], c[1]); got != want {
				t.Errorf("read back %d times, want %d:\n%s\n in %s", got, want, c[1], body)
			}
			r.request("DELETE", "/t/Subscriptions/s/Rules/r", "", nil)
			_, rest, _ := strings.Cut(body, "<RuleDescription")
			_, rest, _ = strings.Cut(rest, ">")
			c[0], _, _ = strings.Cut(rest, "</RuleDescription>")
		}
	}
}

// The size of a partitioned entity is per partition. A Standard namespace shows that of 16 partitions, and a client that puts
// back what it has read changes nothing; any other size is per partition.
func TestSizeOfAPartitionedEntityIsThatOf16Partitions(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	for _, c := range []struct {
		largest uint32 // message of the namespace
		times   int
	}{{0, 16}, {256 * 1024, 16}, {1024 * 1024, 1}} {
		r.namespace.Settings.MessageBytesMax = c.largest
		for path, kind := range map[string]string{"/q": "Queue", "/t": "Topic"} {
			r.request("DELETE", path, "", nil)
			size := func(n int) string { return fmt.Sprintf("<MaxSizeInMegabytes>%d</MaxSizeInMegabytes>", n) }
			put := func(given, stored int, change func(*http.Request)) {
				t.Helper()
				_, body := r.request("PUT", path, entryOf(kind+"Description", size(given)+"<EnablePartitioning>true</EnablePartitioning>"), change)
				if !strings.Contains(body, size(stored*c.times)) || r.entities[path[1:]].Settings.MaxBytes != uint64(stored)<<20 {
					t.Errorf("%s of %d: %s, stored %d", path, given, body, r.entities[path[1:]].Settings.MaxBytes)
				}
				for _, read := range []string{path, "/$Resources/" + kind + "s"} {
					if _, body = r.request("GET", read, "", nil); !strings.Contains(body, size(stored*c.times)) {
						t.Errorf("%s: %s", read, body)
					}
				}
			}
			put(4096, 4096, nil)
			put(4096*c.times, 4096, update) // what was shown
			put(2048, 2048, update)
			put(2048*c.times, 2048, update)
		}
		r.request("DELETE", "/plain", "", nil)
		if _, body := r.request("PUT", "/plain", entryOf("QueueDescription", "<MaxSizeInMegabytes>4096</MaxSizeInMegabytes>"), nil); element(body, "MaxSizeInMegabytes") != "4096" {
			t.Error(body)
		}
	}
}

// A partitioned entity has no order by default; the choice of a client is kept.
func TestPartitionedEntitiesSupportNoOrderingByDefault(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	for kind, path := range map[string]string{"Queue": "/q", "Topic": "/t"} {
		const partitioned = "<EnablePartitioning>true</EnablePartitioning>"
		if _, body := r.request("PUT", path, entryOf(kind+"Description", partitioned), nil); element(body, "SupportOrdering") != "false" {
			t.Errorf("%s: %s", kind, body)
		}
		sent := partitioned + "<SupportOrdering>true</SupportOrdering>"
		if _, body := r.request("PUT", path, entryOf(kind+"Description", sent), update); element(body, "SupportOrdering") != "true" {
			t.Errorf("%s: %s", kind, body)
		}
	}
}

// A subscription that forwards is in use, so AutoDeleteOnIdle is read back as never. The stored value, which a client does
// not change when it puts back what it read, shows again when forwarding ends.
func TestForwardingSubscriptionsShowNoAutoDeletion(t *testing.T) {
	t.Parallel()
	const never, idle = "P10675199DT2H48M5.4775807S", "<AutoDeleteOnIdle>PT5M</AutoDeleteOnIdle>"
	const forward = "<ForwardTo>other</ForwardTo>"
	r := newTestServer(t)
	r.request("PUT", "/t", entryOf("TopicDescription", ""), nil)
	for i, step := range []struct{ sent, want string }{
		{idle + forward, never},
		{forward + "<AutoDeleteOnIdle>" + never + "</AutoDeleteOnIdle>", never},
		{"<AutoDeleteOnIdle>" + never + "</AutoDeleteOnIdle>", "PT5M"},
		{"<AutoDeleteOnIdle>" + never + "</AutoDeleteOnIdle>", never},
		{forward + "<AutoDeleteOnIdle>PT6M</AutoDeleteOnIdle>", never},
		{"", "PT6M"},
	} {
		change := update
		if i == 0 {
			change = nil
		}
		status, body := r.request("PUT", "/t/Subscriptions/s", entryOf("SubscriptionDescription", step.sent), change)
		if status >= 300 || element(body, "AutoDeleteOnIdle") != step.want {
			t.Errorf("step %d: %d %s, want %s", i, status, body, step.want)
		}
	}
	if _, body := r.request("PUT", "/q", entryOf("QueueDescription", idle+forward), nil); element(body, "AutoDeleteOnIdle") != "PT5M" {
		t.Errorf("a queue: %s", body)
	}
}

// In a Standard namespace an entity keeps its MaxMessageSizeInKilobytes; in a Premium one a new value is from 1024 to the
// limit of the namespace. What was read can always be put back. Only ATOM has these rules.
func TestMessageSizesDependOnTheTier(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	size := func(kilobytes string) string {
		return entryOf("QueueDescription", "<MaxMessageSizeInKilobytes>"+kilobytes+"</MaxMessageSizeInKilobytes>")
	}
	r.request("PUT", "/v1/namespaces/premium", `{"maxMessageBytes":104857600}`, nil)
	r.request("PUT", "/v1/namespaces/small", `{"maxMessageBytes":524288}`, nil)
	r.request("PUT", "/v1/queues/odd", `{"maxMessageBytes":1500}`, nil)
	r.request("PUT", "/v1/queues/odd?namespace=premium", `{"maxMessageBytes":1500}`, nil)
	const standard = "this property can only be set in a Premium namespace, which is one whose maxMessageBytes is above 262144"
	for _, c := range []struct {
		host, path, body string
		change           func(*http.Request)
		status           int
		want             string // MaxMessageSizeInKilobytes, or the error
	}{
		{"localhost", "/a", size("256"), nil, 201, "256"},
		{"localhost", "/b", size("512"), nil, 400, "SubCode=40000. Bad Request. To know more visit https://aka.ms/sbResourceMgrExceptions. MaxMessageSizeInKilobytes 512: " + standard},
		{"localhost", "/b", size("1"), nil, 400, standard},
		{"localhost", "/a", size("256"), update, 200, "256"},
		{"localhost", "/a", size("1024"), update, 400, standard},
		{"localhost", "/odd", size("1"), update, 200, "1"},
		{"localhost", "/odd", size("2"), update, 400, standard},
		{"localhost", "/b?api-version=2017-04", size("256"), nil, 400, "MaxMessageSizeInKilobytes is not supported in api-version 2017-04"},
		{"localhost", "/a?api-version=2017-04", entryOf("QueueDescription", ""), update, 200, ""},
		{"premium.localhost", "/a", entryOf("QueueDescription", ""), nil, 201, "1024"},
		{"premium.localhost", "/b", size("50000"), nil, 201, "50000"},
		{"premium.localhost", "/c", size("500"), nil, 400, "SubCode=40000. The value for 'MaxMessageSizeInKilobytes' must be between 1024 and 102400, not 500"},
		{"premium.localhost", "/c", size("102401"), nil, 400, "must be between 1024 and 102400, not 102401"},
		{"premium.localhost", "/odd", size("1"), update, 200, "1"},
		{"premium.localhost", "/odd", size("3"), update, 400, "must be between 1024 and 102400, not 3"},
		{"premium.localhost", "/odd", size("102400"), update, 200, "102400"},
		{"small.localhost", "/a", entryOf("QueueDescription", ""), nil, 201, "512"},
		{"small.localhost", "/a", size("256"), update, 400, "must be between 512 and 512, not 256; maxMessageBytes of the namespace sets the upper limit"},
	} {
		status, body := r.request("PUT", c.path, c.body, func(request *http.Request) {
			request.Host = c.host + ":5300"
			if c.change != nil {
				c.change(request)
			}
		})
		got := element(body, "MaxMessageSizeInKilobytes")
		if status != c.status || status < 300 && got != c.want || status >= 300 && !strings.Contains(body, c.want) {
			t.Errorf("%s%s %s: %d %s, want %d %s", c.host, c.path, c.body, status, body, c.status, c.want)
		}
	}
	if got := r.entities["odd"].Settings.MaxMessageBytes; got != 1500 {
		t.Errorf("what was read and put back is now %d", got)
	}
	for _, body := range []string{`{"maxMessageBytes":1024}`, `{"maxMessageBytes":1048576}`} {
		if status, answer := r.request("PATCH", "/v1/queues/a", body, nil); status != http.StatusOK {
			t.Errorf("%s: %d %s", body, status, answer)
		}
	}
}

// A refused size or time names the setting as the client wrote it, in its unit, and what raises the limit. Locks of 1 s are
// accepted.
func TestRefusedSettingsSpeakAsTheClient(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	const raise = "; maxLockDuration of the namespace (peeklock namespace update --max-lock-duration) raises the limit, up to 24h"
	for sent, want := range map[string]string{
		"<LockDuration>PT6M</LockDuration>":                              "LockDuration is PT1S to PT5M, not PT6M" + raise,
		"<LockDuration>PT0S</LockDuration>":                              "LockDuration is PT1S to PT5M, not PT0S. ",
		"<AutoDeleteOnIdle>PT1M</AutoDeleteOnIdle>":                      "AutoDeleteOnIdle is PT5M to P10675199DT2H48M5.4775807S, not PT1M",
		"<MaxSizeInMegabytes>0</MaxSizeInMegabytes>":                     "MaxSizeInMegabytes is 1 to 81920, not 0",
		"<MaxMessageSizeInKilobytes>4194304</MaxMessageSizeInKilobytes>": "MaxMessageSizeInKilobytes: 4194304 is more than 102400",
	} {
		if status, body := r.request("PUT", "/q", entryOf("QueueDescription", sent), nil); status != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", sent, status, body)
		}
	}
	for sent, want := range map[string]string{
		`{"lockDuration":"6m"}`:       "lockDuration is 1s to 5m0s, not 6m0s" + raise,
		`{"maxMessageBytes":3072000}`: "maxMessageBytes is 1024 to 1048576, not 3072000; maxMessageBytes of the namespace (peeklock namespace update --max-message-bytes) raises the limit, up to 104857600 bytes",
	} {
		if status, body := r.request("PUT", "/v1/queues/q", sent, nil); status != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", sent, status, body)
		}
	}
	if status, body := r.request("PUT", "/short", entryOf("QueueDescription", "<LockDuration>PT1S</LockDuration>"), nil); status != http.StatusCreated || r.entities["short"].Settings.Validate() != nil {
		t.Errorf("%d %s", status, body)
	}
}

// Whoever may manage gets an empty feed for a queue or topic that does not exist, and everybody gets it for the root.
func TestAbsentEntitiesAreAnEmptyFeed(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	for _, path := range []string{"/none", "/a/none?api-version=2017-04", "/", "/?api-version=2021-05"} {
		w := do(r.server.http.Handler, "GET", path, func(request *http.Request) {
			if strings.HasPrefix(path, "/?") || path == "/" {
				request.RemoteAddr = "10.0.0.9:1"
			}
		})
		body := w.Body.String()
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != atom.FeedType || !strings.Contains(body, `<title type="text">Publicly Listed Services</title>`) || strings.Contains(body, "<entry") {
			t.Errorf("%s: %d %v %s", path, w.Code, w.Header(), body)
		}
		wellFormed(t, body)
	}
	for _, c := range []struct {
		method, path string
		change       func(*http.Request)
		status       int
	}{
		{"DELETE", "/none", nil, 404},
		{"PUT", "/none", update, 404},
		{"GET", "/none/Subscriptions", nil, 404},
		{"GET", "/none/Subscriptions/s", nil, 404},
		{"GET", "/none/Subscriptions/s/Rules", nil, 404},
		{"GET", "/none/Subscriptions/s/Rules/r", nil, 404},
		{"GET", "/v1/queues/none", nil, 404},
		{"GET", "/none", func(r *http.Request) { r.RemoteAddr = "10.0.0.9:1" }, 401},
		{"POST", "/", func(r *http.Request) { r.RemoteAddr = "10.0.0.9:1" }, 401},
		{"GET", "/$other", nil, 404},
	} {
		if status, body := r.request(c.method, c.path, entryOf("QueueDescription", ""), c.change); status != c.status {
			t.Errorf("%s %s: %d %s", c.method, c.path, status, body)
		}
	}
	r.fails = fsm.ServerBusy // no leader of the catalog
	if status, body := r.request("GET", "/none", "", nil); status != http.StatusServiceUnavailable {
		t.Errorf("%d %s", status, body)
	}
}
