package operate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

const (
	planStep = 200 // moves in one request; the API allows 256
	// leadersFollowMax is how long the command waits for leaderships after the last move. They follow
	// automatically, but not to a member that has just started.
	leadersFollowMax = 15 * time.Second
)

// rebalanceOptions are the flags of partition rebalance.
type rebalanceOptions struct{ dryRun, noWait bool }

// rebalanced is the answer of partition rebalance.
type rebalanced struct {
	Moves    []topology.PlannedMove `json:"moves"`
	Bytes    int64                  `json:"bytes"`    // approximate bytes to copy
	Estimate string                 `json:"estimate"` // approximate duration
	State    string                 `json:"state"`    // planned, ordered, done
	// Leaders is the number of leaderships that had not yet followed when State became done.
	Leaders int `json:"leaders,omitempty"`
}

func rebalance(i command.Invocation, o rebalanceOptions) error {
	ctx, out := i.Ctx, i.Out
	var plan api.Plan
	if err := i.Client.Call(ctx, http.MethodGet, "/v1/rebalance", nil, &plan); err != nil {
		return err
	}
	r, err := readMembers(ctx, i.Client)
	if err != nil {
		return err
	}
	answer := rebalanced{Moves: plan.Moves, State: "planned"}
	copies := 0
	for _, m := range plan.Moves {
		answer.Bytes += m.Bytes
		if !m.LeaderOnly {
			copies++
		}
	}
	answer.Estimate = estimate(answer.Bytes, copies).String()
	if err := printPlan(out, r, answer, copies); err != nil {
		return err
	}
	if !o.dryRun && len(plan.Moves) > 0 {
		answer.State = "ordered"
		if err := submitMoves(ctx, i.Client, plan.Moves); err != nil {
			return err
		}
		if !o.noWait {
			if err := watchRebalance(ctx, i.Client, &answer); err != nil {
				return err
			}
		}
	}
	if !out.IsTable() {
		return out.Data(answer)
	}
	switch {
	case answer.Leaders > 0:
		return out.Note("done; %d leaderships follow automatically", answer.Leaders)
	case answer.State == "done":
		return out.Note("done")
	case answer.State == "ordered":
		return out.Note("submitted: peeklock partition moves shows the progress")
	}
	return nil
}

// printPlan prints the moves of a plan as a table.
func printPlan(out *output.Output, r *memberNames, plan rebalanced, copies int) error {
	if !out.IsTable() {
		return nil
	}
	if len(plan.Moves) == 0 {
		return out.Note("no partition has to move")
	}
	rows := make([][]any, len(plan.Moves))
	for i, m := range plan.Moves {
		what := output.SignedBytesText(m.Bytes)
		if m.LeaderOnly {
			what = "leader only"
		}
		rows[i] = []any{uint32(m.Partition), r.names(m.From), "->", r.names(m.To), what}
	}
	if err := out.Rows(nil, []any{"partition", "from", "", "to", "copies"}, rows); err != nil {
		return err
	}
	return out.Note("\n%d of %d partitions are copied, %s in all: about %s at %s/s", copies, len(plan.Moves), output.SignedBytesText(plan.Bytes), plan.Estimate, output.SignedBytesText(copyRate))
}

// submitMoves submits the moves of a plan in several requests.
func submitMoves(ctx context.Context, c *client.Client, moves []topology.PlannedMove) error {
	for done := 0; done < len(moves); done += planStep {
		some := moves[done:min(len(moves), done+planStep)]
		if err := c.Call(ctx, http.MethodPost, "/v1/rebalance", api.Plan{Moves: some}, nil); err != nil {
			if done > 0 {
				err = fmt.Errorf("%d moves were submitted before: %w", done, err)
			}
			return err
		}
	}
	return nil
}

// watchRebalance watches a plan until it is done.
func watchRebalance(ctx context.Context, c *client.Client, plan *rebalanced) error {
	sizes, leaders := map[fsm.PartitionID]int64{}, map[fsm.PartitionID]fsm.MemberID{}
	for _, m := range plan.Moves {
		leaders[m.Partition] = m.To[0]
		if !m.LeaderOnly {
			sizes[m.Partition] = m.Bytes
		}
	}
	if len(sizes) > 0 {
		if err := watchMoves(ctx, c, "rebalancing", sizes); err != nil {
			return err
		}
	}
	plan.State = "done"
	began := time.Now()
	pollWhile(ctx, watchInterval, func() bool {
		var st topology.Status
		if c.Call(ctx, http.MethodGet, "/v1/status", nil, &st) == nil {
			plan.Leaders = 0
			for _, p := range st.Partitions {
				if wanted, ours := leaders[p.ID]; ours && p.Leader != wanted {
					plan.Leaders++
				}
			}
		}
		return plan.Leaders > 0 && time.Since(began) < leadersFollowMax
	})
	if ctx.Err() != nil {
		return detachedError("rebalancing", errors.New("interrupted"))
	}
	return nil
}
