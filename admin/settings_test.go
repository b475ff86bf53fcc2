package admin

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/admin/inspect"
	"github.com/peeklock/peeklock/fsm"
)

// Every setting is stored and shown under its JSON name, and a PATCH keeps the settings that it omits.
func TestEverySettingIsStoredAndShown(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	status, body := r.request("PUT", "/v1/queues/q", `{
		"lockDuration":"1m", "maxDeliveryCount":1, "maxMessageBytes":2048,
		"defaultMessageTimeToLive":"PT1H", "deadLetteringOnMessageExpiration":true,
		"requiresDuplicateDetection":true, "duplicateDetectionHistoryTimeWindow":"20s",
		"autoDeleteOnIdle":"5m", "maxSizeInMegabytes":81920, "status":"receivedisabled", "userMetadata":"mine",
		"forwardTo":"other", "forwardDeadLetteredMessagesTo":"dead/all",
		"deadLetterTimeToLive":"P7D", "retryDelay":"100ms", "retryDelayMax":"1m"}`, nil)
	if status != 201 {
		t.Fatal(status, body)
	}
	want := fsm.EntitySettings{
		LockDuration: 60_000, MaxDeliveryCount: 1, MaxMessageBytes: 2048,
		DefaultTimeToLive: 3_600_000, DeadLetterOnExpiry: true,
		RequiresDuplicateDetection: true, DuplicateWindow: 20_000,
		AutoDeleteOnIdle: 300_000, MaxBytes: 80 << 30, Status: fsm.ReceiveDisabled, UserMetadata: "mine",
		ForwardTo: "other", ForwardDeadLettersTo: "dead/all",
		DeadLetterTimeToLive: 7 * 24 * 3_600_000, RetryDelay: 100, RetryDelayMax: 60_000,
	}
	if diff := cmp.Diff(want, r.entities["q"].Settings); diff != "" {
		t.Error(diff)
	}
	if err := r.entities["q"].Settings.Validate(); err != nil {
		t.Error("the state machine refuses them:", err)
	}
	status, body = r.request("PATCH", "/v1/queues/q", `{"status":"Active","autoDeleteOnIdle":"forever","defaultMessageTimeToLive":"P10675199DT2H48M5.4775807S","userMetadata":"","forwardTo":""}`, nil)
	if status != 200 {
		t.Fatal(status, body)
	}
	want.Status, want.AutoDeleteOnIdle, want.DefaultTimeToLive, want.UserMetadata, want.ForwardTo = fsm.Active, fsm.Forever, fsm.Forever, "", ""
	if diff := cmp.Diff(want, r.entities["q"].Settings); diff != "" {
		t.Error(diff)
	}
	var shown api.Queue
	if err := json.Unmarshal([]byte(body), &shown); err != nil {
		t.Fatal(err)
	}
	again, err := shown.ApplyTo(fsm.QueueEntity, entity.DefaultSettings(fsm.QueueEntity), entity.LimitsOf(fsm.NamespaceSettings{}))
	if diff := cmp.Diff(want, again); diff != "" || err != nil {
		t.Errorf("what is shown is not what was set: %v %s", err, diff)
	}
}

// A retry delay alone gets a maximum, and a retry delay of 0 clears both.
func TestRetryDelayAloneGetsAMaximum(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	r.request("PUT", "/v1/queues/q", "", nil)
	for _, step := range []struct {
		body       string
		delay, max fsm.Millis
	}{
		{`{"retryDelay":"1s"}`, 1000, 600_000},
		{`{"retryDelayMax":"2s"}`, 1000, 2000},
		{`{"retryDelay":"1h"}`, 3_600_000, 3_600_000},
		{`{"retryDelay":"0s"}`, 0, 0},
	} {
		status, body := r.request("PATCH", "/v1/queues/q", step.body, nil)
		if s := r.entities["q"].Settings; status != 200 || s.RetryDelay != step.delay || s.RetryDelayMax != step.max || s.Validate() != nil {
			t.Errorf("%s: %d %s", step.body, status, body)
		}
	}
}

func TestWrongSettingsAreRefused(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	for body, want := range map[string]string{
		`{"defaultMessageTimeToLive":"0s"}`:                                             "1ms to forever",
		`{"defaultMessageTimeToLive":"eternal"}`:                                        "write it like 30s",
		`{"duplicateDetectionHistoryTimeWindow":"19s"}`:                                 "20s to 168h0m0s",
		`{"duplicateDetectionHistoryTimeWindow":"P7DT1S"}`:                              "20s to 168h0m0s",
		`{"autoDeleteOnIdle":"299s"}`:                                                   "5m0s to forever, not 4m59s",
		`{"maxSizeInMegabytes":0}`:                                                      "1 to 81920",
		`{"maxSizeInMegabytes":81921}`:                                                  "1 to 81920",
		`{"status":"Gone"}`:                                                             "Active, Disabled, SendDisabled, ReceiveDisabled",
		`{"userMetadata":"` + strings.Repeat("x", entity.UserMetadataBytesMax+1) + `"}`: "1024 bytes",
		`{"deadLetterTimeToLive":"999ms"}`:                                              "1s to forever",
		`{"retryDelay":"P7DT1S"}`:                                                       "0s to 168h0m0s",
		`{"retryDelayMax":"1s"}`:                                                        "needs a retryDelay",
		`{"retryDelay":"2s","retryDelayMax":"1s"}`:                                      "at least retryDelay",
		`{"requiresDuplicateDetection":"yes"}`:                                          "the body",
		`{"deadLetteringOnFilterEvaluationExceptions":true}`:                            "of subscriptions, not of queues",
		`{"forwardTo":"` + strings.Repeat("x", entity.NameCharactersMax+1) + `"}`:       "260 characters",
	} {
		status, answer := r.request("PUT", "/v1/queues/q", body, nil)
		var p api.Problem
		if err := json.Unmarshal([]byte(answer), &p); err != nil || status != 400 || !strings.Contains(p.Message, want) {
			t.Errorf("%.60s: %d %s\nwant %s", body, status, answer, want)
		}
	}
	if len(r.entities) != 0 {
		t.Errorf("something was made: %v", r.entities)
	}
	// Values equal to the limits are accepted, by the API and by the state machine.
	for _, body := range []string{
		`{"defaultMessageTimeToLive":"1ms","duplicateDetectionHistoryTimeWindow":"P7D","maxSizeInMegabytes":1,"deadLetterTimeToLive":"1s","retryDelay":"1ms"}`,
		`{"retryDelay":"P7D","retryDelayMax":"P7D","userMetadata":"` + strings.Repeat("x", entity.UserMetadataBytesMax) + `"}`,
	} {
		delete(r.entities, "q")
		if status, answer := r.request("PUT", "/v1/queues/q", body, nil); status != 201 || r.entities["q"].Settings.Validate() != nil {
			t.Error(status, answer)
		}
	}
}

func TestPurgeAndRedriveAreBounded(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	r.request("PUT", "/v1/queues/a/b", "", nil)
	r.request("PUT", "/v1/topics/t", "", nil)
	r.request("PUT", "/v1/subscriptions/t/Subscriptions/s", "", nil)
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/v1/purge/a/b", "", 200, `{"count":3}`},
		{"POST", "/v1/purge/A/B", `{"subQueue":"deadLetter","before":"2026-11-20T12:00:00+01:00","max":1}`, 200, `{"count":3}`},
		{"POST", "/v1/purge/a/b", `{"subQueue":"transferDeadLetter","max":2}`, 200, `{"count":3}`},
		{"POST", "/v1/purge/t/Subscriptions/s", `{"max":2}`, 200, `{"count":3}`},
		{"POST", "/v1/purge/t", "", 403, "is a topic"},
		{"POST", "/v1/purge/t/subscriptions/.a", "", 400, "begins with a letter"},
		{"POST", "/v1/purge/a/b", `{"subQueue":"dead"}`, 400, "main, deadLetter or transferDeadLetter"},
		{"POST", "/v1/purge/a/b", `{"max":4001}`, 400, "1 to 4000"},
		{"POST", "/v1/purge/a/b", `{"max":-1}`, 400, "1 to 4000"},
		{"POST", "/v1/purge/a/b", `{"before":"yesterday"}`, 400, "the body"},
		{"POST", "/v1/purge/a/b", `{"all":true}`, 400, "subQueue, before and max"},
		{"POST", "/v1/purge/none", "", 404, "could not be found"},
		{"GET", "/v1/purge/a/b", "", 403, "GET is not possible"},
		{"POST", "/v1/redrive/a/b", `{"sequences":[3,5]}`, 200, `{"count":2,"matched":2,"looked":2,"next":6,"end":true}`},
		{"POST", "/v1/redrive/T/subscriptions/S", `{"sequences":[3]}`, 200, `{"count":1,`},
		{"POST", "/v1/redrive/a/b", `{"sequences":[]}`, 400, "give a condition"},
		{"POST", "/v1/redrive/a/b", "", 400, "give a condition"},
		{"POST", "/v1/delete/a/b", "", 400, "give a condition"},
		{"POST", "/v1/delete/a/b", `{"sequences":[7],"subQueue":"deadLetter"}`, 200, `{"count":1,`},
		{"POST", "/v1/cancel/a/b", `{"sequences":[7]}`, 200, `{"count":1,`},
		{"POST", "/v1/undefer/a/b", `{"sequences":[9,7]}`, 200, `{"count":2,`},
		{"POST", "/v1/delete/a/b", `{"contains":"x","max":1001}`, 400, "max is 1 to 1000"},
		{"POST", "/v1/cancel/a/b", `{"states":["active"]}`, 400, "messages in these states do not support this change"},
		{"POST", "/v1/undefer/a/b", `{"where":"a = 1"}`, 200, `{"count":0,"matched":0,"looked":0,"next":0,"end":true}`},
		{"POST", "/v1/redrive/a/b", `{"sequences":[1],"to":"nowhere"}`, 400, "to: there is no"},
		{"POST", "/v1/redrive/a/b", `{"sequences":[1],"to":"t/Subscriptions/s"}`, 400, "gets no messages from clients"},
		{"POST", "/v1/redrive/a/b", `{"subQueue":"main","contains":"x"}`, 400, "only the messages of the dead-letter queue"},
		{"GET", "/v1/messages/a/b?where=a+%3D+1&state=active&max=5&from=9", "", 200, `{"messages":[],"looked":0,"next":9,"end":true}`},
		{"GET", "/v1/messages/a/b?max=1001", "", 400, "max is a number from 1 to 1000"},
		{"GET", "/v1/messages/a/b?bodyBytes=4194305", "", 400, "bodyBytes is a number"},
		{"GET", "/v1/messages/a/b?from=-1", "", 400, "from is a sequence number"},
		{"GET", "/v1/messages/a/b?sequence=1,x", "", 400, "sequence is a sequence number"},
		{"GET", "/v1/messages/a/b?before=now", "", 400, "before is a time"},
		{"GET", "/v1/messages/a/b?states=active", "", 400, "unknown parameter"},
		{"POST", "/v1/redrive/a/b", `{"sequences":[` + strings.Repeat("1,", inspect.ChangeMessagesMax) + `1]}`, 400, "at most 1000 sequence numbers"},
		{"POST", "/v1/redrive/a/b", `{"sequences":[-1]}`, 400, "the body"},
		{"POST", "/v1/redrive/none", `{"sequences":[1]}`, 404, "could not be found"},
	} {
		status, body := r.request(c.method, c.path, c.body, nil)
		if status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s %s %.60s: %d %s\nwant %d with %s", c.method, c.path, c.body, status, body, c.status, c.want)
		}
	}
	want := []string{
		"purge a/b 0 0001-01-01T00:00:00Z 4000", "purge a/b 1 2026-11-20T11:00:00Z 1",
		"purge a/b 2 0001-01-01T00:00:00Z 2", "purge t/Subscriptions/s 0 0001-01-01T00:00:00Z 2", "purge  0 0001-01-01T00:00:00Z 4000",
		"redrive a/b [3 5]", "redrive t/Subscriptions/s [3]",
		"settle a/b 1 [7] 1 42", "settle a/b 0 [7] 1 32", "settle a/b 0 [7 9] 5 8", "peek a/b 0 from 0 500", "peek a/b 0 from 9 500",
	}
	if diff := cmp.Diff(want, r.asked); diff != "" {
		t.Error(diff)
	}
	// A redrive at its limit fits into a body, also with the longest numbers.
	long := `{"sequences":[` + strings.Repeat("18446744073709551615,", inspect.ChangeMessagesMax-1) + `1]}`
	if status, body := r.request("POST", "/v1/redrive/a/b", long, nil); status != 200 {
		t.Error(status, body)
	}
}
