package arch

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestCitedTestsExist checks that the tests that documents name exist, so that no document cites a
// renamed or removed test as evidence of a promise.
func TestCitedTestsExist(t *testing.T) {
	t.Parallel()
	declared := testsDeclared(t)
	name := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w*)[^`]*`")
	for file := range documents(t) {
		for n, line := range strings.Split(read(t, file), "\n") {
			for _, hit := range name.FindAllStringSubmatch(line, -1) {
				if len(declared[hit[1]]) == 0 {
					t.Errorf("%s:%d: there is no test %s", file, n+1, hit[1])
				}
			}
		}
	}
}

// testsDeclared maps the tests, fuzz targets and benchmarks in Go to the folders that declare them.
func testsDeclared(t *testing.T) map[string][]string {
	t.Helper()
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	declared := map[string][]string{}
	cited(t, func(file, content string) {
		if strings.HasSuffix(file, "_test.go") {
			for _, hit := range function.FindAllStringSubmatch(content, -1) {
				declared[hit[1]] = append(declared[hit[1]], path.Dir(file))
			}
		}
	})
	return declared
}

// TestPromisesAreShown checks that each promise of docs/requirements.md names tests that show it,
// with their cases, and that all of them exist.
func TestPromisesAreShown(t *testing.T) {
	t.Parallel()
	declared, sources := testsDeclared(t), map[string]string{}
	cited(t, func(file, content string) { sources[file] = content })
	shown := map[string]int{}
	current := ""
	for n, line := range strings.Split(sources["docs/requirements.md"], "\n") {
		if heading, is := strings.CutPrefix(line, "### "); is {
			current = heading
			shown[current] += 0
		}
		by := regexp.MustCompile("^- `([\\w/]+)`: (.*)$").FindStringSubmatch(line)
		if by == nil {
			continue
		}
		for _, hit := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(by[2], -1) {
			shown[current]++
			if !caseExists(declared, sources, by[1], hit[1]) {
				t.Errorf("docs/requirements.md:%d: %s has no test %q", n+1, by[1], hit[1])
			}
		}
	}
	for set, last := range map[string]int{"T": 17, "E": 8, "C": 11} {
		for i := range last {
			if key := fmt.Sprintf("%s.%d", set, i+1); shown[key] == 0 {
				t.Errorf("docs/requirements.md: nothing shows %s", key)
			}
		}
	}
}

// caseExists says whether a folder declares a test and every case of its path: as a text in one of
// its tests, or as a scenario in its test data. A name that is not a test in Go is the name of a
// case in another language.
func caseExists(declared map[string][]string, sources map[string]string, folder, name string) bool {
	elements := strings.Split(name, "/")
	if strings.HasPrefix(name, "Test") {
		if !slices.Contains(declared[elements[0]], folder) {
			return false
		}
		elements = elements[1:]
	} else {
		elements = []string{name}
	}
	for _, element := range elements {
		found := false
		for file, content := range sources {
			inFolder := strings.HasPrefix(file, folder+"/")
			found = found || inFolder && (path.Base(file) == element+".txt" && strings.Contains(file, "/testdata/") ||
				!strings.HasSuffix(file, ".scenarios") && (strings.Contains(content, `"`+element+`"`) || strings.Contains(content, " "+element+`"`)))
		}
		if !found {
			return false
		}
	}
	return true
}
