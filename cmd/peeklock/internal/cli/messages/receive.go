package messages

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/gateway"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
)

const (
	settleTimeMax = 30 * time.Second
	receiveCredit = 100 // most messages that are locked ahead
	peekPage      = 100 // messages per request
	// deadLetterCondition is the error condition of a rejection that dead-letters
	// (docs/service-bus-protocol.md#settlement-requests).
	deadLetterCondition = "com.microsoft:dead-letter"
)

// receiveOptions are the flags of message receive.
type receiveOptions struct {
	complete, abandon, deadLetter, deferred, receiveAndDelete bool
	subQueue
	chosenSession
	count               int
	wait                time.Duration
	reason, description string
	sequences           []int64
}

func (o *receiveOptions) checkAll() error {
	ways := 0
	for _, way := range []bool{o.complete, o.abandon, o.deadLetter, o.deferred, o.receiveAndDelete} {
		if way {
			ways++
		}
	}
	switch {
	case ways > 1:
		return cli.Usagef("a message can be settled in one way only: choose one of --complete, --abandon, --dead-letter, --defer, --delete")
	case o.count < 0:
		return cli.Usagef("--count is 0 or more")
	case o.wait <= 0:
		return cli.Usagef("--wait is more than 0")
	case len(o.sequences) > deferredCountMax:
		return cli.Usagef("at most %d --sequence are possible", deferredCountMax)
	case (o.reason != "" || o.description != "") && !o.deadLetter:
		return cli.Usagef("--reason and --description need --dead-letter")
	}
	return errors.Join(o.subQueue.check(), o.chosenSession.check(&o.subQueue))
}

// credit returns the link credit. It is never more than the requested count, because messages that are not printed
// would stay locked.
func (o *receiveOptions) credit() int32 {
	// An abandoned message is delivered again at once, so with spare credit one run could receive a message twice.
	if o.count == 0 && !o.abandon {
		return receiveCredit
	}
	return int32(max(1, min(o.count, receiveCredit)))
}

func receive(i command.Invocation, o *receiveOptions) error {
	ctx, out, queue := i.Ctx, i.Out, i.Args[0]
	if err := o.checkAll(); err != nil {
		return err
	}
	d, err := gateway.Connect(ctx, i.Client)
	if err != nil {
		return err
	}
	defer d.Close()
	receiver, err := o.attach(ctx, out, d, queue)
	switch {
	case errors.Is(err, gateway.ErrNoMessage):
		return out.Note("no session to accept in %s", queue)
	case err != nil:
		return fmt.Errorf("receive from %s: %w", queue, gateway.PlainError(err))
	}
	if o.wanted() {
		defer releaseSession(ctx, receiver)
	}
	var got int
	if len(o.sequences) > 0 {
		got, err = o.fetch(ctx, out, d, queue, receiver)
	} else {
		got, err = o.run(ctx, out, receiver)
	}
	if isInterrupted := ctx.Err() != nil && !cli.IsUnknown(err); err != nil && !errors.Is(err, gateway.ErrNoMessage) && !isInterrupted {
		return err
	}
	return out.Note("%d received from %s", got, queue)
}

// attach opens the link, and with it the session, over which messages arrive. It returns nil for deferred messages
// without a session.
func (o *receiveOptions) attach(ctx context.Context, out *output.Output, d *gateway.Session, queue string) (*amqp.Receiver, error) {
	// Credit is issued manually, because go-amqp would issue more than --count.
	if !o.wanted() {
		if len(o.sequences) > 0 {
			return nil, nil //nolint:nilnil // none is needed
		}
		return d.Receiver(ctx, o.address(queue), -1, o.receiveAndDelete)
	}
	receiver, err := d.AcceptSession(ctx, queue, -1, o.receiveAndDelete, o.session, o.wait)
	if err != nil {
		return nil, err
	}
	return receiver, out.Note("session %s", output.Printable(strconv.Quote(gateway.SessionOf(receiver)), 140))
}

// releaseSession closes the receiver of a session and waits until the member has released the session, so that the next command
// can accept it. The end of a connection releases it too, but nobody waits for that.
func releaseSession(ctx context.Context, receiver *amqp.Receiver) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeMax)
	defer cancel()
	_ = receiver.Close(ctx)
}

// fetch receives deferred messages, from the session that a receiver holds if there is one.
func (o *receiveOptions) fetch(ctx context.Context, out *output.Output, d *gateway.Session, queue string, holder *amqp.Receiver) (int, error) {
	var session *string
	if holder != nil {
		name := gateway.SessionOf(holder)
		session = &name
	}
	node, err := d.OpenManagement(ctx, o.address(queue), session)
	if err != nil {
		return 0, fmt.Errorf("receive from %s: %w", queue, gateway.PlainError(err))
	}
	return o.receiveBySequence(ctx, out, node)
}

// run receives until the count is reached or no message arrives in time.
func (o *receiveOptions) run(ctx context.Context, out *output.Output, receiver *amqp.Receiver) (int, error) {
	if err := out.Note("%s", lineHeader); err != nil {
		return 0, err
	}
	credit := o.credit()
	if err := receiver.IssueCredit(uint32(credit)); err != nil {
		return 0, err
	}
	issued := int(credit)
	got := 0
	for o.count == 0 || got < o.count {
		message, err := gateway.Next(ctx, receiver, o.wait)
		if err != nil {
			return got, err
		}
		got++
		if err := o.printAndSettle(ctx, out, receiver, message); err != nil {
			return got, err
		}
		if o.count == 0 || issued < o.count {
			if err := receiver.IssueCredit(1); err != nil {
				return got, err
			}
			issued++
		}
	}
	return got, nil
}

// printAndSettle prints a message and then settles it, so that a message is never settled without being printed.
func (o *receiveOptions) printAndSettle(ctx context.Context, out *output.Output, receiver *amqp.Receiver, m *amqp.Message) error {
	shown := NewShownMessage(m)
	shown.Settled = o.verb()
	if err := out.Item(shown, shown.tableLine()); err != nil {
		return err
	}
	// Ctrl-C does not leave the outcome of a printed message open.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeMax)
	defer cancel()
	var err error
	switch {
	case o.receiveAndDelete:
		return nil
	case o.abandon:
		err = receiver.ModifyMessage(ctx, m, nil)
	case o.deferred:
		err = receiver.ModifyMessage(ctx, m, &amqp.ModifyMessageOptions{UndeliverableHere: true})
	case o.deadLetter:
		err = receiver.RejectMessage(ctx, m, o.rejection())
	default:
		err = receiver.AcceptMessage(ctx, m)
	}
	if err == nil {
		return nil
	}
	failed := fmt.Errorf("%s message %d: %w", o.verb(), shown.Sequence, gateway.PlainError(err))
	if !gateway.IsRefused(err) {
		return cli.Unknown(failed)
	}
	return failed
}

func (o *receiveOptions) rejection() *amqp.Error {
	e := &amqp.Error{Condition: deadLetterCondition, Info: map[string]any{}}
	if o.reason != "" {
		e.Info["DeadLetterReason"] = o.reason
	}
	if o.description != "" {
		e.Info["DeadLetterErrorDescription"] = o.description
	}
	return e
}

func (o *receiveOptions) verb() string {
	switch {
	case o.receiveAndDelete:
		return "delete"
	case o.abandon:
		return "abandon"
	case o.deferred:
		return "defer"
	case o.deadLetter:
		return "dead-letter"
	}
	return "complete"
}
