package declare

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/test/document"
)

// TestFilesOfEveryFormAreRead reads what Bicep builds, what the portal wrote and a Config.json, and compares what they declare with
// the golden files.
func TestFilesOfEveryFormAreRead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		parameters map[string]string
	}{
		{"bicep", map[string]string{"environment": "prod"}},
		{"modules", nil},
		{"classic", map[string]string{"topicName": "news"}},
		{"Config", nil},
	} {
		s := source{file: "testdata/forms/" + c.name + ".json", parameters: c.parameters}
		d, warnings, err := s.read(nil)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		text, err := d.marshal()
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range warnings {
			text = append(text, "# "+w+"\n"...)
		}
		document.File(t, "testdata/forms/"+c.name+".golden.yaml", string(text))
	}
}

// TestUnsupportedTemplatesSayWhatIsNotSupported checks that a template never loses a part silently.
func TestUnsupportedTemplatesSayWhatIsNotSupported(t *testing.T) {
	t.Parallel()
	queue := func(name, properties string) string {
		return `{"$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
			"parameters": {"queueName": {"type": "string"}, "count": {"type": "int", "defaultValue": 1}},
			"resources": [{"type": "Microsoft.ServiceBus/namespaces/queues", "name": "` + name + `", "properties": ` + properties + `}]}`
	}
	for _, c := range []struct{ name, text, of, want string }{
		{"no value", queue("[concat('ns/', parameters('queueName'))]", "{}"), "", "the parameter queueName has no value: give --parameter queueName=VALUE"},
		{"of Azure", queue("[format('ns/q-{0}', uniqueString(resourceGroup().id))]", "{}"), "", "[uniqueString(resourceGroup().id)] is known only to a deployment in Azure"},
		{"in properties", queue("ns/q", `{"forwardTo": "[toUpper(parameters('queueName'))]"}`), "", "properties.forwardTo: [toUpper(parameters('queueName'))] is known only"},
		{"function", queue("ns/q", `{"lockDuration": "[dateTimeAdd('PT1M', 'PT1M')]"}`), "", "[dateTimeAdd('PT1M', 'PT1M')]: the function dateTimeAdd is not supported"},
		{"of its own", queue("[app.queueName('a')]", "{}"), "", "app.queueName"},
		{"syntax", queue("[format('{0}/q', 'ns']", "{}"), "", "a ) is missing"},
		{"variable", queue("[variables('nothing')]", "{}"), "", "no such variable"},
		{"names", queue("q", "{}"), "", "the name has 1 parts, and the type has 2"},
		{"value", queue("ns/q", `{"lockDuration": "soon"}`), "", "queue q.Properties.LockDuration"},
		{"loop", strings.Replace(queue("ns/q", "{}"), `"type": "Micro`, `"copy": {"name": "x", "count": "[parameters('queueName')]"}, "type": "Micro`, 1), "", "the parameter queueName has no value"},
		{"endless", strings.Replace(queue("ns/q", "{}"), `"type": "Micro`, `"copy": {"name": "x", "count": 10001}, "type": "Micro`, 1), "", "a count from 0 to 10000"},
		{"twice", strings.Replace(queue("ns/q", "{}"), `"type": "Micro`, `"copy": {"name": "x", "count": 2}, "type": "Micro`, 1), "", "declared twice"},
		{"linked", strings.Replace(queue("ns/q", "{}"), "ServiceBus/namespaces/queues", "Resources/deployments", 1), "", "only one that is in the file"},
		{"nothing", strings.Replace(queue("ns/q", "{}"), "ServiceBus", "EventHub", 1), "", "no queues, topics or authorization rules"},
		{"namespaces", strings.Replace(queue("[format('{0}/q', createArray('a', 'b')[copyIndex()])]", "{}"), `"type": "Micro`, `"copy": {"name": "x", "count": 2}, "type": "Micro`, 1), "", "the namespaces a, b: choose one with --file-namespace"},
		{"which namespace", strings.Replace(queue("[format('{0}/q', if(equals(copyIndex(), 2), reference('m').outputs.name.value, createArray('a', 'b')[copyIndex()]))]", "{}"), `"type": "Micro`, `"copy": {"name": "x", "count": 3}, "type": "Micro`, 1), "a", "only a deployment in Azure knows which of the namespaces a, b"},
		{"other namespace", queue("ns/q", "{}"), "shop", "choose one with --file-namespace"},
	} {
		file := filepath.Join(t.TempDir(), "main.json")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := (&source{file: file, of: c.of}).read(nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "main.json") {
			t.Errorf("%s: got %v, want the file and %q", c.name, err, c.want)
		}
	}
}

// TestNamespaceOfAFileIsChosen reads one of the namespaces of a file that has several.
func TestNamespaceOfAFileIsChosen(t *testing.T) {
	t.Parallel()
	text := `{"UserConfig": {"Namespaces": [{"Name": "one", "Queues": [{"Name": "a"}]}, {"Name": "two", "Queues": [{"Name": "b"}]}]}}`
	if _, _, err := (&source{file: "-"}).read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), "standard input: the file has the namespaces one, two") {
		t.Errorf("got %v, want an error that lists the namespaces", err)
	}
	d, _, err := (&source{file: "-", of: "Two"}).read(strings.NewReader(text))
	if err != nil || len(d.Queues) != 1 || d.Queues[0].Name != "b" {
		t.Errorf("got %+v, %v, want the queue b", d, err)
	}
}

// TestMistakesNameFileLineAndKey checks the errors of a file that people write.
func TestMistakesNameFileLineAndKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, text, want string }{
		{"misspelt", "queues:\n  - name: a\n    lockDuraton: 1m", `entities.yaml:3: queues[0].lockDuraton: unknown key (did you mean "lockDuration"?)`},
		{"case", "queues:\n  - name: a\n    lockduration: 1m", `(did you mean "lockDuration"?)`},
		{"of another kind", "topics:\n  - name: a\n    forwardTo: b", "entities.yaml:3: topics[0].forwardTo: unknown key"},
		{"at the top", "queue:\n  - name: a", `entities.yaml:1: queue: unknown key (did you mean "queues"?)`},
		{"in a rule", "topics:\n- name: t\n  subscriptions:\n  - name: s\n    rules:\n    - name: r\n      filter: {kind: sql, expresion: a = 1}", `entities.yaml:7: topics[0].subscriptions[0].rules[0].filter.expresion: unknown key (did you mean "expression"?)`},
		{"no name", "queues:\n  - {lockDuration: 1m}", "entities.yaml:2: queues[0].name: is missing"},
		{"not a list", "queues: {name: a}", "entities.yaml:1: queues: is a list"},
		{"not a mapping", "queues: [a]", "entities.yaml:1: queues[0]: is a mapping"},
		{"number", "queues:\n- name: a\n  maxDeliveryCount: ten", `entities.yaml:3: queues[0].maxDeliveryCount: is a whole number from 0 to 4294967295, not "ten"`},
		{"text", "queues:\n- name: 7", "entities.yaml:2: queues[0].name: is a text, not 7: put it in quotes"},
		{"flag", "queues:\n- name: a\n  requiresSession: 1", "entities.yaml:3: queues[0].requiresSession: is true or false, not 1"},
		{"duration", "queues:\n- name: a\n  lockDuration: soon", `entities.yaml:3: queues[0].lockDuration: "soon" is not a duration`},
		{"both", "queues:\n- name: a\n  lockDuraton: 1m\n  requiresSession: 1", "entities.yaml:4"},
		{"syntax", "queues: [", "entities.yaml is not valid YAML"},
		{"twice", "queues:\n- name: a\n  status: Active\n  status: Active", "entities.yaml is not valid YAML"},
		{"two queues", "queues: [{name: a}, {name: A}]", "declared twice"},
	} {
		d := new(Document)
		err := decodeYAML("entities.yaml", []byte(c.text), d)
		if err == nil {
			err = d.check()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
	many := "queues:\n" + strings.Repeat("- {nam: a}\n", mistakesMax+1)
	if err := decodeYAML("f", []byte(many), new(Document)); strings.Count(err.Error(), "\n") != mistakesMax-1 {
		t.Errorf("got %v, want %d mistakes", err, mistakesMax)
	}
	if _, _, err := (&source{file: "-"}).read(strings.NewReader(strings.Repeat(" ", documentBytesMax+1))); err == nil || !strings.Contains(err.Error(), "is larger than") {
		t.Errorf("got %v, want an error for a file that is too large", err)
	}
}

// TestYAMLMayShareParts checks anchors, merged mappings, and values whose form carries a meaning.
func TestYAMLMayShareParts(t *testing.T) {
	t.Parallel()
	d := new(Document)
	err := decodeYAML("f", []byte(`
queues:
  - &base {name: a, lockDuration: 1m, maxDeliveryCount: 4, userMetadata: 2026-11-28}
  - {<<: *base, name: b, maxDeliveryCount: 5}
topics:
  - name: t
    subscriptions:
      - name: s
        rules:
          - {name: r, filter: {kind: correlation, conditions: {price: 3.0, big: 9007199254740993, day: 2026-11-28, none: null}}}
`), d)
	if err != nil {
		t.Fatal(err)
	}
	text, err := d.marshal()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"name: b", "maxDeliveryCount: 5", `userMetadata: "2026-11-28"`, "price: 3.0", "big: 9007199254740993", `day: "2026-11-28"`, "none: null"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
	if again := new(Document); decodeYAML("f", text, again) != nil || len(again.Queues) != 2 {
		t.Error("what was written is not read again")
	}
}

// TestSecretHasANameForEveryKey checks the names in a Secret of Kubernetes.
func TestSecretHasANameForEveryKey(t *testing.T) {
	t.Parallel()
	d := &Document{Keys: []Key{{Name: "app"}}, Queues: []Queue{{Name: "shop/orders", Keys: []Key{{Name: "reader"}}}}}
	names, err := d.secretKeys()
	if want := (declaredKey{"shop/orders", "reader"}); err != nil || len(names) != 2 || names["shop.orders.reader"] != want {
		t.Errorf("got %v, %v, want app and shop.orders.reader", names, err)
	}
	d.Topics = []Topic{{Name: "shop.orders", Keys: []Key{{Name: "reader"}, {Name: "two words"}}}}
	_, err = d.secretKeys()
	for _, want := range []string{`would both be "shop.orders.reader"`, "two words"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
