package operate

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
	"github.com/peeklock/peeklock/topology"
)

// errReplicasDiffer is the error of a verification that could not show that all replicas are equal.
var errReplicasDiffer = errors.New("not all replicas are known to be equal")

// verified is the answer of cluster verify.
type verified struct {
	Equal      bool                 `json:"equal"`
	Partitions []verifiedPartitions `json:"partitions"`
}

type verifiedPartitions struct {
	topology.Verification
	Error string `json:"error,omitempty"` // why the replicas could not be compared
}

func verify(i command.Invocation) error {
	ctx, out := i.Ctx, i.Out
	r, err := readMembers(ctx, i.Client)
	if err != nil {
		return err
	}
	var st topology.Status
	if err := i.Client.Call(ctx, http.MethodGet, "/v1/status", nil, &st); err != nil {
		return err
	}
	m := output.NewMeter(i.Client.Process, "comparing", len(st.Partitions))
	answer := verified{Equal: true}
	rows := make([][]any, 0, len(st.Partitions))
	for _, p := range st.Partitions {
		one := verifiedPartitions{Verification: topology.Verification{Partition: p.ID, Replicas: []topology.VerifiedReplica{}}}
		if err := i.Client.Call(ctx, http.MethodGet, fmt.Sprintf("/v1/verify/%d", p.ID), nil, &one.Verification); err != nil {
			if ctx.Err() != nil {
				m.End(true)
				return err
			}
			one.Error = err.Error()
		}
		answer.Equal = answer.Equal && one.Equal
		answer.Partitions = append(answer.Partitions, one)
		rows = append(rows, []any{uint32(p.ID), one.Index, len(one.Replicas), comparisonText(r, one)})
		m.Add(1)
	}
	m.End(!answer.Equal)
	if err := out.Rows(answer, []any{"partition", "index", "replicas", "state"}, rows); err != nil {
		return err
	}
	if !answer.Equal {
		return errReplicasDiffer
	}
	return nil
}

// comparisonText returns the result for a partition in a table.
func comparisonText(r *memberNames, v verifiedPartitions) string {
	if v.Error != "" {
		return "not compared: " + v.Error
	}
	if v.Equal {
		return "equal"
	}
	var texts []string
	for _, one := range v.Replicas {
		text := one.Digest
		if one.Error != "" {
			text = "no answer (" + one.Error + ")"
		}
		texts = append(texts, r.name(one.Member)+": "+text)
	}
	return "NOT EQUAL: " + strings.Join(texts, ", ")
}
