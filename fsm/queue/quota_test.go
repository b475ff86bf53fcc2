package queue

import (
	"fmt"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// TestCopiesCountAtTheirTopic: actions make 400 kB of each message of 5 bytes. A topic that they take above its maximum size
// publishes no further messages, and accepts none, until copies are gone.
func TestCopiesCountAtTheirTopic(t *testing.T) {
	t.Parallel()
	const messages, rules = 40, 100
	q := New(noBodies{})
	apply := testApply(q)
	s := fsm.DefaultSettings()
	s.MaxBytes = fsm.QueueBytesMin
	apply(1, fsm.PutEntity{Entity: 1, Version: 1, Kind: fsm.TopicEntity, Settings: s})
	apply(1, fsm.PutEntity{Entity: 2, Version: 1, Kind: fsm.SubscriptionEntity, Topic: 1, Settings: s})
	apply(1, fsm.DropRule{Subscription: 2, Name: fsm.DefaultRuleName})
	for i := range rules {
		apply(1, fsm.PutRule{Subscription: 2, Rule: fsm.Rule{Name: fmt.Sprint(i), Filter: fsm.RuleFilter{Kind: fsm.TrueFilter}, Action: fsm.SQLText{
			Text: "SET a = @p", Parameters: []filter.Parameter{{Name: "@p", Value: filter.Text(strings.Repeat("v", 4000))}},
		}}})
	}
	send := fsm.SendMessages{Entity: 1}
	for range messages {
		send.Messages = append(send.Messages, fsm.Message{Payload: []byte("small")})
	}
	if code := apply(1, send).Code; code != fsm.OK {
		t.Fatal(code)
	}
	held := q.byID[1].quotaBytes()
	if pending := q.byID[1].subs[fsm.MainQueue].ix.Count(fsm.Pending); held < s.MaxBytes || held > s.MaxBytes+messages*8192 || pending == 0 {
		t.Errorf("the topic holds %d bytes, %d messages wait; want little more than %d bytes", held, pending, s.MaxBytes)
	}
	if code := apply(1, send).Code; code != fsm.QuotaExceeded {
		t.Errorf("another send: %v, want %v", code, fsm.QuotaExceeded)
	}
	apply(2, fsm.Pulse{})
	if now := q.byID[1].quotaBytes(); now != held || q.NextDeadline().Wall != 0 {
		t.Errorf("a pulse made %d bytes of %d, the next one is due at %d", now, held, q.NextDeadline().Wall)
	}
	received := 0
	for q.byID[1].subs[fsm.MainQueue].ix.Total() > 0 {
		c := fsm.SettleMessages{Address: fsm.Address{Entity: 2}}
		for _, d := range apply(3, fsm.LockMessages{Address: c.Address, Max: 4000, MaxBytes: 1 << 20}).Deliveries {
			c.Settlements = append(c.Settlements, fsm.Settlement{Lock: d.Lock, Verb: fsm.Complete})
		}
		if len(c.Settlements) == 0 {
			t.Fatalf("nothing is left to receive, and %d messages are at the topic", q.byID[1].subs[fsm.MainQueue].ix.Total())
		}
		apply(3, c)
		received += len(c.Settlements)
		if q.NextDeadline().Wall != 0 {
			apply(3, fsm.Pulse{})
		}
	}
	if received != messages*rules || q.byID[1].quotaBytes() != 0 {
		t.Errorf("%d copies were received, want %d; the topic holds %d bytes, want none", received, messages*rules, q.byID[1].quotaBytes())
	}
}

// TestPropertiesOfSettlementsCount: properties that settlements add count in the maximum size. What adds none, and what
// removes the message, is never refused.
func TestPropertiesOfSettlementsCount(t *testing.T) {
	t.Parallel()
	q := New(noBodies{})
	apply := testApply(q)
	s := fsm.DefaultSettings()
	s.MaxBytes = fsm.QueueBytesMin
	apply(1, fsm.PutEntity{Entity: 1, Version: 1, Settings: s})
	apply(1, fsm.SendMessages{Entity: 1, Messages: make([]fsm.Message, 100)})
	at := fsm.Address{Entity: 1}
	locks := apply(1, fsm.LockMessages{Address: at, Max: 100, MaxBytes: 1 << 20}).Deliveries
	settle := func(i int, verb fsm.Verb, properties int) fsm.Code {
		return apply(1, fsm.SettleMessages{Address: at, Settlements: []fsm.Settlement{{Lock: locks[i].Lock, Verb: verb, Properties: make([]byte, properties)}}}).Codes[0]
	}
	kept := 0
	for settle(kept, fsm.Defer, 60_000) == fsm.OK {
		kept++
	}
	if want := fsm.QueueBytesMin / 60_000; kept != want {
		t.Errorf("%d messages got properties, want %d", kept, want)
	}
	for i, verb := range []fsm.Verb{fsm.Abandon, fsm.Defer, fsm.DeadLetter} {
		if code := settle(kept, verb, 60_000); code != fsm.QuotaExceeded {
			t.Errorf("verb %d with properties: %v, want %v", verb, code, fsm.QuotaExceeded)
		}
		if code := settle(kept+1+i, verb, 0); code != fsm.OK {
			t.Errorf("verb %d without properties: %v", verb, code)
		}
	}
	if code := settle(kept, fsm.Complete, 60_000); code != fsm.OK {
		t.Errorf("completing with properties: %v", code)
	}
}
