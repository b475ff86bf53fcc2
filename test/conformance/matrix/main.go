package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/peeklock/peeklock/test/conformance/scenario"
)

const (
	document = "docs/clients.md"
	// marker precedes and follows the table.
	marker = "<!-- matrix -->\n"
)

func main() {
	check := flag.Bool("check", false, "compare the table with the one in "+document)
	write := flag.Bool("write", false, "put the table into "+document)
	flag.Parse()
	if err := run(os.Stdout, os.Getenv(scenario.Variable), *check, *write); err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
		os.Exit(1) //nolint:forbidigo // nothing is left to be closed
	}
}

// run makes the table and prints, compares or writes it as the flags say.
func run(out io.Writer, folder string, check, write bool) error {
	if folder == "" {
		return fmt.Errorf("%s does not name the folder of the results", scenario.Variable)
	}
	table, err := build(folder, os.ReadFile)
	if _, printed := io.WriteString(out, table); err != nil || printed != nil {
		return errors.Join(err, printed)
	}
	if !check && !write {
		return nil
	}
	text, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	fresh, err := replace(string(text), table)
	switch {
	case err != nil:
		return err
	case write:
		return os.WriteFile(document, []byte(fresh), 0o644)
	case fresh != string(text):
		return fmt.Errorf("the table in %s is not the one above: put it there with -write", document)
	}
	return nil
}

// replace replaces the text between the markers with the table.
func replace(text, table string) (string, error) {
	before, rest, begins := strings.Cut(text, marker)
	_, after, ends := strings.Cut(rest, marker)
	if !begins || !ends {
		return "", fmt.Errorf("%s has no two lines %s around the table", document, strings.TrimSpace(marker))
	}
	return before + marker + table + marker + after, nil
}
