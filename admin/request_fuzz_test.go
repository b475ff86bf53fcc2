package admin

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// FuzzRequest checks that no request to either API causes a panic or an internal error, and that every answer
// can be parsed.
func FuzzRequest(f *testing.F) {
	f.Add("PUT", "/q", entryOf("QueueDescription", "<AuthorizationRules><AuthorizationRule><Rights><AccessRights>Send</AccessRights></Rights><KeyName>a</KeyName></AuthorizationRule></AuthorizationRules>"), "*", "")
	f.Add("PUT", "/t/Subscriptions/s", entryOf("SubscriptionDescription", ""), "", "")
	f.Add("GET", "/$Resources/Queues?$skip=1&$top=2", "", "", "SharedAccessSignature sr=http%3a%2f%2flocalhost&sig=x&se=1&skn=root")
	f.Add("PUT", "/v1/access/q?rule=r", `{"rights":["Send"]}`, "", "")
	f.Add("PUT", "/v1/namespaces/n", `{"hosts":["a.b"],"accessRules":[{"name":"a","rights":["Send"]}]}`, "", "Bearer a.b.c")
	f.Add("POST", "/v1/regenerate/q?namespace=default", `{"rule":"r","which":"primary"}`, "", "")
	f.Fuzz(func(t *testing.T, method, target, body, match, key string) {
		request, err := http.NewRequest(method, "http://localhost:5300"+target, strings.NewReader(body))
		if err != nil || !strings.HasPrefix(target, "/") {
			return // no server receives it
		}
		request.RemoteAddr = "127.0.0.1:1"
		for name, value := range map[string]string{"If-Match": match, "Authorization": key} {
			if value != "" {
				request.Header.Set(name, value)
			}
		}
		r := newTestServer(t)
		for _, path := range []string{"/v1/queues/q", "/v1/topics/t"} {
			r.request("PUT", path, "", nil)
		}
		w := httptest.NewRecorder()
		r.server.http.Handler.ServeHTTP(w, request)
		if w.Code == http.StatusInternalServerError {
			t.Errorf("%s %s: %s", method, target, w.Body)
		}
		answer := w.Body.String()
		switch kind := w.Header().Get("Content-Type"); {
		case answer == "", w.Code >= 300 && w.Code < 400: // net/http adds a slash
		case strings.Contains(kind, "xml"):
			for decoder := xml.NewDecoder(strings.NewReader(answer)); ; {
				if _, err := decoder.Token(); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatalf("%s %s: %v in %s", method, target, err, answer)
				}
			}
		case !json.Valid([]byte(answer)):
			t.Errorf("%s %s: %s", method, target, answer)
		}
	})
}
