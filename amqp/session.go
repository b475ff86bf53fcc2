package amqp

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// session is one AMQP session: a channel, its windows and its links (part 2, 2.5). The mutex of the connection
// guards all of it. The gateway answers on the channels and handles that the peer uses.
type session struct {
	conn    *conn
	channel uint16
	ended   bool // our end is sent, the peer's has not been received; or endsLater

	endsLater bool // the peer has ended the session, and our end waits for the answers to its detaches
	releasing int  // detaches that are answered when a message session is released

	links     map[uint32]endpoint
	handleMax uint32

	nextIncoming   uint32 // next transfer-id that we expect
	incomingWindow uint32 // transfers that the peer may still send
	nextOutgoing   uint32 // transfer-id of our next transfer; the first is 0
	remoteWindow   uint32 // transfers that we may still send
	nextDelivery   uint32 // delivery-id of our next delivery: consecutive over all links

	// unsettled holds the deliveries that the peer has not settled, by delivery-id. It is a map, so that the
	// lookup of a range costs its width or the number of unsettled deliveries, whichever is less, and one
	// delivery that remains for minutes delays no others.
	unsettled           map[uint32]unsettled
	unsettledCounted    int  // number of unsettled deliveries counted in conn.memory
	unsettledMaxReached bool // a link waits until unsettled has fewer entries
	lastSweep           time.Time

	ranges [2]dispositionRange // by role: sender, receiver
}

// unsettled is one delivery that the peer has not settled. Its size is 40 bytes, because a receiver with a
// long prefetch has many.
type unsettled struct {
	link  *outgoingLink
	lock  fsm.LockID
	until fsm.Instant // end of the lock unless it was renewed
	// delivered is the span of the delivery, nil if it is not traced.
	delivered *trace.SpanContext
}

// begin opens a session (part 2, 2.7.2).
func (c *conn) begin(channel uint16, b *wire.Begin) *wire.Error {
	if s := c.sessions[channel]; s != nil {
		s.finishEnd()
	}
	switch {
	case channel > c.channelMax:
		return &wire.Error{Condition: wire.ConditionFramingError, Description: fmt.Sprintf("Channel %d is above the channel-max of %d.", channel, c.channelMax)}
	case c.sessions[channel] != nil:
		return &wire.Error{Condition: wire.ConditionNotAllowed, Description: fmt.Sprintf("Channel %d already has a session.", channel)}
	case b.RemoteChannel != nil:
		return &wire.Error{Condition: wire.ConditionNotAllowed, Description: "A begin names a remote channel that began nothing."}
	}
	if !c.credentials.Authenticated() && len(c.sessions) >= unauthenticatedSessionsMax {
		return c.unauthenticatedLimit("sessions", unauthenticatedSessionsMax)
	}
	s := &session{
		conn:           c,
		channel:        channel,
		links:          make(map[uint32]endpoint),
		handleMax:      handleMax,
		nextIncoming:   b.NextOutgoingID,
		incomingWindow: windowFrames,
		remoteWindow:   b.IncomingWindow,
		unsettled:      make(map[uint32]unsettled),
	}
	if b.HandleMax != nil {
		s.handleMax = min(handleMax, *b.HandleMax)
	}
	c.sessions[channel] = s
	delete(c.endedChannels, channel)
	highest := uint32(handleMax)
	c.emit(channel, &wire.Begin{
		RemoteChannel:  &channel,
		NextOutgoingID: s.nextOutgoing,
		IncomingWindow: windowFrames,
		OutgoingWindow: windowFrames,
		HandleMax:      &highest,
	})
	return nil
}

// endSession closes a session at the peer's request, or handles the peer's answer to our end.
func (c *conn) endSession(channel uint16) *wire.Error {
	s := c.sessions[channel]
	if s == nil {
		return &wire.Error{Condition: wire.ConditionNotAllowed, Description: fmt.Sprintf("There is no session on channel %d.", channel)}
	}
	if !s.ended {
		s.flushDispositions()
		s.drop()
		if s.endsLater = true; s.releasing > 0 { // a client may close its session right after its receivers
			time.AfterFunc(endWithin, func() {
				c.mu.Lock()
				defer c.unlock()
				s.finishEnd()
			})
			return nil
		}
		s.finishEnd()
		return nil
	}
	s.forget()
	return nil
}

// finishEnd sends our end to a peer that has ended the session, once.
func (s *session) finishEnd() {
	if !s.endsLater || s.conn.phase >= phaseClosing {
		return
	}
	s.endsLater = false
	s.conn.emit(s.channel, &wire.End{})
	s.forget()
}

// forget removes a session that both sides have ended. Its channel may have another one already.
func (s *session) forget() {
	if s.conn.sessions[s.channel] == s {
		delete(s.conn.sessions, s.channel)
		s.conn.endedChannels[s.channel] = struct{}{}
	}
}

// session finds the session of a frame. It returns nil without fault for a frame that must be ignored: the
// frame crossed our end, or the peer sends more frames after its own end, as Python does with detaches.
func (c *conn) session(channel uint16) (*session, *wire.Error) {
	s := c.sessions[channel]
	if s != nil && !s.ended {
		return s, nil
	}
	if _, was := c.endedChannels[channel]; was || s != nil {
		return nil, nil
	}
	return nil, &wire.Error{Condition: wire.ConditionNotAllowed, Description: fmt.Sprintf("There is no session on channel %d.", channel)}
}

// fail ends the session with an error; the connection continues (part 2, 2.5.5).
func (s *session) fail(ctx context.Context, cause refusal.Cause) {
	s.flushDispositions()
	s.conn.emit(s.channel, &wire.End{Error: s.conn.newError(ctx, cause, "channel", s.channel)})
	s.drop()
}

// drop releases everything that the session holds. Messages that clients have locked remain locked.
func (s *session) drop() {
	s.ended, s.unsettledMaxReached = true, false
	s.dropCoordinators()
	clear(s.unsettled)
	s.countUnsettled()
	for _, e := range s.links {
		e.drop()
	}
	clear(s.links)
}

// dropCoordinators rolls back the transactions of the session, which settle messages of its other links.
func (s *session) dropCoordinators() {
	for handle, e := range s.links {
		if e.base().kind == coordinatorNode {
			e.drop()
			delete(s.links, handle)
		}
	}
}

// dropSessions releases everything that the sessions hold. mu is held.
func (c *conn) dropSessions() {
	for _, s := range c.sessions {
		s.dropCoordinators()
	}
	for _, s := range c.sessions {
		s.drop()
	}
}

// flow handles a flow frame: its session part, and its link part if it has one.
func (s *session) flow(f *wire.Flow) {
	theirs := uint32(0)
	if f.NextIncomingID != nil {
		theirs = *f.NextIncomingID
	}
	before := s.remoteWindow
	s.remoteWindow = remaining(f.IncomingWindow, ahead(s.nextOutgoing, theirs))
	if f.Handle != nil {
		// A flow for a link that has ended, or was refused, crossed our detach.
		if e := s.links[*f.Handle]; e != nil {
			e.flow(f)
		}
	} else if f.Echo {
		s.conn.emitFlow(s.channel, s.flowState())
	}
	if before == 0 && s.remoteWindow > 0 {
		s.conn.costs.countOpened(len(s.links))
		s.sendAllQueued()
	}
}

// flowState returns the session part of a flow. All fields are always set: if they are missing, rhea does not
// send, and go-amqp ends the session.
func (s *session) flowState() *wire.Flow {
	next := s.nextIncoming
	return &wire.Flow{
		NextIncomingID: &next,
		IncomingWindow: s.incomingWindow,
		NextOutgoingID: s.nextOutgoing,
		OutgoingWindow: windowFrames,
	}
}

// countTransfer counts one transfer frame and reopens the window when half of it is used. Windows are not
// enforced, because Python counts deliveries instead of frames; waitUntilReadAllowed limits memory in bytes.
func (s *session) countTransfer() {
	s.nextIncoming++
	s.incomingWindow = remaining(s.incomingWindow, 1)
	if s.incomingWindow <= windowFrames/2 {
		s.incomingWindow = windowFrames
		s.conn.emitFlow(s.channel, s.flowState())
	}
}

// sendAllQueued makes every outgoing link check again whether it can send.
func (s *session) sendAllQueued() {
	for _, e := range s.links {
		if l, ok := e.(*outgoingLink); ok {
			l.sendQueued()
		}
	}
}

// settledDelivery is one delivery that a disposition settles.
type settledDelivery struct {
	id uint32
	unsettled
}

// takeUnsettled removes the unsettled deliveries from first to last and returns them in order.
func (s *session) takeUnsettled(first, last uint32) []settledDelivery {
	width := uint64(last-first) + 1
	if width == 1 {
		u, ok := s.unsettled[first]
		if !ok {
			return nil
		}
		delete(s.unsettled, first)
		return []settledDelivery{{first, u}}
	}
	var found []settledDelivery
	if width <= uint64(len(s.unsettled)) {
		for id := first; ; id++ {
			if u, ok := s.unsettled[id]; ok {
				found = append(found, settledDelivery{id, u})
			}
			if id == last {
				break
			}
		}
	} else {
		for id, u := range s.unsettled {
			if uint64(id-first) < width {
				found = append(found, settledDelivery{id, u})
			}
		}
		slices.SortFunc(found, func(a, b settledDelivery) int { return int(int64(a.id-first) - int64(b.id-first)) })
	}
	for _, f := range found {
		delete(s.unsettled, f.id)
	}
	return found
}

// unsettledFull reports whether the session has reached its limit of unsettled deliveries. It first removes
// deliveries whose lock has expired: some clients settle through the management node, or by the token from
// another process, and never by delivery-id.
func (s *session) unsettledFull() bool {
	if len(s.unsettled) < unsettledMax {
		return false
	}
	if now := time.Now(); now.Sub(s.lastSweep) >= sweepEvery {
		s.lastSweep = now
		for id, u := range s.unsettled {
			if u.lockExpired(now) {
				delete(s.unsettled, id)
			}
		}
	}
	s.unsettledMaxReached = len(s.unsettled) >= unsettledMax
	return s.unsettledMaxReached
}

// unsettledFreed resumes the links that unsettledFull had stopped.
func (s *session) unsettledFreed() {
	if s.unsettledMaxReached && len(s.unsettled) < unsettledMax {
		s.unsettledMaxReached = false
		s.sendAllQueued()
	}
}

// countUnsettled updates the number of unsettled deliveries of the connection for this session. mu is held.
func (s *session) countUnsettled() {
	s.conn.memory.unsettled += len(s.unsettled) - s.unsettledCounted
	s.unsettledCounted = len(s.unsettled)
}
