package entity

import (
	"fmt"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/test/document"
)

// The reference lists every setting of entities.
func TestDocsListEverySetting(t *testing.T) {
	t.Parallel()
	var rows strings.Builder
	rows.WriteString("| setting | of | values | default | flag | ATOM element, and in Config.json |\n|---|---|---|---|---|---|\n")
	for i := range table {
		s := &table[i]
		fmt.Fprintf(&rows, "| `%s` | %s | %s | %s | `--%s` | %s |\n", s.Name, kindsCell(s), valuesCell(s), defaultCell(s), s.Flag, codeCell(s.Element))
	}
	document.Section(t, "../../docs/semantics.md", "settings", rows.String())
}

func kindsCell(s *Setting) string {
	if len(s.Kinds) == len(kinds()) {
		return "all"
	}
	var names []string
	for _, kind := range s.Kinds {
		names = append(names, kind.String()+"s")
	}
	return strings.Join(names, ", ")
}

func valuesCell(s *Setting) string {
	values := s.Range()
	switch {
	case s.Destination:
		values = "name of a queue or topic"
	case s.Type() == "bool":
		values = "true or false"
	case values == "":
		values = "text"
	}
	if s.Fixed {
		values += "; fixed after creation"
	}
	return values
}

func defaultCell(s *Setting) string {
	if text := s.Default(s.Kinds[0]); text != "" {
		return text
	}
	return "none"
}

func codeCell(text string) string {
	if text == "" {
		return "none"
	}
	return "`" + text + "`"
}
