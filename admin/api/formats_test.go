package api

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/amqp/jsonmessage"
	"github.com/peeklock/peeklock/fsm/filter"
	"github.com/peeklock/peeklock/test/golden"
	"github.com/peeklock/peeklock/topology"
)

// apiFormats lists the bodies of requests and answers of the control API.
func apiFormats() []golden.Format {
	return []golden.Format{
		{Name: "problem", Of: Problem{}},
		{Name: "health", Of: Health{}},
		{Name: "checks", Of: Checks{}},
		{Name: "queue", Of: Queue{}},
		{Name: "queues", Of: QueuePage{}},
		{Name: "settings", Of: entity.Settings{}},
		{Name: "purge", Of: PurgeRequest{}},
		{Name: "messages", Of: MessagePage{}},
		{Name: "selection", Of: Selection{}},
		{Name: "session state", Of: SessionState{}},
		{Name: "session state, request", Of: SessionStateRequest{}},
		{Name: "session released", Of: SessionReleased{}},
		{Name: "rule test", Of: RuleTest{}},
		{Name: "message change", Of: MessageChange{}},
		{Name: "messages changed", Of: MessagesChanged{}},
		{Name: "redrive", Of: RedriveRequest{}},
		{Name: "affected", Of: Affected{}},
		{Name: "conditions", Of: Conditions{}},
		{Name: "endpoints", Of: Endpoints{}},
		{Name: "rates", Of: Rates{}},
		{Name: "event", Of: Event{}},
		{Name: "audit", Of: topology.AuditPage{}},
		{Name: "storage", Of: topology.Storage{}},
		{Name: "topic", Of: Topic{}},
		{Name: "topics", Of: TopicPage{}},
		{Name: "subscription", Of: Subscription{}},
		{Name: "subscription, request", Of: SubscriptionRequest{}},
		{Name: "subscriptions", Of: SubscriptionPage{}},
		{Name: "rule", Of: entity.Rule{}},
		{Name: "rules", Of: RulePage{}},
		{Name: "session", Of: Session{}},
		{Name: "sessions", Of: SessionPage{}},
		{Name: "tail", Of: TailPage{}},
		{Name: "connections", Of: topology.ConnectionPage{}},
		{Name: "namespace", Of: Namespace{}},
		{Name: "namespace, request", Of: NamespaceRequest{}},
		{Name: "namespaces", Of: NamespacePage{}},
		{Name: "access rule", Of: AccessRule{}},
		{Name: "access rule, request", Of: entity.AccessRuleRequest{}},
		{Name: "access rules", Of: AccessPage{}},
		{Name: "regenerate", Of: RegenerateRequest{}},
		{Name: "members", Of: Members{}},
		{Name: "member, change", Of: MemberChange{}},
		{Name: "member, replacement", Of: MemberReplacement{}},
		{Name: "note", Of: Note{}},
		{Name: "placement", Of: MoveRequest{}},
		{Name: "transfer", Of: TransferRequest{}},
		{Name: "growth", Of: GrowRequest{}},
		{Name: "grown", Of: GrowResult{}},
		{Name: "confirmed time", Of: ConfirmedTime{}},
		{Name: "format level", Of: FormatLevelRequest{}},
		{Name: "plan", Of: Plan{}},
		{Name: "moves", Of: Moves{}},
		{Name: "verified", Of: topology.Verification{}},
		{Name: "status of the cluster", Of: topology.Status{}},
	}
}

// TestAPIFormats checks the names in requests and answers, which programs depend on.
func TestAPIFormats(t *testing.T) {
	t.Parallel()
	golden.JSON(t, "testdata/api.golden", apiFormats(), entity.Value{Value: filter.Int(-7)}, entity.Duration(90*time.Second), jsonmessage.Value{Go: int32(-7)})
}

// TestRuleValuesKeepTheirWrittenForm checks that the values of rules, of every type, keep their written form and can be read
// back.
func TestRuleValuesKeepTheirWrittenForm(t *testing.T) {
	t.Parallel()
	var written []byte
	for _, value := range []filter.Value{
		{},
		filter.Bool(true), filter.Int(-7), filter.Int(1 << 60), filter.Double(0.5), filter.Double(2), filter.Double(math.Inf(1)), filter.Text("text"),
		filter.Time(1_700_000_000_000), filter.ID(filter.GUID{1, 15: 2}), filter.Binary([]byte{0, 255}),
	} {
		text, err := json.Marshal(entity.Value{Value: value})
		if err != nil {
			t.Fatal(err)
		}
		written = append(append(written, text...), '\n')
		var read entity.Value
		if err := json.Unmarshal(text, &read); err != nil || read.Value != value {
			t.Errorf("%s is decoded as %v, %v", text, read, err)
		}
	}
	golden.Compare(t, "testdata/values.golden", written)
}
