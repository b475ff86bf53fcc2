package fields_test

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm/fields"
)

// record has one field of each kind.
type record struct {
	Uint64  uint64
	Uint32  uint32
	Uint8   uint8
	Int64   int64
	Text    string
	Bytes   []byte
	Bool    bool
	Fixed64 uint64
	Fixed32 uint32
	Key     [16]byte
	A, B    bool
	Uint64s []uint64
	Uint8s  []uint8
}

func (r *record) fields(x *fields.Codec) {
	fields.Version(x, 7)
	fields.Uint64(x, &r.Uint64)
	fields.Uint32(x, &r.Uint32)
	fields.Uint8(x, &r.Uint8)
	fields.Int64(x, &r.Int64)
	fields.Text(x, &r.Text)
	fields.Bytes(x, &r.Bytes)
	fields.Bool(x, &r.Bool)
	fields.Fixed64(x, &r.Fixed64)
	fields.Fixed32(x, &r.Fixed32)
	fields.Key(x, &r.Key)
	fields.Flags(x, &r.A, &r.B)
	fields.Uint64s(x, &r.Uint64s)
	fields.Uint8s(x, &r.Uint8s)
}

func sample() record {
	return record{
		Uint64: math.MaxUint64, Uint32: math.MaxUint32, Uint8: 255, Int64: math.MaxInt64, Text: "text", Bytes: []byte{1, 2}, Bool: true,
		Fixed64: 1 << 63, Fixed32: 1 << 31, Key: [16]byte{15: 1}, B: true, Uint64s: []uint64{1, 1 << 40}, Uint8s: []uint8{3},
	}
}

func encode(r *record) []byte {
	x := fields.Encoder(nil)
	r.fields(&x)
	return x.Buf
}

func TestRecordsDecodeToWhatWasEncoded(t *testing.T) {
	t.Parallel()
	want := sample()
	x := fields.Decoder(encode(&want))
	var got record
	got.fields(&x)
	if err := x.End(); err != nil {
		t.Fatalf("got the error %v, want none", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("got another record (-want +got):\n%s", diff)
	}
}

func TestEveryCutRecordIsRefused(t *testing.T) {
	t.Parallel()
	r := sample()
	encoded := encode(&r)
	for n := range encoded {
		x := fields.Decoder(encoded[:n])
		var got record
		if got.fields(&x); x.End() == nil {
			t.Errorf("the first %d of %d bytes decode, want an error", n, len(encoded))
		}
	}
}

func TestOnlyTheOneEncodingIsRead(t *testing.T) {
	t.Parallel()
	u64, u32 := new(uint64), new(uint32)
	i64 := new(int64)
	var flag, other bool
	var list []uint64
	for name, c := range map[string]struct {
		b    []byte
		read func(x *fields.Codec)
		want error
	}{
		"number in two bytes that fits in one": {[]byte{0x81, 0}, func(x *fields.Codec) { fields.Uint64(x, u64) }, fields.ErrNumber},
		"number of more than 64 bits":          {[]byte{255, 255, 255, 255, 255, 255, 255, 255, 255, 2}, func(x *fields.Codec) { fields.Uint64(x, u64) }, fields.ErrNumber},
		"number of 33 bits":                    {[]byte{128, 128, 128, 128, 16}, func(x *fields.Codec) { fields.Uint32(x, u32) }, fields.ErrNumber},
		"number of 64 bits":                    {[]byte{255, 255, 255, 255, 255, 255, 255, 255, 255, 1}, func(x *fields.Codec) { fields.Int64(x, i64) }, fields.ErrNumber},
		"bool of 2":                            {[]byte{2}, func(x *fields.Codec) { fields.Bool(x, &flag) }, fields.ErrFlag},
		"third flag of two":                    {[]byte{4}, func(x *fields.Codec) { fields.Flags(x, &flag, &other) }, fields.ErrFlag},
		"another version":                      {[]byte{2}, func(x *fields.Codec) { fields.Version(x, 1) }, fields.ErrVersion},
		"list longer than the input":           {[]byte{255, 255, 255, 255, 15}, func(x *fields.Codec) { fields.Uint64s(x, &list) }, fields.ErrCount},
		"trailing byte":                        {[]byte{1, 1}, func(x *fields.Codec) { fields.Uint64(x, u64) }, fields.ErrTrailing},
		"over a limit":                         {[]byte{1}, func(x *fields.Codec) { fields.Uint64(x, u64); x.Limit(*u64 < 1) }, fields.ErrOverLimit},
	} {
		x := fields.Decoder(c.b)
		if c.read(&x); !errors.Is(x.End(), c.want) {
			t.Errorf("%s: got the error %v, want %v", name, x.Err(), c.want)
		}
	}
}

func TestFirstErrorStaysAndLaterFieldsAreZero(t *testing.T) {
	t.Parallel()
	x := fields.Decoder([]byte{2, 5})
	flag, number := true, uint64(1)
	fields.Bool(&x, &flag)
	fields.Uint64(&x, &number)
	if err := x.End(); !errors.Is(err, fields.ErrFlag) {
		t.Errorf("got the error %v, want %v", err, fields.ErrFlag)
	}
	if flag || number != 0 {
		t.Errorf("got %v and %d, want false and 0", flag, number)
	}
}

func TestBytesAliasTheInputAndTheirAppendsDoNot(t *testing.T) {
	t.Parallel()
	input := []byte{1, 'a', 'b'}
	x := fields.Decoder(input)
	got := x.Bytes()
	if &got[0] != &input[1] {
		t.Error("got a copy, want a slice of the input")
	}
	if _ = append(got, 'c'); input[2] != 'b' {
		t.Errorf("an append changed the input to %q", input)
	}
}
