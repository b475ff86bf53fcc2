package atom

import (
	"strings"
	"testing"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

// entryOf returns a request in the form that most clients write.
func entryOf(description, children string) string {
	return `<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><` + description + ` xmlns="` + serviceXMLNS +
		`" xmlns:i="` + instanceXMLNS + `">` + children + `</` + description + `></content></entry>`
}

// No input causes a panic, memory is bounded, and a description that was read has the same value when it is
// written and read again.
func FuzzATOM(f *testing.F) {
	f.Add([]byte(entryOf("QueueDescription", "<LockDuration>PT1M</LockDuration><Status>Active</Status><ForwardTo>sb://h/q</ForwardTo>")), "/q")
	f.Add([]byte(entryOf("SubscriptionDescription", `<DefaultRuleDescription><Filter i:type="SqlFilter"><SqlExpression>a=1</SqlExpression></Filter><Name>n</Name></DefaultRuleDescription>`)), "/t/Subscriptions/s")
	f.Add([]byte(entryOf("RuleDescription", `<Filter i:type="CorrelationFilter"><Label>l</Label><Properties><KeyValueOfstringanyType><Key>k</Key><Value i:type="x:int" xmlns:x="y">7</Value></KeyValueOfstringanyType></Properties></Filter>`)), "/t/Subscriptions/s/Rules/r")
	f.Add([]byte("\xef\xbb\xbf<!DOCTYPE a><a>&lt;<![CDATA[b]]></a>"), "/$Resources/Queues")
	f.Fuzz(func(t *testing.T, body []byte, path string) {
		target, err := ParsePath(path)
		if err == nil && target.Resource == 0 {
			t.Errorf("%q leads nowhere", path)
		}
		description, err := ReadDescription(strings.NewReader(string(body)))
		if err != nil {
			return
		}
		if settings, err := description.Settings(); err == nil {
			_, _ = settings.ApplyTo(fsm.QueueEntity, entity.DefaultSettings(fsm.QueueEntity), entity.LimitsOf(fsm.NamespaceSettings{}))
		}
		rule, err := description.Rule("")
		if err != nil {
			return
		}
		x := RuleDocument(Origin{Host: "localhost"}, fsm.Entity{Kind: fsm.SubscriptionEntity, Name: "t/Subscriptions/s"}, &rule)
		again, err := ReadDescription(&x.Buffer)
		if err != nil {
			t.Fatalf("%q is written as what cannot be read: %v", body, err)
		}
		if _, err := again.Rule(""); err != nil {
			t.Fatalf("%q is written as what is refused: %v", body, err)
		}
	})
}
