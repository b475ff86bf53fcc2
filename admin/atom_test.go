package admin

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/admin/atom"
	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// Namespaces that clients declare.
const (
	serviceXMLNS  = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
	instanceXMLNS = "http://www.w3.org/2001/XMLSchema-instance"
	schemaXMLNS   = "http://www.w3.org/2001/XMLSchema"
)

// Limits of a document that a client sends.
const (
	xmlDepthMax      = 16
	xmlElementsMax   = 2048
	xmlAttributesMax = 4096
)

// entryOf returns a request in the form that most clients write.
func entryOf(description, children string) string {
	return `<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><` + description + ` xmlns="` + serviceXMLNS +
		`" xmlns:i="` + instanceXMLNS + `">` + children + `</` + description + `></content></entry>`
}

// update makes a PUT change an existing entity.
func update(r *http.Request) { r.Header.Set("If-Match", "*") }

const (
	queueDefaultsXML = `<LockDuration>PT1M</LockDuration><MaxSizeInMegabytes>1024</MaxSizeInMegabytes><RequiresDuplicateDetection>false</RequiresDuplicateDetection>` +
		`<RequiresSession>false</RequiresSession><DefaultMessageTimeToLive>P10675199DT2H48M5.4775807S</DefaultMessageTimeToLive>` +
		`<DeadLetteringOnMessageExpiration>false</DeadLetteringOnMessageExpiration><DuplicateDetectionHistoryTimeWindow>PT10M</DuplicateDetectionHistoryTimeWindow>` +
		`<MaxDeliveryCount>10</MaxDeliveryCount><EnableBatchedOperations>true</EnableBatchedOperations><SizeInBytes>9</SizeInBytes><MessageCount>18</MessageCount>` +
		`<IsAnonymousAccessible>false</IsAnonymousAccessible><AuthorizationRules></AuthorizationRules><Status>Active</Status>` +
		`<CreatedAt>2026-11-20T12:00:00Z</CreatedAt><UpdatedAt>2026-11-20T12:00:00Z</UpdatedAt><AccessedAt>0001-01-01T00:00:00</AccessedAt>` +
		`<SupportOrdering>true</SupportOrdering><CountDetails xmlns:d2p1="http://schemas.microsoft.com/netservices/2011/06/servicebus">` +
		`<d2p1:ActiveMessageCount>7</d2p1:ActiveMessageCount><d2p1:DeadLetterMessageCount>0</d2p1:DeadLetterMessageCount>` +
		`<d2p1:ScheduledMessageCount>2</d2p1:ScheduledMessageCount><d2p1:TransferMessageCount>4</d2p1:TransferMessageCount>` +
		`<d2p1:TransferDeadLetterMessageCount>5</d2p1:TransferDeadLetterMessageCount></CountDetails><AutoDeleteOnIdle>P10675199DT2H48M5.4775807S</AutoDeleteOnIdle>` +
		`<EnablePartitioning>false</EnablePartitioning><EntityAvailabilityStatus>Available</EntityAvailabilityStatus><EnableExpress>false</EnableExpress>` +
		`<MaxMessageSizeInKilobytes>256</MaxMessageSizeInKilobytes></QueueDescription>`
	rulePath = "/shop/orders/Subscriptions/audit/Rules/"
)

// One table of client requests, in the order in which clients send them.
func TestATOMClientsManageEntities(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	for _, step := range []struct {
		method, path, body string
		change             func(*http.Request)
		status             int
		want               string
	}{
		{"PUT", "/orders/new", entryOf("QueueDescription", ""), nil, 201, `<id>http://localhost:5300/orders/new?api-version=2021-05</id><title type="text">orders/new</title>`},
		{"GET", "/Orders/New", "", nil, 200, queueDefaultsXML},
		{"GET", "/orders/new?api-version=2024-05&enrich=False", "", nil, 200, `<link rel="self" href="http://localhost:5300/orders/new?api-version=2024-05"></link>`},
		{"GET", "/orders%2fnew", "", nil, 200, `<author><name>localhost</name></author>`},
		{"PUT", "/orders/new", entryOf("QueueDescription", ""), nil, 409, `<Error><Code>409</Code><Detail>SubCode=40900. entity already exists: 'orders/new'. TrackingId:`},
		{"PUT", "/orders/new", entryOf("QueueDescription", "<UserMetadata>a&lt;b</UserMetadata><ForwardTo>sb://localhost/a/b/</ForwardTo><Unknown>1</Unknown>"), update, 200, `<ForwardTo>sb://localhost/a/b</ForwardTo><UserMetadata>a&lt;b</UserMetadata>`},
		{"PUT", "/orders/new", entryOf("QueueDescription", "<LockDuration>PT5S</LockDuration>"), update, 200, `<Status>Active</Status><CreatedAt>`}, // both texts are cleared
		{"PUT", "/none", entryOf("QueueDescription", ""), update, 404, `The messaging entity 'none' could not be found. TrackingId:`},
		{"PUT", "/spread", entryOf("QueueDescription", "<EnablePartitioning>true</EnablePartitioning><EnableExpress>true</EnableExpress>"), nil, 201, `<EnablePartitioning>true</EnablePartitioning><EntityAvailabilityStatus>Available</EntityAvailabilityStatus><EnableExpress>true</EnableExpress>`},
		{"GET", "/$resources/queues", "", nil, 200, `<title type="text">Queues</title>`},
		{"PUT", "/shop/orders", entryOf("TopicDescription", ""), nil, 201, `<TopicDescription xmlns="` + serviceXMLNS},
		{"PUT", "/shop/orders", entryOf("TopicDescription", "<LockDuration>PT5S</LockDuration>"), update, 400, "LockDuration is a setting of subscriptions"},
		{"GET", "/shop/orders", "", nil, 200, `<SubscriptionCount>6</SubscriptionCount>`},
		{"PUT", "/shop/orders/subscriptions/audit", entryOf("SubscriptionDescription", ""), nil, 201, `<id>http://localhost:5300/shop/orders/Subscriptions/audit?api-version=2021-05</id><title type="text">audit</title>`},
		{"PUT", "/shop/orders/subscriptions/spread", entryOf("SubscriptionDescription", "<EnablePartitioning>true</EnablePartitioning>"), nil, 201, `<title type="text">spread</title>`},
		{"GET", "/SHOP/orders/SUBSCRIPTIONS/audit", "", nil, 200, `<DeadLetteringOnFilterEvaluationExceptions>true</DeadLetteringOnFilterEvaluationExceptions><MessageCount>18</MessageCount>`},
		{"GET", "/shop/orders/Subscriptions/", "", nil, 200, `<title type="text">Subscriptions</title>`},
		{"GET", "/none/Subscriptions", "", nil, 404, "'none' could not be found"},
		{"GET", rulePath + "$default", "", nil, 200, `<Filter i:type="TrueFilter"><SqlExpression>1=1</SqlExpression><CompatibilityLevel>20</CompatibilityLevel></Filter><Action i:type="EmptyRuleAction"></Action>`},
		{"GET", rulePath + "$default/", "", nil, 200, `<title type="text">$Default</title>`},
		{"GET", "/shop/orders/Subscriptions/audit/rules", "", nil, 200, `/Rules/$Default?api-version=2021-05</id>`},
		{"PUT", rulePath, entryOf("RuleDescription", ""), nil, 409, "SubCode=40900"},
		{"PUT", rulePath, entryOf("RuleDescription", ""), update, 400, "a change of a rule needs its name"},
		{"PUT", rulePath + "a%20b/c", entryOf("RuleDescription", `<Filter i:type="FalseFilter"/>`), nil, 201, `/Rules/a%20b/c?api-version=2021-05</id><title type="text">a b/c</title>`},
		{"PUT", rulePath + "x", entryOf("RuleDescription", "<Name>y</Name>"), nil, 400, "the body"},
		{"PUT", rulePath + "x", entryOf("RuleDescription", ""), update, 404, "SubCode=40400"},
		{"PUT", rulePath + "slash/", entryOf("RuleDescription", `<Filter i:type="FalseFilter"/>`), nil, 201, `<title type="text">slash</title>`},
		{"DELETE", rulePath + "slash/", "", nil, 200, ""},
		{"DELETE", rulePath + "a%20b%2Fc", "", nil, 200, ""},
		{"DELETE", rulePath + "a%20b%2Fc", "", nil, 404, "SubCode=40400"},
		{"GET", "/$namespaceinfo", "", nil, 200, `<MessagingSKU>Standard</MessagingSKU><ModifiedTime>0001-01-01T00:00:00</ModifiedTime><Name>localhost</Name>`},
		{"DELETE", "/shop/orders/Subscriptions/audit", "", nil, 200, ""},
		{"DELETE", "/shop/orders", "", nil, 200, ""},
		{"DELETE", "/shop/orders", "", nil, 404, "'shop/orders' could not be found"},
		{"GET", "/shop/orders", "", nil, 200, `<title type="text">Publicly Listed Services</title>`},
	} {
		status, body := r.request(step.method, step.path, step.body, step.change)
		if status != step.status || !strings.Contains(body, step.want) {
			t.Errorf("%s %s: %d %s\nwant %d with %s", step.method, step.path, status, body, step.status, step.want)
		}
		if body != "" {
			wellFormed(t, body)
		}
	}
}

// wellFormed reads an answer to the end.
func wellFormed(t *testing.T, body string) {
	t.Helper()
	var any struct{ XMLName xml.Name }
	if err := xml.Unmarshal([]byte(body), &any); err != nil {
		t.Errorf("%v: %s", err, body)
	}
}

func TestATOMRequestsAreRefused(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	r.request("PUT", "/t", entryOf("TopicDescription", ""), nil)
	r.request("PUT", "/t/Subscriptions/s", entryOf("SubscriptionDescription", ""), nil)
	deep := strings.Repeat("<a>", xmlDepthMax+1) + strings.Repeat("</a>", xmlDepthMax+1)
	parameter := func(kind, value string) string {
		return entryOf("RuleDescription", `<Filter i:type="SqlFilter"><SqlExpression>a=@p</SqlExpression><Parameters><KeyValueOfstringanyType><Key>@p</Key><Value i:type="x:`+
			kind+`">`+value+`</Value></KeyValueOfstringanyType></Parameters></Filter>`)
	}
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"PUT", "/q", "", 400, "no XML element"},
		{"PUT", "/q", "<entry", 400, "the body"},
		{"PUT", "/q", "<entry/><entry/>", 400, "more than one element"},
		{"PUT", "/q", "<entry/>", 400, "not an ATOM entry"},
		{"PUT", "/q", "<feed>" + entryOf("QueueDescription", "") + "</feed>", 400, "not an ATOM entry"},
		{"PUT", "/q", `<!DOCTYPE a [<!ENTITY b "c">]>` + entryOf("QueueDescription", "<UserMetadata>&b;</UserMetadata>"), 400, "document type"},
		{"PUT", "/q", entryOf("QueueDescription", "<UserMetadata>&b;</UserMetadata>"), 400, "the body"},
		{"PUT", "/q", `<?xml version="1.0" encoding="utf-16"?>` + entryOf("QueueDescription", ""), 400, "the body"},
		{"PUT", "/q", entryOf("QueueDescription", deep), 400, "16 deep"},
		{"PUT", "/q", entryOf("QueueDescription", strings.Repeat("<a/>", xmlElementsMax)), 400, "2048 elements"},
		{"PUT", "/q", "<entry" + attributes(xmlAttributesMax+1) + "/>", 400, "4096 attributes"},
		{"PUT", "/q", strings.Repeat(" ", bodyBytesMax+1), 413, "131072 bytes"},
		{"PUT", "/q", entryOf("SubscriptionDescription", ""), 400, "does not belong"},
		{"PUT", "/t/Subscriptions/x", entryOf("QueueDescription", ""), 400, "does not belong"},
		{"PUT", "/t/Subscriptions/s/Rules/r", entryOf("QueueDescription", ""), 400, "does not belong"},
		{"PUT", "/q", entryOf("QueueDescription", "<LockDuration>60</LockDuration>"), 400, "LockDuration"},
		{"PUT", "/q", entryOf("QueueDescription", "<LockDuration>P1S</LockDuration>"), 400, "LockDuration"},
		{"PUT", "/q", entryOf("QueueDescription", "<LockDuration>P"+strings.Repeat("1", 64)+"D</LockDuration>"), 400, "LockDuration"},
		{"PUT", "/q", entryOf("QueueDescription", "<RequiresSession>yes</RequiresSession>"), 400, "true or false"},
		{"PUT", "/q", entryOf("QueueDescription", "<MaxDeliveryCount>-1</MaxDeliveryCount>"), 400, "MaxDeliveryCount"},
		{"PUT", "/q", entryOf("QueueDescription", "<ForwardTo>sb://host/</ForwardTo>"), 400, "names no queue"},
		{"PUT", "/q", entryOf("QueueDescription", "<ForwardTo>a</ForwardTo><ForwardTo>b</ForwardTo>"), 400, "given twice"},
		{"PUT", "/q", entryOf("QueueDescription", "<IsAnonymousAccessible>true</IsAnonymousAccessible>"), 501, "without a key"},
		{"PUT", "/q", entryOf("QueueDescription", "<AuthorizationRules><AuthorizationRule/></AuthorizationRules>"), 400, "it has no rights"},
		{"PUT", "/-q", entryOf("QueueDescription", ""), 400, "begins with a letter"},
		{"PUT", "/a//b", entryOf("QueueDescription", ""), 400, "empty part"},
		{"PUT", "/a/../b", entryOf("QueueDescription", ""), 400, "empty part"},
		{"POST", "/q", "", 403, "SubCode=40301. not allowed: POST is not possible"},
		{"PUT", "/$Resources/Queues", "", 403, "PUT is not possible"},
		{"GET", "/$other", "", 404, "nothing is at"},
		{"GET", "/t/Subscriptions/s/other", "", 404, "nothing is at"},
		{"DELETE", "/?api-version=2021-05", "", 404, "nothing is at"},
		{"GET", "/$Resources/Queues?$top=1001", "", 400, "1 to 1000"},
		{"GET", "/$Resources/Queues?$skip=-1", "", 400, "$skip"},
		{"GET", "/$Resources/Queues?$skip=" + strconv.Itoa(atomSkipMax+1), "", 400, "$skip"},
		{"GET", "/t/Subscriptions/s/Rules/none", "", 404, "SubCode=40400"},
		{"PUT", "/t/Subscriptions/s/Rules/r", entryOf("RuleDescription", `<Filter i:type="x:Other"/>`), 400, "the type is one of"},
		{"PUT", "/t/Subscriptions/s/Rules/r", entryOf("RuleDescription", `<Action i:type="x:Other"/>`), 400, "the type is SqlRuleAction"},
		{"PUT", "/t/Subscriptions/s/Rules/r", entryOf("RuleDescription", `<Filter i:type="SqlFilter"><SqlExpression>a =</SqlExpression></Filter>`), 400, "rule"},
		{"PUT", "/t/Subscriptions/s/Rules/r", parameter("int", "2147483648"), 400, "32 bits"},
		{"PUT", "/t/Subscriptions/s/Rules/r", parameter("long", "9223372036854775808"), 400, "64 bits"},
		{"PUT", "/t/Subscriptions/s/Rules/r", parameter("double", "much"), 400, "of type double"},
		{"PUT", "/t/Subscriptions/s/Rules/r", parameter("dateTime", "noon"), 400, "of type dateTime"},
		{"PUT", "/t/Subscriptions/s/Rules/r", parameter("base64Binary", "!"), 400, "base64"},
		{"PUT", "/t/Subscriptions/s/Rules/r", parameter("QName", "a"), 501, "values of the type"},
		{"PUT", "/t/Subscriptions/s/Rules/r", entryOf("RuleDescription", `<Filter i:type="SqlFilter"><Parameters><Key/></Parameters></Filter>`), 400, "each with Key and Value"},
	} {
		status, body := r.request(c.method, c.path, c.body, nil)
		if status != c.status || !strings.Contains(body, c.want) || !strings.Contains(body, "<Code>"+strconv.Itoa(c.status)+"</Code>") {
			t.Errorf("%s %.60s %.300s: %d %s\nwant %d with %s", c.method, c.path, c.body, status, body, c.status, c.want)
		}
		wellFormed(t, body)
	}
	if status, body := r.request("GET", "/v1/queues/q", "", nil); status != http.StatusNotFound {
		t.Errorf("something was made all the same: %d %s", status, body)
	}
}

func attributes(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, ` a%d=""`, i)
	}
	return text.String()
}

// Values equal to a limit are accepted.
func TestATOMReadsTheLargestDocument(t *testing.T) {
	t.Parallel()
	// entry, content and the description are three elements and levels, with five attributes.
	deep := strings.Repeat("<a>", xmlDepthMax-3) + strings.Repeat("</a>", xmlDepthMax-3)
	many := strings.Repeat("<a/>", xmlElementsMax-3-(xmlDepthMax-3)-1)
	if _, err := atom.ReadDescription(strings.NewReader(entryOf("QueueDescription", deep+many+"<b"+attributes(xmlAttributesMax-4)+"/>"))); err != nil {
		t.Error(err)
	}
	r := newTestServer(t)
	r.request("PUT", "/t", entryOf("TopicDescription", ""), nil)
	r.request("PUT", "/t/Subscriptions/s", entryOf("SubscriptionDescription", ""), nil)
	var pairs strings.Builder
	for i := range filter.ParametersMax {
		fmt.Fprintf(&pairs, `<KeyValueOfstringanyType><Key>@p%d</Key><Value i:type="d6p1:string" xmlns:d6p1="%s">x</Value></KeyValueOfstringanyType>`, i, schemaXMLNS)
	}
	sql := "><SqlExpression>SET a = @p1</SqlExpression><Parameters>" + pairs.String() + "</Parameters>"
	body := entryOf("RuleDescription", `<Filter i:type="SqlFilter"`+strings.Replace(sql, "SET", "", 1)+`</Filter><Action i:type="SqlRuleAction"`+sql+"</Action>")
	if status, answer := r.request("PUT", "/t/Subscriptions/s/Rules/r", body, nil); status != http.StatusCreated {
		t.Errorf("%d %.600s", status, answer)
	}
}

// feed holds the parts of a list that the tests read.
type feed struct {
	Links []struct {
		Rel  string `xml:"rel,attr"`
		HREF string `xml:"href,attr"`
	} `xml:"link"`
	Titles []string `xml:"entry>title"`
}

// The second of exactly two links refers to the next page; the last page has one link.
func TestATOMListsHavePages(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	var want []string
	for i := range pageEntitiesMax + 5 { // the cluster lists fewer at once
		want = append(want, fmt.Sprintf("q%04d", i))
		r.request("PUT", "/v1/queues/"+want[i], "", nil)
	}
	for _, top := range []int{atomPageMax, 300} {
		var got []string
		path := fmt.Sprintf("/$Resources/Queues?api-version=2017-04&$top=%d", top)
		for path != "" {
			status, body := r.request("GET", path, "", nil)
			var page feed
			if err := xml.Unmarshal([]byte(body), &page); status != http.StatusOK || err != nil {
				t.Fatal(status, err, body)
			}
			got = append(got, page.Titles...)
			path = ""
			if len(page.Links) == 2 {
				path = strings.TrimPrefix(page.Links[1].HREF, "http://localhost:5300")
				if len(page.Titles) != top || page.Links[1].Rel != "next" || !strings.Contains(path, "api-version=2017-04") || !strings.Contains(path, "%24top=") {
					t.Fatalf("%d entries, next is %+v", len(page.Titles), page.Links[1])
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("by %d (-want +got)\n%s", top, diff)
		}
	}
}

// A list is limited in bytes: no page is truncated, because Go would consider it the last.
func TestATOMListIsBounded(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	r.request("PUT", "/t", entryOf("TopicDescription", ""), nil)
	r.request("PUT", "/t/Subscriptions/s", entryOf("SubscriptionDescription", ""), nil)
	rules := make([]fsm.Rule, atomPageMax)
	for i := range rules {
		long := fsm.SQLText{Text: "a=@p", Parameters: []filter.Parameter{{Name: "p", Value: filter.Text(strings.Repeat("x", atomFeedBytesMax/len(rules)))}}}
		rules[i] = fsm.Rule{Name: fmt.Sprintf("r%d", i), Filter: fsm.RuleFilter{Kind: fsm.SQLFilter, SQL: long}}
	}
	r.rules["t/subscriptions/s"] = rules
	if status, body := r.request("GET", "/t/Subscriptions/s/Rules?$top=1000", "", nil); status != http.StatusForbidden || !strings.Contains(body, "8388608 bytes: ask for fewer with $top") {
		t.Errorf("%d %.300s", status, body)
	}
	if status, body := r.request("GET", "/t/Subscriptions/s/Rules?$top=500&$skip=400", "", nil); status != http.StatusOK || strings.Count(body, "<entry>") != 500 {
		t.Errorf("%d %.300s", status, body)
	}
}

// The client selects the API, otherwise the path does.
func TestATOMRequestsAreRecognized(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	accept := func(r *http.Request) { r.Header.Set("Accept", "application/atom+xml;type=entry") }
	for _, c := range []struct {
		path   string
		change func(*http.Request)
		atom   bool
	}{
		{"/v1/queues/none", nil, false},
		{"/v1/queues/none?api-version=2021-05", nil, true},
		{"/v1/queues/none", accept, true},
		{"/v1", nil, false},
		{"/livez", nil, false},
		{"/health", accept, true},
		{"/v2", nil, true},
		{"/orders", nil, true},
	} {
		_, body := r.request("GET", c.path, "", c.change)
		if strings.HasPrefix(body, "<") != c.atom {
			t.Errorf("%s: %s", c.path, body)
		}
	}
}

// Signatures cover paths as in the control API; forwarding requires the right to send to the destination.
func TestATOMRequestsNeedAKey(t *testing.T) {
	t.Parallel()
	signed := func(resource, name, key string) string {
		return auth.Sign(resource, name, key, time.Now().Add(time.Minute))
	}
	of := func(header, token string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(header, token) }
	}
	own := of("Authorization", signed("https://localhost:5300/q?api-version=2021-05", "root", "root-secret"))
	for name, c := range map[string]struct {
		forward string
		changes []func(*http.Request)
		status  int
	}{
		"no key, from elsewhere":           {"", nil, 401},
		"the entity":                       {"", []func(*http.Request){own}, 201},
		"a JWT":                            {"", []func(*http.Request){of("Authorization", "e30.e30.")}, 401},
		"a JWT with Bearer":                {"", []func(*http.Request){of("Authorization", "Bearer e30.e30.")}, 401},
		"without manage":                   {"", []func(*http.Request){of("Authorization", signed("http://localhost/", "app", "app-secret"))}, 401},
		"another entity":                   {"", []func(*http.Request){of("Authorization", signed("http://localhost/q2", "root", "root-secret"))}, 401},
		"forward without a token":          {"other", []func(*http.Request){own}, 401},
		"forward with one":                 {"http://localhost:5300/other", []func(*http.Request){own, of(forwardTokenHeader, signed("sb://localhost/other", "app", "app-secret"))}, 201},
		"forward with one of a name":       {"some/other", []func(*http.Request){own, of(forwardTokenHeader, signed("some/other", "app", "app-secret"))}, 201},
		"forward with one of another":      {"other", []func(*http.Request){own, of(forwardTokenHeader, signed("sb://localhost/another", "app", "app-secret"))}, 401},
		"forward with a wrong key":         {"other", []func(*http.Request){own, of(forwardTokenHeader, signed("sb://localhost/other", "app", "x"))}, 401},
		"forward without the right to":     {"other", []func(*http.Request){own, of(forwardTokenHeader, signed("sb://localhost/other", "reader", "reader-secret"))}, 401},
		"forward with the other's header":  {"other", []func(*http.Request){own, of(forwardDeadLetterTokenHeader, signed("sb://localhost/other", "app", "app-secret"))}, 401},
		"forward into what looks signed":   {"localhost/q", []func(*http.Request){own, of(forwardTokenHeader, signed("sb://localhost/q", "app", "app-secret"))}, 401},
		"forward with a key to everything": {"other", []func(*http.Request){of("Authorization", signed("http://localhost/", "root", "root-secret"))}, 201},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, body := newTestServer(t).request("PUT", "/q", entryOf("QueueDescription", "<ForwardTo>"+c.forward+"</ForwardTo>"), func(r *http.Request) {
				r.RemoteAddr = "10.0.0.9:1"
				for _, change := range c.changes {
					change(r)
				}
			})
			if status != c.status {
				t.Errorf("%d %s, want %d", status, body, c.status)
			}
		})
	}
}

// A key of one queue permits forwarding to that queue, also if another key manages the source.
func TestATOMForwardingByKeysOfEntities(t *testing.T) {
	t.Parallel()
	token := func(resource, name string) string { return auth.Sign(resource, name, "k", time.Now().Add(time.Minute)) }
	for to, want := range map[[2]string]int{
		{"sub", "sb://localhost/sub"}:     200,
		{"x/sub", "sb://localhost/x/sub"}: 401,
		{"x/sub", "x/sub"}:                401, // the key does not belong to x/sub
		{"sub", "sub"}:                    200, // the name as it was written
		{"sub", "x/sub"}:                  401,
		{"sub", "?://localhost/sub"}:      401,
		{"x/sub", "sb://localhost/sub"}:   401,
	} {
		r := newTestServer(t)
		for _, queue := range []string{"orders", "sub", "x/sub"} {
			r.request("PUT", "/v1/queues/"+queue, "", nil)
		}
		r.request("PUT", "/v1/access/orders?rule=owner", `{"rights":["Manage"]}`, nil)
		r.shorten("orders", "owner", "k")
		r.request("PUT", "/v1/access/sub?rule=sender", `{"rights":["Send"]}`, nil)
		r.shorten("sub", "sender", "k")
		status, body := r.request("PUT", "/orders", entryOf("QueueDescription", "<ForwardTo>"+to[0]+"</ForwardTo>"), func(q *http.Request) {
			update(q)
			q.RemoteAddr = "10.0.0.9:1"
			q.Header.Set("Authorization", token("http://localhost/orders?api-version=2021-05", "owner"))
			q.Header.Set(forwardTokenHeader, token(to[1], "sender"))
		})
		if status != want {
			t.Errorf("%v: %d %s, want %d", to, status, body, want)
		}
	}
}
