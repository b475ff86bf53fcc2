package messages

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/quantity"
)

// Limits of message tail.
const (
	tailPage           = 200 // messages of one request
	tailSubscriptions  = 100 // subscriptions of a topic that one command follows
	tailIntervalMin    = 50 * time.Millisecond
	tailIntervalNormal = 500 * time.Millisecond
)

// tailOptions are the flags of message tail.
type tailOptions struct {
	selection

	from      int64
	count     int
	bodyBytes int
	interval  time.Duration
}

func tailVerb() command.Verb {
	var o tailOptions
	return command.Verb{
		Use: "tail NAME", Short: "Follow new messages without taking them",
		Long: `Print messages as they arrive in a queue or subscription, without locking or taking them, until Ctrl-C or --count. Of a TOPIC,
print what arrives in its subscriptions, at most 100 of them. The command asks for new messages every --interval, so it does
not show a message that receivers have settled before. With -o json it prints JSON Lines.

` + whereHelp,
		Example: `  peeklock message tail orders
  peeklock message tail orders --where "customer = 7" -o json
  peeklock message tail orders --from 1200 --count 10
  peeklock message tail events`,
		Args: cli.ArgCount(1, 1), Complete: command.CompleteNames("queues", "subscriptions", "topics"),
		Flags: func(cmd *cobra.Command) {
			f := cmd.Flags()
			o.flags(f)
			_ = f.MarkHidden("sequence") // a message with a known number is there already
			f.Int64Var(&o.from, "from", 0, "begin with this sequence number; 0: with the next message")
			f.IntVar(&o.count, "count", 0, "stop after this many messages; 0: at Ctrl-C")
			quantity.BytesVar(f, &o.bodyBytes, "body-bytes", 64<<10, "show at most this much of each body, up to 4MiB")
			quantity.DurationVar(f, &o.interval, "interval", tailIntervalNormal, "time between two requests for new messages, at least 50ms")
		},
		Run: func(i command.Invocation) error { return tail(i, &o) },
	}
}

// tailed is a queue or subscription that is followed.
type tailed struct {
	name   string
	cursor string // "": the end
}

// tailedMessage is a message of one of several subscriptions.
type tailedMessage struct {
	Entity string `json:"entity"`
	*api.Message
}

func tail(i command.Invocation, o *tailOptions) error {
	if o.count < 0 || o.from < 0 || o.bodyBytes < 1 || o.interval < tailIntervalMin {
		return cli.Usagef("--count and --from are 0 or more, --body-bytes is 1 or more, and --interval is %s or more", tailIntervalMin)
	}
	if len(o.sequences) > 0 {
		return cli.Usagef("a tail takes no --sequence: give --from, or use message peek")
	}
	request, err := o.request(time.Now())
	if err != nil {
		return err
	}
	t := tailer{i: i, query: query(&request), count: o.count}
	t.query.Set("bodyBytes", strconv.Itoa(o.bodyBytes))
	if err := t.begin(o.from); err != nil {
		return ended(i.Ctx, err)
	}
	if err := i.Out.Note("%s", peekHeader); err != nil {
		return err
	}
	for {
		more, err := t.round()
		if err != nil || t.done() {
			return ended(i.Ctx, err)
		}
		if !more {
			cli.Sleep(i.Ctx, o.interval)
		}
	}
}

// ended returns err unless the caller has ended the command.
func ended(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// tailer follows the entities of one command.
type tailer struct {
	i        command.Invocation
	query    url.Values
	entities []tailed
	topic    bool
	count    int // 0: no end
	seen     int
}

// done reports whether the command is complete.
func (t *tailer) done() bool { return t.i.Ctx.Err() != nil || t.count > 0 && t.seen >= t.count }

// begin finds the entities and the ends of them.
func (t *tailer) begin(from int64) error {
	name := t.i.Args[0]
	t.entities = []tailed{{name: name}}
	_, err := t.page(&t.entities[0], 1)
	if err != nil {
		if names, listErr := t.subscriptions(name); listErr == nil {
			t.topic, t.entities, err = true, nil, nil
			for _, n := range names {
				t.entities = append(t.entities, tailed{name: n})
			}
		}
	}
	if err != nil {
		return fmt.Errorf("tail of %s: %w", name, err)
	}
	if len(t.entities) == 0 {
		return fmt.Errorf("the topic %s has no subscriptions: create one, which gets its messages", name)
	}
	if t.topic {
		for at := range t.entities {
			if _, err := t.page(&t.entities[at], 1); err != nil {
				return fmt.Errorf("tail of %s: %w", t.entities[at].name, err)
			}
		}
	}
	if from > 0 {
		for at := range t.entities {
			t.entities[at].cursor = strconv.FormatInt(from, 10)
		}
	}
	return nil
}

// subscriptions lists the subscriptions of a topic.
func (t *tailer) subscriptions(topic string) ([]string, error) {
	var page api.SubscriptionPage
	path := fmt.Sprintf("/v1/subscriptions?topic=%s&max=%d", url.QueryEscape(topic), tailSubscriptions)
	if err := t.i.Client.Call(t.i.Ctx, http.MethodGet, path, nil, &page); err != nil {
		return nil, err
	}
	names := make([]string, len(page.Subscriptions))
	for at := range page.Subscriptions {
		names[at] = page.Subscriptions[at].Name
	}
	return names, nil
}

// page reads the messages behind the cursor of an entity, at most count, and advances it.
func (t *tailer) page(e *tailed, count int) (page api.TailPage, err error) {
	t.query.Set("max", strconv.Itoa(count))
	t.query.Del("after")
	if e.cursor != "" {
		t.query.Set("after", e.cursor)
	}
	err = t.i.Client.Call(t.i.Ctx, http.MethodGet, client.NamePath("/v1/tail/", e.name)+"?"+t.query.Encode(), nil, &page)
	e.cursor = cmp.Or(page.Cursor, e.cursor)
	return page, err
}

// round prints what has arrived in each entity, and reports whether there is more.
func (t *tailer) round() (more bool, err error) {
	for at := range t.entities {
		e, want := &t.entities[at], tailPage
		if t.done() {
			return false, nil
		}
		if t.count > 0 {
			want = min(want, t.count-t.seen)
		}
		page, err := t.page(e, want)
		if err != nil {
			return false, fmt.Errorf("tail of %s: %w", e.name, err)
		}
		more = more || page.More
		for n := range page.Messages {
			if err := t.print(e, &page.Messages[n]); err != nil {
				return false, err
			}
			t.seen++
		}
	}
	return more, nil
}

func (t *tailer) print(e *tailed, m *api.Message) error {
	if t.topic {
		return t.i.Out.Item(tailedMessage{e.name, m}, peekLine(m)+"  <- "+e.name)
	}
	return t.i.Out.Item(m, peekLine(m))
}
