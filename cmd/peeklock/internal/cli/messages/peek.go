package messages

import (
	"context"
	"fmt"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/gateway"
	"github.com/peeklock/peeklock/fsm/filter"
)

// peekOptions are the flags of message peek.
type peekOptions struct {
	subQueue
	count   int
	from    int64
	where   *filter.Expr
	session *string
}

func peek(i command.Invocation, o *peekOptions) error {
	ctx, out, queue := i.Ctx, i.Out, i.Args[0]
	if o.count < 0 || o.from < 0 {
		return cli.Usagef("--count and --from are 0 or more")
	}
	if err := o.check(); err != nil {
		return err
	}
	if o.session != nil && (o.deadLetters || o.transfer) {
		return cli.Usagef("dead letters have no sessions: use --where \"sys.SessionId = '...'\"")
	}
	d, err := gateway.Connect(ctx, i.Client)
	if err != nil {
		return err
	}
	defer d.Close()
	address, deadLettersOf := o.address(queue), ""
	if o.deadLetters || o.transfer {
		deadLettersOf = queue
	}
	node, err := d.OpenManagement(ctx, address, o.session)
	if err != nil {
		return fmt.Errorf("peek at %s: %w", queue, gateway.PlainError(err))
	}
	if err := out.Note("%s", lineHeader); err != nil {
		return err
	}
	seen := 0
	for from := o.from; o.count == 0 || seen < o.count; {
		want := peekPage
		if o.count > 0 && o.where == nil {
			want = min(want, o.count-seen)
		}
		page, err := peekFrom(ctx, node, from, want)
		if err != nil {
			return fmt.Errorf("peek at %s: %w", queue, err)
		}
		for _, m := range page {
			shown := NewShownMessage(m)
			shown.State = stateName(m.Annotations[noteState])
			if shown.Sequence < from {
				return fmt.Errorf("peek at %s: the member returned messages that it had returned before", queue)
			}
			from = shown.Sequence + 1
			wanted, err := matchesWhere(o.where, m, shown, deadLettersOf)
			if err != nil {
				return err
			}
			if !wanted || o.count > 0 && seen == o.count {
				continue
			}
			if err := out.Item(shown, shown.tableLine()); err != nil {
				return err
			}
			seen++
		}
		if len(page) == 0 {
			break
		}
	}
	return out.Note("%d seen in %s", seen, queue)
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
