package conformance

import (
	"fmt"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/test/harness"
)

func replyChecks() []check {
	return []check{
		{name: "request and reply", run: requestAndReply},
		{name: "reply over a topic", run: replyOverTopic},
	}
}

// temporary creates a queue that is deleted automatically when its owner is gone.
func (s suite) temporary(name string) suite {
	s.Helper()
	s.queue += "." + name
	s.CreateQueue(s.T, s.queue, harness.Settings{More: harness.Fields{"autoDeleteOnIdle": "5m"}})
	return s
}

// answer takes requests from the queue of the case and sends each reply to the address in the
// request, until it has answered n requests.
func (s suite) answer(member, n int) {
	s.Helper()
	client, r := s.client(member), s.receiver(member)
	for range n {
		request := s.receiveOne(r)
		if request.ReplyTo == nil || request.CorrelationID != nil {
			s.Errorf("request %s has reply-to %v and correlation %v", request.MessageID, request.ReplyTo, request.CorrelationID)
			return
		}
		sender, err := client.NewSender(*request.ReplyTo, nil)
		s.must("new sender to "+*request.ReplyTo, err)
		s.must("reply", sender.SendMessage(s.ctx, &azservicebus.Message{
			CorrelationID: &request.MessageID, SessionID: request.ReplyToSessionID, Body: append([]byte("re: "), request.Body...),
		}, nil))
		s.must("complete", r.CompleteMessage(s.ctx, request, nil))
		s.must("close", sender.Close(s.ctx))
	}
}

// Several callers, each with a temporary queue for replies, use one service; each caller gets
// the answers to its own requests, with the ids that it set.
func requestAndReply(s suite) {
	const callers, each = 3, 10
	var wg sync.WaitGroup
	wg.Go(func() { s.answer(1, callers*each) })
	for caller := range callers {
		replies := s.temporary(fmt.Sprintf("caller%d", caller))
		wg.Go(func() {
			member := caller%2 + 2
			sender := s.sender(member)
			want := map[string]string{}
			for i := range each {
				id := fmt.Sprintf("%d-%d", caller, i)
				want[id] = "re: question " + id
				s.must("ask", sender.SendMessage(s.ctx, &azservicebus.Message{
					MessageID: &id, ReplyTo: &replies.queue, ReplyToSessionID: ptr("talk " + id), Body: []byte("question " + id),
				}, nil))
			}
			got := map[string]string{}
			for _, m := range replies.receive(replies.receiver(member), each) {
				if m.CorrelationID == nil || m.SessionID == nil || *m.SessionID != "talk "+*m.CorrelationID {
					s.Errorf("a reply has correlation %v and session %v", m.CorrelationID, m.SessionID)
					return
				}
				got[*m.CorrelationID] = string(m.Body)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				s.Errorf("replies to caller %d (-want +got)\n%s", caller, diff)
			}
		})
	}
	wg.Wait()
}

// Requests go through a topic, whose subscription forwards them to the service, and replies through a
// topic with correlation filters. Their content arrives unchanged.
func replyOverTopic(s suite) {
	topic := s.topic(nil)
	topic.subscription("service", harness.Settings{More: forwardingTo(s)}, harness.Rule{Name: "questions", SQL: "sys.ReplyTo IS NOT NULL"})
	mine := topic.subscription("mine", harness.Settings{}, harness.Rule{
		Name: "mine", Conditions: harness.Fields{"sys.CorrelationId": "the question", "sys.SessionId": "the talk"},
	})
	var wg sync.WaitGroup
	wg.Go(func() { s.answer(2, 1) })
	s.must("ask", topic.sender(1).SendMessage(s.ctx, &azservicebus.Message{
		MessageID: ptr("the question"), ReplyTo: &topic.queue, ReplyToSessionID: ptr("the talk"), Body: []byte("who?"),
	}, nil))
	m := mine.receiveOne(mine.receiver(3))
	wg.Wait()
	if string(m.Body) != "re: who?" || *m.CorrelationID != "the question" || *m.SessionID != "the talk" {
		s.Errorf("the reply is %q with correlation %q and session %q", m.Body, *m.CorrelationID, *m.SessionID)
	}
}
