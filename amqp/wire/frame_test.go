package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/test/kit"
)

func ptr[T any](v T) *T { return &v }

// unhex decodes hexadecimal and ignores spaces and line breaks.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b := kit.Must(hex.DecodeString(strings.Join(strings.Fields(s), "")))(t)
	return b
}

// goldenFrame is a frame with its bytes, which were derived by hand from part 1, 1.6 and part 2, 2.7.
type goldenFrame struct {
	name    string
	typ     byte
	channel uint16
	body    Performative
	hex     string
}

// goldenFrames holds at least one frame of every kind.
func goldenFrames() []goldenFrame { return append(goldenOpening(), goldenTraffic()...) }

func goldenOpening() []goldenFrame {
	return []goldenFrame{
		{"empty", FrameAMQP, 0, nil, `00000008 02 00 0000`},
		{"open", FrameAMQP, 0, &Open{
			ContainerID: "c", Hostname: ptr("h"), MaxFrameSize: ptr(uint32(65536)),
			ChannelMax: ptr(uint16(255)), IdleTimeOut: ptr(uint32(120000)),
			Properties: Map{{Symbol("p"), "v"}},
		}, `0000002e 02 00 0000 00 53 10 c0 21 0a a1 01 63 a1 01 68 70 00010000 60 00ff
			70 0001d4c0 40 40 40 40 c1 07 02 a3 01 70 a1 01 76`},
		{
			"open with capabilities", FrameAMQP, 0, &Open{ContainerID: "", OutgoingLocales: []Symbol{"en", "de"}},
			`00000022 02 00 0000 00 53 10 c0 15 0a a1 00 40 40 40 40 e0 08 02 a3 02 656e 02 6465 40 40 40 40`,
		},
		{"begin", FrameAMQP, 3, &Begin{
			RemoteChannel: ptr(uint16(1)), NextOutgoingID: 0, IncomingWindow: 5000, OutgoingWindow: 200, HandleMax: ptr(uint32(255)),
		}, `0000001e 02 00 0003 00 53 11 c0 11 08 60 0001 43 70 00001388 52 c8 52 ff 40 40 40`},
		{"attach of a sender", FrameAMQP, 1, &Attach{
			Name: "l", Handle: 2, Role: RoleSender, SndSettleMode: ptr(uint8(2)), RcvSettleMode: ptr(uint8(0)),
			Source: &Source{Address: "s", Filter: Map{}}, Target: &Target{Address: "q"},
			InitialDeliveryCount: ptr(uint32(0)), MaxMessageSize: ptr(uint64(1 << 20)),
		}, `0000004b 02 00 0001 00 53 12 c0 3e 0e a1 01 6c 52 02 42 50 02 50 00
			00 53 28 c0 10 0b a1 01 73 40 40 40 42 40 40 c1 01 00 40 40 40
			00 53 29 c0 0a 07 a1 01 71 40 40 40 42 40 40
			40 42 43 80 0000000000100000 40 40 40`},
		{"attach to the coordinator", FrameAMQP, 0, &Attach{
			Name: "t", Handle: 0, Role: RoleReceiver, Coordinator: &Coordinator{Capabilities: []Symbol{"x"}},
		}, `00000029 02 00 0000 00 53 12 c0 1c 0e a1 01 74 43 41 40 40 40 00 53 30 c0 07 01 e0 04 01 a3 01 78 40 42 40 40 40 40 40`},
		{"flow of a session", FrameAMQP, 0, &Flow{
			NextIncomingID: ptr(uint32(0)), IncomingWindow: 2048, NextOutgoingID: 1, OutgoingWindow: 2048,
		}, `00000022 02 00 0000 00 53 13 c0 15 0b 43 70 00000800 52 01 70 00000800 40 40 40 40 42 42 40`},
		{"flow of a link", FrameAMQP, 7, &Flow{
			NextIncomingID: ptr(uint32(5)), IncomingWindow: 1, NextOutgoingID: 256, OutgoingWindow: 1, Handle: ptr(uint32(0)),
			DeliveryCount: ptr(uint32(9)), LinkCredit: ptr(uint32(100)), Available: ptr(uint32(0)), Drain: true, Echo: true,
		}, `00000022 02 00 0007 00 53 13 c0 15 0b 52 05 52 01 70 00000100 52 01 43 52 09 52 64 43 41 41 40`},
	}
}

// goldenTraffic continues goldenFrames with the frames after the attach: traffic and the end of the
// connection.
func goldenTraffic() []goldenFrame {
	return []goldenFrame{
		{"transfer", FrameAMQP, 0, &Transfer{
			Handle: 1, DeliveryID: ptr(uint32(0)), DeliveryTag: []byte{1, 2, 3, 4}, MessageFormat: ptr(uint32(0)),
			Settled: ptr(false), Payload: []byte{0, 0x53, 0x75, 0xa0, 1, 0xff},
		}, `00000025 02 00 0000 00 53 14 c0 12 0b 52 01 43 a0 04 01020304 43 42 42 40 40 42 42 42 005375a001ff`},
		{"transfer, all fields", FrameAMQP, 0, &Transfer{
			Handle: 0, DeliveryID: ptr(uint32(1000)), DeliveryTag: []byte{}, MessageFormat: ptr(uint32(0x80013700)),
			Settled: ptr(true), More: true, RcvSettleMode: ptr(uint8(1)), State: &Accepted{}, Resume: true, Aborted: true,
			Batchable: true, Payload: []byte{},
		}, `00000028 02 00 0000 00 53 14 c0 1b 0b 43 70 000003e8 a0 00 70 80013700 41 41 50 01 00 53 24 c0 01 00 41 41 41 `},
		{
			"disposition accepted", FrameAMQP, 0, &Disposition{Role: RoleReceiver, First: 1, Last: ptr(uint32(2)), Settled: true, State: &Accepted{}},
			`0000001b 02 00 0000 00 53 15 c0 0e 06 41 52 01 52 02 41 00 53 24 c0 01 00 42`,
		},
		{
			"disposition rejected", FrameAMQP, 0, &Disposition{Role: RoleReceiver, First: 0, State: &Rejected{Error: &Error{Condition: "e", Description: "d", Info: Map{{"k", nil}}}}},
			`0000002c 02 00 0000 00 53 15 c0 1f 06 41 43 40 42 00 53 25 c0 14 01 00 53 1d c0 0e 03 a3 01 65 a1 01 64 c1 05 02 a1 01 6b 40 42`,
		},
		{
			"disposition rejected without error", FrameAMQP, 0, &Disposition{Role: RoleSender, State: &Rejected{}},
			`0000001a 02 00 0000 00 53 15 c0 0d 06 42 43 40 42 00 53 25 c0 02 01 40 42`,
		},
		{
			"disposition modified", FrameAMQP, 0, &Disposition{Role: RoleReceiver, State: &Modified{DeliveryFailed: ptr(false), UndeliverableHere: ptr(true)}},
			`0000001c 02 00 0000 00 53 15 c0 0f 06 41 43 40 42 00 53 27 c0 04 03 42 41 40 42`,
		},
		{
			"disposition released", FrameAMQP, 0, &Disposition{Role: RoleReceiver, State: &Released{}},
			`00000019 02 00 0000 00 53 15 c0 0c 06 41 43 40 42 00 53 26 c0 01 00 42`,
		},
		{
			"disposition in a transaction", FrameAMQP, 0, &Disposition{Role: RoleReceiver, State: &TransactionalState{TxnID: []byte{9}, Outcome: &Accepted{}}},
			`00000022 02 00 0000 00 53 15 c0 15 06 41 43 40 42 00 53 34 c0 0a 02 a0 01 09 00 53 24 c0 01 00 42`,
		},
		{
			"disposition received", FrameAMQP, 0, &Disposition{Role: RoleReceiver, State: &Received{SectionNumber: 1, SectionOffset: 2}},
			`0000001d 02 00 0000 00 53 15 c0 10 06 41 43 40 42 00 53 23 c0 05 02 52 01 53 02 42`,
		},
		{
			"disposition declared", FrameAMQP, 0, &Disposition{Role: RoleSender, State: &Declared{TxnID: []byte{1}}},
			`0000001c 02 00 0000 00 53 15 c0 0f 06 42 43 40 42 00 53 33 c0 04 01 a0 01 01 42`,
		},
		{
			"detach", FrameAMQP, 0, &Detach{Handle: 4, Closed: true, Error: &Error{Condition: "amqp:not-found"}},
			`0000002a 02 00 0000 00 53 16 c0 1d 03 52 04 41 00 53 1d c0 14 03 a3 0e 616d71703a6e6f742d666f756e64 a1 00 40`,
		},
		{"end", FrameAMQP, 2, &End{}, `0000000f 02 00 0002 00 53 17 c0 02 01 40`},
		{"close", FrameAMQP, 0, &Close{}, `0000000f 02 00 0000 00 53 18 c0 02 01 40`},
		{
			"sasl mechanisms", FrameSASL, 0, &SASLMechanisms{Mechanisms: []Symbol{"A", "BC"}},
			`00000017 02 01 0000 00 53 40 c0 0a 01 e0 07 02 a3 01 41 02 4243`,
		},
		{
			"sasl init", FrameSASL, 0, &SASLInit{Mechanism: "A", InitialResponse: []byte{}, Hostname: ptr("h")},
			`00000016 02 01 0000 00 53 41 c0 09 03 a3 01 41 a0 00 a1 01 68`,
		},
		{"sasl challenge", FrameSASL, 0, &SASLChallenge{Challenge: []byte{1}}, `00000011 02 01 0000 00 53 42 c0 04 01 a0 01 01`},
		{"sasl response", FrameSASL, 0, &SASLResponse{Response: []byte{2}}, `00000011 02 01 0000 00 53 43 c0 04 01 a0 01 02`},
		{"sasl outcome", FrameSASL, 0, &SASLOutcome{Code: 1}, `00000011 02 01 0000 00 53 44 c0 04 02 50 01 40`},
	}
}

func TestFramesKeepTheirBytes(t *testing.T) {
	t.Parallel()
	for _, g := range goldenFrames() {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			want := unhex(t, g.hex)
			got := AppendFrame([]byte("before"), g.typ, g.channel, g.body)
			if !bytes.Equal(got, append([]byte("before"), want...)) {
				t.Fatalf("encoded\n got %x\nwant %x", got[6:], want)
			}
			f := kit.Must(NewReader(bytes.NewReader(want), 512).ReadFrame())(t)
			if diff := cmp.Diff(Frame{Type: g.typ, Channel: g.channel, Bytes: len(want), Values: f.Values, Body: g.body}, f); diff != "" {
				t.Fatalf("decoded (-want +got)\n%s", diff)
			}
		})
	}
}

// All frames of the list in one stream, read one byte at a time and with the largest reads.
func TestReaderReadsAllFramesOfAStream(t *testing.T) {
	t.Parallel()
	header := HeaderAMQP()
	stream := header[:]
	for range 50 {
		for _, g := range goldenFrames() {
			stream = AppendFrame(stream, g.typ, g.channel, g.body)
		}
	}
	for name, source := range map[string]io.Reader{
		"whole":     bytes.NewReader(stream),
		"byte":      iotest.OneByteReader(bytes.NewReader(stream)),
		"half":      iotest.HalfReader(bytes.NewReader(stream)),
		"data, err": iotest.DataErrReader(bytes.NewReader(stream)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := NewReader(source, 512)
			if got, err := r.ReadHeader(); err != nil || got != HeaderAMQP() {
				t.Fatalf("header %x, %v", got, err)
			}
			for range 50 {
				for _, g := range goldenFrames() {
					f, err := r.ReadFrame()
					if err != nil {
						t.Fatalf("%s: %v", g.name, err)
					}
					if diff := cmp.Diff(g.body, f.Body); diff != "" {
						t.Fatalf("%s (-want +got)\n%s", g.name, diff)
					}
				}
			}
			if _, err := r.ReadFrame(); !errors.Is(err, io.EOF) {
				t.Fatalf("at the end: %v", err)
			}
			if r.Buffered() != 0 {
				t.Fatalf("%d bytes left", r.Buffered())
			}
		})
	}
}

func TestMalformedFramesAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, hex string
		want      Symbol
	}{
		{"size below header", `00000007 02 00 0000`, ConditionFramingError},
		{"size over limit", `00000201 02 00 0000`, ConditionFramingError},
		{"size of 4 GiB", `ffffffff 02 00 0000`, ConditionFramingError},
		{"data offset below 2", `00000008 01 00 0000`, ConditionFramingError},
		{"data offset behind the frame", `00000008 03 00 0000`, ConditionFramingError},
		{"frame type", `00000008 02 02 0000`, ConditionFramingError},
		{"no descriptor", `00000009 02 00 0000 40`, ConditionDecodeError},
		{"unknown descriptor", `0000000e 02 00 0000 00 53 99 c0 01 00`, ConditionDecodeError},
		{"state as performative", `0000000e 02 00 0000 00 53 24 c0 01 00`, ConditionDecodeError},
		{"performative that is no list", `0000000c 02 00 0000 00 53 17 40`, ConditionDecodeError},
		{"SASL in AMQP frame", `00000011 02 00 0000 00 53 44 c0 04 02 50 01 40`, ConditionDecodeError},
		{"AMQP in SASL frame", `0000000f 02 01 0002 00 53 17 c0 02 01 40`, ConditionDecodeError},
		{"transfer without handle", `0000000f 02 00 0000 00 53 14 c0 02 01 40`, ConditionDecodeError},
		{"disposition without role", `00000010 02 00 0000 00 53 15 c0 03 02 40 43`, ConditionDecodeError},
		{"field of wrong type", `00000011 02 00 0000 00 53 16 c0 04 02 a1 01 61`, ConditionDecodeError},
		{"number too large", `00000017 02 00 0000 00 53 16 c0 0a 01 80 0000000100000000`, ConditionDecodeError},
		{"more fields than bytes", `0000000f 02 00 0000 00 53 17 c0 02 7f 40`, ConditionDecodeError},
		{"bytes behind the list", `00000010 02 00 0000 00 53 17 c0 02 01 40 40`, ConditionDecodeError},
		{"bytes in the list", `00000010 02 00 0000 00 53 17 c0 03 01 40 40`, ConditionDecodeError},
		{"error that is none", `00000014 02 00 0000 00 53 17 c0 07 01 00 53 24 c0 01 00 `, ConditionDecodeError},
		{"string not UTF-8", `00000011 02 00 0000 00 53 10 c0 04 01 a1 01 ff`, ConditionDecodeError},
		{"boolean of 2", `00000012 02 00 0000 00 53 16 c0 05 02 52 01 56 02`, ConditionDecodeError},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := NewReader(bytes.NewReader(unhex(t, c.hex)), 512).ReadFrame()
			var protocol *ProtocolError
			if !errors.As(err, &protocol) || protocol.Condition != c.want {
				t.Fatalf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestUnusualFramesAreAccepted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, hex string
		want      Performative
	}{
		{"list0", `0000000c 02 00 0000 00 53 17 45`, &End{}},
		{"list32", `00000015 02 00 0000 00 53 17 d0 00000005 00000001 40`, &End{}},
		{"ulong descriptor", `00000013 02 00 0000 00 80 0000000000000017 45`, &End{}},
		{"symbol descriptor", `00000019 02 00 0000 00 a3 0d 616d71703a656e643a6c697374 45`, &End{}},
		{"longer header", `00000010 03 00 0000 00000000 00 53 17 45`, &End{}},
		{"unknown field behind", `00000010 02 00 0000 00 53 17 c0 03 02 40 41`, &End{}},
		{"two byte boolean", `00000012 02 00 0000 00 53 16 c0 05 02 52 01 56 01`, &Detach{Handle: 1, Closed: true}},
		{
			"one symbol for many", `0000001a 02 00 0000 00 53 10 c0 0d 08 a1 01 63 40 40 40 40 40 40 a3 01 61`,
			&Open{ContainerID: "c", OfferedCapabilities: []Symbol{"a"}},
		},
		{
			"list of symbols", `0000001d 02 00 0000 00 53 10 c0 10 08 a1 01 63 40 40 40 40 40 40 c0 04 01 a3 01 61`,
			&Open{ContainerID: "c", OfferedCapabilities: []Symbol{"a"}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := kit.Must(NewReader(bytes.NewReader(unhex(t, c.hex)), 512).ReadFrame())(t)
			if diff := cmp.Diff(c.want, f.Body); diff != "" {
				t.Fatal(diff)
			}
		})
	}
}

func TestReaderReportsTheEndOfTheStream(t *testing.T) {
	t.Parallel()
	whole := AppendFrame(nil, FrameAMQP, 0, &End{})
	for cut := 1; cut < len(whole); cut++ {
		if _, err := NewReader(bytes.NewReader(whole[:cut]), 512).ReadFrame(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut at %d: %v", cut, err)
		}
	}
	if _, err := NewReader(bytes.NewReader(nil), 512).ReadHeader(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if _, err := NewReader(iotest.ErrReader(nil), 512).ReadFrame(); !errors.Is(err, io.ErrNoProgress) {
		t.Fatal(err)
	}
}

// After a deadline that passes within a frame, the Reader can continue.
func TestReaderGoesOnAfterError(t *testing.T) {
	t.Parallel()
	frame := AppendFrame(nil, FrameAMQP, 1, &End{})
	r := NewReader(iotest.TimeoutReader(iotest.OneByteReader(bytes.NewReader(frame))), 512)
	if _, err := r.ReadFrame(); !errors.Is(err, iotest.ErrTimeout) {
		t.Fatal(err)
	}
	if f, err := r.ReadFrame(); err != nil || f.Channel != 1 {
		t.Fatal(f, err)
	}
}

func TestReaderSetMaxFrame(t *testing.T) {
	t.Parallel()
	big := AppendFrame(nil, FrameAMQP, 0, &Transfer{Payload: make([]byte, 300<<10)})
	r := NewReader(bytes.NewReader(append(bytes.Clone(big), big...)), uint32(len(big)))
	f, err := r.ReadFrame()
	if err != nil || len(f.Body.(*Transfer).Payload) != 300<<10 {
		t.Fatal(err)
	}
	r.SetMaxFrame(uint32(len(big)) - 1)
	var protocol *ProtocolError
	if _, err := r.ReadFrame(); !errors.As(err, &protocol) {
		t.Fatal(err)
	}
}

// transferOverheadMaxBytes is the maximum size of the frame header and the performative of a transfer if State
// is nil and the delivery-tag has at most 32 bytes (part 2, 2.6.12 allows no more): 8 of header, 3 of
// descriptor, 3 of list, 5 each of handle, delivery-id and message-format, 34 of tag, 2 of rcv-settle-mode, 6
// of booleans and null.
const transferOverheadMaxBytes = 8 + 3 + 3 + 3*5 + 34 + 2 + 6

func TestTransferOverheadMaxBytes(t *testing.T) {
	t.Parallel()
	transfer := &Transfer{
		Handle: 1 << 31, DeliveryID: ptr(uint32(1 << 31)), DeliveryTag: make([]byte, 32), MessageFormat: ptr(uint32(1 << 31)),
		Settled: ptr(true), More: true, RcvSettleMode: ptr(uint8(1)),
	}
	if got := len(AppendTransfer(nil, 1, transfer, nil)); got != transferOverheadMaxBytes {
		t.Fatalf("%d bytes", got)
	}
	transfer.Payload = []byte("not this")
	one := AppendTransfer([]byte("x"), 1, transfer, []byte("payload"))
	transfer.Payload = []byte("payload")
	if two := AppendFrame([]byte("x"), FrameAMQP, 1, transfer); !bytes.Equal(one, two) {
		t.Fatalf("%x\n%x", one, two)
	}
}

// Frames that exceed list8 are written as list32.
func TestLongFramesUseList32(t *testing.T) {
	t.Parallel()
	want := &Detach{Handle: 1, Error: &Error{Condition: "c", Description: strings.Repeat("x", 1000), Info: Map{{"k", []any{strings.Repeat("y", 300)}}}}}
	b := AppendFrame(nil, FrameAMQP, 0, want)
	if b[11] != codeList32 {
		t.Fatalf("%x", b[:16])
	}
	f := kit.Must(NewReader(bytes.NewReader(b), 4096).ReadFrame())(t)
	if diff := cmp.Diff(want, f.Body); diff != "" {
		t.Fatal(diff)
	}
}

// A length within the limit that the peer claims without sending the bytes costs one small buffer.
func TestClaimedLengthCostsOneSmallBuffer(t *testing.T) {
	claim := append(unhex(t, `20000000 02 00 0000`), make([]byte, 5000)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := NewReader(bytes.NewReader(claim), 1<<30).ReadFrame()
	runtime.ReadMemStats(&after)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 4*uint64(len(claim)) {
		t.Fatalf("%d bytes allocated", got)
	}
}

// A Reader that was busy shrinks its buffer and loses none of the buffered bytes.
func TestReaderShrinksWithoutLosingBytes(t *testing.T) {
	t.Parallel()
	large := AppendFrame(nil, FrameAMQP, 0, &Transfer{Payload: make([]byte, 20<<10)})
	small := AppendFrame(nil, FrameAMQP, 7, &Transfer{Payload: []byte("after")})
	r := NewReader(bytes.NewReader(slices.Concat(large, small, AppendFrame(nil, FrameAMQP, 9, nil), large)), 64<<10)
	kit.Must(r.ReadFrame())(t)
	before := len(r.buffer)
	if r.Shrink(); len(r.buffer) != before {
		t.Fatal("it gave a buffer back that is needed")
	}
	r = NewReader(bytes.NewReader(slices.Concat(large, small)), 64<<10)
	kit.Must(r.ReadFrame())(t)
	if r.Shrink(); len(r.buffer) != readBufferBytes || r.transfer.Payload != nil {
		t.Fatalf("a buffer of %d bytes, and %d of the payload", len(r.buffer), len(r.transfer.Payload))
	}
	f, err := r.ReadFrame()
	if tr, ok := f.Body.(*Transfer); err != nil || !ok || f.Channel != 7 || string(tr.Payload) != "after" {
		t.Fatalf("%+v, %v", f, err)
	}
}

// Under load the buffer grows until one read returns many frames, and no further.
func TestReaderBufferGrowsAndIsReused(t *testing.T) {
	t.Parallel()
	r := NewReader(&loop{frame: AppendFrame(nil, FrameAMQP, 0, &Transfer{Payload: make([]byte, 900)})}, 1024)
	if len(r.buffer) != readBufferBytes {
		t.Fatal(len(r.buffer))
	}
	for range 1000 {
		kit.Must(r.ReadFrame())(t)
	}
	if len(r.buffer) != readBufferMaxBytes {
		t.Fatal(len(r.buffer))
	}
}

// Reading the performatives that belong to the Reader does not allocate.
func TestPerformativesOfTheReaderDoNotAllocate(t *testing.T) {
	for _, body := range []Performative{
		&Transfer{Handle: 1, DeliveryID: ptr(uint32(7)), DeliveryTag: make([]byte, 16), MessageFormat: ptr(uint32(0)), Settled: ptr(false), Payload: make([]byte, 1024)},
		&Flow{NextIncomingID: ptr(uint32(1)), Handle: ptr(uint32(0)), DeliveryCount: ptr(uint32(1)), LinkCredit: ptr(uint32(1))},
		&Disposition{Role: RoleReceiver, First: 1, Last: ptr(uint32(9)), Settled: true, State: &Accepted{}},
	} {
		r := NewReader(&loop{frame: AppendFrame(nil, FrameAMQP, 0, body)}, 4096)
		read := func() {
			kit.Must(r.ReadFrame())(t)
		}
		for range 1000 {
			read() // the buffer grows
		}
		if n := testing.AllocsPerRun(1000, read); n != 0 {
			t.Errorf("%T: %v allocations", body, n)
		}
		dst := make([]byte, 0, 4096)
		if n := testing.AllocsPerRun(100, func() { dst = AppendFrame(dst[:0], FrameAMQP, 0, body) }); n != 0 {
			t.Errorf("write %T: %v allocations", body, n)
		}
	}
}

// loop is a connection that repeats the same frame without end.
type loop struct {
	frame []byte
	at    int
}

func (l *loop) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		m := copy(p[n:], l.frame[l.at:])
		n += m
		l.at = (l.at + m) % len(l.frame)
	}
	return n, nil
}

func benchmarkRead(b *testing.B, body Performative) {
	frame := AppendFrame(nil, FrameAMQP, 0, body)
	r := NewReader(&loop{frame: frame}, 1<<20)
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.ReadFrame(); err != nil {
			b.Fatal(err)
		}
	}
}

func benchmarkTransfer() *Transfer {
	return &Transfer{
		Handle: 1, DeliveryID: ptr(uint32(1000)), DeliveryTag: make([]byte, 16), MessageFormat: ptr(uint32(0)),
		Settled: ptr(false), Payload: make([]byte, 1024),
	}
}

func BenchmarkDecodeTransfer(b *testing.B) { benchmarkRead(b, benchmarkTransfer()) }

func BenchmarkDecodeDisposition(b *testing.B) {
	benchmarkRead(b, &Disposition{Role: RoleReceiver, First: 1000, Last: ptr(uint32(1010)), Settled: true, State: &Accepted{}})
}

func BenchmarkDecodeFlow(b *testing.B) {
	benchmarkRead(b, &Flow{
		NextIncomingID: ptr(uint32(5)), IncomingWindow: 5000, NextOutgoingID: 256, OutgoingWindow: 5000, Handle: ptr(uint32(0)),
		DeliveryCount: ptr(uint32(9000)), LinkCredit: ptr(uint32(100)),
	})
}

func BenchmarkAppendTransfer(b *testing.B) {
	t := benchmarkTransfer()
	payload := make([]byte, 1024)
	dst := make([]byte, 0, 2048)
	b.SetBytes(int64(len(AppendTransfer(nil, 1, t, payload))))
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendTransfer(dst[:0], 1, t, payload)
	}
}

func BenchmarkAppendDisposition(b *testing.B) {
	d := &Disposition{Role: RoleReceiver, First: 1000, Last: ptr(uint32(1010)), Settled: true, State: &Accepted{}}
	dst := make([]byte, 0, 2048)
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendFrame(dst[:0], FrameAMQP, 1, d)
	}
}

func FuzzReadFrame(f *testing.F) {
	for _, g := range goldenFrames() {
		f.Add(unhex(f, g.hex))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := NewReader(bytes.NewReader(data), 1<<16)
		for {
			frame, err := r.ReadFrame()
			if err != nil {
				return
			}
			once := AppendFrame(nil, frame.Type, frame.Channel, frame.Body)
			again, err := NewReader(bytes.NewReader(once), 1<<30).ReadFrame()
			if err != nil {
				t.Fatalf("what was written cannot be read: %v\n%x", err, once)
			}
			if twice := AppendFrame(nil, again.Type, again.Channel, again.Body); !bytes.Equal(once, twice) {
				t.Fatalf("not stable\n%x\n%x", once, twice)
			}
		}
	})
}

// A frame tells how many values it holds, at all depths, so that their decoding has a price.
func TestFramesCountTheirValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		value  any
		values int // with the map, its key and the value
	}{
		{"a number", int32(1), 3},
		{"a list", []any{nil, []any{}, []any{true, false}}, 8},
		{"a map", Map{{Key: "a", Value: "b"}, {Key: "c", Value: nil}}, 7},
		{"an array", Array{Values: []int64{1, 2, 3}}, 6},
		{"an array of nothing", Array{Values: []Symbol{"", "", "", ""}}, 7},
		{"a described value", Described{Descriptor: Symbol("d"), Value: []any{nil}}, 6},
		{"a state", &Modified{MessageAnnotations: Map{{Key: Symbol("a"), Value: nil}}}, 6},
	} {
		encoded := AppendFrame(nil, FrameAMQP, 0, &Flow{Properties: Map{{Key: Symbol("p"), Value: c.value}}})
		r := NewReader(bytes.NewReader(append(encoded, encoded...)), 512)
		for range 2 {
			f, err := r.ReadFrame()
			if err != nil || f.Values != c.values || f.Bytes != len(encoded) {
				t.Errorf("%s: %d values in %d bytes, %v; want %d in %d", c.name, f.Values, f.Bytes, err, c.values, len(encoded))
			}
		}
	}
}
