package arch

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The repository may cite only texts that it contains: readers could not follow any other citation,
// and nobody would notice when the two texts diverge.

// fault is a citation whose target does not exist.
type fault struct {
	at  int // byte offset in the content
	why string
}

// citationCheck finds the citations in a text whose targets do not exist.
type citationCheck struct {
	have     map[string]map[string]bool // the headings of each document
	citation *regexp.Regexp             // matches document.md#heading, #another
	heading  *regexp.Regexp
	promise  *regexp.Regexp // matches the set of a promise and its number
	rules    []danglingRule
}

// danglingRule describes a form of citation whose target cannot be in the repository.
type danglingRule struct {
	pattern *regexp.Regexp
	code    string // the folder of the Go code that the rule applies to; "" for all texts
	instead string
}

const promises = "docs/requirements.md"

func newCitationCheck(have map[string]map[string]bool) citationCheck {
	return citationCheck{
		have:     have,
		citation: regexp.MustCompile(`([\w./-]*\w\.md)\b((?:(?:,| and| to)? ?#[\w-]+)*)`),
		heading:  regexp.MustCompile(`#[\w-]+`),
		promise:  regexp.MustCompile(`(?:^|[^\w.$])([TEC])\.(\d{1,2})(?:[^.\w]|\.(?:\W|$)|$)`),
		rules: []danglingRule{
			{regexp.MustCompile(`(?i)\bwire[\s/#-]+contract\b`), "", "cite docs/service-bus-protocol.md#heading"},
			{
				regexp.MustCompile(`//[^\n"]*\(\d{1,2}\.\d{1,2}(?:, \d{1,2}\.\d{1,2})*\)`), "amqp/",
				"a section of what? Name the part of AMQP or the document",
			},
		},
	}
}

// faults returns the faults in the content of a file.
func (c citationCheck) faults(file, content string) []fault {
	var faults []fault
	add := func(at int, format string, args ...any) {
		faults = append(faults, fault{at, fmt.Sprintf(format, args...)})
	}
	for _, hit := range c.citation.FindAllStringSubmatchIndex(content, -1) {
		name, headings := content[hit[2]:hit[3]], content[hit[4]:hit[5]]
		found := c.named(file, name)
		if len(found) == 0 {
			add(hit[0], "%s is not in the repository: say here what it says", name)
			continue
		}
		for _, heading := range c.heading.FindAllString(headings, -1) {
			if !slices.ContainsFunc(found, func(at string) bool { return c.have[at][heading[1:]] }) {
				add(hit[0], "%s has no heading %s", name, heading)
			}
		}
	}
	for _, r := range c.rules {
		if strings.HasPrefix(file, r.code) && (r.code == "" || strings.HasSuffix(file, ".go")) {
			for _, hit := range r.pattern.FindAllStringIndex(content, -1) {
				add(hit[0], "%q: %s", content[hit[0]:hit[1]], r.instead)
			}
		}
	}
	for _, hit := range c.promise.FindAllStringSubmatchIndex(content, -1) {
		anchor := strings.ToLower(content[hit[2]:hit[3]] + content[hit[4]:hit[5]])
		switch {
		case !c.have[promises][anchor]:
			add(hit[2], "%s has no promise #%s", promises, anchor)
		case file != promises && !namesItsCases(file):
			add(hit[2], "name the document: %s#%s", promises, anchor)
		}
	}
	return faults
}

// named returns the documents that name may refer to in the text from: by the path from the root or
// from the text, by the address of the repository, or by the file name alone.
func (c citationCheck) named(from, name string) []string {
	if _, below, ok := strings.Cut(name, "peeklock/peeklock/blob/main/"); ok {
		name = below
	}
	for _, at := range []string{path.Clean(strings.TrimPrefix(name, "/")), path.Join(path.Dir(from), name), path.Join("docs", name)} { // the site's root is docs
		if c.have[at] != nil {
			return []string{at}
		}
	}
	var found []string
	for at := range c.have {
		if path.Base(at) == name {
			found = append(found, at)
		}
	}
	return found
}

// namesItsCases says whether the names of cases in a file may begin with the number of a promise
// alone, which docs/requirements.md allows for these suites.
func namesItsCases(file string) bool {
	for _, suite := range []string{"js", "java", "python"} {
		if strings.HasPrefix(file, "test/conformance/"+suite+"/") {
			return true
		}
	}
	return false
}

// TestCitationsLeadSomewhere checks that every cited document and heading exists, and that
// promises are cited together with the document that lists them.
func TestCitationsLeadSomewhere(t *testing.T) {
	t.Parallel()
	check := newCitationCheck(documents(t))
	cited(t, func(file, content string) {
		if file == "test/arch/citations_test.go" {
			return // contains the forbidden forms
		}
		for _, f := range check.faults(file, content) {
			t.Errorf("%s:%d: %s", file, 1+strings.Count(content[:f.at], "\n"), f.why)
		}
	})
}

// TestCitationCheckSeesPlantedFaults shows that the check can fail.
func TestCitationCheckSeesPlantedFaults(t *testing.T) {
	t.Parallel()
	have := map[string]map[string]bool{
		promises: {"t1": true, "e8": true}, "docs/a.md": {"here": true}, "amqp/DESIGN.md": {},
	}
	check := newCitationCheck(have)
	for content, faults := range map[string]int{
		"see docs/a.md#here, #here":                                      0,
		"docs/requirements.md#t1, #e8 say so":                            0,
		"amqp/DESIGN.md and its DESIGN.md":                               0,
		"https://example.com/peeklock/peeklock/blob/main/docs/a.md#here": 0,
		"// part 2, 2.7.3, and (part 4, 4.5.7)":                          0,
		"see docs/a.md#there":                                            1,
		"see docs/a.md#here and #there":                                  1,
		"storage.md 2 says so":                                           1,
		"// (wire\n// contract 7.5)":                                     1,
		"// as it is (5.4)":                                              1,
		"// an idle queue (E.8)":                                         1,
		"// there is no such promise (T.99)":                             1,
		"type C.1x is no promise, nor is v1.T.1 or E.8.":                 1,
	} {
		if got := check.faults("amqp/x.go", content); len(got) != faults {
			t.Errorf("%q: %v, want %d", content, got, faults)
		}
	}
	if got := check.faults("test/conformance/js/x.test.mjs", `test("T.1 a send", ...)`); len(got) != 0 {
		t.Errorf("a case named by its promise: %v", got)
	}
	if why := deadLink(have, "docs/a.md", "requirements.md#t2"); why == "" {
		t.Error("a link to no heading was not seen")
	}
	if got := anchors("# One thing\n## `Two`: a, b\n```\n# no\n```\n## One thing\n"); !got["one-thing"] || !got["two-a-b"] || len(got) != 3 {
		t.Errorf("anchors: %v", got)
	}
}
