package admin

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// titles lists a path and returns the names of the entries, following the links to next pages.
func (r *testServer) titles(t *testing.T, path string) []string {
	t.Helper()
	var titles []string
	for path != "" {
		status, body := r.request("GET", path, "", nil)
		var page feed
		if err := xml.Unmarshal([]byte(body), &page); status != http.StatusOK || err != nil {
			t.Fatalf("%s: %d %v %s", path, status, err, body)
		}
		titles = append(titles, page.Titles...)
		path = ""
		if len(page.Links) == 2 {
			path = strings.TrimPrefix(page.Links[1].HREF, "http://localhost:5300")
		}
	}
	return titles
}

func TestListsAreFiltered(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	for _, name := range []string{"a1", "A2", "b1", "its"} { // the fake gives entities 1, 2, 3 and 4 as many messages
		r.request("PUT", "/"+name, entryOf("QueueDescription", ""), nil)
	}
	r.request("PUT", "/t", entryOf("TopicDescription", ""), nil)
	r.request("PUT", "/t/Subscriptions/s1", entryOf("SubscriptionDescription", ""), nil)
	r.request("PUT", "/t/Subscriptions/x", entryOf("SubscriptionDescription", ""), nil)
	all := []string{"a1", "A2", "b1", "its"}
	const queues = "/$Resources/Queues"
	for _, c := range []struct {
		path, filter string
		want         []string
	}{
		{queues, "", all},
		{queues, " ", all},
		{queues, "startswith(path,'a') eq true", []string{"a1", "A2"}},
		{queues, "StartsWith( Path , 'A' ) Eq True", []string{"a1", "A2"}},
		{queues, "startswith(path, 'a') eq false", []string{"b1", "its"}},
		{queues, "startswith(path, 'a') ne true", []string{"b1", "its"}},
		{queues, "path eq 'it''s'", nil},
		{queues, "path gt 'a1' AND path lt 'b2'", []string{"A2", "b1"}},
		{queues, "messageCount ge 3", []string{"b1", "its"}},
		{queues, "messageCount le 3 and messagecount ne 2", []string{"a1", "b1"}},
		{queues, "createdAt ge '2026-11-20T12:00:00Z' AND updatedAt eq 2026-11-20T12:00:00Z", all},
		{queues, "createdAt gt '2026-11-20T12:00:00'", nil},
		{queues, "createdAt gt datetime'2026-11-19'", all},
		{queues, "createdAt lt '11/20/2026 11:59:59'", nil},
		{queues, "accessedAt lt '2026-11-20'", all}, // never used
		{"/$Resources/Topics", "startswith(path, 't') eq true", []string{"t"}},
		{"/$Resources/Topics", "path ne 't'", nil},
		{"/t/Subscriptions", "startswith(path, 's') eq true", []string{"s1"}},
		{"/t/Subscriptions", "accessedAt eq '2026-11-20T12:00:00Z'", []string{"s1", "x"}},
	} {
		for _, rest := range []string{"", "&$top=1&api-version=2017-04&enrich=False"} { // applied before $skip and $top
			if diff := cmp.Diff(c.want, r.titles(t, c.path+"?$filter="+url.QueryEscape(c.filter)+rest)); diff != "" {
				t.Errorf("%s %s%s (-want +got)\n%s", c.path, c.filter, rest, diff)
			}
		}
	}
	if got := r.titles(t, queues+"??%24filter=path+ge+'b'&%24skip=1"); len(got) != 1 || got[0] != "its" {
		t.Error(got)
	}
}

func TestListParametersAreRefusedWithThePosition(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	r.request("PUT", "/t", entryOf("TopicDescription", ""), nil)
	r.request("PUT", "/t/Subscriptions/s", entryOf("SubscriptionDescription", ""), nil)
	for filter, want := range map[string]string{
		"= nonsense":                   "$filter, position 1: startswith, path",
		"size gt 3":                    "position 1: startswith",
		"path like 'x'":                "position 6: eq, ne",
		"path eq x":                    "position 9: path is compared with a text in single quotes",
		"path eq 'é' AND path eq 'x":   "position 25: path is compared",
		"path eq 'it''":                "position 9: path is compared",
		"path eq 'x' or path eq 'y'":   "position 13: AND or the end of the filter",
		"path eq 'x' and":              "position 16: startswith, path",
		"messageCount gt 'x'":          "position 17: messageCount is compared with a number",
		"createdAt gt yesterday":       "position 14: a time belongs here",
		"startswith path":              "position 12: ( belongs here",
		"startswith(createdAt, 'x')":   "position 12: path belongs here",
		"startswith(path, 'x'":         "position 21: ) belongs here",
		"startswith(path, 'x')":        "position 22: eq or ne belongs here",
		"startswith(path, 'x') eq yes": "position 26: true or false belongs here",
		strings.Repeat("path ne 'x' AND ", 40) + "path ne 'x'": "the filter has more than 32 conditions",
		strings.Repeat(" x", 4000):                             "position 1: the filter is longer than 4096 bytes",
	} {
		if status, body := r.request("GET", "/$Resources/Queues?$filter="+url.QueryEscape(filter), "", nil); status != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%.80s: %d %s", filter, status, body)
		}
	}
	for query, want := range map[string]string{
		"/$Resources/Topics?api-version=2017-04&$orderby=path":  "query, position 21: the list has no parameter",
		"/$Resources/Queues?%24select=path":                     "query, position 1: the list has no parameter",
		"/t/Subscriptions/s/Rules?$filter=path+eq+'x'":          "query, position 1: the list has no parameter",
		"/$Resources/Queues?$top=0":                             "$top is a number",
		"/$Resources/Queues?$filter=path+eq+%zz":                "query, position 1: invalid URL escape",
		"/t/Subscriptions?api-version=2017-04&$top=1&$filter==": "position 1: startswith",
	} {
		if status, body := r.request("GET", query, "", nil); status != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", query, status, body)
		}
	}
}

func TestFilteredListsReadABoundedNumberOfEntities(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	r.endless = true
	want := fmt.Sprintf("reads at most %d entities", atomFilteredMax)
	status, body := r.request("GET", "/$Resources/Queues?$filter=path+eq+'x'", "", nil)
	if status != http.StatusForbidden || !strings.Contains(body, want) || r.listed.Load() > atomFilteredMax/pageEntitiesMax+1 {
		t.Errorf("%d %s after %d reads", status, body, r.listed.Load())
	}
	if status, body = r.request("GET", "/$Resources/Queues?$filter=path+eq+'q'&$top=1000&$skip=98000", "", nil); status != http.StatusOK || strings.Count(body, "<entry>") != 1000 {
		t.Errorf("%d %.200s", status, body)
	}
}
