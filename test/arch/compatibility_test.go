package arch

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

// compatibility is the document whose tables name tests in their last column.
const compatibility = "docs/compatibility.md"

// casesInGo is the folder of the cases that are named as <group>/<case>.
const casesInGo = "test/conformance/go"

// evidence is what a cell of tests may name.
type evidence struct {
	declared map[string][]string // the tests in Go
	sources  map[string]string   // the content of each file
}

// missing returns what a cell of a table names that does not exist; a cell without any test is missing as a whole.
func (e evidence) missing(cell string) (missing []string) {
	tests := 0
	for _, hit := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
		name := hit[1]
		isTest, ok := e.exists(name)
		if !ok {
			missing = append(missing, name)
		}
		if isTest {
			tests++
		}
	}
	if tests == 0 {
		missing = append(missing, "a test")
	}
	return missing
}

// exists says whether a name is that of a test, and whether it exists: as a test in Go, a case of a suite, or a folder.
func (e evidence) exists(name string) (isTest, ok bool) {
	group, kind, inGroup := strings.Cut(name, "/")
	class, method, inClass := strings.Cut(name, ".")
	switch {
	case strings.HasPrefix(name, "Test"):
		return true, len(e.declared[name]) > 0
	case e.isFolder(name):
		return false, true
	case inGroup:
		return true, e.has(casesInGo, `"`+group+`":`) && e.has(casesInGo, `name: "`+kind+`"`)
	case strings.HasSuffix(class, "Test"):
		source, found := e.sources["test/conformance/java/src/test/java/peeklock/"+class+".java"]
		return true, found && (!inClass || strings.Contains(source, "void "+method+"("))
	default:
		return true, e.has("test/conformance/js", `"`+name+`"`)
	}
}

func (e evidence) isFolder(name string) bool {
	for file := range e.sources {
		if strings.HasPrefix(file, name+"/") {
			return true
		}
	}
	return false
}

// has says whether a file of a folder contains a text.
func (e evidence) has(folder, text string) bool {
	for file, content := range e.sources {
		if path.Dir(file) == folder && strings.Contains(content, text) {
			return true
		}
	}
	return false
}

// testCells returns the cells in the columns "test" of the tables of a text, by the number of their line.
func testCells(text string) map[int]string {
	cells := map[int]string{}
	inTable := false
	for n, line := range strings.Split(text, "\n") {
		row := strings.Split(strings.ReplaceAll(line, `\|`, ""), "|")
		switch {
		case len(row) < 3:
			inTable = false
		case strings.TrimSpace(row[len(row)-2]) == "test":
			inTable = true
		case inTable && !strings.HasPrefix(line, "|---"):
			cells[n+1] = row[len(row)-2]
		}
	}
	return cells
}

// TestCompatibilityNamesItsTests checks that each row of the tables of docs/compatibility.md names a test, and that all
// tests and cases that it names exist.
func TestCompatibilityNamesItsTests(t *testing.T) {
	t.Parallel()
	e := evidence{declared: testsDeclared(t), sources: map[string]string{}}
	cited(t, func(file, content string) { e.sources[file] = content })
	cells := testCells(read(t, compatibility))
	if len(cells) < compatibilityRowsMin {
		t.Errorf("%d rows with tests, want at least %d", len(cells), compatibilityRowsMin)
	}
	for line, cell := range cells {
		for _, name := range e.missing(cell) {
			t.Errorf("%s:%d: there is no %s", compatibility, line, name)
		}
	}
}

// compatibilityRowsMin guards against tables that the test no longer finds.
const compatibilityRowsMin = 70

// TestCompatibilityCheckSeesPlantedFaults shows that the check can fail.
func TestCompatibilityCheckSeesPlantedFaults(t *testing.T) {
	t.Parallel()
	e := evidence{declared: map[string][]string{"TestThis": {"amqp"}}, sources: map[string]string{
		"amqp/a_test.go": "", casesInGo + "/a_test.go": `"time": {name: "late"}`, "test/conformance/js/a.mjs": `test("rhea: all"`,
		"test/conformance/java/src/test/java/peeklock/QpidTest.java": "void browse() {",
	}}
	text := "| behaviour | test |\n|---|---|\n| a \\| b | `TestThis` of `amqp`, `time/late` |\n| c | `QpidTest`, `QpidTest.browse`, `rhea: all` |\n\n| x | answer |\n| y | none |\n"
	cells := testCells(text)
	if len(cells) != 2 {
		t.Errorf("cells %v", cells)
	}
	for line, cell := range cells {
		if missing := e.missing(cell); len(missing) > 0 {
			t.Errorf("line %d: %v", line, missing)
		}
	}
	for _, cell := range []string{"", "the same", "`amqp`", "`TestOther`", "`time/early`", "`space/late`", "`QpidTest.send`", "`OtherTest`", "`rhea: some`"} {
		if missing := e.missing(cell); len(missing) != 1 {
			t.Errorf("%q: %v", cell, missing)
		}
	}
}
