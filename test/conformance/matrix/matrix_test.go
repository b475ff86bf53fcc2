package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/test/conformance/scenario"
	"github.com/peeklock/peeklock/test/kit"
)

// writeResults writes what suites leave when all cases pass; change may modify each result.
func writeResults(t *testing.T, change func(client, name string) string) string {
	t.Helper()
	folder := t.TempDir()
	list := kit.Must(scenario.List())(t)
	for _, c := range scenario.Clients() {
		var text strings.Builder
		for _, s := range list {
			if c.Asked(s) {
				text.WriteString(change(c.ID, s.Name))
			}
		}
		kit.OK(t, os.WriteFile(filepath.Join(folder, c.ID+".tsv"), []byte(text.String()), 0o600))
	}
	return folder
}

func passed(_, name string) string { return name + "\tok\t\n" }

func read(path string) ([]byte, error) { return os.ReadFile(filepath.Join("../../..", path)) }

func TestTableShowsResultsAndReasons(t *testing.T) {
	t.Parallel()
	table := kit.Must(build(writeResults(t, func(client, name string) string {
		if name == "transaction" && client != "azure-messaging-servicebus" {
			return name + "\tnot-offered\tno coordinator\n"
		}
		return passed(client, name)
	}), read))(t)
	for _, want := range []string{
		"| scenario | Go: azservicebus 1.", "| transaction: commit applies all operations, rollback none | no (1) | no (1) | no (1) | yes | no (1) |\n",
		"| transaction | no (1) | no (1) | no (1) | no (1) |\n", "\n1. no coordinator\n",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("%q is not in\n%s", want, table)
		}
	}
	text, err := replace("a\n"+marker+"old\n"+marker+"b\n", table)
	if want := "a\n" + marker + table + marker + "b\n"; err != nil || text != want {
		t.Errorf("replaced: %v\n%s", err, text)
	}
	if _, err := replace("a\n"+marker+"old\n", table); err == nil {
		t.Error("a text with one marker was taken")
	}
}

// TestMissingAndFailedResultsAreErrors checks that a failed result, a missing result and a missing client are errors.
func TestMissingAndFailedResultsAreErrors(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(client, name string) string{
		"failed": func(client, name string) string {
			if client == "rhea" && name == "send" {
				return "send\tfailed\tsome case\n"
			}
			return passed(client, name)
		},
		"missing": func(client, name string) string {
			if client == "azservicebus" && name == "peek" {
				return ""
			}
			return passed(client, name)
		},
		"broken": func(client, name string) string { return strings.TrimSuffix(passed(client, name), "\t\n") + "\n" },
	} {
		if _, err := build(writeResults(t, change), read); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	folder := writeResults(t, passed)
	kit.OK(t, os.Remove(filepath.Join(folder, "qpid-jms.tsv")))
	if _, err := build(folder, read); err == nil {
		t.Error("a client without results: no error")
	}
}

// TestNightlyClientIsShownAsItsCasesPromise checks that the table is complete without the results of a suite that CI does
// not run, and that results which are there count.
func TestNightlyClientIsShownAsItsCasesPromise(t *testing.T) {
	t.Parallel()
	folder := writeResults(t, passed)
	path := filepath.Join(folder, "azservicebus-rust.tsv")
	kit.OK(t, os.Remove(path))
	table, err := build(folder, read)
	if err != nil || !strings.Contains(table, "no administration client") {
		t.Errorf("%v\n%s", err, table)
	}
	kit.OK(t, os.WriteFile(path, []byte("send\tfailed\tsome case\n"), 0o600))
	if _, err := build(folder, read); err == nil {
		t.Error("a failed result of a nightly client: no error")
	}
}
