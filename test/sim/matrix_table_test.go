package sim

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestMatrixTable writes the results of the storage-error matrix to the file table, as the table of test/RESULTS.md; `make matrix-table` calls it.
func TestMatrixTable(t *testing.T) {
	folder := os.Getenv(matrixVariable)
	if folder == "" {
		t.Skipf("%s, the folder of the results, is not set; `make matrix-table` sets it", matrixVariable)
	}
	if err := os.WriteFile(filepath.Join(folder, "table"), []byte(matrixTable(readResults(t, folder))), 0o600); err != nil {
		t.Fatal(err)
	}
}

// matrixRow counts the simulations of one row of the table.
type matrixRow struct{ runs, unharmed, restarted, failed int }

// matrixTable sums results by call and class.
func matrixTable(results []*matrixResult) string {
	rows := make(map[string]*matrixRow)
	total := new(matrixRow)
	for _, r := range results {
		if r.Outcome.Note == missed {
			continue
		}
		name := fmt.Sprintf("%s | %s", rowName(r.Outcome.Call, r.Outcome.Text), r.Class)
		if rows[name] == nil {
			rows[name] = new(matrixRow)
		}
		for _, row := range []*matrixRow{rows[name], total} {
			row.runs++
			switch {
			case len(r.Outcome.Findings) > 0:
				row.failed++
			case r.Outcome.Note != "":
				row.restarted++
			default:
				row.unharmed++
			}
		}
	}
	var s strings.Builder
	s.WriteString("| call | class | simulations | no restart | restarted | findings |\n|---|---|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		s.WriteString(rows[name].line(name))
	}
	s.WriteString(total.line("all | "))
	return s.String()
}

func (r *matrixRow) line(name string) string {
	return fmt.Sprintf("| %s | %d | %d | %d | %d |\n", name, r.runs, r.unharmed, r.restarted, r.failed)
}

// raftCall matches the function that raft calls in a stack that begins with the innermost function.
var raftCall = regexp.MustCompile(`(?m)^partition(?:/raftlog)?\.\(\*(\w+)\)\.(\w+):\d+\ngithub\.com/hashicorp/raft\.`)

// raftInterfaces maps the types that raft calls to its interfaces.
var raftInterfaces = map[string]string{"Group": "", "snapshotStore": "SnapshotStore", "snapshotSink": "SnapshotSink", "machineFSM": "FSM"}

// rowName describes a call: the method of raft's storage interfaces in which it is made, or the file system alone.
func rowName(c Call, stack string) string {
	name := c.Name
	if area, _, _ := strings.Cut(c.Path, "/N.N/"); area == "groups" {
		name += " " + strings.TrimPrefix(c.Path, "groups/N.N/")
	} else if c.Path != "" {
		name += " " + c.Path
	}
	called := raftCall.FindStringSubmatch(stack)
	if called == nil {
		return name
	}
	of := raftInterfaces[called[1]]
	if called[1] == "Group" {
		of = "LogStore"
		if strings.HasPrefix(called[2], "Set") || strings.HasPrefix(called[2], "Get") && called[2] != "GetLog" {
			of = "StableStore"
		}
	}
	if of == "" {
		of = called[1]
	}
	return of + "." + called[2] + ": " + name
}
