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

// Variable names the folder that suites write their results into; without it they write none.
const Variable = "PEEKLOCK_MATRIX"

// The words of a result.
const (
	OK         = "ok"
	Failed     = "failed"
	NotOffered = "not-offered"
)

// notOffered begins the line of a <client>.scenarios that says why.
const notOffered = "not offered: "

// Outcomes are the cases that ran, and whether each passed. Its methods may be called
// concurrently.
type Outcomes struct {
	mutex  sync.Mutex
	passed map[string]bool
}

// Add notes how a case ended. One that runs several times passed when it did each time.
func (o *Outcomes) Add(name string, passed bool) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if o.passed == nil {
		o.passed = map[string]bool{}
	}
	before, again := o.passed[name]
	o.passed[name] = passed && (before || !again)
}

// junit is what matters of the reports that JUnit's followers of all languages write.
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

// AddJUnit adds the cases of a report under the names that name makes of class and case;
// "" leaves one out.
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

// Write judges the scenarios of a client and writes them into $PEEKLOCK_MATRIX, if that is
// set: name, result and note, parted by tabs. cases is its file <client>.scenarios.
//
// What is written last has everything: several may write as their cases end.
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

// judge makes a line of each scenario that is asked of the client. The caller holds mutex.
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

// result judges one scenario by its cases. The caller holds mutex.
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

// parse reads scenarios with their indented cases.
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
