package messages

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/gateway"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
)

// The limits of one request to schedule or cancel.
const (
	scheduleCountMax = 100        // messages
	scheduleBytesMax = 128 * 1024 // of their encodings, unless one alone is larger
	cancelCountMax   = 1000       // sequence numbers on one command line
)

// noteScheduled is the annotation with the time at which a message is enqueued
// (docs/service-bus-protocol.md#message-annotations).
const noteScheduled = "x-opt-scheduled-enqueue-time"

// scheduleOptions has the flags of message send that concern time.
type scheduleOptions struct {
	ttl *entity.Duration
	at  string
	in  *entity.Duration
}

// apply sets the time to live of a message. The header holds it in 32 bits of milliseconds (49 days); a longer one
// goes into the properties, as official clients do.
func (o *scheduleOptions) apply(m *amqp.Message, now time.Time) error {
	if o.ttl == nil || *o.ttl == entity.Duration(entity.Forever) {
		return nil
	}
	ttl := time.Duration(*o.ttl)
	if ttl < time.Millisecond {
		return cli.Usagef("--ttl is 1ms or more")
	}
	const longest = math.MaxUint32 * time.Millisecond
	m.Header = &amqp.MessageHeader{TTL: min(ttl, longest), Durable: true}
	if ttl > longest {
		now = now.UTC()
		end := now.Add(ttl)
		m.Properties.CreationTime, m.Properties.AbsoluteExpiryTime = &now, &end
	}
	return nil
}

// moment returns the time at which the messages are enqueued; false: immediately.
func (o *scheduleOptions) moment(now time.Time) (time.Time, bool, error) {
	switch {
	case o.at != "" && o.in != nil:
		return now, false, cli.Usagef("give --at or --in, not both")
	case o.at != "":
		at, err := time.Parse(time.RFC3339, o.at)
		if err != nil {
			return now, false, cli.Usagef("--at %q: write it like 2026-11-20T12:00:00Z", o.at)
		}
		return at.UTC(), true, nil
	case o.in != nil && *o.in == entity.Duration(entity.Forever):
		return now, false, cli.Usagef("--in is a length of time, not forever")
	case o.in != nil:
		return now.Add(time.Duration(*o.in)).UTC(), true, nil
	}
	return now, false, nil
}

// Scheduled is the answer of message send with --at or --in.
type Scheduled struct {
	Queue     string    `json:"queue"`
	Sent      int       `json:"sent"`
	At        time.Time `json:"scheduledFor"`
	Sequences []int64   `json:"sequenceNumbers"` // 0: a duplicate, accepted and dropped
}

// schedule sends messages that become active later, and prints their sequence numbers, which cancel takes as
// arguments.
func schedule(ctx context.Context, out *output.Output, d *gateway.Session, queue string, template amqp.Message, at time.Time, bodies iter.Seq2[[]byte, error]) error {
	node, err := d.OpenManagement(ctx, queue, nil)
	if err != nil {
		return fmt.Errorf("schedule for %s: %w", queue, gateway.PlainError(err))
	}
	template.Annotations = amqp.Annotations{noteScheduled: at}
	s := scheduleBatch{node: node, template: template, numbers: []int64{}}
	if err := s.all(ctx, bodies); err != nil {
		return fmt.Errorf("after %d messages: %w", len(s.numbers), err)
	}
	if !out.IsTable() {
		return out.Data(Scheduled{Queue: queue, Sent: len(s.numbers), At: at, Sequences: s.numbers})
	}
	return out.Note("%d scheduled in %s for %s: %s", len(s.numbers), queue, at.Format(time.RFC3339Nano), numberText(s.numbers))
}

// numberText returns numbers as text.
func numberText(numbers []int64) string {
	text := make([]string, len(numbers))
	for i, n := range numbers {
		text[i] = strconv.FormatInt(n, 10)
	}
	return strings.Join(text, " ")
}

// scheduleBatch collects messages into requests.
type scheduleBatch struct {
	node     *gateway.Management
	template amqp.Message
	pending  []any
	bytes    int
	numbers  []int64
}

func (s *scheduleBatch) all(ctx context.Context, bodies iter.Seq2[[]byte, error]) error {
	for body, err := range bodies {
		if err != nil {
			return errors.Join(err, s.flush(ctx))
		}
		message := s.template
		message.Data = [][]byte{body}
		encoded, err := message.MarshalBinary()
		if err != nil {
			return fmt.Errorf("encode a message: %w", err)
		}
		if len(s.pending) > 0 && (len(s.pending) >= scheduleCountMax || s.bytes+len(encoded) > scheduleBytesMax) {
			if err := s.flush(ctx); err != nil {
				return err
			}
		}
		s.pending = append(s.pending, map[string]any{"message-id": message.Properties.MessageID, "message": encoded})
		s.bytes += len(encoded)
	}
	return s.flush(ctx)
}

// flush sends the collected messages. Without an answer the outcome is unknown.
func (s *scheduleBatch) flush(ctx context.Context) error {
	if len(s.pending) == 0 {
		return nil
	}
	content, err := s.node.RequestChange(ctx, "com.microsoft:schedule-message", map[string]any{"messages": s.pending})
	if err != nil {
		return err
	}
	numbers, _ := content["sequence-numbers"].([]int64)
	if len(numbers) != len(s.pending) {
		return fmt.Errorf("the member answered %d numbers for %d messages", len(numbers), len(s.pending))
	}
	s.numbers = append(s.numbers, numbers...)
	s.pending, s.bytes = nil, 0
	return nil
}

// cancelled is the answer of message cancel.
type cancelled struct {
	Queue     string  `json:"queue"`
	Cancelled []int64 `json:"cancelled"`
}

func cancel(i command.Invocation) error {
	ctx, out, queue := i.Ctx, i.Out, i.Args[0]
	numbers, err := parseNumbers(i.Args[1:])
	if err != nil {
		return err
	}
	d, err := gateway.Connect(ctx, i.Client)
	if err != nil {
		return err
	}
	defer d.Close()
	node, err := d.OpenManagement(ctx, queue, nil)
	if err != nil {
		return fmt.Errorf("cancel in %s: %w", queue, gateway.PlainError(err))
	}
	if _, err := node.RequestChange(ctx, "com.microsoft:cancel-scheduled-message", map[string]any{"sequence-numbers": numbers}); err != nil {
		return fmt.Errorf("cancel in %s: %w", queue, err)
	}
	if out.IsTable() {
		return out.Note("%d cancelled in %s", len(numbers), queue)
	}
	return out.Data(cancelled{Queue: queue, Cancelled: numbers})
}

// parseNumbers parses sequence numbers.
func parseNumbers(args []string) ([]int64, error) {
	numbers := make([]int64, len(args))
	for i, arg := range args {
		n, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || n < 1 {
			return nil, cli.Usagef("%q is not a sequence number: they are 1 or more", output.Printable(arg, 40))
		}
		numbers[i] = n
	}
	return numbers, nil
}
