package messages

import (
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/pflag"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/entities"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
	"github.com/peeklock/peeklock/fsm"
)

// Limits of a change.
const (
	changeStep      = 500              // messages of one request; the API allows 1000
	changeRepeatMax = 30 * time.Second // in which a request without a known outcome is repeated
)

// changeOptions are the flags of commands that change messages.
type changeOptions struct {
	selection

	max    int
	from   int64
	yes    bool
	dryRun bool
}

func (o *changeOptions) flags(f *pflag.FlagSet, verb string) {
	o.selection.flags(f)
	f.IntVar(&o.max, "max", 0, verb+" at most this many; 0: all that match")
	f.Int64Var(&o.from, "from", 0, "begin at this sequence number: go on with a command that was interrupted")
	f.BoolVar(&o.dryRun, "dry-run", false, "only show which messages match, and how many")
}

// request returns the request. Errors are usage errors.
func (o *changeOptions) request(now time.Time) (api.MessageChange, error) {
	if o.max < 0 || o.from < 0 {
		return api.MessageChange{}, cli.Usagef("--max and --from are 0 or more")
	}
	s, err := o.selection.request(now)
	return api.MessageChange{Selection: s, From: fsm.SequenceNumber(o.from), All: true}, err
}

// show prints the messages that a change would change, and returns how many there are.
func (o *changeOptions) show(i command.Invocation, request *api.MessageChange) (matched int, err error) {
	if err := i.Out.Note("%s", peekHeader); err != nil {
		return 0, err
	}
	pages := pager{client: i.Client, name: i.Args[0], query: query(&request.Selection), bodyBytes: shownBodyBytes}
	_, err = pages.each(i.Ctx, request.From, 0, func(m *api.Message) error {
		if m.Locked || o.max > 0 && matched >= o.max {
			return nil
		}
		matched++
		return i.Out.Item(m, peekLine(m))
	})
	if err != nil {
		return matched, fmt.Errorf("peek at %s: %w", o.address(i.Args[0]), err)
	}
	return matched, nil
}

// shownBodyBytes are the bytes of a body that a dry run shows.
const shownBodyBytes = 4 << 10

// changeRun is a change in progress.
type changeRun struct {
	command.Invocation

	path, verb     string
	max            int
	count, matched int
}

// all sends request after request until there are no further messages. A request whose outcome is unknown is repeated: the
// numbers of messages are never used again, so nothing is changed twice. change is a part of the request.
func (r *changeRun) all(change *api.MessageChange, request any) error {
	total, err := r.total(change)
	if err != nil {
		return err
	}
	meter := output.NewMeter(r.Client.Process, r.verb+" "+r.Args[0], total)
	began := time.Now()
	for {
		change.Max = changeStep
		if r.max > 0 {
			change.Max = min(changeStep, r.max-r.matched)
		}
		var step api.MessagesChanged
		err := r.Client.Call(r.Ctx, http.MethodPost, client.NamePath(r.path, r.Args[0]), request, &step)
		if cli.IsUnknown(err) && time.Since(began) < changeRepeatMax && r.Ctx.Err() == nil {
			cli.Sleep(r.Ctx, client.RetryInterval)
			continue
		}
		if err != nil {
			meter.End(true)
			return fmt.Errorf("after %d messages (go on with --from %d): %w", r.count, change.From, err)
		}
		began = time.Now()
		r.count, r.matched = r.count+step.Count, r.matched+step.Matched
		meter.Add(step.Looked)
		change.From = step.Next
		if step.End || r.max > 0 && r.matched >= r.max {
			meter.End(false)
			return nil
		}
	}
}

// total returns how many messages there are to look at. It fails for what is no queue or subscription.
func (r *changeRun) total(change *api.MessageChange) (int, error) {
	counts, err := entities.CountsOf(r.Ctx, r.Client, r.Args[0])
	switch {
	case err != nil || counts == nil:
		return 0, err
	case change.SubQueue == "deadLetter":
		return int(counts.DeadLetter), nil
	case change.SubQueue == "transferDeadLetter":
		return int(counts.TransferDeadLetter), nil
	}
	return int(counts.Active + counts.Deferred + counts.Scheduled), nil
}
