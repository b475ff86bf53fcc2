package messages

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/gateway"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// redriveStep is the number of messages that one request moves back; the API allows 1000.
const redriveStep = 500

// redriveOptions are the flags of message redrive.
type redriveOptions struct {
	reason    string
	contains  string
	olderThan *entity.Duration
	where     *filter.Expr
	max       int
	dryRun    bool
}

// redriven is the answer of message redrive. Without DryRun, Matched minus Redriven is the number of messages that
// were locked or gone when redrive reached them.
type redriven struct {
	Queue    string `json:"queue"`
	Matched  int    `json:"matched"`
	Redriven int    `json:"redriven"`
	DryRun   bool   `json:"dryRun"`
}

// matches reports whether a dead letter matches the filters.
func (o *redriveOptions) matches(s *ShownMessage, now time.Time) bool {
	if s.State != stateActive {
		return false // a receiver has deferred it in the dead-letter queue
	}
	if reason, _ := s.Properties[PropertyReason].(string); o.reason != "" && reason != o.reason {
		return false
	}
	if o.contains != "" && !strings.Contains(s.Body, o.contains) {
		return false
	}
	if o.olderThan == nil {
		return true
	}
	return s.Enqueued != nil && now.Sub(*s.Enqueued) > time.Duration(*o.olderThan)
}

func redrive(i command.Invocation, o *redriveOptions) error {
	ctx, out, queue := i.Ctx, i.Out, i.Args[0]
	if o.max < 0 {
		return cli.Usagef("--max is 0 or more")
	}
	letters := subQueue{deadLetters: true}
	total, err := purgeable(ctx, i.Client, queue, letters)
	if err != nil {
		return err
	}
	d, err := gateway.Connect(ctx, i.Client)
	if err != nil {
		return err
	}
	defer d.Close()
	node, err := d.OpenManagement(ctx, letters.address(queue), nil)
	if err != nil {
		return fmt.Errorf("peek at the dead letters of %s: %w", queue, gateway.PlainError(err))
	}
	run := redriveRun{client: i.Client, out: out, options: o, queue: queue, now: time.Now(), meter: output.NewMeter(i.Client.Process, "redriving "+queue, total)}
	err = run.scan(ctx, node)
	run.meter.End(err != nil)
	if err != nil {
		return fmt.Errorf("after %d messages: %w", run.redriven, err)
	}
	if !out.IsTable() && !o.dryRun {
		return out.Data(redriven{Queue: queue, Matched: run.matched, Redriven: run.redriven})
	}
	if o.dryRun {
		return out.Note("%d of %s would be moved back", run.matched, letters.address(queue))
	}
	return out.Note("%d of %d redriven to %s", run.redriven, run.matched, queue)
}

// redriveRun is one redrive in progress.
type redriveRun struct {
	client  *client.Client
	out     *output.Output
	options *redriveOptions
	queue   string
	now     time.Time
	meter   *output.Meter

	pending  []fsm.SequenceNumber
	matched  int
	redriven int
}

// scan peeks at the dead letters once, in order. A message that fails again during the scan returns with its old
// number, which scan has already passed.
func (r *redriveRun) scan(ctx context.Context, node *gateway.Management) error {
	if r.options.dryRun {
		if err := r.out.Note("%s", lineHeader); err != nil {
			return err
		}
	}
	for from := int64(1); ; {
		page, err := peekFrom(ctx, node, from, peekPage)
		if err != nil {
			return fmt.Errorf("peek at the dead letters of %s: %w", r.queue, err)
		}
		for _, m := range page {
			shown := NewShownMessage(m)
			shown.State = stateName(m.Annotations[noteState])
			if shown.Sequence < from {
				return fmt.Errorf("peek at the dead letters of %s: the member returned messages that it had returned before", r.queue)
			}
			from = shown.Sequence + 1
			if err := r.consider(ctx, m, shown); err != nil {
				return err
			}
			if r.options.max > 0 && r.matched >= r.options.max {
				return r.flush(ctx)
			}
		}
		r.meter.Add(len(page))
		if len(page) == 0 {
			return r.flush(ctx)
		}
	}
}

func (r *redriveRun) consider(ctx context.Context, m *amqp.Message, shown *ShownMessage) error {
	if !r.options.matches(shown, r.now) {
		return nil
	}
	if wanted, err := matchesWhere(r.options.where, m, shown, r.queue); err != nil || !wanted {
		return err
	}
	r.matched++
	if r.options.dryRun {
		return r.out.Item(shown, shown.tableLine())
	}
	r.pending = append(r.pending, fsm.SequenceNumber(shown.Sequence))
	if len(r.pending) < redriveStep {
		return nil
	}
	return r.flush(ctx)
}

// flush moves the collected messages back.
func (r *redriveRun) flush(ctx context.Context) error {
	if len(r.pending) == 0 {
		return nil
	}
	var step api.Affected
	err := r.client.Call(ctx, http.MethodPost, client.NamePath("/v1/redrive/", r.queue), api.RedriveRequest{Sequences: r.pending}, &step)
	r.redriven += step.Count
	r.pending = r.pending[:0]
	return err
}

// peekFrom reads up to count messages from a sequence number on. It returns fewer when the answer is full, and none at
// the end.
func peekFrom(ctx context.Context, n *gateway.Management, from int64, count int) ([]*amqp.Message, error) {
	content, err := n.Request(ctx, "com.microsoft:peek-message", n.WithSession(map[string]any{
		"from-sequence-number": from, "message-count": int32(count),
	}))
	if err != nil {
		return nil, err
	}
	list, _ := content["messages"].([]any)
	page := make([]*amqp.Message, 0, len(list))
	for _, entry := range list {
		fields, _ := entry.(map[string]any)
		encoded, _ := fields["message"].([]byte)
		m := new(amqp.Message)
		if err := m.UnmarshalBinary(encoded); err != nil {
			return nil, fmt.Errorf("decode a message: %w", err)
		}
		page = append(page, m)
	}
	return page, nil
}
