package admin

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/test/kit"
)

const ownSecret = "the-secret-of-k!" // of the key k

// mineAndTheirs returns a test server with two queues and two topics, of which a key "k" may manage those
// named mine and mine/topic.
func mineAndTheirs(t *testing.T) *testServer {
	t.Helper()
	r := newTestServerOn(t, kit.NewPipeListener())
	for _, path := range []string{
		"/v1/queues/mine", "/v1/queues/theirs", "/v1/queues/mine/too", "/v1/topics/mine/topic", "/v1/topics/topic",
		"/v1/subscriptions/mine/topic/Subscriptions/s", "/v1/subscriptions/topic/Subscriptions/s",
	} {
		if status, body := r.request("PUT", path, "", nil); status != http.StatusCreated {
			t.Fatal(path, status, body)
		}
	}
	for _, path := range []string{"mine", "mine/topic"} {
		if status, body := r.request("PUT", "/v1/access/"+path+"?rule=k", `{"rights":["Manage"],"primaryKey":"`+ownSecret+`"}`, nil); status != http.StatusCreated {
			t.Fatal(path, status, body)
		}
	}
	return r
}

// isMine is the rule, applied to the parts of a path: a queue or topic of the key, or a part of it.
func isMine(path string) bool {
	parts := strings.Split(strings.Trim(strings.ToLower(path), "/"), "/")
	isPart := func(at int) bool {
		return len(parts) == at || parts[at] == "subscriptions" || strings.HasPrefix(parts[at], "$")
	}
	return len(parts) >= 1 && parts[0] == "mine" && isPart(1) || len(parts) >= 2 && parts[0] == "mine" && parts[1] == "topic" && isPart(2)
}

// FuzzPathsAndKeys checks that, for any spelling of the path and any signed resource, the key of an entity
// gets answers only about that entity and everything below it.
func FuzzPathsAndKeys(f *testing.F) {
	for _, path := range []string{
		"/", "/mine", "/MINE", "/mine/", "//mine", "/mine//", "/mine/../theirs", "/theirs/..%2fmine", "/mine%2F..%2Ftheirs", "/mine%2ftoo", "/mine/topic/Subscriptions/s",
		"/topic/SUBSCRIPTIONS/s", "/mine/topic/subscriptions/", "/mine/$DeadLetterQueue", "/mine/$management", "/theirs/$management/mine", "/v1/queues/mine",
		"/v1/queues/theirs", "/v1/access/theirs", "/v1/rules/topic/Subscriptions/s", "/v1/subscriptions?topic=topic", "/v1/endpoints?entity=mine", "/%3F://localhost/mine",
	} {
		for _, signed := range []string{"http://localhost/mine", "http://localhost/", "?://localhost/mine", "theirs?://localhost/mine", "http://localhost" + path} {
			f.Add(path, signed, true)
			f.Add(path, signed, false)
		}
	}
	f.Fuzz(func(t *testing.T, path, signed string, atom bool) {
		synctest.Test(t, func(t *testing.T) { testPathAndKey(t, path, signed, atom) })
	})
}

// testPathAndKey requests one path with one signed resource. It runs in a bubble, because the server delays refusals.
func testPathAndKey(t *testing.T, path, signed string, atom bool) {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, "http://localhost:5300"+path, nil)
	if err != nil || !strings.HasPrefix(path, "/") {
		return // no server receives it
	}
	if atom {
		request.URL.RawQuery = "api-version=2021-05"
	}
	request.RemoteAddr = "10.0.0.9:1"
	request.Header.Set("Authorization", auth.Sign(signed, "k", ownSecret, time.Now().Add(time.Minute)))
	w := httptest.NewRecorder()
	mineAndTheirs(t).server.http.Handler.ServeHTTP(w, request)
	if !atom && path == "/v1/queues/mine" && signed == "http://localhost/mine" && w.Code != http.StatusOK {
		t.Fatalf("the key has no access to its own queue: %d %s", w.Code, w.Body)
	}
	if w.Code != http.StatusOK || !isATOM(request) && slices.Contains([]string{"/health", "/livez", "/readyz"}, request.URL.Path) {
		return
	}
	if request.URL.Path == "/" && !strings.Contains(w.Body.String(), "<entry") {
		return // the empty feed of the root, which needs no credential
	}
	asked := request.URL.Path
	if !isATOM(request) { // the path is /v1/noun/entity, or a parameter names the entity
		parts := strings.SplitN(asked, "/", 4)
		asked = request.URL.Query().Get("topic") + request.URL.Query().Get("entity")
		if len(parts) == 4 {
			asked = parts[3]
		}
	}
	if !isMine(asked) {
		t.Fatalf("GET %s, signed for %q: %s", request.URL, signed, w.Body)
	}
}
