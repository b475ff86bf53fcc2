package message

import (
	"bytes"
	"encoding/hex"
	"errors"
	"slices"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// sentFields returns a message with first-acquirer and with delivery annotations of its sender.
func sentFields(annotations wire.Map) []byte {
	b := wire.AppendHeader(nil, &wire.Header{FirstAcquirer: ptr(true)})
	b = section(b, wire.SectionDeliveryAnnotations, annotations)
	return section(b, wire.SectionData, []byte("x"))
}

// A receiver that is the first to acquire a message learns that if the sender set first-acquirer. A peek acquires
// nothing, and neither does a delivery count make a message acquired: one that was released comes with count 0.
func TestFirstAcquirerIsTrueAtTheFirstDelivery(t *testing.T) {
	t.Parallel()
	marked := sentFields(wire.Map{})
	plain := section(nil, wire.SectionData, []byte("x"))
	for name, c := range map[string]struct {
		encoded []byte
		locks   uint32
		o       DeliveryOptions
		want    bool
	}{
		"first delivery":            {encoded: marked, locks: 1, want: true},
		"second delivery":           {encoded: marked, locks: 2},
		"peeked, never locked":      {encoded: marked, o: DeliveryOptions{Peeked: true}, want: true},
		"peeked, locked before":     {encoded: marked, locks: 1, o: DeliveryOptions{Peeked: true}},
		"not set by the sender":     {encoded: plain, locks: 1},
		"not set, second delivery":  {encoded: plain, locks: 2},
		"not set, and never locked": {encoded: plain, o: DeliveryOptions{Peeked: true}},
	} {
		m := deliver(t, c.encoded, fsm.Delivery{Lock: fsm.LockID{Sequence: 1, Epoch: c.locks}}, c.o)
		if m.Header.FirstAcquirer != c.want {
			t.Errorf("%s: first-acquirer is %v, want %v", name, m.Header.FirstAcquirer, c.want)
		}
	}
}

// A delivery has the delivery annotations of the sender, but not its lock token, which is the one of a delivery that
// the sender received; the broker writes the token of this one.
func TestDeliveryAnnotationsOfTheSenderAreDelivered(t *testing.T) {
	t.Parallel()
	encoded := sentFields(wire.Map{
		{Key: wire.Symbol("x-for-you"), Value: "only"},
		{Key: wire.Symbol(lockTokenKey), Value: wire.UUID{9}},
		{Key: "as string", Value: int64(3)},
		{Key: int32(5), Value: "a key of a wrong type"},
	})
	token := fsm.LockToken{1}
	own := goamqp.Annotations{"x-for-you": "only", "as string": int64(3)}
	with := goamqp.Annotations{lockTokenKey: goamqp.UUID(UUIDFromToken(token))}
	for key, value := range own {
		with[key] = value
	}
	for name, c := range map[string]struct {
		o    DeliveryOptions
		want goamqp.Annotations
	}{
		"under a lock":         {DeliveryOptions{LockToken: &token}, with},
		"received and deleted": {DeliveryOptions{}, own},
		"peeked":               {DeliveryOptions{Peeked: true}, own},
	} {
		got := deliver(t, encoded, fsm.Delivery{Lock: fsm.LockID{Sequence: 1}}, c.o).DeliveryAnnotations
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
	foreign := sentFields(wire.Map{{Key: wire.Symbol(lockTokenKey), Value: wire.UUID{9}}})
	if got := deliver(t, foreign, fsm.Delivery{}, DeliveryOptions{Peeked: true}).DeliveryAnnotations; got != nil {
		t.Errorf("peeked: delivery annotations %v, want none", got)
	}
	if got := deliver(t, foreign, fsm.Delivery{}, DeliveryOptions{}).DeliveryAnnotations; got == nil || len(got) != 0 {
		t.Errorf("received and deleted: delivery annotations %v, want an empty section", got)
	}
}

// Python's live tests compare the size of a delivery: durable and first-acquirer that were not sent are left out. A false
// that was sent is delivered.
func TestHeaderOfADeliveryHasWhatWasSent(t *testing.T) {
	t.Parallel()
	body := section(nil, wire.SectionData, []byte("x"))
	sentFalse := append(wire.AppendHeader(nil, &wire.Header{Durable: ptr(false), FirstAcquirer: ptr(false)}), body...)
	sentTrue := append(wire.AppendHeader(nil, &wire.Header{Durable: ptr(true), FirstAcquirer: ptr(true)}), body...)
	for name, c := range map[string]struct {
		encoded []byte
		locks   uint32
		want    []byte // durable, priority, ttl, first-acquirer, delivery-count
	}{
		"not sent":              {body, 1, []byte{0x40, 0x40, 0x40, 0x40, 0x43}},
		"false":                 {sentFalse, 1, []byte{0x42, 0x40, 0x40, 0x42, 0x43}},
		"true":                  {sentTrue, 1, []byte{0x41, 0x40, 0x40, 0x41, 0x43}},
		"true, second delivery": {sentTrue, 2, []byte{0x41, 0x40, 0x40, 0x40, 0x43}},
	} {
		m := kit.Must(Parse(c.encoded))(t)
		out, err := AppendDelivery(nil, testPlace(), fsm.Delivery{Lock: fsm.LockID{Sequence: 1, Epoch: c.locks}, Payload: m.Payload}, DeliveryOptions{})
		want := append([]byte{0x00, 0x53, 0x70, 0xc0, 0x06, 0x05}, c.want...)
		if err != nil || !bytes.HasPrefix(out, want) {
			t.Errorf("%s: %x (%v), want a header %x", name, out, err, want)
		}
	}
}

// A message that its sender scheduled has the state scheduled in every delivery and peek, in subscriptions and after
// forwarding too; a deferred one is deferred. One that was abandoned with a delivery time is scheduled until then only.
func TestStateOfADeliveredMessage(t *testing.T) {
	t.Parallel()
	body := section(nil, wire.SectionData, []byte("x"))
	scheduled := append(section(nil, wire.SectionMessageAnnotations, wire.Map{{Key: wire.Symbol(ScheduledEnqueueTimeKey), Value: time.UnixMilli(5)}}), body...)
	copied := fsm.AppendPatches(nil, []fsm.Patch{{Enqueued: 2, Source: "a"}})
	for name, c := range map[string]struct {
		encoded []byte
		d       fsm.Delivery
		o       DeliveryOptions
		want    any // nil: none
	}{
		"sent":                      {encoded: body, d: fsm.Delivery{State: fsm.Locked}},
		"sent, peeked":              {encoded: body, o: DeliveryOptions{Peeked: true}, want: messageStateActive},
		"scheduled, waiting":        {encoded: scheduled, d: fsm.Delivery{State: fsm.Scheduled}, o: DeliveryOptions{Peeked: true}, want: messageStateScheduled},
		"scheduled, due and locked": {encoded: scheduled, d: fsm.Delivery{State: fsm.Locked}, want: messageStateScheduled},
		"scheduled, due and peeked": {encoded: scheduled, o: DeliveryOptions{Peeked: true}, want: messageStateScheduled},
		"scheduled, then copied":    {encoded: scheduled, d: fsm.Delivery{Topic: 4, Patches: copied}, want: messageStateScheduled},
		"scheduled, then deferred":  {encoded: scheduled, d: fsm.Delivery{State: fsm.Deferred}, want: messageStateDeferred},
		"abandoned with a delay":    {encoded: body, d: fsm.Delivery{State: fsm.Scheduled}, o: DeliveryOptions{Peeked: true}, want: messageStateScheduled},
	} {
		if got := deliver(t, c.encoded, c.d, c.o).Annotations[messageStateKey]; got != c.want {
			t.Errorf("%s: state %v, want %v", name, got, c.want)
		}
	}
}

// Sections may come in any order, and are stored in that of the specification. A body of two kinds is kept as it was sent.
func TestSectionsInAnyOrderAreStoredInOne(t *testing.T) {
	t.Parallel()
	priority := uint8(3)
	sections := [][]byte{
		wire.AppendHeader(nil, &wire.Header{Priority: &priority}),
		section(nil, wire.SectionDeliveryAnnotations, wire.Map{{Key: wire.Symbol("x-for-you"), Value: "only"}}),
		section(nil, wire.SectionMessageAnnotations, wire.Map{{Key: wire.Symbol("x-opt-custom"), Value: "kept"}}),
		section(nil, wire.SectionProperties, []any{"id"}),
		section(nil, wire.SectionApplicationProperties, wire.Map{{Key: "a", Value: "b"}}),
		section(section(nil, wire.SectionData, []byte("one")), wire.SectionValue, "two"),
		section(nil, wire.SectionFooter, wire.Map{{Key: wire.Symbol("f"), Value: "g"}}),
	}
	want := kit.Must(Parse(slices.Concat(sections...)))(t)
	for i := range sections {
		for k := range sections {
			moved := slices.Insert(slices.Concat(sections[:i], sections[i+1:]), k, sections[i])
			got, err := Parse(slices.Concat(moved...))
			if err != nil {
				t.Errorf("section %d at %d: %v", i, k, err)
				continue
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("section %d at %d: %s", i, k, diff)
			}
		}
	}
	both := deliver(t, slices.Concat(sections...), fsm.Delivery{}, DeliveryOptions{})
	if len(both.Data) != 1 || string(both.Data[0]) != "one" || both.Value != "two" {
		t.Errorf("delivered data %q and value %v, want both kinds of body", both.Data, both.Value)
	}
	if _, err := ParseBatch(slices.Concat(batch(sections[5]), sections[3], sections[0])); err != nil {
		t.Errorf("a batch whose envelope comes last: %v", err)
	}
}

// Java's client reads keys of a footer as symbols only; clients for JavaScript send strings.
func TestFooterKeysAreDeliveredAsSymbols(t *testing.T) {
	t.Parallel()
	body := section(nil, wire.SectionData, []byte("x"))
	for name, c := range map[string]struct{ sent, want wire.Map }{
		"symbol": {wire.Map{{Key: wire.Symbol("k"), Value: "v"}}, wire.Map{{Key: wire.Symbol("k"), Value: "v"}}},
		"string": {wire.Map{{Key: "k", Value: "v"}, {Key: "l", Value: int64(1)}}, wire.Map{{Key: wire.Symbol("k"), Value: "v"}, {Key: wire.Symbol("l"), Value: int64(1)}}},
		"ulong":  {wire.Map{{Key: uint64(68), Value: "v"}, {Key: "D", Value: "w"}}, wire.Map{{Key: uint64(68), Value: "v"}, {Key: wire.Symbol("D"), Value: "w"}}},
		"empty":  {wire.Map{}, wire.Map{}},
	} {
		m, err := Parse(section(bytes.Clone(body), wire.SectionFooter, c.sent))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if want := section(nil, wire.SectionFooter, c.want); !bytes.HasSuffix(m.Payload, append(bytes.Clone(body), want...)) {
			t.Errorf("%s: stored %x, want a footer %x", name, m.Payload, want)
		}
	}
}

// The Python client writes delivery annotations behind the body, and has them when it sends on what it received.
func TestDeliveryAnnotationsBehindTheBodyAreAccepted(t *testing.T) {
	t.Parallel()
	annotations := section(nil, wire.SectionDeliveryAnnotations, wire.Map{{Key: wire.Symbol("x-own"), Value: "last"}})
	body, footer := section(nil, wire.SectionData, []byte("x")), section(nil, wire.SectionFooter, wire.Map{})
	m := deliver(t, slices.Concat(body, footer, annotations), fsm.Delivery{}, DeliveryOptions{})
	if m.DeliveryAnnotations["x-own"] != "last" || len(m.Data) != 1 || m.Footer == nil {
		t.Errorf("delivered as %+v", m)
	}
	if _, err := Parse(slices.Concat(annotations, body, annotations)); err == nil {
		t.Error("two sections of delivery annotations were accepted")
	}
	if _, err := ParseBatch(slices.Concat(batch(body, body), annotations)); err != nil {
		t.Errorf("a batch with delivery annotations behind it: %v", err)
	}
}

// Delivery annotations are limited as other properties are.
func TestDeliveryAnnotationsAreLimited(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sizes []int
		fits  bool
	}{
		"as large as one may be": {[]int{propertyBytesMax - 9}, true},
		"one too large":          {[]int{propertyBytesMax - 8}, false},
		"together too large":     {[]int{30 << 10, 30 << 10, 10 << 10}, false},
	} {
		var annotations wire.Map
		for i, n := range c.sizes {
			annotations = append(annotations, wire.Pair{Key: wire.Symbol([]byte{'a' + byte(i), 'b'}), Value: make([]byte, n)})
		}
		_, err := Parse(sentFields(annotations))
		var refused *Error
		if c.fits != (err == nil) || err != nil && (!errors.As(err, &refused) || refused.Condition != wire.ConditionMessageSizeExceeded) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The stored form of a message is a format: these bytes lie in logs and images.
func TestPayloadsKeepTheirBytes(t *testing.T) {
	t.Parallel()
	for want, encoded := range map[string][]byte{
		"8118" + "0000" + "0401" + "a3016b41" + "0000" + "005375a00178": sentFields(wire.Map{{Key: wire.Symbol("k"), Value: true}}),
		"8100" + "0000" + "0000" + "005375a00178":                       section(nil, wire.SectionData, []byte("x")),
	} {
		m := kit.Must(Parse(encoded))(t)
		if got := hex.EncodeToString(m.Payload); got != want {
			t.Errorf("payload %s, want %s", got, want)
		}
	}
}
