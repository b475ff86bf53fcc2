package arch

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/test/kit"
)

// cited visits every file whose text may cite another one, in the order of their paths: the files of
// visitTexts, the scenarios in test data, and the suites of other languages.
func cited(t *testing.T, visit func(file, content string)) {
	t.Helper()
	kit.OK(t, filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		name := d.Name()
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != root && leftOut(name):
			return fs.SkipDir
		case d.IsDir() || !cites(name):
			return nil
		}
		content, err := os.ReadFile(file)
		if err == nil {
			visit(filepath.ToSlash(strings.TrimPrefix(file, root+string(filepath.Separator))), string(content))
		}
		return err
	}))
}

// leftOut says whether to skip a folder because tools generate it, or tests or `dev` leave it behind.
func leftOut(name string) bool {
	return name == "node_modules" || name == "target" || name == "bin" || strings.HasPrefix(name, ".") && name != ".ci" || strings.HasPrefix(name, "peeklock-")
}

// cites says whether files with this name contain prose.
func cites(name string) bool {
	switch filepath.Ext(name) {
	case ".java", ".py", ".scenarios", ".txt", ".tpl", ".ini":
		return true
	}
	return isWritten(name)
}

// anchors returns the anchors of the headings of a Markdown file, formed as GitHub forms them: lower
// case, no punctuation, hyphens for spaces, and a number after repeated headings.
func anchors(content string) map[string]bool {
	link, punctuation := regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`), regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	found, times := map[string]bool{}, map[string]int{}
	for _, line := range proseLines(content) {
		heading, is := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		if !is || !strings.HasPrefix(line, "#") {
			continue
		}
		heading = strings.ToLower(strings.TrimSpace(link.ReplaceAllString(heading, "$1")))
		slug := strings.ReplaceAll(punctuation.ReplaceAllString(heading, ""), " ", "-")
		if n := times[slug]; n > 0 {
			found[fmt.Sprintf("%s-%d", slug, n)] = true
		}
		times[slug]++
		found[slug] = true
	}
	return found
}

// proseLines returns the lines of a Markdown file, with lines of code replaced by empty ones.
func proseLines(content string) []string {
	lines := strings.Split(content, "\n")
	fenced := false
	for i, line := range lines {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if fenced || fence || strings.HasPrefix(line, "    ") {
			lines[i] = ""
		}
		if fence {
			fenced = !fenced
		}
	}
	return lines
}

// documents returns the Markdown files of the repository with their anchors.
func documents(t *testing.T) map[string]map[string]bool {
	t.Helper()
	found := map[string]map[string]bool{}
	cited(t, func(file, content string) {
		if strings.HasSuffix(file, ".md") {
			found[file] = anchors(content)
		}
	})
	if len(found["docs/requirements.md"]) == 0 || len(found["docs/service-bus-protocol.md"]) == 0 {
		t.Fatal("docs/requirements.md or docs/service-bus-protocol.md is missing or has no headings")
	}
	return found
}

// TestLinksLeadSomewhere checks that every relative link of a document leads to an existing file and heading. The build of the
// site checks the links inside docs/.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	have := documents(t)
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for file := range have {
		for n, line := range proseLines(read(t, file)) {
			for _, hit := range link.FindAllStringSubmatch(line, -1) {
				if strings.HasPrefix(file, "docs/") && strings.HasPrefix(path.Join(path.Dir(file), hit[1]), "docs/") {
					continue
				}
				if why := deadLink(have, file, hit[1]); why != "" {
					t.Errorf("%s:%d: %s", file, n+1, why)
				}
			}
		}
	}
}

// deadLink describes what is wrong with a link of a document, or returns "".
func deadLink(have map[string]map[string]bool, from, target string) string {
	if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return ""
	}
	at, anchor, anchored := strings.Cut(target, "#")
	file := from
	if at != "" {
		file = path.Join(path.Dir(from), at)
	}
	if _, err := os.Stat(filepath.Join(root, file)); err != nil {
		return fmt.Sprintf("the link %q leads to no file", target)
	}
	if anchored && !have[file][anchor] {
		return fmt.Sprintf("the link %q leads to no heading of %s", target, file)
	}
	return ""
}
