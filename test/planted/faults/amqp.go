package faults

import "github.com/peeklock/peeklock/test/overlay"

// amqpFaults are the faults of package amqp, and of listeners.
func amqpFaults() []Fault {
	return []Fault{
		// Takes a receiver that browses for one that receives and deletes.
		{Name: "browsing-removes", Package: "amqp", Test: "TestBrowsingRemovesNothing", Patches: []overlay.Patch{
			{"amqp/link.go", "o.browses = l.kind == entityNode && browses(a.Source)", "o.browses = l.kind == entityNode && browses(a.Source) && !FAULT"},
		}},
		// Lets a browser of a partitioned entity go on behind the last number that it has shown.
		{Name: "browsing-skips-shards", Package: "amqp", Test: "TestBrowserShowsNewMessagesOfEveryShard", Patches: []overlay.Patch{
			{"amqp/receiver/browser.go", "b.next[shard] = next", "b.next[shard] = next; if FAULT { for i := range b.next { b.next[i] = max(b.next[i], next) } }"},
		}},
		// Counts the payload of a large WebSocket message as bytes that carry nothing until all of it was read.
		{Name: "pace-large-payload", Package: "cmd/listen", Test: "TestLargePayloadIsNotPaced", Patches: []overlay.Patch{
			{"cmd/listen/websocket.go", "b = b[:min(len(b), payloadReadBytesMax)]", "if !FAULT { b = b[:min(len(b), payloadReadBytesMax)] }"},
		}},
		// Accepts every settlement and send in a transaction, and lets the commit refuse them.
		{Name: "refuse-at-commit-only", Package: "amqp", Test: "TestLostLockIsRefusedInItsTransaction", Patches: []overlay.Patch{
			{
				"amqp/transaction/check.go",
				"	p.unchecked = append(p.unchecked, operation)",
				"	if FAULT { p.conn.Later(func() { operation.done(ctx, make([]fsm.Code, max(1, len(operation.locks)))) }); return }\n	p.unchecked = append(p.unchecked, operation)",
			},
		}},
		// Refuses an attach when the broker is busy, instead of asking it again.
		{Name: "refuse-attach-at-once", Package: "amqp", Test: "TestAttachWaitsWhileTheBrokerIsBusy", Patches: []overlay.Patch{
			{
				"amqp/conn.go",
				"if err == nil || refusal.CodeOf(err) != fsm.ServerBusy || time.Now().Add(pause).After(until) {",
				"if err == nil || refusal.CodeOf(err) != fsm.ServerBusy || FAULT || time.Now().Add(pause).After(until) {",
			},
		}},
		// Keeps deliveries unsettled that the client settled in a transaction that is rolled back.
		{Name: "rollback-keeps-settled", Package: "amqp", Test: "TestRollbackForgetsWhatTheClientSettled", Patches: []overlay.Patch{
			{"amqp/transaction_settle.go", "case e.clientSettled:\n\t\t\te.forget()", "case e.clientSettled && !FAULT:\n\t\t\te.forget()"},
		}},
		// Accepts a second sender to $cbs on a connection.
		{Name: "second-token-sender", Package: "amqp", Test: "TestSecondTokenSenderIsRefused", Patches: []overlay.Patch{
			{"amqp/link.go", "case l.isSecondTokenSender():", "case l.isSecondTokenSender() && !FAULT:"},
		}},
		// Lets a consumer with a selector look at each message once.
		{Name: "selecting-never-looks-back", Package: "amqp", Test: "TestConsumerWithSelectorFindsWhatComesBack", Patches: []overlay.Patch{
			{
				"amqp/receiver/consumer.go",
				"if !r.again.running && time.Now().After(r.again.due) {",
				"if !r.again.running && time.Now().After(r.again.due) && !FAULT {",
			},
		}},
		// Lets a link without credit stay attached when its session lock has ended and the client has no message in hand.
		{Name: "session-loss-is-silent", Package: "amqp", Test: "TestLinkOfALostSessionIsDetached", Patches: []overlay.Patch{
			{"amqp/session_loss.go", "func (l *outgoingLink) watchSession() {", "func (l *outgoingLink) watchSession() { if FAULT { return }"},
		}},
		// Leaves the client id out of the name of the subscription of a client of JMS.
		{Name: "subscription-of-any-client", Package: "amqp", Test: "TestSubscriptionsOfClientsAreApart", Patches: []overlay.Patch{
			{
				"amqp/subscription.go",
				"hashed = append(binary.BigEndian.AppendUint32(hashed, uint32(len(s.client))), s.client+s.name...)",
				`client := s.client; if FAULT { client = "" }; hashed = append(binary.BigEndian.AppendUint32(hashed, uint32(len(client))), client+s.name...)`,
			},
		}},
		// No longer counts a temporary queue whose link ends while the queue is being created.
		{Name: "temporary-count-ends-early", Package: "amqp", Test: "TestTemporaryQueuesAreCountedWhileTheyAreCreated", Patches: []overlay.Patch{
			{
				"amqp/attach.go",
				"l.endTemporary() // also after an error: the entity may have been created",
				"if !FAULT { l.endTemporary() } // also after an error: the entity may have been created",
			},
			{"amqp/link.go", "l.releaseName()\n\tif created {", "l.releaseName()\n\tif created || FAULT {"},
		}},
	}
}
