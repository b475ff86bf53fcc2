package amqp

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/peeklock/peeklock/amqp/address"
	"github.com/peeklock/peeklock/amqp/login"
	"github.com/peeklock/peeklock/amqp/management"
	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// A node is an address that answers requests: $cbs, and $management of an entity. The client has one link on
// which it sends requests and one on which it receives responses.

// putTokenOperation is the operation of $cbs.
const putTokenOperation = "put-token"

// request is one request to a node. Its values are slices of a copy that was made for it.
type request struct {
	link *incomingLink
	management.Request
	again      bool // at is what the name of a deleted entity stands for now
	bytes      int  // bytes counted in conn.inFlightBytes
	decoded    int  // bytes counted in conn.memory
	paidBytes  int  // bytes of its response that were charged as work in advance
	share      share
	began      time.Time // when it did not wait any longer
	properties wire.Properties
	arguments  wire.Map // application-properties
}

// parseRequest reads the sections that nodes use.
func parseRequest(l *incomingLink, payload []byte) (*request, error) {
	r := &request{link: l}
	for rest := bytes.Clone(payload); len(rest) > 0; {
		kind, value, _, after, err := wire.NextSection(rest)
		if err != nil {
			return nil, fmt.Errorf("request: %w", err)
		}
		rest = after
		switch kind { //nolint:exhaustive // the others say nothing to a node
		case wire.SectionProperties:
			r.properties, err = wire.DecodeProperties(value)
		case wire.SectionApplicationProperties:
			r.arguments, err = wire.DecodeMap(value)
		case wire.SectionValue:
			r.Body, _, err = wire.DecodeValue(value)
		}
		if err != nil {
			return nil, fmt.Errorf("request: %w", err)
		}
	}
	return r, nil
}

// argument returns a text among the application-properties, "" when it is missing.
func (r *request) argument(key string) string { return r.arguments.Text(key) }

// request handles a delivery to a node: it accepts the delivery at once and answers it by a response. At most
// requestsMax requests are in progress, so goroutines and memory are limited whatever a client sends. One link
// alone never reaches the limit, because its credit is granted again with the responses: Java settles hundreds
// of messages at once through $management when their link has ended, and ServerBusy would make them fail.
func (c *conn) request(ctx context.Context, a *incomingDelivery) {
	r, err := parseRequest(a.link, a.payload)
	length := len(a.payload)
	a.payload = nil
	if err != nil {
		a.finish(ctx, refusal.New(wire.ConditionDecodeError, "The request cannot be read: %s. Correct it.", err))
		return
	}
	r.Transaction, r.decoded = a.transaction, decodedBytes(r.Body)+decodedBytes(r.arguments)
	r.bytes, a.bytes, a.isRequest = a.bytes, 0, true // counted until the response is sent
	a.finish(ctx, refusal.Cause{})
	operation := r.argument("operation")
	c.mu.Lock()
	c.memory.decodedBytes += r.decoded
	r.At, r.Path, r.LinkName = r.link.entity, r.link.path, r.argument("associated-link-name")
	entity, _ := address.CutManagement(r.Path)
	r.URL, r.NodeURL = c.urlOf(entity), c.urlOf(r.Path)
	r.Respond = func(ctx context.Context, resp management.Response) {
		if resp.Cause == refusal.ReplyOf(fsm.NamespaceFull).Cause {
			resp.Cause = c.withBusyReason(fsm.NamespaceFull, resp.Cause)
		}
		c.respond(ctx, r, resp)
	}
	may := c.mayRequest(ctx, r, operation)
	c.unlock()
	price := priceOf(r, operation, may && r.has(operation))
	price.Work += (length + r.decoded) / requestUnitBytes
	r.paidBytes = price.PaidBytes
	if !c.waitForWork(ctx, price.Work+r.paidBytes/responseUnitBytes) {
		c.discardRequest(r)
		return
	}
	r.began = time.Now()
	c.mu.Lock()
	busy := c.requests >= requestsMax
	c.requests++
	answer := 2 * price.LargestBytes // as it is stored, and once more encoded
	r.bytes += answer
	c.inFlightBytes += answer
	r.share = share{account: c.account, answer: int64(answer), settled: int64(min(price.StoredBytes, settledAtOnceMax))}
	may = may && c.mayRequest(ctx, r, operation) // it may have lost the right while it waited
	needs := management.RightFor(operation)
	var missing refusal.Cause
	if !may {
		missing = c.credentials.Missing(r.link.path, needs, time.Now())
		c.credentials.AuditMissing(ctx, r.link.path, needs, operation)
	}
	c.unlock()
	switch {
	case busy:
		c.respond(ctx, r, management.ResponseFor(fsm.ServerBusy))
	case !may:
		resp := management.ResponseFor(fsm.Unauthorized)
		resp.Cause = missing
		c.respond(ctx, r, resp)
	case r.link.kind == managementNode && r.share.take(ctx, 0):
		c.management.Perform(ctx, &r.Request, operation)
	case r.link.kind == managementNode:
		go c.performLater(ctx, r, operation)
	case operation == putTokenOperation:
		go c.putToken(ctx, r)
	default:
		c.respond(ctx, r, management.UnknownOperation(operation))
	}
}

// performLater performs a request to $management when its owner holds less than its share, or refuses it after a while.
func (c *conn) performLater(ctx context.Context, r *request, operation string) {
	defer c.recovered(ctx)
	if r.share.take(ctx, shareWithin) {
		c.management.Perform(ctx, &r.Request, operation)
		return
	}
	resp := management.ResponseFor(fsm.ServerBusy)
	resp.Text = r.share.account.Refusal(r.share.refused) + "."
	c.respond(ctx, r, resp)
}

// putToken performs the operation of $cbs.
func (c *conn) putToken(ctx context.Context, r *request) {
	defer c.recovered(ctx)
	token, _ := wire.AsText(r.Body)
	c.respond(ctx, r, management.Response{Reply: c.credentials.PutToken(ctx, token, r.argument("type"), r.argument("name"))})
}

// mayRequest reports whether the connection has the right to an operation. Anybody may put a token. mu is held.
func (c *conn) mayRequest(ctx context.Context, r *request, operation string) bool {
	return r.link.kind == cbsNode || c.credentials.Allows(ctx, r.link.path, management.RightFor(operation), time.Now())
}

// has reports whether the node of the request performs an operation, if there is such an operation.
func (r *request) has(operation string) bool {
	if r.link.kind == cbsNode || operation == putTokenOperation {
		return r.link.kind == cbsNode && operation == putTokenOperation
	}
	return management.NotAllowed(operation, &r.At).Condition == ""
}

// priceOf returns the price of a request. permitted means that the node has the operation and that the connection may
// perform it: otherwise all that is done is to refuse it.
func priceOf(r *request, operation string, permitted bool) (price management.Price) {
	switch {
	case !permitted:
	case operation == putTokenOperation:
		price.Work = putJWTCost
		if token, _ := wire.AsText(r.Body); strings.HasPrefix(token, login.SharedAccessPrefix) {
			price.Work = putTokenCost
		}
	default:
		price = management.PriceOf(operation, &r.At, r.Body)
	}
	price.Work += requestCost
	return price
}

// discardRequest releases what a request holds that the connection does not live to perform.
func (c *conn) discardRequest(r *request) {
	c.mu.Lock()
	defer c.unlock()
	c.inFlightBytes -= r.bytes
	c.memory.decodedBytes -= r.decoded
}

// logSlow logs a slow request with its client.
func (c *conn) logSlow(ctx context.Context, r *request) {
	if c.config.SlowAfter <= 0 || c.config.Slow == nil {
		return
	}
	if took := time.Since(r.began); took >= c.config.SlowAfter {
		c.config.Slow.WarnContext(ctx, "slow operation", "operation", "request "+r.argument("operation"), "took", took,
			"path", r.link.path, "peer", c.peer.RemoteAddr().String())
	}
}

// manageAgain repeats a request whose entity has been deleted at the entity that has its name now: a management link
// outlives its entity.
func (c *conn) manageAgain(ctx context.Context, r *request) {
	defer c.recovered(ctx)
	r.again = true
	path, _ := address.CutManagement(r.Path)
	at, err := c.resolveSuccessor(ctx, path, r.At.ID)
	if err != nil {
		c.respond(ctx, r, management.ResponseFor(refusal.CodeOf(err)))
		return
	}
	c.mu.Lock()
	r.At, r.link.entity = at, at
	c.mu.Unlock()
	c.management.Perform(ctx, &r.Request, r.argument("operation"))
}

// resolveSuccessor finds the entity that has the name of a deleted one. It waits a moment while this member knows only
// the deleted one.
func (c *conn) resolveSuccessor(ctx context.Context, path string, deleted fsm.EntityID) (fsm.EntityRef, error) {
	ctx, cancel := context.WithTimeout(ctx, successorWithin)
	defer cancel()
	for {
		changed := c.config.Broker.Changes()
		at, err := c.resolvePath(ctx, path)
		if err != nil || at.ID != deleted {
			return at, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return at, fsm.EntityNotFound
		}
	}
}

// respond answers a request.
func (c *conn) respond(ctx context.Context, r *request, resp management.Response) {
	if resp.EntityGone && r.link.kind == managementNode && r.Transaction == nil && !r.again {
		go c.manageAgain(ctx, r)
		return
	}
	if resp.EntityGone && r.link.kind == managementNode {
		entity, _ := address.CutManagement(r.Path)
		resp.Text = refusal.NotFoundText(entity)
	}
	c.logSlow(ctx, r)
	cause := resp.Cause
	if resp.Condition != "" {
		r.link.countThrottled(cause, 1)
		resp.Text = c.newError(ctx, cause, "operation", r.argument("operation"), "path", r.link.path).Description
	}
	message := appendResponse(nil, r, resp)
	r.share.release()
	c.mu.Lock()
	defer c.unlock()
	c.requests--
	if event, about := management.AuditEvent(r.argument("operation"), &r.Request, &resp); event != "" {
		kind, who := c.credentials.Who(r.Path)
		c.credentials.Audit(ctx, slog.LevelInfo, event, append(about, slog.String("kind", kind), slog.String("who", who))...)
	}
	if management.CausesRollback(r.argument("operation"), cause) {
		c.transactions.MarkRollbackOnly(r.Transaction, cause)
	}
	c.inFlightBytes -= r.bytes
	c.memory.decodedBytes -= r.decoded
	c.costs.bytes += len(message) - r.paidBytes
	c.resumeReader()
	if l := c.responseLink(r); l != nil {
		l.respond(ctx, message)
	}
	if r.link.state == attached && !r.link.session.ended {
		r.link.returnCredit()
	}
	if resp.EntityGone { // another entity may have its name by now
		r.link.detachWithError(ctx, r.link, cause.ForReattach())
	}
}

// appendResponse encodes a response. The correlation-id has the AMQP type of the request's message-id, the
// status is an int and the condition a symbol: .NET and Java fail on any other types
// (docs/service-bus-protocol.md#put-token-responses, #management-responses).
func appendResponse(dst []byte, r *request, resp management.Response) []byte {
	status, text, condition := "statusCode", "statusDescription", "errorCondition"
	if r.link.kind == cbsNode {
		status, text, condition = "status-code", "status-description", "error-condition"
	}
	properties := wire.Map{{Key: status, Value: resp.Status}, {Key: text, Value: resp.Text}}
	if resp.Condition != "" {
		properties = append(properties, wire.Pair{Key: condition, Value: resp.Condition})
	}
	dst = wire.AppendProperties(dst, &wire.Properties{CorrelationID: r.properties.MessageID})
	dst = wire.AppendSectionDescriptor(dst, wire.SectionApplicationProperties)
	dst = wire.AppendMap(dst, properties)
	dst = wire.AppendSectionDescriptor(dst, wire.SectionValue)
	if resp.Body == nil {
		resp.Body = wire.Map{} // clients do not accept null
	}
	return wire.AppendMap(dst, resp.Body)
}

// responseLink finds the link for a response (docs/service-bus-protocol.md#reply-routing). It searches the
// session of the request before the others, because Python uses one reply-to for all its links: by target
// address, by link name (JavaScript), and otherwise the only link of the session (Python's $cbs has no
// reply-to).
func (c *conn) responseLink(r *request) *outgoingLink {
	s := r.link.session
	replyTo, _ := wire.AsText(r.properties.ReplyTo)
	if replyTo != "" {
		if l := s.findByReplyTo(r, replyTo); l != nil {
			return l
		}
		for _, other := range c.sessions {
			if l := other.findByReplyTo(r, replyTo); l != nil {
				return l
			}
		}
	}
	for _, e := range s.links {
		if l, ok := e.(*outgoingLink); ok && l.isResponseLink(r) {
			return l
		}
	}
	return nil
}

// findByReplyTo searches one session, by target address before name.
func (s *session) findByReplyTo(r *request, replyTo string) *outgoingLink {
	var named *outgoingLink
	for _, e := range s.links {
		l, ok := e.(*outgoingLink)
		if !ok || !l.isResponseLink(r) {
			continue
		}
		if l.replyTo == replyTo {
			return l
		}
		if l.name == replyTo {
			named = l
		}
	}
	return named
}

// isResponseLink reports whether l can send responses of the node of the request.
func (l *outgoingLink) isResponseLink(r *request) bool {
	return l.state == attached && l.kind == r.link.kind && strings.EqualFold(l.path, r.link.path)
}
