package operate

import (
	"bytes"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

// TestStatusBeginsWithTheMissingQuorum: an operator at night reads first that nothing is served, and whom it waits for.
func TestStatusBeginsWithTheMissingQuorum(t *testing.T) {
	t.Parallel()
	members := func(states ...string) (all []topology.Member) {
		for i, state := range states {
			all = append(all, topology.Member{ID: fsm.MemberID(string(rune('1' + i))), Name: string(rune('a' + i)), State: state})
		}
		return all
	}
	partitions := func(leaders ...fsm.MemberID) (all []topology.Partition) {
		for i, leader := range leaders {
			all = append(all, topology.Partition{ID: fsm.PartitionID(i), Leader: leader, Replicas: []fsm.MemberID{"1", "2", "3"}})
		}
		return all
	}
	for name, c := range map[string]struct {
		status topology.Status
		want   string
	}{
		"all led":            {topology.Status{Members: members("alive", "alive", "dead"), Partitions: partitions("1", "2")}, ""},
		"two away":           {topology.Status{Members: members("alive", "dead", "left"), Partitions: partitions("", "")}, "NO QUORUM: 2 of 2 partitions; waiting for b, c\n"},
		"an old leader":      {topology.Status{Members: members("alive", "dead", "dead"), Partitions: partitions("2", "1")}, "NO QUORUM: 1 of 2 partitions; waiting for b, c\n"},
		"election":           {topology.Status{Members: members("alive", "alive", "dead"), Partitions: partitions("3", "1")}, "NO LEADER: 1 of 2 partitions;"},
		"none has been seen": {topology.Status{Members: members("alive", "alive", "alive"), Partitions: partitions("")}, "NO LEADER: 1 of 1 partitions;"},
	} {
		var printed bytes.Buffer
		out, err := output.NewOutput(&printed, "table")
		if err != nil {
			t.Fatal(err)
		}
		if err := printStatus(out, c.status); err != nil {
			t.Fatal(err)
		}
		if got := printed.String(); !strings.HasPrefix(got, c.want) || c.want == "" && strings.HasPrefix(got, "NO ") {
			t.Errorf("%s: the status begins with %.60q, want %q", name, got, c.want)
		}
	}
}
