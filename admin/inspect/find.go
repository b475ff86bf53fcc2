package inspect

import (
	"context"
	"fmt"
	"time"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/amqp/account"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/evaluate"
	"github.com/peeklock/peeklock/topology"
)

// Limits of one request. A request that reaches one of them answers with the number to go on from.
const (
	lookMessagesMax = 20_000            // messages that it looks at
	lookBytesMax    = 64 << 20          // bytes of their payloads
	lookStepsMax    = 200_000_000       // steps of its filter: about a second
	lookTimeMax     = 5 * time.Second   // from its first peek on
	whereStepsMax   = evaluate.StepsMax // of its filter for one message, as of a rule
	pageMessagesMax = 500               // of one peek
	pageBytesMax    = 1 << 20           // of one peek; its first message may be larger
	scansMax        = account.ScansMax  // requests at the same time; further ones are refused with ServerBusy
	scanWithin      = 2 * time.Second   // how long a request waits for messages that others of its key hold in memory
	// AnswerBytesMax bounds all messages of an answer; the first is answered whatever its size.
	AnswerBytesMax  = 8 << 20
	copiesOfMessage = 3 // of a message: as it is stored, encoded, and in JSON
)

// Broker is the interface of a Finder to the cluster: the methods of the same names of the gateway's Broker.
type Broker interface {
	Changer
	SessionBroker

	Resolve(ctx context.Context, namespace fsm.NamespaceID, path string) (fsm.EntityRef, error)
	Peek(ctx context.Context, at fsm.EntityRef, from fsm.SequenceNumber, max, maxBytes int) ([]fsm.Delivery, error)
	PeekSession(ctx context.Context, at fsm.EntityRef, session string, from fsm.SequenceNumber, max, maxBytes int) ([]fsm.Delivery, error)
}

// Changer is the interface of a Finder to what changes messages in the cluster.
type Changer interface {
	// Redrive moves ready dead letters back, and skips other numbers.
	Redrive(ctx context.Context, at fsm.EntityRef, sequences []fsm.SequenceNumber) (int, error)
	// SettleUnlocked settles messages that nobody has locked, and skips other numbers.
	SettleUnlocked(ctx context.Context, at fsm.EntityRef, sequences []fsm.SequenceNumber, verb fsm.Verb, states fsm.StateSet) (int, error)
	FetchReady(at fsm.EntityRef, seen []fsm.LockID, receiveAndDelete bool, done func(fsm.Code, []fsm.Delivery))
	Settle(at fsm.EntityRef, settlements []fsm.Settlement, done func([]fsm.Code))
	Transact(tx fsm.Transaction, done func(fsm.Code))
}

// SessionBroker is the interface of a Finder to the sessions of the cluster.
type SessionBroker interface {
	// StateOfSession returns the state of a session, nil for none, whether or not a receiver holds the session.
	StateOfSession(ctx context.Context, at fsm.EntityRef, session string) ([]byte, error)
	// SetStateOfSession sets the state of a session; nil removes it.
	SetStateOfSession(ctx context.Context, at fsm.EntityRef, session string, state []byte) error
	// ReleaseSession ends the lock of a session, and reports whether there was one.
	ReleaseSession(ctx context.Context, at fsm.EntityRef, session string) (released bool, err error)
}

// Finder finds messages.
type Finder struct {
	// LockHolders returns which connections hold the locks of messages; nil: that is not known. It is set before the first use.
	LockHolders func(context.Context, topology.LockQuery) []topology.LockHolder

	broker Broker
	scans  chan struct{} // one token per request in flight
}

// New returns a Finder.
func New(broker Broker) *Finder { return &Finder{broker: broker, scans: make(chan struct{}, scansMax)} }

// Place is an entity by name.
type Place struct {
	Namespace fsm.NamespaceID
	Name      string // of a queue, topic or subscription
	// Account is that of the caller, who may hold at most as much as is free; nil: nobody's, as for an operator.
	Account *account.Account
}

// scan is a search in progress.
type scan struct {
	broker  Broker
	at      fsm.EntityRef
	matcher matcher
	most    int // messages to find
	visit   func(d *fsm.Delivery) (full bool, err error)

	found, looked int
	bytes         int
	steps         uint64
	deadline      time.Time
	next          fsm.SequenceNumber // the first that it has not looked at
	ended         bool               // there are no further messages
}

// open begins a scan, and returns what ends it. Errors wrap an fsm.Code.
func (f *Finder) open(ctx context.Context, at Place, selection *api.Selection) (s *scan, release func(), err error) {
	c, err := newCondition(selection)
	if err != nil {
		return nil, nil, err
	}
	ref, err := f.broker.Resolve(ctx, at.Namespace, at.Name)
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // admin names the entity
	}
	if c.session != nil && !ref.Settings.RequiresSession && c.sub == fsm.MainQueue {
		return nil, nil, fmt.Errorf("%w: '%s' has no sessions: it was created without requiresSession", fsm.NotAllowed, at.Name)
	}
	ref.Sub = c.sub
	largest, err := f.largestMessage(ctx, at.Namespace, &ref)
	if err != nil {
		return nil, nil, err
	}
	release, err = f.admit(ctx, at.Account, pageBytesMax+copiesOfMessage*largest+AnswerBytesMax)
	if err != nil {
		return nil, nil, err
	}
	return &scan{broker: f.broker, at: ref, matcher: matcher{condition: c}, deadline: time.Now().Add(lookTimeMax)}, release, nil
}

// admit waits until a request may hold messages of so many bytes, and returns what ends that. Errors wrap fsm.ServerBusy.
func (f *Finder) admit(ctx context.Context, of *account.Account, bytes int64) (release func(), err error) {
	refusal := func(r account.Resource) error { return fmt.Errorf("%w: %s", fsm.ServerBusy, of.Refusal(r)) }
	if !of.Wait(ctx, account.ScanBytes, bytes, scanWithin) {
		return nil, refusal(account.ScanBytes)
	}
	if !of.Take(account.Scans, 1) {
		of.Release(account.ScanBytes, bytes)
		return nil, refusal(account.Scans)
	}
	select {
	case f.scans <- struct{}{}:
	default:
		of.Release(account.Scans, 1)
		of.Release(account.ScanBytes, bytes)
		return nil, fmt.Errorf("%w: this member searches for %d requests already: try again", fsm.ServerBusy, scansMax)
	}
	return func() {
		<-f.scans
		of.Release(account.Scans, 1)
		of.Release(account.ScanBytes, bytes)
	}, nil
}

// largestMessage returns how large a message of an entity can be, in bytes. A peek returns one message at least, whatever its
// size. Messages that are larger because the limit of the entity was lowered later are not considered.
func (f *Finder) largestMessage(ctx context.Context, namespace fsm.NamespaceID, at *fsm.EntityRef) (int64, error) {
	if topic, _, ok := fsm.SplitSubscriptionPath(at.Name); ok && at.Kind == fsm.SubscriptionEntity {
		ref, err := f.broker.Resolve(ctx, namespace, topic)
		if err != nil {
			return 0, err //nolint:wrapcheck // admin names the entity
		}
		return int64(ref.Settings.MaxMessageBytes), nil
	}
	return int64(at.Settings.MaxMessageBytes), nil
}

// run looks at messages from a number on, until most are found, visit says that it is full, a limit is reached, or there are
// no more.
func (s *scan) run(ctx context.Context, from fsm.SequenceNumber) error {
	s.next = from
	if len(s.matcher.numbers) > 0 {
		return s.byNumber(ctx)
	}
	if s.matcher.session != nil && s.at.Sub == fsm.MainQueue {
		return s.pages(ctx, func(ctx context.Context, from fsm.SequenceNumber) ([]fsm.Delivery, error) {
			return s.broker.PeekSession(ctx, s.at, *s.matcher.session, from, pageMessagesMax, pageBytesMax)
		})
	}
	shards := len(s.at.Shards)
	if shards == 0 {
		return s.pages(ctx, s.peek(s.at))
	}
	for shard := s.next.Shard(); shard < shards && !s.full(); shard++ {
		part := s.at
		part.Shards = part.Shards[:shard+1] // a peek goes on with the shards behind: there are none
		if first := fsm.SequenceNumber(shard) << fsm.ShardShift; s.next < first {
			s.next = first
		}
		if err := s.pages(ctx, s.peek(part)); err != nil {
			return err
		}
		if s.ended && shard < shards-1 {
			s.ended = false
		}
	}
	s.ended = s.ended || s.next.Shard() >= shards
	return nil
}

func (s *scan) peek(at fsm.EntityRef) func(context.Context, fsm.SequenceNumber) ([]fsm.Delivery, error) {
	return func(ctx context.Context, from fsm.SequenceNumber) ([]fsm.Delivery, error) {
		return s.broker.Peek(ctx, at, from, pageMessagesMax, pageBytesMax)
	}
}

// pages looks at page after page.
func (s *scan) pages(ctx context.Context, peek func(context.Context, fsm.SequenceNumber) ([]fsm.Delivery, error)) error {
	for !s.full() {
		page, err := peek(ctx, s.next)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			s.ended = true
			return nil
		}
		for i := range page {
			if s.full() {
				return nil
			}
			if err := s.look(&page[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// byNumber looks at the messages with the numbers of the condition, from next on.
func (s *scan) byNumber(ctx context.Context) error {
	for _, n := range s.matcher.numbers {
		if n < s.next {
			continue
		}
		if s.full() {
			return nil
		}
		found, err := s.broker.Peek(ctx, s.at, n, 1, pageBytesMax)
		if err != nil {
			return err
		}
		s.next = n + 1
		if len(found) == 0 || found[0].Lock.Sequence != n {
			s.looked++
			continue
		}
		if err := s.look(&found[0]); err != nil {
			return err
		}
	}
	s.ended = true
	return nil
}

// full reports whether a limit is reached. A scan looks at one message at least.
func (s *scan) full() bool {
	return s.found >= s.most || s.looked > 0 &&
		(s.looked >= lookMessagesMax || s.bytes >= lookBytesMax || s.steps >= lookStepsMax || !time.Now().Before(s.deadline))
}

// look looks at one message. If visit has no space for it, the scan goes on from it.
func (s *scan) look(d *fsm.Delivery) error {
	s.looked++
	s.bytes += len(d.Payload) + len(d.Patches)
	ok, steps, err := s.matcher.matches(&s.at, d)
	s.steps += steps
	if err != nil {
		return err
	}
	if ok {
		full, err := s.visit(d)
		if err != nil {
			return err
		}
		if full {
			s.most = s.found
			return nil
		}
		s.found++
	}
	s.next = d.Lock.Sequence + 1
	return nil
}
