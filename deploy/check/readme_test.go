package check

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

const (
	valuesFile  = chartDir + "/values.yaml"
	chartReadme = chartDir + "/README.md"
)

// valuesTable is the table of the README: the top-level values with their defaults, and the comments before and in them.
func valuesTable(t *testing.T) string {
	t.Helper()
	top, remark := regexp.MustCompile(`^([a-zA-Z]+):(.*)$`), regexp.MustCompile(` +# .*$`)
	table := "| value | default | meaning |\n|---|---|---|\n"
	var key string
	var value, comment []string
	flush := func() {
		if key != "" {
			if len(comment) == 0 {
				t.Errorf("%s does not say what %s means", valuesFile, key)
			}
			table += fmt.Sprintf("| `%s` | `%s` | %s |\n", key, strings.Join(value, "; "), strings.Join(comment, " "))
		}
		key, value = "", nil
	}
	for line := range strings.Lines(string(read(t, valuesFile))) {
		line = strings.TrimRight(line, "\n")
		text := strings.TrimSpace(line)
		match := top.FindStringSubmatch(line)
		switch {
		case line == "":
			flush()
			comment = nil
		case strings.HasPrefix(text, "# "):
			comment = append(comment, text[2:])
		case match != nil:
			flush()
			key = match[1]
			if match[2] != "" {
				value = []string{strings.TrimSpace(remark.ReplaceAllString(match[2], ""))}
			}
		default:
			value = append(value, remark.ReplaceAllString(text, ""))
		}
	}
	flush()
	return table
}

// The README lists every value with what values.yaml says about it.
func TestReadmeListsEveryValue(t *testing.T) {
	const begin, end = "<!-- values -->\n", "<!-- end of values -->\n"
	text := string(read(t, chartReadme))
	before, rest, found := strings.Cut(text, begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no place for the values", chartReadme)
	}
	want := before + begin + valuesTable(t) + end + after
	if *update {
		if err := os.WriteFile(chartReadme, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal([]byte(text), []byte(want)) {
		t.Errorf("%s does not list what is in %s (go test -update)", chartReadme, valuesFile)
	}
}
