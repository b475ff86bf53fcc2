package inspect_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/inspect"
	"github.com/peeklock/peeklock/amqp/account"
	"github.com/peeklock/peeklock/amqp/jsonmessage"
	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/fsm"
)

// fakeBroker is a Broker with the messages of one entity in memory.
type fakeBroker struct {
	inspect.Changer       // nil: no test here changes messages
	inspect.SessionBroker // nil

	at       fsm.EntityRef
	messages []fsm.Delivery // ascending
	fails    error
	hold     chan struct{} // if set, a peek waits for it
}

func (b *fakeBroker) Resolve(context.Context, fsm.NamespaceID, string) (fsm.EntityRef, error) {
	return b.at, b.fails
}

func (b *fakeBroker) Peek(ctx context.Context, at fsm.EntityRef, from fsm.SequenceNumber, most, maxBytes int) ([]fsm.Delivery, error) {
	if b.hold != nil {
		select {
		case <-b.hold:
		case <-ctx.Done():
			return nil, fsm.Timeout
		}
	}
	var found []fsm.Delivery
	for i := range b.messages {
		d := b.messages[i]
		if d.Lock.Sequence < from || len(at.Shards) > 0 && d.Lock.Sequence.Shard() >= len(at.Shards) {
			continue
		}
		if len(found) == most || len(found) > 0 && len(d.Payload) > maxBytes {
			break
		}
		maxBytes -= len(d.Payload)
		found = append(found, d)
	}
	return found, nil
}

func (b *fakeBroker) PeekSession(ctx context.Context, at fsm.EntityRef, session string, from fsm.SequenceNumber, most, maxBytes int) ([]fsm.Delivery, error) {
	all, err := b.Peek(ctx, at, from, 1<<30, 1<<40)
	return slices.DeleteFunc(all, func(d fsm.Delivery) bool { return !strings.Contains(string(d.Payload), session) })[:min(most, 1)], err
}

const enqueued = fsm.Instant(1795176000000)

// add adds a message in its JSON form.
func (b *fakeBroker) add(t *testing.T, text string, change func(*fsm.Delivery)) {
	t.Helper()
	var m jsonmessage.Message
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	encoded, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var buffer []byte
	stored, err := message.ParseWithID(&buffer, encoded)
	if err != nil {
		t.Fatal(err)
	}
	d := fsm.Delivery{Lock: fsm.LockID{Sequence: fsm.SequenceNumber(len(b.messages) + 1)}, State: fsm.Ready, Enqueued: enqueued, Payload: slices.Clone(stored.Payload)}
	if change != nil {
		change(&d)
	}
	b.messages = append(b.messages, d)
}

// numbers returns the numbers of the messages of a selection, page by page.
func numbers(t *testing.T, b *fakeBroker, s api.Selection, most int) (found []int) {
	t.Helper()
	finder := inspect.New(b)
	for from := fsm.SequenceNumber(0); ; {
		page, err := finder.Peek(t.Context(), inspect.Place{Name: "orders"}, &s, from, most, 100)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Messages {
			found = append(found, int(page.Messages[i].SequenceNumber))
		}
		if page.End {
			return found
		}
		if page.Next <= from {
			t.Fatalf("the page from %d on goes on from %d", from, page.Next)
		}
		from = page.Next
	}
}

// TestSelections checks every condition, alone and together, in pages of one and of many messages.
func TestSelections(t *testing.T) {
	t.Parallel()
	b := &fakeBroker{at: fsm.EntityRef{Entity: fsm.Entity{ID: 7, Name: "Orders", Settings: fsm.EntitySettings{RequiresSession: true}}}}
	b.add(t, `{"body":"{\"customer\":{\"id\":7},\"tags\":[\"x\",\"y\"]}","sessionId":"red","subject":"order","properties":{"size":{"int":7}}}`, nil)
	b.add(t, `{"body":"plain Berlin","sessionId":"blue"}`, func(d *fsm.Delivery) { d.State, d.LockedUntil, d.FailedDeliveries = fsm.Locked, enqueued+1, 3 })
	b.add(t, `{"value":"a value of Berlin","properties":{"DeadLetterReason":"late"}}`, func(d *fsm.Delivery) { d.State, d.Enqueued = fsm.Deferred, enqueued-5000 })
	b.add(t, `{"data":["QmVy","bGlu"],"properties":{"flag":true}}`, func(d *fsm.Delivery) { d.State = fsm.Scheduled })
	b.add(t, `{"sequence":[[{"int":1},"Berlin"]]}`, nil)
	red, soon := "red", time.UnixMilli(int64(enqueued))
	for name, c := range map[string]struct {
		s    api.Selection
		want []int
	}{
		"all":               {api.Selection{}, []int{1, 2, 3, 4, 5}},
		"active":            {api.Selection{States: []string{"active"}}, []int{1, 2, 5}},
		"locked":            {api.Selection{States: []string{"locked"}}, []int{2}},
		"several states":    {api.Selection{States: []string{"deferred", "scheduled"}}, []int{3, 4}},
		"numbers":           {api.Selection{Sequences: []fsm.SequenceNumber{9, 4, 1, 4}}, []int{1, 4}},
		"numbers and where": {api.Selection{Sequences: []fsm.SequenceNumber{1, 2}, Where: "size = 7"}, []int{1}},
		"where":             {api.Selection{Where: "size = 7 AND sys.Label = 'order'"}, []int{1}},
		"where state":       {api.Selection{Where: "sys.State = 'Deferred'"}, []int{3}},
		"where deliveries":  {api.Selection{Where: "sys.DeliveryCount > 2 AND sys.SequenceNumber = 2"}, []int{2}},
		"contains":          {api.Selection{Contains: "Berlin"}, []int{2, 3, 4, 5}},
		"path":              {api.Selection{Path: "$.customer.id"}, []int{1}},
		"path and value":    {api.Selection{Path: "$.customer.id=7"}, []int{1}},
		"path and other":    {api.Selection{Path: "$.customer.id='7'"}, nil},
		"path and index":    {api.Selection{Path: "$['tags'][1]=y"}, []int{1}},
		"reason":            {api.Selection{Reason: "late"}, []int{3}},
		"part of reason":    {api.Selection{Reason: "lat"}, nil},
		"all must match":    {api.Selection{Reason: "late", Contains: "nothing"}, nil},
		"before":            {api.Selection{Before: &soon}, []int{3}},
		"both":              {api.Selection{Contains: "Berlin", States: []string{"scheduled"}}, []int{4}},
		"dead letters":      {api.Selection{SubQueue: "deadLetter", Session: &red}, []int{1}},
		"source":            {api.Selection{SubQueue: "deadLetter", Where: "sys.DeadLetterSource = 'orders' AND size = 7"}, []int{1}},
	} {
		for _, most := range []int{1, 2, 1000} {
			if got := numbers(t, b, c.s, most); !slices.Equal(got, c.want) {
				t.Errorf("%s, %d a page: got %v, want %v", name, most, got, c.want)
			}
		}
	}
}

// TestInvalidSelections are refused with what to do.
func TestInvalidSelections(t *testing.T) {
	t.Parallel()
	session := strings.Repeat("x", fsm.SessionIDBytesMax+1)
	one := "s"
	for want, s := range map[string]api.Selection{
		"subQueue is main":             {SubQueue: "dead"},
		"a state is active":            {States: []string{"lost"}},
		"at most 1000 sequence":        {Sequences: make([]fsm.SequenceNumber, 1001)},
		"contains has at most":         {Contains: strings.Repeat("x", 1025)},
		"reason has at most":           {Reason: strings.Repeat("x", 4097)},
		"a session id has at most":     {Session: &session},
		"where: ":                      {Where: "size = = 7"},
		"want a path such as":          {Path: "customer"},
		"has no sessions":              {Session: &one},
		"the expression fails for the": {Where: "1/0 = 1"},
	} {
		b := &fakeBroker{}
		b.add(t, `{}`, nil)
		_, err := inspect.New(b).Peek(t.Context(), inspect.Place{Name: "orders"}, &s, 0, 1, 1)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestRequestsAreBounded: a request that finds nothing ends after 20,000 messages with the number to go on from, a fifth
// request at the same time is refused, and one that has used up its time stops.
func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &fakeBroker{}
		b.add(t, `{"body":"x"}`, nil)
		for len(b.messages) < 20_100 {
			d := b.messages[0]
			d.Lock.Sequence = fsm.SequenceNumber(len(b.messages) + 1)
			b.messages = append(b.messages, d)
		}
		finder, place := inspect.New(b), inspect.Place{Name: "orders"}
		page, err := finder.Peek(t.Context(), place, &api.Selection{Contains: "nothing"}, 0, 1, 1)
		if err != nil || page.Looked != 20_000 || page.Next != 20_001 || page.End {
			t.Errorf("got %d messages, next %d, end %v, %v: want 20000, 20001, no end", page.Looked, page.Next, page.End, err)
		}
		b.hold = make(chan struct{})
		var requests sync.WaitGroup
		for range 4 {
			requests.Go(func() {
				if page, err := finder.Peek(t.Context(), place, &api.Selection{Contains: "nothing"}, 0, 1, 1); err != nil || page.Looked != 1 || page.End {
					t.Errorf("after the time was used up: %d messages, end %v, %v: want 1, no end", page.Looked, page.End, err)
				}
			})
		}
		synctest.Wait()
		if _, err := finder.Peek(t.Context(), place, &api.Selection{}, 0, 1, 1); !errors.Is(err, fsm.ServerBusy) {
			t.Errorf("a fifth request: got %v, want %v", err, fsm.ServerBusy)
		}
		<-time.After(6 * time.Second)
		b.messages = b.messages[:2]
		close(b.hold)
		requests.Wait()
	})
}

// TestKeysShareTheSearches: one key gets half of the searches and waits for the memory of large messages, and a second key
// gets in meanwhile.
func TestKeysShareTheSearches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const large = 100 << 20
		accounts := account.New(account.For(8 * 3 * large)) // ScanBytes: the messages of one search, and some
		greedy, second := accounts.Open(account.Owner{Namespace: 1, Key: "a"}), accounts.Open(account.Owner{Namespace: 1, Key: "b"})
		b := &fakeBroker{hold: make(chan struct{})}
		b.add(t, `{"body":"x"}`, nil)
		finder := inspect.New(b)
		peek := func(of *account.Account) error {
			_, err := finder.Peek(t.Context(), inspect.Place{Name: "orders", Account: of}, &api.Selection{}, 0, 1, 1)
			return err
		}
		var requests sync.WaitGroup
		begin := func(of *account.Account) {
			requests.Go(func() {
				if err := peek(of); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		begin(greedy)
		begin(greedy)
		if err := peek(greedy); !errors.Is(err, fsm.ServerBusy) || !strings.Contains(err.Error(), "requests that look at messages") {
			t.Errorf("a third search of one key: %v", err)
		}
		begin(second)
		if held := greedy.Held(account.ScanBytes); held < 2<<20 || accounts.Used(account.Scans) != 3 {
			t.Errorf("%d bytes are held by a key, and %d searches in progress", held, accounts.Used(account.Scans))
		}
		close(b.hold)
		requests.Wait()
		b.hold = make(chan struct{})
		b.at.Settings.MaxMessageBytes = large
		begin(greedy)
		began := time.Now()
		if err := peek(greedy); !errors.Is(err, fsm.ServerBusy) || !strings.Contains(err.Error(), "bytes of messages") || time.Since(began) < time.Second {
			t.Errorf("a second search for large messages, after %s: %v", time.Since(began), err)
		}
		close(b.hold)
		requests.Wait()
		if err := peek(greedy); err != nil || accounts.Used(account.ScanBytes) != 0 || accounts.Used(account.Scans) != 0 {
			t.Errorf("afterwards: %v, %d bytes held", err, accounts.Used(account.ScanBytes))
		}
	})
}

// TestAnswersAreBounded: bodies are cut, and an answer ends before it is too large.
func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	b := &fakeBroker{}
	for range 3 {
		b.add(t, fmt.Sprintf(`{"body":%q}`, strings.Repeat("x", 4<<20)), nil)
	}
	finder := inspect.New(b)
	page, err := finder.Peek(t.Context(), inspect.Place{Name: "orders"}, &api.Selection{}, 0, 10, inspect.PeekBodyMax)
	if err != nil || len(page.Messages) != 1 || page.Next != 2 || page.End {
		t.Errorf("got %d messages, next %d, %v: want 1, 2", len(page.Messages), page.Next, err)
	}
	page, err = finder.Peek(t.Context(), inspect.Place{Name: "orders"}, &api.Selection{}, 0, 10, 5)
	if err != nil || len(page.Messages) != 3 || !page.End || *page.Messages[0].Body != "xxxxx" || !page.Messages[0].BodyCut || page.Messages[0].BodyBytes != 4<<20 {
		t.Errorf("got %d messages, %v", len(page.Messages), err)
	}
}

// TestShardsAreSearchedOneByOne: a shard whose leader does not answer is an error, not an end.
func TestShardsAreSearchedOneByOne(t *testing.T) {
	t.Parallel()
	b := &fakeBroker{at: fsm.EntityRef{Entity: fsm.Entity{Shards: make([]fsm.Shard, 3)}}}
	for _, number := range []fsm.SequenceNumber{4, 9, 2<<fsm.ShardShift | 5} {
		b.add(t, `{}`, func(d *fsm.Delivery) { d.Lock.Sequence = number })
	}
	for _, most := range []int{1, 2, 3, 100} {
		if got, want := numbers(t, b, api.Selection{}, most), []int{4, 9, 2<<fsm.ShardShift | 5}; !slices.Equal(got, want) {
			t.Errorf("%d a page: got %v, want %v", most, got, want)
		}
	}
}
