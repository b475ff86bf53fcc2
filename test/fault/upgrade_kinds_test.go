package fault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/test/harness"
	"github.com/peeklock/peeklock/test/rawamqp"
)

// The kinds of entities and messages that TestRollingUpgrade carries over its restarts.

func (v *upgradeEntities) storeLocked(ctx context.Context, at upgradeMember, turn int) error {
	err := v.send(ctx, at, "locked", turn, nil)
	if err != nil {
		return err
	}
	v.holding = at.Client
	if v.holder, err = at.NewReceiverForQueue(v.entity("locked"), nil); err != nil {
		return err
	}
	v.held, err = receive(ctx, v.holder, upgradeMessages)
	return err
}

// checkLocked settles at the member where the locks were taken: they hold over the restart.
func (v *upgradeEntities) checkLocked(ctx context.Context, _ upgradeMember, turn int) error {
	holding := v.holding
	v.holding = nil
	return errors.Join(completeAndCompare(ctx, v.holder, v.held, v.bodies("locked", turn)), holding.Close(ctx))
}

func (v *upgradeEntities) session(turn int) string { return fmt.Sprintf("session of turn %d", turn) }

func (v *upgradeEntities) storeSession(ctx context.Context, at upgradeMember, turn int) error {
	session := v.session(turn)
	if err := v.send(ctx, at, "sessions", turn, func(_ int, m *azservicebus.Message) { m.SessionID = &session }); err != nil {
		return err
	}
	r, err := at.AcceptSessionForQueue(ctx, v.entity("sessions"), session, nil)
	if err != nil {
		return err
	}
	return errors.Join(r.SetSessionState(ctx, []byte(session), nil), r.Close(ctx))
}

func (v *upgradeEntities) checkSession(ctx context.Context, at upgradeMember, turn int) error {
	session := v.session(turn)
	r, err := at.AcceptSessionForQueue(ctx, v.entity("sessions"), session, nil)
	if err != nil {
		return err
	}
	if state, err := r.GetSessionState(ctx, nil); err != nil || string(state) != session {
		return fmt.Errorf("the state is %q, %w", state, err)
	}
	messages, err := receive(ctx, r, upgradeMessages)
	if err != nil {
		return err
	}
	// The client gives back what arrives after it has returned some, and on a busy machine gets a later
	// message before that comes again: the numbers tell the order of the session.
	slices.SortFunc(messages, func(a, b *azservicebus.ReceivedMessage) int { return cmp.Compare(*a.SequenceNumber, *b.SequenceNumber) })
	for i, m := range messages {
		if string(m.Body) != v.body("sessions", turn, i) {
			return fmt.Errorf("message %d is %q", i, m.Body)
		}
	}
	return errors.Join(completeAndCompare(ctx, r, messages, v.bodies("sessions", turn)), r.SetSessionState(ctx, []byte{}, nil), r.Close(ctx))
}

func (v *upgradeEntities) numbered(turn int) func(int, *azservicebus.Message) {
	return func(i int, m *azservicebus.Message) {
		id := fmt.Sprintf("turn %d, message %d", turn, i)
		m.MessageID, m.PartitionKey = &id, &id
	}
}

func (v *upgradeEntities) storeDuplicates(ctx context.Context, at upgradeMember, turn int) error {
	return v.send(ctx, at, "duplicates", turn, v.numbered(turn))
}

// checkDuplicates sends all messages a second time, which stores nothing.
func (v *upgradeEntities) checkDuplicates(ctx context.Context, at upgradeMember, turn int) error {
	if err := v.send(ctx, at, "duplicates", turn, v.numbered(turn)); err != nil {
		return err
	}
	r, err := at.NewReceiverForQueue(v.entity("duplicates"), nil)
	return checkAll(ctx, r, err, v.bodies("duplicates", turn))
}

func (v *upgradeEntities) storePartitioned(ctx context.Context, at upgradeMember, turn int) error {
	return v.send(ctx, at, "partitioned", turn, v.numbered(turn))
}

func (v *upgradeEntities) checkPartitioned(ctx context.Context, at upgradeMember, turn int) error {
	r, err := at.NewReceiverForQueue(v.entity("partitioned"), nil)
	return checkAll(ctx, r, err, v.bodies("partitioned", turn))
}

func (v *upgradeEntities) storeTopic(ctx context.Context, at upgradeMember, turn int) error {
	return v.send(ctx, at, "topic", turn, func(i int, m *azservicebus.Message) {
		label := fmt.Sprintf("message %d", i)
		m.Subject, m.ApplicationProperties = &label, map[string]any{"number": int64(i)}
	})
}

func (v *upgradeEntities) checkTopic(ctx context.Context, at upgradeMember, turn int) error {
	all := v.bodies("topic", turn)
	for name, want := range map[string][]string{"all": all, "sql": all[3:], "correlation": all[1:2]} {
		r, err := at.NewReceiverForSubscription(v.entity("topic"), name, nil)
		if err != nil {
			return err
		}
		messages, err := receive(ctx, r, len(want))
		if err != nil {
			return fmt.Errorf("subscription %s: %w", name, err)
		}
		for _, m := range messages {
			number, _ := m.ApplicationProperties["number"].(int64)
			if taken, ok := m.ApplicationProperties["taken"].(int64); ok != (name == "sql") || ok && taken != number+1 {
				return fmt.Errorf("subscription %s: properties %v", name, m.ApplicationProperties)
			}
		}
		if err := errors.Join(completeAndCompare(ctx, r, messages, want), r.Close(ctx)); err != nil {
			return fmt.Errorf("subscription %s: %w", name, err)
		}
	}
	return nil
}

func (v *upgradeEntities) storeForwarded(ctx context.Context, at upgradeMember, turn int) error {
	return v.send(ctx, at, "forwards", turn, nil)
}

func (v *upgradeEntities) checkForwarded(ctx context.Context, at upgradeMember, turn int) error {
	r, err := at.NewReceiverForQueue(v.entity("forwarded"), nil)
	return checkAll(ctx, r, err, v.bodies("forwards", turn))
}

// storeScheduled schedules messages that are due soon, and one that take cancels.
func (v *upgradeEntities) storeScheduled(ctx context.Context, at upgradeMember, turn int) error {
	soon := time.Now().Add(upgradeScheduleDelay)
	err := v.send(ctx, at, "scheduled", turn, func(_ int, m *azservicebus.Message) { m.ScheduledEnqueueTime = &soon })
	if err != nil {
		return err
	}
	s, err := at.NewSender(v.entity("scheduled"), nil)
	if err != nil {
		return err
	}
	v.scheduled, err = s.ScheduleMessages(ctx, []*azservicebus.Message{{Body: []byte("never")}}, time.Now().Add(time.Hour), nil)
	return errors.Join(err, s.Close(ctx))
}

func (v *upgradeEntities) checkScheduled(ctx context.Context, at upgradeMember, turn int) error {
	s, err := at.NewSender(v.entity("scheduled"), nil)
	if err != nil {
		return err
	}
	if err := errors.Join(s.CancelScheduledMessages(ctx, v.scheduled, nil), s.Close(ctx)); err != nil {
		return fmt.Errorf("cancel: %w", err)
	}
	r, err := at.NewReceiverForQueue(v.entity("scheduled"), nil)
	return checkAll(ctx, r, err, v.bodies("scheduled", turn))
}

func (v *upgradeEntities) storeDeferred(ctx context.Context, at upgradeMember, turn int) error {
	v.deferred = nil
	if err := v.send(ctx, at, "deferred", turn, nil); err != nil {
		return err
	}
	r, err := at.NewReceiverForQueue(v.entity("deferred"), nil)
	if err != nil {
		return err
	}
	messages, err := receive(ctx, r, upgradeMessages)
	for _, m := range messages {
		err = errors.Join(err, r.DeferMessage(ctx, m, nil))
		v.deferred = append(v.deferred, *m.SequenceNumber)
	}
	return errors.Join(err, r.Close(ctx))
}

func (v *upgradeEntities) checkDeferred(ctx context.Context, at upgradeMember, turn int) error {
	r, err := at.NewReceiverForQueue(v.entity("deferred"), nil)
	if err != nil {
		return err
	}
	messages, err := r.ReceiveDeferredMessages(ctx, v.deferred, nil)
	if err != nil {
		return fmt.Errorf("receive deferred: %w", err)
	}
	return errors.Join(completeAndCompare(ctx, r, messages, v.bodies("deferred", turn)), r.Close(ctx))
}

const deadReason = "put aside"

func (v *upgradeEntities) storeDeadLetters(ctx context.Context, at upgradeMember, turn int) error {
	if err := v.send(ctx, at, "dead", turn, nil); err != nil {
		return err
	}
	r, err := at.NewReceiverForQueue(v.entity("dead"), nil)
	if err != nil {
		return err
	}
	messages, err := receive(ctx, r, upgradeMessages)
	reason := deadReason
	for _, m := range messages {
		err = errors.Join(err, r.DeadLetterMessage(ctx, m, &azservicebus.DeadLetterOptions{Reason: &reason}))
	}
	return errors.Join(err, r.Close(ctx))
}

func (v *upgradeEntities) checkDeadLetters(ctx context.Context, at upgradeMember, turn int) error {
	r, err := at.NewReceiverForQueue(v.entity("dead"), &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
	if err != nil {
		return err
	}
	messages, err := receive(ctx, r, upgradeMessages)
	if err != nil {
		return err
	}
	for _, m := range messages {
		if m.DeadLetterReason == nil || *m.DeadLetterReason != deadReason {
			return fmt.Errorf("the reason of %q is %v", m.Body, m.DeadLetterReason)
		}
	}
	return errors.Join(completeAndCompare(ctx, r, messages, v.bodies("dead", turn)), r.Close(ctx))
}

// storeTransaction completes the messages of one queue and sends others to a second one, in one
// transaction; a transaction that is rolled back leaves nothing.
func (v *upgradeEntities) storeTransaction(ctx context.Context, at upgradeMember, turn int) error {
	const controller, sender, receiver = 0, 1, 2
	if err := v.send(ctx, at, "transactions", turn, nil); err != nil {
		return err
	}
	c, err := rawamqp.Dial(ctx, at.member.AMQP)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	host := "localhost"
	if err := errors.Join(c.Login(harness.KeyName, harness.Key), c.Open(&wire.Open{ContainerID: "transactions", Hostname: &host})); err != nil {
		return err
	}
	for _, a := range []*wire.Attach{
		rawamqp.Controller(controller), rawamqp.Sender(sender, v.entity("transacted")), rawamqp.Receiver(receiver, v.entity("transactions")),
	} {
		if err := c.Attach(a); err != nil {
			return fmt.Errorf("attach %s: %w", a.Name, err)
		}
	}
	sends := func(txn []byte) error {
		for _, body := range v.bodies("transacted", turn) {
			d, err := c.Transfer(sender, rawamqp.Message([]byte(body)), &wire.TransactionalState{TxnID: txn})
			if err != nil {
				return err
			}
			if s, ok := d.State.(*wire.TransactionalState); !ok || s.Outcome == nil {
				return fmt.Errorf("sent in a transaction: %+v", d.State)
			}
		}
		return nil
	}
	for _, rollBack := range []bool{true, false} {
		txn, err := c.Declare(controller)
		if err != nil {
			return err
		}
		if err := sends(txn); err != nil {
			return err
		}
		if !rollBack {
			if err := v.settleIn(c, receiver, txn); err != nil {
				return err
			}
		}
		if err := c.Discharge(controller, txn, rollBack); err != nil {
			return err
		}
	}
	return nil
}

// settleIn receives the messages of the first queue and completes them in a transaction.
func (v *upgradeEntities) settleIn(c *rawamqp.Conn, receiver uint32, txn []byte) error {
	if err := c.Send(0, rawamqp.Credit(receiver, upgradeMessages)); err != nil {
		return err
	}
	for range upgradeMessages {
		t, err := rawamqp.Expect[*wire.Transfer](c)
		if err != nil {
			return err
		}
		id := *t.DeliveryID
		state := &wire.TransactionalState{TxnID: txn, Outcome: &wire.Accepted{}}
		if err := c.Send(0, &wire.Disposition{Role: wire.RoleReceiver, First: id, Last: &id, Settled: false, State: state}); err != nil {
			return err
		}
	}
	for settled := uint32(0); settled < upgradeMessages; {
		d, err := rawamqp.Expect[*wire.Disposition](c)
		if err != nil {
			return err
		}
		settled++
		if d.Last != nil {
			settled += *d.Last - d.First
		}
	}
	return nil
}

func (v *upgradeEntities) checkTransaction(ctx context.Context, at upgradeMember, turn int) error {
	r, err := at.NewReceiverForQueue(v.entity("transacted"), nil)
	return checkAll(ctx, r, err, v.bodies("transacted", turn))
}
