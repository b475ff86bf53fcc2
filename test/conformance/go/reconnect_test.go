package conformance

import (
	"context"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/peeklock/peeklock/test/harness"
)

// reconnectChecks are the cases that kill a member: a fourth member without replicas, so that
// concurrent cases are not affected.
func reconnectChecks() []check {
	return []check{{name: "member dies", run: memberIsKilled}}
}

// The member of a client dies: the same sender and receiver continue at another member, and the
// receiver keeps its locks.
func memberIsKilled(s suite) {
	doomed := s.StartKillable(s.T)
	client, err := azservicebus.NewClientFromConnectionString(harness.ConnectionString(doomed.Address), &azservicebus.ClientOptions{
		RetryOptions: azservicebus.RetryOptions{MaxRetries: 10, RetryDelay: 200 * time.Millisecond, MaxRetryDelay: 2 * time.Second},
	})
	s.must("client", err)
	s.Cleanup(func() { _ = client.Close(context.Background()) })
	sender, err := client.NewSender(s.queue, nil)
	s.must("sender", err)
	r, err := client.NewReceiverForQueue(s.queue, nil)
	s.must("receiver", err)
	before := "before"
	s.must("send", sender.SendMessage(s.ctx, &azservicebus.Message{MessageID: &before}, nil))
	held := s.receiveOne(r)

	doomed.Kill(s.Cluster)
	after := "after"
	s.must("send after the death", sender.SendMessage(s.ctx, &azservicebus.Message{MessageID: &after}, nil))
	got := s.receiveOne(r)
	if got.MessageID != after {
		s.Errorf("received %s after the death", got.MessageID)
	}
	s.must("complete what came after", r.CompleteMessage(s.ctx, got, nil))
	// By its token: given the message itself, this client settles it on the lost connection, and retries there.
	s.must("complete what was locked before", r.CompleteMessage(s.ctx, byToken(held), nil))
	s.counts(harness.Counts{})
}
