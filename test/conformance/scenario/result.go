package scenario

import (
	"encoding/xml"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Variable names the folder for the results of suites. Without it, suites write no results.
const Variable = "PEEKLOCK_MATRIX"

// The results.
const (
	OK         = "ok"
	Failed     = "failed"
	NotOffered = "not-offered"
)

// notOffered begins the line of a <client>.scenarios that says why the client cannot show a scenario.
const notOffered = "not offered: "

// Outcomes records the cases that ran, and whether each passed. It is safe for concurrent use.
type Outcomes struct {
	mutex  sync.Mutex
	passed map[string]bool
}

// Add records how a case ended. A case that runs several times must pass each time.
func (o *Outcomes) Add(name string, passed bool) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if o.passed == nil {
		o.passed = map[string]bool{}
	}
	before, again := o.passed[name]
	o.passed[name] = passed && (before || !again)
}

// junit is the part that Outcomes reads of the JUnit reports of all languages.
type junit struct {
	Suites []junit `xml:"testsuite"`
	Cases  []struct {
		Name    string    `xml:"name,attr"`
		Class   string    `xml:"classname,attr"`
		Failure *struct{} `xml:"failure"`
		Error   *struct{} `xml:"error"`
		Skipped *struct{} `xml:"skipped"`
	} `xml:"testcase"`
}

// AddJUnit adds the cases of a report. name makes the name of a case from class and test, and
// returns "" to skip it.
func (o *Outcomes) AddJUnit(report []byte, name func(class, test string) string) error {
	var root junit
	if err := xml.Unmarshal(report, &root); err != nil {
		return fmt.Errorf("read a report: %w", err)
	}
	for list := []junit{root}; len(list) > 0; list = list[1:] {
		list = append(list, list[0].Suites...)
		for _, c := range list[0].Cases {
			if n := name(c.Class, c.Name); n != "" {
				o.Add(n, c.Failure == nil && c.Error == nil && c.Skipped == nil)
			}
		}
	}
	return nil
}

// Write evaluates the scenarios of a client and writes them into $PEEKLOCK_MATRIX, if that is
// set: name, result and note, separated by tabs. cases is the client's file <client>.scenarios.
//
// Several tests may call Write as their cases end: the last call writes all results.
func (o *Outcomes) Write(client string, cases []byte) error {
	folder := os.Getenv(Variable)
	if folder == "" {
		return nil
	}
	at := slices.IndexFunc(Clients(), func(c Client) bool { return c.ID == client })
	if at < 0 {
		return fmt.Errorf("%s is no client of the matrix", client)
	}
	o.mutex.Lock()
	defer o.mutex.Unlock()
	lines, err := o.judge(Clients()[at], cases)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, client+".tsv"), []byte(strings.Join(lines, "")), 0o600)
}

// Failed returns the scenarios of a client that its cases do not show.
func (o *Outcomes) Failed(client Client, cases []byte) (failed []string, err error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	lines, err := o.judge(client, cases)
	for _, line := range lines {
		if name, rest, _ := strings.Cut(line, "\t"); strings.HasPrefix(rest, Failed+"\t") {
			failed = append(failed, name+": "+strings.TrimSpace(strings.TrimPrefix(rest, Failed)))
		}
	}
	return failed, err
}

// Promised returns the lines that a client's file <client>.scenarios promises: what Write writes when all cases passed.
func Promised(client Client, cases []byte) ([]string, error) {
	shownBy, err := parse(string(cases))
	if err != nil {
		return nil, fmt.Errorf("%s.scenarios: %w", client.ID, err)
	}
	var all Outcomes
	for _, names := range shownBy {
		for _, name := range names {
			all.Add(name, true)
		}
	}
	return all.judge(client, cases)
}

// judge returns a line for each scenario that the client must show. The caller holds mutex.
func (o *Outcomes) judge(client Client, cases []byte) ([]string, error) {
	shownBy, err := parse(string(cases))
	if err != nil {
		return nil, fmt.Errorf("%s.scenarios: %w", client.ID, err)
	}
	list, err := List()
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, s := range list {
		if !client.Asked(s) {
			continue
		}
		result, note := o.result(shownBy[s.Name])
		delete(shownBy, s.Name)
		lines = append(lines, s.Name+"\t"+result+"\t"+note+"\n")
	}
	if len(shownBy) > 0 {
		return nil, fmt.Errorf("%s.scenarios: %v are not asked of it", client.ID, slices.Sorted(maps.Keys(shownBy)))
	}
	return lines, nil
}

// result evaluates one scenario from its cases. The caller holds mutex.
func (o *Outcomes) result(cases []string) (result, note string) {
	if len(cases) == 1 {
		if reason, ok := strings.CutPrefix(cases[0], notOffered); ok {
			return NotOffered, reason
		}
	}
	if len(cases) == 0 {
		return Failed, "no case shows it"
	}
	for _, name := range cases {
		switch passed, ran := o.passed[name]; {
		case !ran:
			return Failed, "did not run: " + name
		case !passed:
			return Failed, name
		}
	}
	return OK, ""
}

// parse reads scenarios and their indented cases.
func parse(text string) (map[string][]string, error) {
	shownBy := map[string][]string{}
	current := ""
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "" || strings.HasPrefix(line, "#"):
		case line[0] != ' ':
			if _, twice := shownBy[trimmed]; twice {
				return nil, fmt.Errorf("%s is there twice", trimmed)
			}
			current, shownBy[trimmed] = trimmed, nil
		case current == "":
			return nil, errors.New("begins with a case of no scenario")
		default:
			shownBy[current] = append(shownBy[current], trimmed)
		}
	}
	return shownBy, nil
}
