package amqp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
	"unique"

	"github.com/peeklock/peeklock/amqp/account"
	"github.com/peeklock/peeklock/amqp/address"
	"github.com/peeklock/peeklock/amqp/budget"
	"github.com/peeklock/peeklock/amqp/connlimit"
	"github.com/peeklock/peeklock/amqp/consumers"
	"github.com/peeklock/peeklock/amqp/counts"
	"github.com/peeklock/peeklock/amqp/login"
	"github.com/peeklock/peeklock/amqp/management"
	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/receiver"
	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/tracing"
	"github.com/peeklock/peeklock/amqp/transaction"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/amqp/work"
	"github.com/peeklock/peeklock/fsm"
)

// phase is the state of a connection.
type phase uint8

const (
	phaseOpening phase = iota // protocol headers, SASL, open
	phaseOpen
	phaseClosing // our close is sent; frames are discarded until the peer's close
	phaseClosed  // nothing more is sent
)

// conn is one connection. Its reader (the goroutine of serve) handles incoming frames, its writer sends what
// was appended to out. mu guards all fields below it; the reader, the writer, timers, and the goroutines of
// the broker in done functions access them. The broker is never called with mu held, because it may call done
// at once: calls are appended to brokerCalls and made by unlock.
type conn struct {
	config      *Config
	totals      *counts.Totals // of the Server
	peer        net.Conn
	reader      *wire.Reader
	log         *slog.Logger
	refusalLog  *refusal.LogLimiter // of the Server, for refusals
	origin      netip.Addr          // the client address that limits and logs use
	tracer      *tracing.Tracer     // nil: no messages are traced
	acknowledge func()              // of a peer that is an AcknowledgingConn; otherwise nil

	wake      chan struct{} // there is output; one token suffices
	written   chan struct{} // closed when the writer has ended
	failing   chan struct{} // closed by stopWaiting
	failOnce  sync.Once     // closes failing
	lastRead  atomic.Int64  // unix nanoseconds of the last bytes in
	lastWrite atomic.Int64  // unix nanoseconds of the last bytes out

	inDelivery          bool               // used by the reader: the last transfer frame did not end its delivery
	idBuffer            []byte             // used by the reader too: a message with the id that it was given
	rules               message.RuleReader // used by the reader too
	work                work.Account       // used by the reader too; of the Server
	unauthenticatedWork work.Account       // takes the place of work until the connection is authenticated
	openWork            func(key string)   // opens work, scanWork and account when the connection is authenticated; nil in tests
	scanWork            receiver.Work      // used by the links with selectors

	mu               sync.Mutex
	phase            phase
	host             string     // of the open, as the peer wrote it; "" for none. Set before the first begin
	out              []byte     // encoded frames for the writer
	brokerCalls      []func()   // calls to the broker, made by unlock
	readAllowed      *sync.Cond // the reader waits here while too much is in flight
	sessions         map[uint16]*session
	linksByKey       map[linkKey]endpoint // the links by their names
	consumers        *consumers.Set       // those of the member; admit replaces it
	volatiles        int                  // shared subscriptions that are not durable and that the connection created
	clientID         string               // container id of the peer; of more than clientIDBytesMax, only the beginning
	tokenSender      *incomingLink        // the last link on which the peer sends to $cbs; it may have ended
	endedChannels    map[uint16]struct{}  // channels whose session the peer has ended
	pendingRanges    []*session           // sessions with a disposition range that is not in out yet
	waitingForOutput []*outgoingLink
	timer            *time.Timer

	credentials  login.Credentials
	transactions transaction.Set
	enlisted     map[deliveryKey]*enlistedDelivery // what transactions settle, by delivery
	management   *management.Manager

	number          uint64                       // of the connection at the Server; constant
	library         unique.Handle[clientLibrary] // of the client; the zero value before its open
	started         time.Time
	onAuthenticated func() // notifies the Server of the authentication; may be nil
	release         func() // notifies the Server of the end of the connection
	refusals        int    // links that were refused

	peerFrameMax    uint32        // largest frame that the peer accepts
	peerIdleTimeout time.Duration // the peer closes when it receives nothing for this long; 0: never
	channelMax      uint16        // highest channel that either side may use

	readPaused    bool // the reader waits in readAllowed or waitForWork
	inFlightBytes int  // bytes received and not yet stored
	partialBytes  int  // bytes of deliveries received in part
	queuedBytes   int  // bytes of payloads that are locked and not sent yet
	links         linkCounts
	temporaries   map[string]struct{} // paths, as fsm.PathKey, of the temporary entities of the connection
	requests      int                 // requests to nodes in progress
	costs         costs
	memory        memory
	account       *account.Account // of the owner; nil until the connection is authenticated
	stats         counts.Connection
	scratch       []byte // one encoded delivery at a time
	scratchHead   transferHead
}

// linkCounts counts the links of a connection. The mutex of the connection guards it; the reader also reads what only it writes.
type linkCounts struct {
	open     int       // now
	peak     int       // most at a time; written by the reader only
	attaches int       // that the peer has begun; used by the reader only
	changed  time.Time // when a link was last attached or ended
	bytes    int       // of the links that are open
}

func (n *linkCounts) began(e endpoint) {
	l := e.base()
	if l.bytes == 0 {
		l.bytes = linkBytesOf(e)
	}
	n.open, n.changed, n.peak, n.bytes = n.open+1, time.Now(), max(n.peak, n.open+1), n.bytes+l.bytes
}

func (n *linkCounts) ended(l *link) {
	n.open, n.changed, n.bytes = n.open-1, time.Now(), n.bytes-l.bytes
}

func newConn(config *Config, peer net.Conn) *conn {
	c := &conn{
		config:        config,
		totals:        new(counts.Totals), // admit replaces it with the totals of the Server
		scanWork:      receiver.NewWork(),
		peer:          peer,
		log:           config.Logger.With("peer", peer.RemoteAddr().String()),
		refusalLog:    new(refusal.LogLimiter), // replaced in the same way
		origin:        connlimit.Source(peer.RemoteAddr()),
		tracer:        tracing.New(config.Tracer),
		wake:          make(chan struct{}, 1),
		written:       make(chan struct{}),
		failing:       make(chan struct{}),
		sessions:      make(map[uint16]*session),
		linksByKey:    make(map[linkKey]endpoint),
		consumers:     new(consumers.Set),
		endedChannels: make(map[uint16]struct{}),
		enlisted:      make(map[deliveryKey]*enlistedDelivery),
		started:       time.Now(),
		peerFrameMax:  frameBytesMin,
		channelMax:    channelMax,
	}
	if peer, ok := peer.(AcknowledgingConn); ok {
		c.acknowledge = peer.AcknowledgeAtOnce
	}
	c.readAllowed = sync.NewCond(&c.mu)
	c.credentials = login.New(login.Config{
		Conn: (*owner)(c), Broker: config.Broker, Authorizer: config.Authorizer, Log: c.log, AuditLog: config.Audit,
		MissingLog: new(refusal.LogLimiter), Peer: peer.RemoteAddr(), Origin: c.origin, ForeignOrigin: hasForeignOrigin(peer),
	})
	c.transactions = transaction.NewSet((*owner)(c), config.Broker)
	c.management = management.New((*owner)(c), config.Broker, &c.transactions, c.log)
	c.links.changed = c.started
	c.lastRead.Store(c.started.UnixNano())
	c.lastWrite.Store(c.started.UnixNano())
	c.reader = wire.NewReader(timestampingReader{c}, frameBytesMax)
	return c
}

// urlOf returns the address of an entity as the service writes it in texts for the client.
func (c *conn) urlOf(path string) string { return address.URL(c.host, path) }

// unlock releases mu and then makes the calls to the broker that were collected under it. Every function that
// may collect a call, or changes how much the connection holds, ends with unlock instead of mu.Unlock.
func (c *conn) unlock() {
	calls := c.brokerCalls
	c.brokerCalls = nil
	if c.stats.IsCounted() && c.phase == phaseClosed { // the writer reports them otherwise
		c.flushStats()
	}
	c.updateAccount()
	c.mu.Unlock()
	for _, call := range calls {
		call()
	}
}

// serve runs the connection from the first byte to the last. Its goroutine spends nearly all its time in read,
// so the size of its stack there is part of the cost of an idle connection: everything else is done in
// functions that have returned.
func (c *conn) serve(ctx context.Context) {
	ctx, cancel := c.start(ctx)
	err := c.read(ctx)
	c.finish(ctx, cancel, err)
}

// start starts the timer and the writer.
func (c *conn) start(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	c.mu.Lock()
	c.timer = time.AfterFunc(openWithin, func() { c.tick(ctx) })
	c.mu.Unlock()
	go c.write(ctx)
	return ctx, cancel
}

// finish waits for the writer and releases everything.
func (c *conn) finish(ctx context.Context, cancel context.CancelFunc, err error) {
	defer cancel()
	c.end()
	<-c.written
	_ = c.peer.Close()
	c.endMemory()
	if c.release != nil {
		defer c.release()
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		c.log.DebugContext(ctx, "connection failed", "error", err)
	}
}

// recovered is deferred by every goroutine of a connection. A panic is a bug in the gateway: it ends this
// connection and no other.
func (c *conn) recovered(ctx context.Context) {
	if p := recover(); p != nil {
		c.panicked(ctx, p)
	}
}

// panicked ends the connection after a panic.
func (c *conn) panicked(ctx context.Context, p any) {
	c.log.ErrorContext(ctx, "connection panicked", "panic", p, "stack", string(debug.Stack()))
	c.mu.Lock()
	c.memory.panicked = true
	c.unlock()
	c.fail(ctx, &wire.Error{Condition: wire.ConditionInternalError, Description: "The connection met an internal error."})
}

// fail sends a close with an error, once, and gives the peer closeWithin to answer it.
func (c *conn) fail(ctx context.Context, fault *wire.Error) {
	c.mu.Lock()
	if c.phase >= phaseClosing {
		c.unlock()
		return
	}
	cause := refusal.Cause{Condition: fault.Condition, Text: fault.Description}
	if fault.Condition == wire.ConditionConnectionForced || fault.Condition == wire.ConditionInternalError {
		cause.Retry = refusal.RetryLater
	}
	told := c.newError(ctx, cause)
	if c.phase == phaseOpen {
		c.flushDispositions()
		c.emit(0, &wire.Close{Error: told})
		c.phase = phaseClosing
		_ = c.peer.SetReadDeadline(time.Now().Add(closeWithin))
	} else {
		c.phase = phaseClosed
		_ = c.peer.SetReadDeadline(time.Now())
		c.notify()
	}
	c.stopWaiting()
	c.unlock()
}

// newError converts a refusal to the error that a client gets. Every rejected transfer and settlement, every
// refused or failed link, every failed request, ended session and closed connection uses it, so each has a
// condition, a text with advice on retries, and a tracking id that is logged with the reason
// (docs/requirements.md#t1): an operator searches for the id to find the error that a client got.
func (c *conn) newError(ctx context.Context, r refusal.Cause, about ...any) *wire.Error {
	c.totals.CountRefusal(r.Condition)
	id, now := refusal.NewTrackingID(), time.Now().UTC()
	if c.log.Enabled(ctx, slog.LevelInfo) {
		if ok, before := c.refusalLog.Allow(c.origin, now); ok {
			c.log.With(about...).LogAttrs(ctx, slog.LevelInfo, "request refused",
				slog.String("tracking_id", id), slog.String("condition", string(r.Condition)), slog.String("reason", r.Text), slog.Int("not_logged", before))
		}
	}
	return &wire.Error{
		Condition:   r.Condition,
		Description: r.Text + " " + r.Retry.Advice() + " TrackingId:" + id + ", Timestamp:" + now.Format(time.RFC3339),
	}
}

// abort ends a connection that is broken, or that is closed for another one: the peer gets no close.
func (c *conn) abort() {
	c.mu.Lock()
	c.phase = phaseClosed
	c.stopWaiting()
	c.mu.Unlock()
	_ = c.peer.Close()
}

// stopWaiting ends the waits of the reader, now and later, after phase has changed: in waitUntilReadAllowed, and for
// work. mu is held.
func (c *conn) stopWaiting() {
	c.readAllowed.Broadcast()
	c.failOnce.Do(func() { close(c.failing) })
}

// end releases the sessions and links of the connection. Locks of clients outlive
// the connection until they expire (docs/requirements.md#t14).
func (c *conn) end() {
	c.mu.Lock()
	c.flushDispositions()
	c.phase = phaseClosed
	c.dropSessions()
	clear(c.sessions)
	c.flushStats()
	c.timer.Stop()
	c.notify()
	c.unlock()
}

// flushStats adds the counts of the connection to the totals. mu is held.
func (c *conn) flushStats() {
	sessions, links := len(c.sessions), c.links.open
	if c.phase == phaseClosed {
		sessions, links = 0, 0
	}
	c.stats.Report(c.totals, sessions, links)
}

// inFlightMax returns how many bytes may be received and not stored or answered yet. For an unauthenticated
// connection it suffices for a few tokens.
func (c *conn) inFlightMax() int {
	if !c.credentials.Authenticated() {
		return min(unauthenticatedBytesMax, c.config.InFlightBytesMax)
	}
	return c.memory.fairPart(c.config.InFlightBytesMax)
}

// partialBytesMax is inFlightMax for deliveries of which only a part was received.
func (c *conn) partialBytesMax() int {
	if !c.credentials.Authenticated() {
		return unauthenticatedBytesMax
	}
	return partialBytesMax
}

// unauthenticatedLimit returns the error for an unauthenticated connection that requests more than it needs to
// put a token on $cbs.
func (*conn) unauthenticatedLimit(what string, most int) *wire.Error {
	return &wire.Error{Condition: wire.ConditionResourceLimitExceeded, Description: fmt.Sprintf(
		"Authenticate first: put a token on $cbs. An unauthenticated connection may have at most %d %s.", most, what)}
}

// heldBytes returns what the connection holds beyond its fixed cost, in bytes. mu is held.
func (c *conn) heldBytes() int64 {
	m := &c.memory
	fixed := 0
	if !m.closed {
		fixed = c.credentials.Grants() * grantBytes
	}
	return int64(c.partialBytes+c.partialBytes/4+ // append grows by up to a quarter
		c.inFlightBytes+c.transactions.Bytes()+c.transactions.Len()*transaction.OverheadBytes+c.queuedBytes+cap(c.out)+cap(c.scratch)+
		m.decodedBytes+m.responseBytes+c.links.bytes+m.partlySentBytes+m.writeBufferBytes+m.readerBufferBytes) +
		int64(m.settlements*settlementBytes+m.unsettled*unsettledBytes+len(c.sessions)*sessionBytes+fixed)
}

// updateAccount records in the budget what the connection holds. mu is held.
func (c *conn) updateAccount() {
	if responses := c.memory.responseBytes + c.memory.queuedResponses; c.account != nil && responses != c.memory.accounted {
		c.account.Add(account.AnswerBytes, int64(responses-c.memory.accounted))
		c.memory.accounted = responses
	}
	if c.account != nil && c.links.open != c.memory.accountedLinks {
		c.account.Add(account.Links, int64(c.links.open-c.memory.accountedLinks))
		c.memory.accountedLinks = c.links.open
	}
	held := c.heldBytes()
	c.memory.account.Set(held)
	if c.memory.closed && (held == 0 || c.memory.panicked) {
		c.memory.account.Close()
	}
}

// endMemory is called when reader and writer have ended. Requests without an answer are counted until the
// broker answers.
func (c *conn) endMemory() {
	c.mu.Lock()
	defer c.unlock()
	c.out, c.scratch, c.idBuffer = nil, nil, nil
	c.memory.writeBufferBytes, c.memory.readerBufferBytes, c.memory.queuedResponses, c.memory.closed = 0, 0, 0, true
}

// refuseForMemory returns the refusal of a send for lack of memory, and counts it.
func (c *conn) refuseForMemory() refusal.Cause {
	c.totals.MemoryRefused.Add(1)
	return refusal.Later(
		wire.ConditionServerBusy,
		"The member is short of memory, and this connection holds more than its fair share of it. Have fewer and smaller messages on the way, and try again in a moment.")
}

// withBusyReason adds the reason why the member accepts no new messages to a server-busy refusal, and the reason why the
// namespace may not store more to one because of that, if the reason is known.
func (c *conn) withBusyReason(code fsm.Code, cause refusal.Cause) refusal.Cause {
	if code == fsm.ServerBusy && c.config.BusyReason != nil {
		if reason := c.config.BusyReason(); reason != "" {
			cause.Text = reason
		}
	}
	if code == fsm.NamespaceFull && c.config.QuotaReason != nil {
		if reason := c.config.QuotaReason(c.credentials.Namespace()); reason != "" {
			cause.Text = reason
		}
	}
	return cause
}

// memoryChanged is called by the budget when the level of the connection changes. It must not block: the
// caller holds the mutex of the budget, and perhaps that of the connection.
func (c *conn) memoryChanged(level budget.Level) {
	if level == budget.Evicted {
		go c.closeForMemory()
		return
	}
	c.notify() // the writer restores credit
}

// restoreCredit grants the credit that was withheld while the account was restricted. mu is held.
func (c *conn) restoreCredit() {
	if !c.memory.creditWithheld || c.memory.restricted() {
		return
	}
	c.memory.creditWithheld = false
	for _, s := range c.sessions {
		for _, e := range s.links {
			if l, ok := e.(*incomingLink); ok && l.state == attached && l.kind == entityNode && l.credit.refill(1) {
				l.emitFlow()
			}
		}
	}
}

// closeForMemory closes the connection because it holds more than any other while memory is nearly used up.
// Its memory is released at once, before the peer has answered the close.
func (c *conn) closeForMemory() {
	ctx := context.Background()
	defer c.recovered(ctx)
	c.mu.Lock()
	held := c.heldBytes()
	c.unlock()
	if ok, before := c.refusalLog.Allow(c.origin, time.Now()); ok {
		c.log.WarnContext(ctx, "connection ended to free memory", "bytes", held, "not_logged", before)
	}
	c.fail(ctx, &wire.Error{Condition: wire.ConditionConnectionForced, Description: fmt.Sprintf(
		"The member is nearly out of memory, and this connection held more than its fair share of it: %d bytes. Have fewer and smaller messages on the way.", held)})
	c.mu.Lock()
	c.dropSessions()
	c.unlock()
	timer := time.NewTimer(closeWithin)
	defer timer.Stop()
	select {
	case <-c.written:
	case <-timer.C:
	}
	_ = c.peer.Close() // the peer may not read our close
}

// resolvePath asks the broker for an entity, and repeats the question for up to attachBusyMax while the broker is
// busy: an entity that was just created may be known to few members yet, and some clients do not attach again.
func (c *conn) resolvePath(ctx context.Context, path string) (fsm.EntityRef, error) {
	until := time.Now().Add(attachBusyMax)
	for pause := attachPauseMin; ; pause *= 2 {
		at, err := c.config.Broker.Resolve(ctx, c.credentials.Namespace(), path)
		if err == nil || refusal.CodeOf(err) != fsm.ServerBusy || time.Now().Add(pause).After(until) {
			return at, err
		}
		select {
		case <-time.After(pause):
		case <-c.failing:
			return at, err
		case <-ctx.Done():
			return at, err
		}
	}
}

// hasForeignOrigin reports whether a page of another host opened a connection.
func hasForeignOrigin(peer net.Conn) bool {
	page, ok := peer.(OriginConn)
	return ok && page.ForeignOrigin()
}

// tlsState returns the state of TLS; the zero value without TLS. A listener that terminates TLS below a
// connection wraps the connection in a type that has the state.
func tlsState(peer net.Conn) tls.ConnectionState {
	if t, ok := peer.(interface{ ConnectionState() tls.ConnectionState }); ok {
		return t.ConnectionState()
	}
	return tls.ConnectionState{}
}
