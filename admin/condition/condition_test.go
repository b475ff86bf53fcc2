package condition

import (
	"os"
	"regexp"
	"testing"

	"github.com/peeklock/peeklock/test/document"
)

// TestAlertsHaveTheNamesOfConditions: an alert and a report about the same thing have one name and one severity.
func TestAlertsHaveTheNamesOfConditions(t *testing.T) {
	t.Parallel()
	rules, err := os.ReadFile("../../deploy/alerts/peeklock.rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	severities := map[string]string{}
	for _, m := range regexp.MustCompile(`(?s)- alert: Peeklock(\w+)\n.*?severity: (\w+)`).FindAllStringSubmatch(string(rules), -1) {
		severities[m[1]] = m[2]
	}
	seen := map[Name]bool{}
	for _, c := range All() {
		if severity, isAlert := severities[string(c.Name)]; isAlert != c.IsAlert || isAlert && severity != string(c.Severity) {
			t.Errorf("%s: the alert has severity %q (there is one: %t)", c.Name, severity, isAlert)
		}
		if seen[c.Name] || c.Means == "" || c.Mend == "" || Of(c.Name) != c {
			t.Errorf("%+v is listed twice, or says too little", c)
		}
		seen[c.Name] = true
	}
}

func TestDocsListEveryCondition(t *testing.T) {
	t.Parallel()
	document.Section(t, "../../docs/operations.md", "conditions", Table())
}
