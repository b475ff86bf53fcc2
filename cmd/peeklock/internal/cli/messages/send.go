package messages

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/gateway"
	"github.com/peeklock/peeklock/fsm/filter"
)

const (
	sendWindow = 100 // sends that may await their answer at the same time
	// sendTimeout is the time for the answer to one send, and for opening the link; --timeout changes it. Without a quorum a command takes a
	// second before it, for the addresses, and one behind it, for the cause: it ends within 10 s.
	sendTimeout  = 8 * time.Second
	lineBytesMax = 1024 * 1024 // of one line of standard input
	// SendSizeMax is the size of the largest message that is sent, in bytes.
	SendSizeMax   = 100 * 1024 * 1024
	propertyTotal = 64 // most application properties on the command line
	// FillerAlphabet is repeated in the bodies of generated messages.
	FillerAlphabet = "abcdefghijklmnopqrstuvwxyz"
)

// sendOptions are the flags of message send.
type sendOptions struct {
	count       int
	size        int
	id          string
	subject     string
	contentType string
	correlation string
	replyTo     string
	to          string
	properties  []string
	session     *string
	timeout     time.Duration
	scheduleOptions
}

// sent is the answer of message send.
type sent struct {
	Queue string `json:"queue"` // or topic
	Sent  int    `json:"sent"`
	// MessageIDs are the ids of the first 10000 messages, in the order of sending.
	MessageIDs []string `json:"messageIds"`
}

// shownIDsMax is the number of message ids in the answer.
const shownIDsMax = 10000

func send(i command.Invocation, o *sendOptions) error {
	ctx, out, queue, bodies := i.Ctx, i.Out, i.Args[0], i.Args[1:]
	at, later, err := o.check(queue, bodies)
	if err != nil {
		return err
	}
	template, err := o.template()
	if err != nil {
		return err
	}
	d, err := gateway.Connect(ctx, i.Client)
	if err != nil {
		return err
	}
	defer d.Close()
	if later {
		return schedule(ctx, out, d, queue, template, at, o.bodies(i.Client.In, bodies))
	}
	opening, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	sender, err := d.Session.NewSender(opening, queue, nil)
	if errors.Is(err, context.DeadlineExceeded) {
		err = i.Client.WithCause(fmt.Errorf("no answer in %s", o.timeout))
	}
	if err != nil {
		return fmt.Errorf("send to %s: %w", queue, gateway.PlainError(err))
	}
	n, ids, err := sendAll(ctx, sender, template, o.timeout, o.bodies(i.Client.In, bodies))
	if cli.IsUnknown(err) && ctx.Err() == nil {
		err = i.Client.WithCause(err)
	}
	if err != nil {
		return fmt.Errorf("after %d messages: %w", n, err)
	}
	if out.IsTable() {
		return out.Note("%d sent to %s", n, queue)
	}
	return out.Data(sent{Queue: queue, Sent: n, MessageIDs: ids})
}

// check checks the flags and returns for when the messages are scheduled, if they are.
func (o *sendOptions) check(queue string, bodies []string) (at time.Time, later bool, err error) {
	if err := checkSendTarget(queue); err != nil {
		return at, false, err
	}
	if o.timeout <= 0 {
		return at, false, cli.Usagef("--timeout is more than 0")
	}
	if _, err := o.template(); err != nil {
		return at, false, err
	}
	if o.size > 0 && len(bodies) > 0 {
		return at, false, cli.Usagef("give bodies or --size, not both")
	}
	return o.moment(time.Now())
}

// template returns the message without its body.
func (o *sendOptions) template() (amqp.Message, error) {
	var m amqp.Message
	switch {
	case o.count < 1:
		return m, cli.Usagef("--count is at least 1")
	case o.size < 0 || o.size > SendSizeMax:
		return m, cli.Usagef("--size is 1 to %d", SendSizeMax)
	case len(o.properties) > propertyTotal:
		return m, cli.Usagef("at most %d --property are possible", propertyTotal)
	}
	p := amqp.MessageProperties{GroupID: o.session}
	if o.id != "" {
		p.MessageID = o.id
	}
	if o.correlation != "" {
		p.CorrelationID = o.correlation
	}
	for _, f := range []struct {
		to   **string
		from *string
	}{{&p.Subject, &o.subject}, {&p.ContentType, &o.contentType}, {&p.ReplyTo, &o.replyTo}, {&p.To, &o.to}} {
		if *f.from != "" {
			*f.to = f.from
		}
	}
	m.Properties = &p
	for _, pair := range o.properties {
		key, value, err := command.TypedPair("--property", pair)
		if err != nil {
			return m, err
		}
		if value.Kind() == filter.KindSpan {
			return m, cli.Usagef("--property %s: go-amqp cannot send a duration", key)
		}
		if m.ApplicationProperties == nil {
			m.ApplicationProperties = make(map[string]any)
		}
		m.ApplicationProperties[key] = wireValue(value.Value)
	}
	return m, o.apply(&m, time.Now())
}

// bodies yields the bodies to send: from the arguments, generated, or line by line from in.
func (o *sendOptions) bodies(in io.Reader, args []string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		each := func(body []byte) bool {
			for range o.count {
				if !yield(body, nil) {
					return false
				}
			}
			return true
		}
		if o.size > 0 {
			each(bytes.Repeat([]byte(FillerAlphabet), o.size/len(FillerAlphabet)+1)[:o.size])
			return
		}
		for _, arg := range args {
			if !each([]byte(arg)) {
				return
			}
		}
		if len(args) > 0 {
			return
		}
		lines := bufio.NewScanner(in)
		lines.Buffer(nil, lineBytesMax)
		for lines.Scan() {
			if !each(lines.Bytes()) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(nil, fmt.Errorf("read standard input: %w", err))
		}
	}
}

// sendWindowState is a stream of sends with up to sendWindow unconfirmed sends.
type sendWindowState struct {
	timeout   time.Duration      // of each send
	waiting   []amqp.SendReceipt // in the order of sending
	confirmed int
	unknown   int
	first     error
}

// awaitUntil awaits confirmations until at most this many are outstanding.
func (s *sendWindowState) awaitUntil(ctx context.Context, outstanding int) {
	for len(s.waiting) > outstanding {
		s.count(awaitReceipt(ctx, &s.waiting[0], s.timeout))
		s.waiting = s.waiting[1:]
	}
}

// count records the outcome of one send: confirmed, refused by the member, or unknown.
func (s *sendWindowState) count(err error) {
	switch {
	case err == nil:
		s.confirmed++
		return
	case !gateway.IsRefused(err):
		s.unknown++
	}
	if s.first == nil {
		s.first = err
	}
}

// sendAll sends until one send fails, and returns how many were confirmed, and the ids of the messages: those without an id
// get one, as official clients do. It still awaits the sends that are in flight at that time, so that the count is exact.
func sendAll(ctx context.Context, sender *amqp.Sender, template amqp.Message, timeout time.Duration, bodies iter.Seq2[[]byte, error]) (n int, ids []string, err error) {
	s := sendWindowState{timeout: timeout}
	ids = []string{}
	for body, err := range bodies {
		if err != nil {
			s.first = err
			break
		}
		message, properties := template, *template.Properties
		if properties.MessageID == nil {
			properties.MessageID = rand.Text()
		}
		message.Properties, message.Data = &properties, [][]byte{body}
		receipt, err := sender.SendWithReceipt(ctx, &message, nil)
		if err != nil {
			s.count(err)
			break
		}
		if len(ids) < shownIDsMax {
			ids = append(ids, fmt.Sprint(properties.MessageID))
		}
		s.waiting = append(s.waiting, receipt)
		s.awaitUntil(ctx, sendWindow-1)
		if s.first != nil {
			break
		}
	}
	s.awaitUntil(ctx, 0)
	switch {
	case s.unknown > 0:
		return s.confirmed, ids, cli.Unknown(fmt.Errorf("%d more may or may not have been sent: %w", s.unknown, gateway.PlainError(s.first)))
	case s.first != nil:
		return s.confirmed, ids, gateway.PlainError(s.first)
	}
	return s.confirmed, ids, nil
}

// awaitReceipt waits for the confirmation of one message.
func awaitReceipt(ctx context.Context, receipt *amqp.SendReceipt, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	state, err := receipt.Wait(ctx)
	if err != nil {
		return err
	}
	return gateway.ClassifyOutcome(state)
}
