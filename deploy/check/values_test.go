package check

import (
	"regexp"
	"strings"
	"testing"
)

const valuesFile = chartDir + "/values.yaml"

// TestEveryValueIsDescribed checks that each top-level value has a comment before it or in it: values.yaml is the reference.
func TestEveryValueIsDescribed(t *testing.T) {
	top := regexp.MustCompile(`^([a-zA-Z]+):`)
	var key string
	comments, keys := 0, 0
	flush := func() {
		if key != "" && comments == 0 {
			t.Errorf("%s does not say what %s means", valuesFile, key)
		}
		key = ""
	}
	for line := range strings.Lines(string(read(t, valuesFile))) {
		switch text := strings.TrimSpace(line); {
		case text == "":
			flush()
			comments = 0
		case strings.HasPrefix(text, "# "):
			comments++
		case top.MatchString(line):
			flush()
			key = top.FindStringSubmatch(line)[1]
			keys++
		}
	}
	flush()
	if keys == 0 {
		t.Errorf("%s has no values", valuesFile)
	}
}
