package declare

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/peeklock/peeklock/test/document"
)

const docs = "../../../../../docs/"

// TestDocsHaveTheSchema compares the schema for editors with the types, and validates the examples of the documents, what other
// forms are read as, and mistakes.
func TestDocsHaveTheSchema(t *testing.T) {
	t.Parallel()
	text, err := schemaText()
	if err != nil {
		t.Fatal(err)
	}
	document.File(t, docs+"entities.schema.json", string(text))
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("entities.json", parsed); err != nil {
		t.Fatal(err)
	}
	schema := compiler.MustCompile("entities.json")
	validate := func(text string) error {
		var tree any
		if err := yaml.Unmarshal([]byte(text), &tree); err != nil {
			return err
		}
		encoded, err := json.Marshal(tree)
		if err != nil {
			return err
		}
		if tree, err = jsonschema.UnmarshalJSON(bytes.NewReader(encoded)); err != nil {
			return err
		}
		return schema.Validate(tree)
	}
	found := examples(t)
	golden, err := filepath.Glob("testdata/forms/*.golden.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range golden {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found[file] = string(text)
	}
	if len(found) < len(golden)+2 {
		t.Errorf("got %d examples, want those of operations.md and kubernetes.md", len(found))
	}
	for name, text := range found {
		if err := validate(text); err != nil {
			t.Errorf("%s is not valid: %v\n%s", name, err, text)
		}
		d := new(Document)
		if err := decodeYAML(name, []byte(text), d); err != nil {
			t.Error(err)
		} else if err := d.check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, text := range []string{
		"queues: [{name: a, lockDuraton: 1m}]", "topics: [{name: a, forwardTo: b}]", "queues: [{lockDuration: 1m}]", "queue: []", "queues: [{name: a, status: Off}]",
		"keys: [{name: a, rights: [Write]}]",
	} {
		if validate(text) == nil {
			t.Errorf("%s: is valid, want an error", text)
		}
	}
}

// examples returns the declarations in the documents: blocks of YAML that begin with the schema, and the value of the chart.
func examples(t *testing.T) map[string]string {
	t.Helper()
	found := make(map[string]string)
	for _, name := range []string{"operations.md", "kubernetes.md"} {
		text, err := os.ReadFile(docs + name)
		if err != nil {
			t.Fatal(err)
		}
		for i, block := range strings.Split(string(text), "```yaml\n")[1:] {
			block, _, _ = strings.Cut(block, "```")
			var tree map[string]any
			if err := yaml.Unmarshal([]byte(block), &tree); err != nil {
				continue // several documents
			}
			if entities, ok := tree["entities"].(map[string]any); ok {
				encoded, err := yaml.Marshal(entities["declared"])
				if err != nil {
					t.Fatal(err)
				}
				block, tree = string(encoded), entities["declared"].(map[string]any)
			}
			if tree["queues"] != nil || tree["topics"] != nil {
				found[fmt.Sprintf("%s, example %d", name, i+1)] = block
			}
		}
	}
	return found
}
