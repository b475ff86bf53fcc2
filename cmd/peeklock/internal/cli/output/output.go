package output

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"go.yaml.in/yaml/v3"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
)

// Output prints answers in the requested format. All standard output of a command goes through it, so that
// --output has the same meaning everywhere: a table, one JSON value (stable: fields are only ever added), or YAML
// with the same fields.
type Output struct {
	w    io.Writer
	form string // table, json, yaml
}

// NewOutput returns an output that prints to w in a format: table, json or yaml.
func NewOutput(w io.Writer, form string) (*Output, error) {
	switch form {
	case "table", "json", "yaml":
		return &Output{w: w, form: form}, nil
	}
	return nil, cli.Usagef("unknown output %q: choose from table, json, yaml%s", form, cli.Nearest(form, []string{"table", "json", "yaml"}))
}

// IsTable reports whether the format is a table, which people read.
func (o *Output) IsTable() bool { return o.form == "table" }

// Rows prints value, or rows in the table format.
func (o *Output) Rows(value any, header []any, rows [][]any) error {
	if !o.IsTable() {
		return o.Data(value)
	}
	t := table.NewWriter()
	t.SetStyle(plainStyle())
	t.AppendHeader(header)
	for _, row := range rows {
		t.AppendRow(row)
	}
	columns := make([]table.ColumnConfig, len(header))
	for i := range columns {
		columns[i].Number = i + 1
		if len(rows) > 0 && isNumber(rows[0][i]) {
			columns[i].Align, columns[i].AlignHeader = text.AlignRight, text.AlignRight
		}
	}
	t.SetColumnConfigs(columns)
	return o.write(t.Render() + "\n")
}

// Fields prints value; the table format has a line for each name and value, in the order of the JSON.
func (o *Output) Fields(value any) error {
	if !o.IsTable() {
		return o.Data(value)
	}
	// YAML nodes keep the order of the fields; a map would not.
	node, err := toNode(value)
	if err != nil {
		return err
	}
	t := table.NewWriter()
	t.SetStyle(plainStyle())
	appendFields(t, "", node)
	return o.write(t.Render() + "\n")
}

// FieldCharactersMax is the length at which a field is cut off on a terminal; JSON and YAML show all of it.
const FieldCharactersMax = 2000

func appendFields(t table.Writer, prefix string, node *yaml.Node) {
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := prefix+node.Content[i].Value, node.Content[i+1]
		if value.Kind == yaml.MappingNode {
			appendFields(t, name+".", value)
			continue
		}
		text := value.Value
		for i, element := range value.Content { // of a list
			if i > 0 {
				text += ", "
			}
			text += element.Value
		}
		t.AppendRow(table.Row{name, Printable(text, FieldCharactersMax)})
	}
}

// Item prints one of many values as soon as it is known: the given line in the table format, one JSON value per
// line, or one YAML document.
func (o *Output) Item(value any, line string) error {
	switch o.form {
	case "json":
		body, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("encode answer: %w", err)
		}
		return o.write(string(body) + "\n")
	case "yaml":
		if err := o.write("---\n"); err != nil {
			return err
		}
		return o.Data(value)
	}
	return o.write(line + "\n")
}

// Note prints a line in the table format only.
func (o *Output) Note(format string, args ...any) error {
	if !o.IsTable() {
		return nil
	}
	return o.write(fmt.Sprintf(format, args...) + "\n")
}

// Data prints a value as JSON or YAML.
func (o *Output) Data(value any) error {
	if o.form == "yaml" {
		node, err := toNode(value)
		if err != nil {
			return err
		}
		body, err := yaml.Marshal(node)
		if err != nil {
			return fmt.Errorf("encode answer: %w", err)
		}
		return o.write(string(body))
	}
	body, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	return o.write(string(body) + "\n")
}

func (o *Output) write(s string) error {
	if _, err := io.WriteString(o.w, s); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return nil
}

// toNode converts value to YAML through its JSON, so that both formats have the same names in the same order. JSON
// is valid YAML.
func toNode(value any) (*yaml.Node, error) {
	body, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}
	var node yaml.Node
	if err := yaml.Unmarshal(body, &node); err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}
	plain(&node)
	if len(node.Content) == 1 {
		return node.Content[0], nil
	}
	return &node, nil
}

// plain removes the JSON style (braces, quotes) of the nodes.
func plain(node *yaml.Node) {
	node.Style = 0
	for _, n := range node.Content {
		plain(n)
	}
}

func plainStyle() table.Style {
	style := table.StyleDefault
	style.Name = "plain"
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatUpper
	return style
}

func isNumber(v any) bool {
	switch v.(type) {
	case int, int64, uint64, uint32, float64:
		return true
	}
	return false
}
