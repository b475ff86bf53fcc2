package arch

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/test/kit"
)

// visitTexts visits the files of the repository that developers write: Go, Markdown, YAML, shell and
// the Makefile. It skips hidden folders except .ci, test data, generated code and the licence.
func visitTexts(t *testing.T, visit func(path string, content []byte)) {
	t.Helper()
	seen := 0
	kit.OK(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (name == "testdata" || name == "node_modules" || name == "bin" || strings.HasPrefix(name, ".") && name != ".ci"),
			d.IsDir() && strings.HasPrefix(name, "peeklock-"): // data of a `dev` in the working directory
			return fs.SkipDir
		case d.IsDir() || !isWritten(name):
			return nil
		}
		content, err := os.ReadFile(path)
		if err == nil && !bytes.Contains(content, []byte("\n// Code generated ")) {
			seen++
			visit(filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator))), content)
		}
		return err
	}))
	if seen < 10 {
		t.Fatalf("only %d files found: the test looks at the wrong place", seen)
	}
}

// isWritten says whether developers write files with this name.
func isWritten(name string) bool {
	switch filepath.Ext(name) {
	case ".go", ".md", ".yml", ".yaml", ".json", ".mod", ".sh", ".js", ".mjs":
		return true
	}
	return name == "Makefile" || name == "run"
}

// TestEveryPackageHasADocFile checks that the comment of each package stands in its doc.go, where readers look for it.
func TestEveryPackageHasADocFile(t *testing.T) {
	t.Parallel()
	for pkgPath, p := range loadPackages(t) {
		documented := len(p.Syntax) == 0 // test files only
		for _, f := range p.Syntax {
			switch file := filepath.Base(p.Fset.Position(f.Package).Filename); {
			case file == "doc.go":
				documented = f.Doc.Text() != ""
			case f.Doc.Text() != "":
				t.Errorf("%s: the comment of the package stands in %s, not in doc.go", pkgPath, file)
			}
		}
		if !documented {
			t.Errorf("%s has no doc.go with a comment", pkgPath)
		}
	}
}

func TestDesignDocumentsExist(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		"fsm/DESIGN.md", "partition/DESIGN.md", "cluster/DESIGN.md", "amqp/DESIGN.md", "admin/DESIGN.md",
		"cmd/DESIGN.md", "test/README.md", "test/INVARIANTS.md", "test/RESULTS.md", "deploy/README.md",
	} {
		if _, err := os.Stat(filepath.Join(root, path)); err != nil {
			t.Errorf("%s is missing", path)
		}
	}
}

// TestForbiddenWords rejects terms that the project does not use, and details of a developer's
// machine. This file is skipped because it has to contain them.
func TestForbiddenWords(t *testing.T) {
	t.Parallel()
	forbidden := map[*regexp.Regexp]string{
		regexp.MustCompile(`(?i)\bmasters?\b`):                                                               "say leader",
		regexp.MustCompile(`(?i)consumer group`):                                                             "say competing receivers",
		regexp.MustCompile(`(?i)topic partition`):                                                            "say partition",
		regexp.MustCompile(`(?:^|[^.\w])(TODO|FIXME|XXX)\b`):                                                 "do it, or open an issue and leave the code whole",
		regexp.MustCompile(`(?i)\bissue #?\d+\b`):                                                            "say what it was about: numbers of a tracker mean nothing here",
		regexp.MustCompile(`/(root|home|Users|work)/[\w.]`):                                                  "a path of one machine",
		regexp.MustCompile(`proxy\.golang\.org|registry\.npmjs|files\.pythonhosted|pypi\.org|repo1?\.maven`): "the host of a package registry",
	}
	visitTexts(t, func(path string, content []byte) {
		if path == "test/arch/shape_test.go" {
			return
		}
		for n, line := range strings.Split(string(content), "\n") {
			if strings.Contains(line, `" link set "`) || strings.Contains(line, "/O=system:") {
				continue // ip-link(8) and the groups of Kubernetes have a vocabulary of their own
			}
			for word, instead := range forbidden {
				if hit := word.FindString(line); hit != "" {
					t.Errorf("%s:%d: %q: %s", path, n+1, hit, instead)
				}
			}
		}
	})
}
