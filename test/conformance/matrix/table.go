package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/peeklock/peeklock/test/conformance/scenario"
)

// cell is one result.
type cell struct{ result, note string }

// build reads the results and returns two tables as Markdown: one for the official clients
// and one for the others. With an error, it also returns what it has built.
func build(folder string, read func(path string) ([]byte, error)) (string, error) {
	list, err := scenario.List()
	if err != nil {
		return "", err
	}
	var text strings.Builder
	var problems []error
	notes := &notes{}
	for _, of := range []scenario.Audience{scenario.Official, scenario.Generic} {
		var columns []column
		for _, c := range scenario.Clients() {
			if c.Of != of {
				continue
			}
			col, err := newColumn(c, folder, read)
			problems = append(problems, err)
			columns = append(columns, col)
		}
		problems = append(problems, writeTable(&text, list, columns, notes))
		text.WriteString("\n")
	}
	for i, note := range notes.texts {
		fmt.Fprintf(&text, "%d. %s\n", i+1, note)
	}
	return text.String(), errors.Join(problems...)
}

// column is a client with its results.
type column struct {
	scenario.Client
	version string
	cells   map[string]cell
}

// newColumn reads the results of a suite.
func newColumn(c scenario.Client, folder string, read func(string) ([]byte, error)) (column, error) {
	version, err := c.Version(read)
	col := column{Client: c, version: version, cells: map[string]cell{}}
	if err != nil {
		return col, err
	}
	lines, err := results(c, folder, read)
	if err != nil {
		return col, fmt.Errorf("results of %s: %w", c.ID, err)
	}
	for _, line := range lines {
		parts := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(parts) != 3 {
			return col, fmt.Errorf("results of %s: %q is no scenario, result and note", c.ID, line)
		}
		col.cells[parts[0]] = cell{parts[1], parts[2]}
	}
	return col, nil
}

// results returns the lines that a suite has written, or, of one that did not run because it is a nightly one, those that it promises.
func results(c scenario.Client, folder string, read func(string) ([]byte, error)) ([]string, error) {
	content, err := os.ReadFile(filepath.Join(folder, c.ID+".tsv"))
	if c.Nightly && errors.Is(err, fs.ErrNotExist) {
		cases, err := read(filepath.Join("test/conformance", c.Suite, c.ID+".scenarios"))
		if err != nil {
			return nil, err
		}
		return scenario.Promised(c, cases)
	}
	return slices.Collect(strings.Lines(string(content))), err
}

// notes numbers the reasons and lists each one once.
type notes struct{ texts []string }

func (n *notes) number(text string) int {
	at := slices.Index(n.texts, text)
	if at < 0 {
		at = len(n.texts)
		n.texts = append(n.texts, text)
	}
	return at + 1
}

// writeTable writes the scenarios that the columns must show as rows; those of the table before, by their names only.
func writeTable(text *strings.Builder, list []scenario.Scenario, columns []column, notes *notes) error {
	head, line := "| scenario |", "|---|"
	for _, c := range columns {
		head += fmt.Sprintf(" %s: %s %s |", c.Language, c.Title, c.version)
		line += "---|"
	}
	fmt.Fprintf(text, "%s\n%s\n", head, line)
	var problems []error
	for _, s := range list {
		if !columns[0].Asked(s) {
			continue
		}
		first := fmt.Sprintf("| %s: %s |", s.Name, s.Text)
		if strings.Contains(text.String(), first) {
			first = fmt.Sprintf("| %s |", s.Name)
		}
		text.WriteString(first)
		for _, c := range columns {
			shown := "**failed**"
			switch have, ok := c.cells[s.Name]; {
			case !ok:
				problems = append(problems, fmt.Errorf("%s: %s has no result", c.ID, s.Name))
			case have.result == scenario.OK:
				shown = "yes"
			case have.result == scenario.NotOffered:
				shown = fmt.Sprintf("no (%d)", notes.number(have.note))
			default:
				problems = append(problems, fmt.Errorf("%s: %s %s: %s", c.ID, s.Name, have.result, have.note))
			}
			fmt.Fprintf(text, " %s |", shown)
		}
		text.WriteString("\n")
	}
	return errors.Join(problems...)
}
