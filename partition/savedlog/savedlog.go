package partition

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/peeklock/peeklock/fsm"
)

// SavedEntry is an entry of a saved log.
type SavedEntry struct {
	Index, Term uint64
	Type        uint8  // raft.LogType
	Data        []byte // as it is in the log
	Replicas    []string
}

// savedLogHead is the first line of a saved log. The format may change with any release.
const savedLogHead = "peeklock saved log 1, partition %d\n"

// WriteSavedLog writes entries of the logs of a group's replicas as lines of text, for [ReadSavedLog] and people:
// index, term, type, the names of the replicas that stored the entry, and the data in base64. An index may have
// several entries, of different terms.
func WriteSavedLog(w io.Writer, id fsm.PartitionID, entries []SavedEntry) error {
	if _, err := fmt.Fprintf(w, savedLogHead, id); err != nil {
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

// ReadSavedLog reads what WriteSavedLog has written.
func ReadSavedLog(r io.Reader) (id fsm.PartitionID, entries []SavedEntry, err error) {
	in := bufio.NewReader(r)
	head, err := in.ReadString('\n')
	if err != nil {
		return 0, nil, fmt.Errorf("read saved log: %w", err)
	}
	if _, err := fmt.Sscanf(head, savedLogHead, &id); err != nil {
		return 0, nil, fmt.Errorf("read saved log: the first line is %q", head)
	}
	for {
		line, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) && line == "" {
			return id, entries, nil
		}
		if err != nil {
			return 0, nil, fmt.Errorf("read saved log: %w", err)
		}
		e, err := parseSavedEntry(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return 0, nil, fmt.Errorf("read saved log: %w", err)
		}
		entries = append(entries, e)
	}
}

func parseSavedEntry(line string) (e SavedEntry, err error) {
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
