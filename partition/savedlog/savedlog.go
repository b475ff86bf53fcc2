package savedlog

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/peeklock/peeklock/fsm"
)

// Entry is an entry of a saved log.
type Entry struct {
	Index, Term uint64
	Type        uint8  // raft.LogType
	Data        []byte // as it is in the log
	Replicas    []string
}

// head is the first line of a saved log. The format may change with any release.
const head = "peeklock saved log 1, partition %d\n"

// Write writes entries of the logs of a group's replicas as lines of text, for [Read] and people:
// index, term, type, the names of the replicas that stored the entry, and the data in base64. An index may have
// several entries, of different terms.
func Write(w io.Writer, id fsm.PartitionID, entries []Entry) error {
	if _, err := fmt.Fprintf(w, head, id); err != nil {
		return fmt.Errorf("write saved log: %w", err)
	}
	for i := range entries {
		e := &entries[i]
		if _, err := fmt.Fprintf(w, "%d %d %d %s %s\n", e.Index, e.Term, e.Type, strings.Join(e.Replicas, ","), base64.StdEncoding.EncodeToString(e.Data)); err != nil {
			return fmt.Errorf("write saved log: %w", err)
		}
	}
	return nil
}

// Read reads what Write has written.
func Read(r io.Reader) (id fsm.PartitionID, entries []Entry, err error) {
	in := bufio.NewReader(r)
	first, err := in.ReadString('\n')
	if err != nil {
		return 0, nil, fmt.Errorf("read saved log: %w", err)
	}
	if _, err := fmt.Sscanf(first, head, &id); err != nil {
		return 0, nil, fmt.Errorf("read saved log: the first line is %q", first)
	}
	for {
		line, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) && line == "" {
			return id, entries, nil
		}
		if err != nil {
			return 0, nil, fmt.Errorf("read saved log: %w", err)
		}
		e, err := parseEntry(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return 0, nil, fmt.Errorf("read saved log: %w", err)
		}
		entries = append(entries, e)
	}
}

func parseEntry(line string) (e Entry, err error) {
	numbers, rest := "", line
	for range 3 {
		number, after, _ := strings.Cut(rest, " ")
		numbers, rest = numbers+number+" ", after
	}
	if _, err := fmt.Sscan(numbers, &e.Index, &e.Term, &e.Type); err != nil {
		return e, fmt.Errorf("parse numbers %q: %w", numbers, err)
	}
	replicas, data, _ := strings.Cut(rest, " ")
	if replicas != "" {
		e.Replicas = strings.Split(replicas, ",")
	}
	if e.Data, err = base64.StdEncoding.DecodeString(data); err != nil {
		return e, fmt.Errorf("parse data of entry %d: %w", e.Index, err)
	}
	return e, nil
}
