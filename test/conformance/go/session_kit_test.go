package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/peeklock/peeklock/test/harness"
)

// The conditions that only sessions use.
const (
	cannotBeLocked  = "com.microsoft:session-cannot-be-locked"
	sessionLockLost = "com.microsoft:session-lock-lost"
	messageLockLost = "com.microsoft:message-lock-lost"

	sessionFilter = "com.microsoft:session-filter" // of the source of a link
)

// grouped returns the settings of a queue or subscription with sessions.
func grouped(s harness.Settings) harness.Settings {
	if s.More == nil {
		s.More = harness.Fields{}
	}
	s.More["requiresSession"] = true
	return s
}

// sendIn sends messages with these ids to a session, through member 1.
func (s suite) sendIn(session string, ids ...string) {
	s.Helper()
	sender := s.sender(1)
	for _, id := range ids {
		m := &azservicebus.Message{MessageID: &id, SessionID: &session, Body: []byte("body of " + id)}
		s.must("send "+id, sender.SendMessage(s.ctx, m, nil))
	}
}

// oneTry opens a client that does not retry, so that the case sees each answer.
func (s suite) oneTry(member int) *azservicebus.Client {
	s.Helper()
	c, err := azservicebus.NewClientFromConnectionString(s.Members[member-1].ConnectionString(), &azservicebus.ClientOptions{
		RetryOptions: azservicebus.RetryOptions{MaxRetries: -1},
	})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// tryAccept accepts a session; nil means the next available one.
func (s suite) tryAccept(ctx context.Context, c *azservicebus.Client, session *string, o *azservicebus.SessionReceiverOptions) (*azservicebus.SessionReceiver, error) {
	topic, subscription, ok := harness.SplitSubscriptionPath(s.queue)
	switch {
	case ok && session != nil:
		return c.AcceptSessionForSubscription(ctx, topic, subscription, *session, o)
	case ok:
		return c.AcceptNextSessionForSubscription(ctx, topic, subscription, o)
	case session != nil:
		return c.AcceptSessionForQueue(ctx, s.queue, *session, o)
	}
	return c.AcceptNextSessionForQueue(ctx, s.queue, o)
}

// accept accepts a session over its own connection.
func (s suite) accept(member int, session string) *azservicebus.SessionReceiver {
	s.Helper()
	r, err := s.tryAccept(s.ctx, s.oneTry(member), &session, nil)
	s.must("accept "+session, err)
	if r.SessionID() != session {
		s.Fatalf("accepted session %q, want %q", r.SessionID(), session)
	}
	return r
}

// next accepts the next session, which must have the wanted id.
func (s suite) next(member int, want string) *azservicebus.SessionReceiver {
	s.Helper()
	r, err := s.tryAccept(s.ctx, s.oneTry(member), nil, nil)
	s.must("accept the next session", err)
	if r.SessionID() != want {
		s.Fatalf("the next session is %q, want %q", r.SessionID(), want)
	}
	return r
}

// held asserts that nobody else can accept a session.
func (s suite) held(member int, session string) {
	s.Helper()
	_, err := s.tryAccept(s.ctx, s.oneTry(member), &session, nil)
	if conditionOf(err) != cannotBeLocked {
		s.Errorf("accept the held session %q at member %d: %v, want %s", session, member, err, cannotBeLocked)
	}
}

// noSession asserts that no session is available for a while.
func (s suite) noSession(member int) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, noMessageWait)
	defer cancel()
	if r, err := s.tryAccept(ctx, s.oneTry(member), nil, nil); err == nil {
		s.Fatalf("session %q was accepted, there is none", r.SessionID())
	}
}

// inSession asserts that messages with these ids arrive in a session in this order.
func (s suite) inSession(r *azservicebus.SessionReceiver, want ...string) []*azservicebus.ReceivedMessage {
	s.Helper()
	var all []*azservicebus.ReceivedMessage
	calls := 0
	for ; len(all) < len(want); calls++ {
		some, err := r.ReceiveMessages(s.ctx, len(want)-len(all), nil)
		if err != nil {
			s.inTime()
			s.Fatalf("receive in session %q, %d of %d so far: %v", r.SessionID(), len(all), len(want), err)
		}
		all = append(all, some...)
	}
	if calls > 1 {
		inOrder(all)
	}
	if diff := cmp.Diff(want, ids(all), cmpopts.EquateEmpty()); diff != "" {
		s.Errorf("session %q (-want +got)\n%s", r.SessionID(), diff)
	}
	for _, m := range all {
		if m.SessionID == nil || *m.SessionID != r.SessionID() || string(m.Body) != "body of "+m.MessageID {
			s.Errorf("%s came in session %v with body %q, accepted was %q", m.MessageID, m.SessionID, m.Body, r.SessionID())
		}
	}
	return all
}

// noneIn asserts that a session delivers no message for a while.
func (s suite) noneIn(r *azservicebus.SessionReceiver) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, noMessageWait)
	defer cancel()
	if got, err := r.ReceiveMessages(ctx, 1, nil); len(got) != 0 {
		s.Fatalf("message %s came in session %q (error %v), none may", got[0].MessageID, r.SessionID(), err)
	}
}

// completed completes messages of a session.
func (s suite) completed(r *azservicebus.SessionReceiver, messages ...*azservicebus.ReceivedMessage) {
	s.Helper()
	for _, m := range messages {
		s.must("complete "+m.MessageID, r.CompleteMessage(s.ctx, m, nil))
	}
}

// linkTo opens a link of go-amqp that holds a session, with this credit.
func (s suite) linkTo(member int, session string, credit uint32) *amqp.Receiver {
	s.Helper()
	r := s.amqpReceiver(member, &amqp.ReceiverOptions{
		Credit: -1, Filters: []amqp.LinkFilter{amqp.NewLinkFilter(sessionFilter, 0, session)},
	})
	s.must("credit", r.IssueCredit(credit))
	return r
}

// workWithin is how long a consumer waits for a session. It is long enough for the client to connect,
// because the cases do not test what remains in the client of a wait that ends before.
const workWithin = 15 * time.Second

// receiveAllSessions accepts the next session, completes its messages and closes it. Finding no
// session for a while is not an error.
func (s suite) receiveAllSessions(ctx context.Context, c *azservicebus.Client) (session string, got []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, workWithin)
	defer cancel()
	r, err := s.tryAccept(ctx, c, nil, nil)
	var coded *azservicebus.Error
	switch {
	case err != nil && ctx.Err() != nil, errors.As(err, &coded) && coded.Code == azservicebus.CodeTimeout:
		return "", nil, nil
	case err != nil:
		return "", nil, err
	}
	messages, err := r.ReceiveMessages(s.ctx, 3, nil)
	if err != nil {
		return "", nil, fmt.Errorf("receive in session %q: %w", r.SessionID(), err)
	}
	for _, m := range messages {
		if err := r.CompleteMessage(s.ctx, m, nil); err != nil {
			return "", nil, fmt.Errorf("complete %s: %w", m.MessageID, err)
		}
	}
	return r.SessionID(), ids(messages), r.Close(s.ctx)
}
