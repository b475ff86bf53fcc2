package messages

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/entities"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
)

// purgeStep is the number of messages that one request removes. The API allows 4000; smaller requests keep the
// progress bar moving.
const purgeStep = 1000

// purgeOptions are the flags of message purge.
type purgeOptions struct {
	subQueue
	before    string
	olderThan *entity.Duration
	max       int
	yes       bool
	dryRun    bool
}

// purged is the answer of message purge.
type purged struct {
	Queue       string `json:"queue"` // or subscription
	DeadLetters bool   `json:"deadLetters"`
	Transfer    bool   `json:"transferDeadLetters,omitempty"`
	Purged      int    `json:"purged"`
	WouldPurge  *int   `json:"wouldPurge,omitempty"` // of a dry run: at most, because times are compared only in the purge
}

// bound returns the time before which messages are removed, or nil for all messages.
func (o *purgeOptions) bound(now time.Time) (*time.Time, error) {
	switch {
	case o.max < 0:
		return nil, cli.Usagef("--max is 0 or more")
	case o.before != "" && o.olderThan != nil:
		return nil, cli.Usagef("give --before or --older-than, not both")
	case o.before != "":
		at, err := time.Parse(time.RFC3339, o.before)
		if err != nil {
			return nil, cli.Usagef("--before %q: write it like 2026-11-20T12:00:00Z", o.before)
		}
		return &at, nil
	case o.olderThan != nil:
		at := now.Add(-time.Duration(*o.olderThan))
		return &at, nil
	}
	return nil, nil //nolint:nilnil // no bound is an answer
}

func purge(i command.Invocation, o *purgeOptions) error {
	ctx, out, queue := i.Ctx, i.Out, i.Args[0]
	if err := o.check(); err != nil {
		return err
	}
	before, err := o.bound(time.Now())
	if err != nil {
		return err
	}
	if !o.dryRun {
		if err := i.Client.Confirm(ctx, o.yes, queue, "deletes messages of "+o.address(queue)); err != nil {
			return err
		}
	}
	request := api.PurgeRequest{SubQueue: o.apiName(), Before: before}
	total, err := purgeable(ctx, i.Client, queue, o.subQueue)
	if err != nil {
		return err
	}
	if o.max > 0 {
		total = min(total, o.max)
	}
	if o.dryRun {
		if out.IsTable() {
			return out.Note("up to %d would be purged from %s", total, o.address(queue))
		}
		return out.Data(purged{Queue: queue, DeadLetters: o.deadLetters, Transfer: o.transfer, WouldPurge: &total})
	}
	m := output.NewMeter(i.Client.Process, "purging "+queue, total)
	done := 0
	for done < total && err == nil {
		request.Max = min(purgeStep, total-done)
		var step api.Affected
		err = i.Client.Call(ctx, http.MethodPost, client.NamePath("/v1/purge/", queue), request, &step)
		done += step.Count
		m.Add(step.Count)
		if step.Count == 0 {
			break // other receivers took some of them meanwhile
		}
	}
	m.End(err != nil)
	if err != nil {
		return fmt.Errorf("after %d messages: %w", done, err)
	}
	if out.IsTable() {
		return out.Note("%d purged from %s", done, o.address(queue))
	}
	return out.Data(purged{Queue: queue, DeadLetters: o.deadLetters, Transfer: o.transfer, Purged: done})
}

// purgeable returns how many messages a purge may have to remove.
func purgeable(ctx context.Context, c *client.Client, name string, sub subQueue) (int, error) {
	counts, err := entities.CountsOf(ctx, c, name)
	if err != nil || counts == nil {
		return 0, err
	}
	switch {
	case sub.deadLetters:
		return int(counts.DeadLetter), nil
	case sub.transfer:
		return int(counts.TransferDeadLetter), nil
	}
	// Messages that wait to be forwarded count as ready, too.
	return int(counts.Active-min(counts.Active, counts.Locked)) + int(counts.Transfer), nil
}
