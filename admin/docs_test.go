package admin

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/peeklock/peeklock/admin/inspect"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/document"
	"github.com/peeklock/peeklock/topology"
)

// TestDocsListEveryProblem checks that the reference lists the status and the name of every code.
func TestDocsListEveryProblem(t *testing.T) {
	t.Parallel()
	var rows strings.Builder
	rows.WriteString("| code | HTTP status | `code` in the answer |\n|---|---|---|\n")
	for code := fsm.OK + 1; ; code++ {
		if strings.HasPrefix(code.String(), "code ") {
			break // behind the last one
		}
		a := statusOf(code)
		fmt.Fprintf(&rows, "| %s | %d | `%s` |\n", code, a.status, a.name)
	}
	document.Section(t, "../docs/errors.md", "http", rows.String())
}

// The description of the API has every route, all of its references resolve, and the answer to each operation is as described.
func TestDocsDescribeTheControlAPI(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	control := newGenerousControl(3)
	operations := newFakeOperations()
	operations.moves = []topology.Move{{Partition: 2, From: []fsm.MemberID{"1"}, To: []fsm.MemberID{"2"}}}
	operations.plan = []topology.PlannedMove{{Partition: 4, From: []fsm.MemberID{"1"}, To: []fsm.MemberID{"3"}}}
	operations.copies = func(_ context.Context, w io.Writer) error {
		_, err := w.Write([]byte("copy"))
		return err
	}
	control.Operations = operations
	c := s.server.core
	c.config.Control, c.config.Finder = control, inspect.New(newGenerousMessages(t, control.fakeControl, 3))
	described, err := (&controlAPI{c}).document()
	if err != nil {
		t.Fatal(err)
	}
	document.File(t, "../docs/openapi.json", string(described))
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(described))
	if err != nil {
		t.Fatal(err)
	}
	root, _ := parsed.(map[string]any)
	components, _ := root["components"].(map[string]any)
	resolve := func(pointer string) any {
		var at any = root
		for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "#/"), "/") {
			in, _ := at.(map[string]any)
			at = in[part]
		}
		return at
	}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if to, ok := v["$ref"].(string); ok && resolve(to) == nil {
				t.Errorf("%s does not resolve", to)
			}
			for _, inner := range v {
				walk(inner)
			}
		case []any:
			for _, inner := range v {
				walk(inner)
			}
		}
	}
	walk(root)
	for _, one := range components["schemas"].(map[string]any) {
		if schema, ok := one.(map[string]any); ok && schema["properties"] != nil {
			schema["additionalProperties"] = false // clients must expect further fields; this test does not
		}
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("api.json", root); err != nil {
		t.Fatal(err)
	}
	requests := maximalControl()
	for _, to := range (&controlAPI{c}).routes() {
		if to.Name == "backUpPartition" { // its answer is a file
			continue
		}
		request := requests[to.Name]
		status, body := s.request(to.Method(), fillPath(to.Path(), request.path), request.body, nil)
		operations.last()
		if to.Answer == nil {
			continue
		}
		path := strings.ReplaceAll(strings.Replace(to.Path(), "{name...}", "{name}", 1), "/", "~1")
		media := "application~1json"
		if to.Streams {
			media = "application~1x-ndjson"
		}
		schema, err := compiler.Compile(fmt.Sprintf("api.json#/paths/%s/%s/responses/%d/content/%s/schema", path, strings.ToLower(to.Method()), status, media))
		if err != nil {
			t.Errorf("%s, answered with %d: %v", to.Name, status, err)
			continue
		}
		answer, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
		if err == nil {
			err = schema.Validate(answer)
		}
		if err != nil {
			t.Errorf("%s: %v\n%.400s", to.Name, err, body)
		}
	}
}
