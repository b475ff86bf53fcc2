package admin

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

const subscriptionDefaults = `{"name":"shop/orders/Subscriptions/audit","topicName":"shop/orders","subscriptionName":"audit",` +
	`"lockDuration":"30s","maxDeliveryCount":10,"defaultMessageTimeToLive":"forever","deadLetteringOnMessageExpiration":false,` +
	`"autoDeleteOnIdle":"forever","status":"Active","userMetadata":"","deadLetteringOnFilterEvaluationExceptions":true,` +
	`"forwardTo":"","forwardDeadLetteredMessagesTo":"","requiresSession":false,"deadLetterTimeToLive":"forever",` +
	`"retryDelay":"0s","retryDelayMax":"0s","partition":3,"version":1,`

// The names of topics may contain slashes, also in the path of a subscription. Settings that a kind does not
// have are not shown.
func TestTopicsAndSubscriptionsAreCreatedChangedAndDeleted(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	for _, step := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"PUT", "/v1/topics/shop/orders", `{"maxSizeInMegabytes":5}`, 201, `{"name":"shop/orders","maxMessageBytes":262144,"defaultMessageTimeToLive":"forever","requiresDuplicateDetection":false,"duplicateDetectionHistoryTimeWindow":"10m0s","autoDeleteOnIdle":"forever","maxSizeInMegabytes":5,"status":"Active","userMetadata":"","enablePartitioning":false,"partition":3,"version":1,"createdAt":`},
		{"PUT", "/v1/queues/shop/orders", "", 409, `"code":"EntityExists"`},
		{"PATCH", "/v1/topics/Shop/Orders", `{"status":"SendDisabled"}`, 200, `"maxSizeInMegabytes":5,"status":"SendDisabled"`},
		{"GET", "/v1/topics/shop/orders", "", 200, `"counts":{"scheduled":2,"bytes":9,"subscriptions":6}`},
		{"GET", "/v1/queues/shop/orders", "", 404, `"code":"EntityNotFound"`},
		{"PUT", "/v1/topics/shop", "", 201, `"name":"shop"`},
		{"GET", "/v1/topics?max=1", "", 200, `"next":"shop"`},
		{"GET", "/v1/topics?after=shop&counts=true", "", 200, `"counts":{"scheduled":0,`},
		{"GET", "/v1/queues", "", 200, `{"queues":[]}`},

		{"PUT", "/v1/subscriptions/shop/orders/Subscriptions/audit", "", 201, subscriptionDefaults},
		{"PUT", "/v1/subscriptions/shop/orders/subscriptions/AUDIT", "", 409, `"code":"EntityExists"`},
		{"PUT", "/v1/subscriptions/shop/orders/Subscriptions/b", `{"forwardTo":"all","deadLetteringOnFilterEvaluationExceptions":false,"requiresSession":true}`, 201, `"deadLetteringOnFilterEvaluationExceptions":false,"forwardTo":"all","forwardDeadLetteredMessagesTo":"","requiresSession":true`},
		{"PATCH", "/v1/subscriptions/shop/orders/Subscriptions/b", `{"forwardTo":"","forwardDeadLetteredMessagesTo":"dead","maxDeliveryCount":3}`, 200, `"forwardTo":"","forwardDeadLetteredMessagesTo":"dead"`},
		{"GET", "/v1/subscriptions/shop/orders/Subscriptions/b", "", 200, `"counts":{"active":7,"locked":0,"deferred":0,"scheduled":2,"deadLetter":0,"bytes":9,"transfer":4,"transferDeadLetter":5}`},
		{"PUT", "/v1/subscriptions/none/Subscriptions/a", "", 404, `The messaging entity 'none' could not be found.`},
		{"GET", "/v1/subscriptions?topic=shop/orders&max=1", "", 200, `"next":"shop/orders/Subscriptions/audit"`},
		{"GET", "/v1/subscriptions?topic=shop/orders&after=shop/orders/Subscriptions/audit&counts=1", "", 200, `{"subscriptions":[{"name":"shop/orders/Subscriptions/b"`},
		{"GET", "/v1/subscriptions?topic=shop", "", 200, `{"subscriptions":[]}`},
		{"GET", "/v1/subscriptions?topic=none", "", 404, `'none' could not be found`},
		{"DELETE", "/v1/subscriptions/shop/orders/Subscriptions/b", "", 204, ""},
		{"DELETE", "/v1/subscriptions/shop/orders/Subscriptions/b", "", 404, `'shop/orders/Subscriptions/b' could not be found`},
		{"DELETE", "/v1/topics/shop/orders", "", 204, ""},
		{"GET", "/v1/topics/shop/orders", "", 404, `"code":"EntityNotFound"`},
	} {
		status, body := r.request(step.method, step.path, step.body, nil)
		if status != step.status || !strings.Contains(body, step.want) {
			t.Errorf("%s %s: %d %s\nwant %d with %s", step.method, step.path, status, body, step.status, step.want)
		}
	}
}

func TestWrongTopicRequestsAreRefused(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	r.request("PUT", "/v1/topics/t", "", nil)
	r.request("PUT", "/v1/subscriptions/t/Subscriptions/s", "", nil)
	sub := "/v1/subscriptions/t/Subscriptions/"
	for _, c := range []struct{ method, path, body, want string }{
		{"PUT", "/v1/topics/u", `{"lockDuration":"30s"}`, "lockDuration is a setting of subscriptions, not of their topic"},
		{"PATCH", "/v1/topics/t", `{"forwardTo":"q"}`, "forwardTo is a setting of subscriptions"},
		{"PUT", "/v1/topics/u", `{"defaultRule":{}}`, `unknown field "defaultRule"; possible are maxMessageBytes, `},
		{"PUT", "/v1/topics/t/subscriptions/x", "", "names a subscription, not a topic"},
		{"PUT", "/v1/topics/a/Subscriptions", "", "has no part"},
		{"PUT", sub + "u", `{"maxMessageBytes":2048}`, "maxMessageBytes is a setting of the topic, not of its subscriptions"},
		{"PUT", sub + "u", `{"requiresDuplicateDetection":true}`, "of the topic"},
		{"PUT", sub + "u", `{"lockDuratoin":"30s"}`, "retryDelayMax and defaultRule"},
		{"PATCH", sub + "s", `{"defaultRule":{"filter":{"kind":"true"}}}`, "unknown field"},
		{"PUT", sub + "u/v", "", "has no /"},
		{"PUT", sub + strings.Repeat("n", entity.SubscriptionNameMax+1), "", "at most 50 characters"},
		{"PUT", sub + "-n", "", "begins with a letter"},
		{"PUT", "/v1/subscriptions/t", "", "write it like TOPIC/Subscriptions/NAME"},
		{"PUT", "/v1/subscriptions/" + strings.Repeat("t", entity.NameCharactersMax+1) + "/Subscriptions/s", "", "at most 260"},
		{"GET", "/v1/subscriptions", "", "?topic="},
		{"GET", "/v1/subscriptions?topic=a$", "", "letters"},
		{"GET", "/v1/topics?topic=t", "", "unknown parameter"},
		{"GET", "/v1/rules/t", "", "names no subscription"},
		{"GET", "/v1/rules/t/Subscriptions/s?max=201", "", "1 to 200"},
		{"GET", "/v1/rules/t/Subscriptions/s?skip=-1", "", "skip is a number"},
		{"GET", "/v1/rules/t/Subscriptions/s?nam=x", "", "unknown parameter"},
		{"DELETE", "/v1/rules/t/Subscriptions/s", "", "?name="},
		{"PUT", "/v1/rules/t/Subscriptions/s", "{}", "?name="},
		{"PUT", "/v1/rules/t/Subscriptions/s?name=x", "{}", "sql, correlation, true or false"},
		{"PUT", "/v1/rules/t/Subscriptions/s?name=x&replace=perhaps", "{}", "true or false"},
		{"PUT", "/v1/rules/t/Subscriptions/s?name=x", `{"name":"y","filter":{"kind":"true"}}`, `the body "y"`},
		{"PUT", "/v1/rules/t/Subscriptions/s?name=x", `{"filter":{"kind":"true","expression":"1=1"}}`, "require a filter of kind sql"},
		{"PUT", "/v1/rules/t/Subscriptions/s?name=x", `{"filter":{"kind":"sql","conditions":{"a":1}}}`, "kind correlation"},
		{"PUT", "/v1/rules/t/Subscriptions/s?name=x", `{"filter":{"kind":"correlation","conditions":{"sys.Size":1}}}`, "use one of ContentType, "},
		{"PUT", "/v1/rules/t/Subscriptions/s?name=x", `{"filter":{"kind":"correlation","conditions":{"a":[1]}}}`, "a value is a boolean"},
		{"PUT", "/v1/rules/t/Subscriptions/s?name=x", `{"filter":{"kind":"correlation","conditions":{"a":{"type":"guid","value":"0d2c"}}}}`, "is not a GUID"},
		{"PUT", "/v1/rules/t/Subscriptions/s?name=x", `{"filter":{"kind":"correlation","conditions":{"a":9223372036854775808}}}`, "not an integer of 64 bits"},
		{"PUT", "/v1/rules/t/Subscriptions/s?name=x", `{"filters":{}}`, "name, filter (with kind"},
		// Errors of the state machine about a rule keep the position in the text.
		{"PUT", "/v1/rules/t/Subscriptions/s?name=x", `{"filter":{"kind":"sql","expression":"customer = = 7"}}`, `character 12: expected a value`},
		{"PUT", "/v1/rules/t/Subscriptions/s?name=x", `{"filter":{"kind":"sql","expression":"a = @b"}}`, "@b"},
		{"PUT", "/v1/rules/t/Subscriptions/s?name=x", `{"filter":{"kind":"true"},"action":{"expression":"SET x"}}`, "character 6"},
		{"PUT", sub + "u", `{"defaultRule":{"filter":{"kind":"sql","expression":"x LIKE"}}}`, "character 7"},
		{"PUT", "/v1/rules/t/Subscriptions/s?name=" + strings.Repeat("n", 51), `{"filter":{"kind":"true"}}`, "50"},
	} {
		status, body := r.request(c.method, c.path, c.body, nil)
		var p api.Problem
		if err := json.Unmarshal([]byte(body), &p); err != nil || status != 400 || !strings.Contains(p.Message, c.want) {
			t.Errorf("%s %.80s %s: %d %s\nwant 400 with %s", c.method, c.path, c.body, status, body, c.want)
		}
	}
	if len(r.entities) != 2 || len(r.rules["t/subscriptions/s"]) != 1 {
		t.Errorf("something was made: %v %v", r.entities, r.rules)
	}
}

func TestRulesAreCreatedChangedAndDeleted(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	r.request("PUT", "/v1/topics/t", "", nil)
	for _, step := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"PUT", "/v1/subscriptions/t/Subscriptions/s", `{"defaultRule":{"filter":{"kind":"FALSE"}}}`, 201, `"subscriptionName":"s"`},
		{"GET", "/v1/rules/t/Subscriptions/s", "", 200, `{"rules":[{"name":"$Default","filter":{"kind":"false"}}]}`},
		{"PUT", "/v1/rules/t/Subscriptions/s?name=red", `{"filter":{"kind":"sql","expression":"color = @c","parameters":{"c":"red"}},"action":{"expression":"SET paint = @p","parameters":{"p":2.5}}}`, 201, `{"name":"red","filter":{"kind":"sql","expression":"color = @c","parameters":{"c":"red"}},"action":{"expression":"SET paint = @p","parameters":{"p":2.5}}}`},
		{"PUT", "/v1/rules/t/Subscriptions/s?name=RED", `{"filter":{"kind":"true"}}`, 409, `'t/Subscriptions/s' has a rule 'RED'`},
		{"PUT", "/v1/rules/t/Subscriptions/s?name=blue&replace=true", `{"filter":{"kind":"true"}}`, 404, `'t/Subscriptions/s' has no rule 'blue'`},
		{"PUT", "/v1/rules/t/subscriptions/s?name=red&replace=true", `{"name":"Red","filter":{"kind":"correlation","conditions":{"sys.subject":"order","user.sys.x":7}}}`, 200, `{"name":"Red","filter":{"kind":"correlation","conditions":{"sys.Label":"order","user.sys.x":7}}}`},
		{"GET", "/v1/rules/t/Subscriptions/s?name=rEd", "", 200, `"conditions":{"sys.Label":"order","user.sys.x":7}`},
		{"GET", "/v1/rules/t/Subscriptions/s?name=none", "", 404, `"code":"RuleNotFound"`},
		{"GET", "/v1/rules/t/Subscriptions/s?max=1", "", 200, `"next":1`},
		{"GET", "/v1/rules/t/Subscriptions/s?max=1&skip=1", "", 200, `{"rules":[{"name":"Red"`},
		{"GET", "/v1/rules/t/Subscriptions/s?max=2&skip=2", "", 200, `{"rules":[]}`},
		{"DELETE", "/v1/rules/t/Subscriptions/s?name=%24default", "", 204, ""},
		{"DELETE", "/v1/rules/t/Subscriptions/s?name=%24default", "", 404, `has no rule '$default'`},
		{"GET", "/v1/rules/none/Subscriptions/s", "", 404, `'none/Subscriptions/s' could not be found`},
		{"PUT", "/v1/rules/none/Subscriptions/s?name=x", `{"filter":{"kind":"true"}}`, 404, `"code":"EntityNotFound"`},
	} {
		status, body := r.request(step.method, step.path, step.body, nil)
		if status != step.status || !strings.Contains(body, step.want) {
			t.Errorf("%s %s: %d %s\nwant %d with %s", step.method, step.path, status, body, step.status, step.want)
		}
	}
}

// A single rule is found on any page of the list.
func TestRuleIsFoundOnALaterPage(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	r.request("PUT", "/v1/topics/t", "", nil)
	r.request("PUT", "/v1/subscriptions/t/Subscriptions/s", "", nil)
	for i := range pageRulesMax {
		r.rules["t/subscriptions/s"] = append(r.rules["t/subscriptions/s"], fsm.Rule{Name: fmt.Sprint("r", i)})
	}
	last := fmt.Sprint("r", pageRulesMax-1)
	if status, body := r.request("GET", "/v1/rules/t/Subscriptions/s?name="+last, "", nil); status != 200 || !strings.Contains(body, last) {
		t.Error(status, body)
	}
	if status, _ := r.request("GET", "/v1/rules/t/Subscriptions/s?name=none", "", nil); status != 404 {
		t.Error(status)
	}
}
