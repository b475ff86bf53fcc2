package messages

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
	"github.com/peeklock/peeklock/fsm"
)

// peekPageMax is the number of messages of one request.
const peekPageMax = 1000

// peekOptions are the flags of message peek.
type peekOptions struct {
	selection

	count     int
	from      int64
	bodyBytes int
}

func peek(i command.Invocation, o *peekOptions) error {
	if o.count < 0 || o.from < 0 || o.bodyBytes < 1 {
		return cli.Usagef("--count and --from are 0 or more, and --body-bytes is 1 or more")
	}
	request, err := o.request(time.Now())
	if err != nil {
		return err
	}
	if err := i.Out.Note("%s", peekHeader); err != nil {
		return err
	}
	pages := pager{client: i.Client, name: i.Args[0], query: query(&request), bodyBytes: o.bodyBytes}
	seen, err := pages.each(i.Ctx, fsm.SequenceNumber(o.from), o.count, func(m *api.Message) error { return i.Out.Item(m, peekLine(m)) })
	if err != nil {
		return fmt.Errorf("peek at %s: %w", o.address(i.Args[0]), err)
	}
	return i.Out.Note("%d seen in %s", seen, o.address(i.Args[0]))
}

// pager reads the messages of a selection page by page.
type pager struct {
	client    *client.Client
	name      string
	query     url.Values
	bodyBytes int // of each message, at most
}

// page reads the messages from a number on, at most count.
func (p *pager) page(ctx context.Context, from fsm.SequenceNumber, count int) (page api.MessagePage, err error) {
	p.query.Set("from", strconv.FormatUint(uint64(from), 10))
	p.query.Set("max", strconv.Itoa(count))
	p.query.Set("bodyBytes", strconv.Itoa(p.bodyBytes))
	err = p.client.Call(ctx, http.MethodGet, client.NamePath("/v1/messages/", p.name)+"?"+p.query.Encode(), nil, &page)
	return page, err
}

// each calls visit for at most count messages (0: all) from a number on, and returns how many there were.
func (p *pager) each(ctx context.Context, from fsm.SequenceNumber, count int, visit func(*api.Message) error) (seen int, err error) {
	for {
		want := peekPageMax
		if count > 0 {
			want = min(want, count-seen)
		}
		page, err := p.page(ctx, from, want)
		if err != nil {
			return seen, err
		}
		for at := range page.Messages {
			if err := visit(&page.Messages[at]); err != nil {
				return seen, err
			}
			seen++
		}
		if page.End || count > 0 && seen >= count {
			return seen, nil
		}
		if page.Next <= from && page.Looked > 0 && len(page.Messages) == 0 {
			return seen, fmt.Errorf("the member does not go on from message %d", from)
		}
		from = page.Next
	}
}

// peekHeader and peekLine format messages for the table output. Messages are printed one by one as they arrive, so the
// columns have fixed widths.
const peekHeader = "SEQUENCE  STATE      ATTEMPTS  ENQUEUED (UTC)           ID                    BODY"

func peekLine(m *api.Message) string {
	when, id, state := "-", "-", m.State
	if m.Enqueued != nil {
		when = m.Enqueued.Format("2006-01-02 15:04:05.000")
	}
	if m.Locked {
		state = api.StateLocked
	}
	if m.MessageID != nil {
		id = output.Printable(fmt.Sprint(m.MessageID.Go), 17)
	}
	return fmt.Sprintf("%8d  %-9s  %8d  %-23s  %-20s  %s", m.SequenceNumber, state, m.DeliveryCount, when, id, bodyText(m))
}

// bodyText returns the beginning of a body, before it the session, of a dead letter the reason, and of a scheduled message the
// time at which it is due.
func bodyText(m *api.Message) string {
	text := ""
	switch {
	case m.Body != nil:
		text = output.Printable(*m.Body, 120)
	case m.BodyBase64 != nil:
		text = fmt.Sprintf("(binary, %d bytes)", m.BodyBytes)
	case m.Value != nil:
		text = output.Printable(fmt.Sprint(m.Value.Go), 120)
	case m.BodyBytes > 0:
		text = fmt.Sprintf("(%d bytes)", m.BodyBytes)
	}
	if m.Reason != "" {
		text = "[" + output.Printable(m.Reason, 40) + "] " + text
	}
	if m.Due != nil {
		text = "[due " + output.TimeText(m.Due) + "] " + text
	}
	if m.Session != nil {
		text = "(" + output.Printable(*m.Session, 40) + ") " + text
	}
	return text
}
