package wire

import (
	"bytes"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestValuesKeepTheirBytes(t *testing.T) {
	t.Parallel()
	id := UUID{0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
	for _, c := range []struct {
		v   any
		hex string
	}{
		{nil, `40`},
		{true, `41`},
		{false, `42`},
		{uint8(7), `50 07`},
		{uint16(7), `60 0007`},
		{uint32(0), `43`},
		{uint32(255), `52 ff`},
		{uint32(256), `70 00000100`},
		{uint64(0), `44`},
		{uint64(255), `53 ff`},
		{uint64(math.MaxUint64), `80 ffffffffffffffff`},
		{int8(-1), `51 ff`},
		{int16(-2), `61 fffe`},
		{int32(-128), `54 80`},
		{int32(128), `71 00000080`},
		{int64(-1), `55 ff`},
		{int64(math.MinInt64), `81 8000000000000000`},
		{float32(1), `72 3f800000`},
		{float64(-2), `82 c000000000000000`},
		{Char('é'), `73 000000e9`},
		{time.UnixMilli(1).UTC(), `83 0000000000000001`},
		{id, `98 00112233445566778899aabbccddeeff`},
		{[]byte{1, 2}, `a0 02 0102`},
		{"hé", `a1 03 68c3a9`},
		{Symbol("s"), `a3 01 73`},
		{[]any{}, `c0 01 00`},
		{[]any{int32(1), "a"}, `c0 06 02 54 01 a1 01 61`},
		{Map{}, `c1 01 00`},
		{Map{{Symbol("k"), int64(1)}}, `c1 06 02 a3 01 6b 55 01`},
		{Array{[]int64{1, -1}}, `e0 12 02 81 0000000000000001 ffffffffffffffff`},
		{Array{[]uint64{1}}, `e0 0a 01 80 0000000000000001`},
		{Array{[]int32{-1}}, `e0 06 01 71 ffffffff`},
		{Array{[]uint32{1}}, `e0 06 01 70 00000001`},
		{Array{[]time.Time{time.UnixMilli(2).UTC()}}, `e0 0a 01 83 0000000000000002`},
		{Array{[]UUID{id}}, `e0 12 01 98 00112233445566778899aabbccddeeff`},
		{Array{[]Symbol{"a", "bc"}}, `e0 07 02 a3 01 61 02 6263`},
		{Array{[]string{"a"}}, `e0 04 01 a1 01 61`},
		{Array{[]any{true, false}}, `e0 04 02 56 01 00`},
		{Array{[]any{}}, `e0 02 00 40`},
		{Array{[]any{nil, nil}}, `e0 02 02 40`},
		{Array{[]any{[]any{true}}}, `e0 0b 01 d0 00000005 00000001 41`},
		{Described{Symbol("x"), "y"}, `00 a3 01 78 a1 01 79`},
		{Raw{0x74, 1, 2, 3, 4}, `74 01020304`},
		{&Accepted{}, `00 53 24 c0 01 00`},
		{&Declare{}, `00 53 31 c0 02 01 40`},
		{&Declare{GlobalID: "x"}, `00 53 31 c0 04 01 a1 01 78`},
		{&Discharge{TxnID: []byte{1, 2}}, `00 53 32 c0 06 02 a0 02 0102 42`},
		{&Discharge{TxnID: []byte{1}, Fail: true}, `00 53 32 c0 05 02 a0 01 01 41`},
		{&Modified{UndeliverableHere: ptr(true)}, `00 53 27 c0 04 03 40 41 40`},
	} {
		want := unhex(t, c.hex)
		if got := AppendValue([]byte{9}, c.v); !bytes.Equal(got[1:], want) {
			t.Errorf("%#v\n got %x\nwant %x", c.v, got[1:], want)
		}
		v, rest, err := DecodeValue(append(bytes.Clone(want), 7))
		if err != nil || len(rest) != 1 {
			t.Errorf("%x: rest %x, %v", want, rest, err)
		}
		if diff := cmp.Diff(c.v, v); diff != "" {
			t.Errorf("%x (-want +got)\n%s", want, diff)
		}
		for name, skip := range map[string]func([]byte) ([]byte, error){"skip": SkipValue, "check": CheckValue} {
			if rest, err := skip(append(bytes.Clone(want), 7)); err != nil || len(rest) != 1 {
				t.Errorf("%s %x: rest %x, %v", name, want, rest, err)
			}
			for cut := range len(want) {
				if _, err := skip(want[:cut]); err == nil {
					t.Errorf("%s %x cut at %d", name, want, cut)
				}
			}
		}
	}
}

// Encodings that are read and never written.
func TestEncodingsThatAreNeverWrittenAreRead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		hex string
		v   any
	}{
		{`45`, []any{}},
		{`56 01`, true},
		{`70 00000001`, uint32(1)},
		{`80 0000000000000001`, uint64(1)},
		{`b1 00000001 61`, "a"},
		{`d0 00000004 00000000`, []any{}},
		{`d1 00000006 00000002 41 42`, Map{{true, false}}},
		{`f0 0000000d 00000001 81 0000000000000005`, Array{[]int64{5}}},
		{`e0 04 02 55 01 ff`, Array{[]int64{1, -1}}},
		{`e0 03 01 53 05`, Array{[]uint64{5}}},
		{`e0 02 03 44`, Array{[]uint64{0, 0, 0}}},
		{`e0 03 01 54 ff`, Array{[]int32{-1}}},
		{`e0 03 01 52 ff`, Array{[]uint32{255}}},
		{`e0 02 02 41`, Array{[]any{true, true}}},
		{`e0 02 00 81`, Array{[]int64{}}},
		{`e0 06 01 74 01020304`, Array{[]any{Raw{0x74, 1, 2, 3, 4}}}},
		{`e0 07 02 00 53 01 51 03 04`, Raw(unhex(t, `f0 0000000a 00000002 00 53 01 51 03 04`))},
		{`e0 0a 01 e0 07 02 00 53 01 51 03 04`, Array{[]any{Raw(unhex(t, `f0 0000000a 00000002 00 53 01 51 03 04`))}}},
		{`84 0102030405060708`, Raw{0x84, 1, 2, 3, 4, 5, 6, 7, 8}},
		{`94 00000000000000000000000000000001`, Raw{0x94, 15: 0, 16: 1}},
		{`00 a3 12 616d71703a61636365707465643a6c697374 45`, &Accepted{}},
		{`00 80 0000000000000024 45`, &Accepted{}},
		{`00 53 31 45`, &Declare{}},
		{`00 53 32 c0 04 01 a0 01 01`, &Discharge{TxnID: []byte{1}}},
		{`00 a3 11 616d71703a6465636c6172653a6c697374 45`, &Declare{}},
		{`00 a3 13 616d71703a6469736368617267653a6c697374 c0 03 02 40 41`, &Discharge{Fail: true}},
		{`00 53 24 41`, Described{uint64(0x24), true}}, // not a list: not an outcome
		{`83 0000e677d21fd700`, time.UnixMilli(0xe677d21fd700).UTC()},
	} {
		v, rest, err := DecodeValue(unhex(t, c.hex))
		if err != nil || len(rest) != 0 {
			t.Errorf("%s: rest %x, %v", c.hex, rest, err)
		}
		if diff := cmp.Diff(c.v, v); diff != "" {
			t.Errorf("%s (-want +got)\n%s", c.hex, diff)
		}
	}
}

// Timestamps beyond the year 9999 must not fail: clients send the greatest date of .NET to mean "all".
func TestTimestampsBeyondTheYear9999AreKept(t *testing.T) {
	t.Parallel()
	for _, ms := range []int64{253402300800000, 922337203685477, math.MaxInt64, math.MinInt64, -62135596800000, 0, -1} {
		b := AppendMillis(nil, ms)
		v, _, err := DecodeValue(b)
		if err != nil {
			t.Fatal(err)
		}
		if again := AppendValue(nil, v); !bytes.Equal(again, b) {
			t.Errorf("%d became %x", ms, again)
		}
	}
}

func TestUnusualGoValuesAreEncoded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		v   any
		hex string
	}{
		{struct{}{}, `40`},
		{(*Accepted)(nil), `40`},
		{(*Error)(nil), `40`},
		{Map(nil), `40`},
		{[]Symbol(nil), `40`},
		{[]Symbol{"a"}, `e0 04 01 a3 01 61`},
		{5, `55 05`},
		{&Error{Condition: "c"}, `00 53 1d c0 07 03 a3 01 63 a1 00 40`},
		{Array{[]any{int8(1), true}}, `c0 04 02 51 01 41`}, // no common constructor: a list
		{Array{nil}, `e0 02 00 40`},
		{Array{[]any{Described{uint64(1), int8(3)}, Described{uint64(1), int8(4)}}}, `e0 07 02 00 53 01 51 03 04`},
	} {
		if got := AppendValue(nil, c.v); !bytes.Equal(got, unhex(t, c.hex)) {
			t.Errorf("%#v: got %x, want %s", c.v, got, c.hex)
		}
	}
	long := Array{[]string{"a", strings.Repeat("b", 300)}}
	v, _, err := DecodeValue(AppendValue(nil, long))
	if err != nil || !cmp.Equal(v, any(long)) {
		t.Error(v, err)
	}
}

// hostile returns malformed values that claim more than they hold.
func hostile(t testing.TB) map[string][]byte {
	deepList := bytes.Repeat([]byte{codeList32, 0, 0, 0xff, 0, 0, 0, 0, 1}, 100)
	arrays := bytes.Repeat(unhex(t, `f0 00000005 00000fff 40`), 200)
	return map[string][]byte{
		"binary of 4 GiB":            unhex(t, `b0 ffffffff 00`),
		"string of 4 GiB":            unhex(t, `b1 ffffffff`),
		"list of 4 GiB":              unhex(t, `d0 ffffffff ffffffff`),
		"list of a million":          unhex(t, `d0 00000008 000f4240 40404040`),
		"map of a million":           unhex(t, `d1 00000008 000f4240 40404040`),
		"map of an odd count":        unhex(t, `c1 02 01 40`),
		"array of a million longs":   unhex(t, `f0 00000009 000f4240 81 00000000`),
		"array of a million strings": unhex(t, `f0 00000009 000f4240 b1 00000000`),
		"array of 4e9 nulls":         unhex(t, `f0 00000005 ffffffff 40`),
		"array of 4e9 trues":         unhex(t, `f0 00000005 ffffffff 41`),
		"array of 4097 zeros":        unhex(t, `f0 00000005 00001001 44`),
		"array of 4e9 empty lists":   unhex(t, `f0 00000005 ffffffff 45`),
		"array of two descriptors":   unhex(t, `e0 07 01 00 44 00 44 41`),
		"array without constructor":  unhex(t, `e0 01 00`),
		"array of unknown":           unhex(t, `e0 02 00 49`),
		"described forever":          make([]byte, 10000),
		"deep lists":                 deepList,
		"list too short":             unhex(t, `c0 00`),
		"list32 too short":           unhex(t, `d0 00000003 000000`),
		"item behind the list":       unhex(t, `c0 02 00 40`),
		"unknown constructor":        unhex(t, `57 00`),
		"reserved constructor":       unhex(t, `10`),
		"boolean of 2":               unhex(t, `56 02`),
		"string that is not UTF-8":   unhex(t, `a1 01 ff`),
		"array with bad UTF-8":       unhex(t, `e0 04 01 a1 01 ff`),
		"nothing":                    {},
		"200 arrays of 4095 nulls":   append(unhex(t, `d0 00000784 000000c8`), arrays...)[:9+len(arrays)],
		"accepted cut short":         unhex(t, `00 53 24 c0 05 00`),
		"declare of two fields":      unhex(t, `00 53 31 c0 02 02 40`),
		"discharge of wrong type":    unhex(t, `00 53 32 c0 04 02 40 a0 00`),
		"modified of wrong type":     unhex(t, `00 53 27 c0 03 01 a0 00`),
	}
}

// leastAllocated runs f several times and returns the fewest bytes that the process allocated during one run.
// It runs f more than once because the counter covers the whole process, so the goroutines of the runtime can
// add to any single run.
func leastAllocated(f func()) uint64 {
	least := uint64(math.MaxUint64)
	for range 5 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	return least
}

// A size that a peer claims allocates nothing before the bytes arrive.
func TestClaimedSizesAllocateNothing(t *testing.T) {
	for name, b := range hostile(t) {
		var err error
		got := leastAllocated(func() { _, _, err = DecodeValue(b) })
		if err == nil {
			t.Errorf("%s: decoded", name)
		}
		limit := uint64(64*len(b) + 4096)
		if strings.HasPrefix(name, "200 arrays") {
			limit = 2 * 16 * zeroWidthElementsMax // one array is within the limit
		}
		if got > limit {
			t.Errorf("%s: %d bytes allocated for %d", name, got, len(b))
		}
		switch name {
		case "200 arrays of 4095 nulls", "accepted cut short", "modified of wrong type", "discharge of wrong type":
			continue // valid on its own, or refused because of its meaning
		}
		if _, err := CheckValue(b); err == nil {
			t.Errorf("%s: checked", name)
		}
	}
}

func TestNestingIsBounded(t *testing.T) {
	t.Parallel()
	nest := func(levels int) []byte {
		v := any([]any{})
		for range levels - 1 {
			v = []any{v}
		}
		return AppendValue(nil, v)
	}
	for name, decode := range map[string]func([]byte) error{
		"decode": func(b []byte) error { _, _, err := DecodeValue(b); return err },
		"check":  func(b []byte) error { _, err := CheckValue(b); return err },
	} {
		if err := decode(nest(depthMax)); err != nil {
			t.Errorf("%s: %d levels: %v", name, depthMax, err)
		}
		if err := decode(nest(depthMax + 1)); err == nil {
			t.Errorf("%s: %d levels accepted", name, depthMax+1)
		}
	}
}

// Nested arrays are encoded in linear time: each level is written once.
func TestNestedArraysLinear(t *testing.T) {
	t.Parallel()
	v := any(Array{[]any{true}})
	for range depthMax - 2 {
		v = Array{[]any{v}}
	}
	b := AppendValue(nil, v)
	got, _, err := DecodeValue(b)
	if err != nil {
		t.Fatal(err)
	}
	if again := AppendValue(nil, got); !bytes.Equal(b, again) {
		t.Fatalf("%x\n%x", b, again)
	}
}

func TestElementsWithoutBytesAreBounded(t *testing.T) {
	t.Parallel()
	v, _, err := DecodeValue(unhex(t, `f0 00000005 00001000 41`))
	if err != nil || len(v.(Array).Values.([]any)) != zeroWidthElementsMax {
		t.Fatal(err)
	}
}

// A descriptor that an array holds once is not multiplied by the elements, neither in memory nor when the
// array is encoded again.
func TestDescribedArrayIsKept(t *testing.T) {
	constructor := append([]byte{codeDescribed}, AppendSymbol(nil, Symbol(strings.Repeat("d", 1000)))...)
	constructor = append(constructor, codeNull)
	b := []byte{codeArray32, 0, 0, byte((len(constructor) + 4) >> 8), byte(len(constructor) + 4), 0, 0, 0x0f, 0xff}
	b = append(b, constructor...)
	var v any
	var err error
	if n := testing.AllocsPerRun(10, func() { v, _, err = DecodeValue(b) }); n > 3 || err != nil {
		t.Fatal(n, err)
	}
	if again := AppendValue(nil, v); !bytes.Equal(again, b) {
		t.Fatalf("%d bytes became %d", len(b), len(again))
	}
}

func FuzzDecodeValue(f *testing.F) {
	for _, b := range hostile(f) {
		f.Add(b)
	}
	for _, g := range goldenFrames() {
		f.Add(unhex(f, g.hex)[8:])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		checked, checkErr := CheckValue(data)
		v, rest, err := DecodeValue(data)
		if err != nil {
			return
		}
		if checkErr != nil || len(checked) != len(rest) {
			t.Fatalf("decoded, but check says %v, rest %d and %d", checkErr, len(checked), len(rest))
		}
		if skipped, err := SkipValue(data); err != nil || len(skipped) != len(rest) {
			t.Fatalf("decoded, but skip says %v", err)
		}
		once := AppendValue(nil, v)
		again, rest, err := DecodeValue(once)
		if err != nil || len(rest) != 0 {
			t.Fatalf("what was written cannot be read: %v\n%x", err, once)
		}
		if twice := AppendValue(nil, again); !bytes.Equal(once, twice) {
			t.Fatalf("not stable\n%x\n%x", once, twice)
		}
	})
}
