package partition

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// The format of the data of an entry.
const (
	goldenEntry = "91" + "8080e4c3f433" + "98ffe3c3f433" + goldenRest
	goldenRest  = "efcdab8967452301" + "02" + "03616263" + "00"
)

func goldenParts() (fsm.Times, uint64, [][]byte) {
	return fsm.Times{Wall: 1783627317248, Serving: 1783627317144}, 0x0123456789abcdef, [][]byte{[]byte("abc"), {}}
}

func TestEntryEncodingIsStable(t *testing.T) {
	t.Parallel()
	times, id, commands := goldenParts()
	got := encodeEntry(times, id, commands)
	want := kit.Must(hex.DecodeString(goldenEntry))(t)
	if !bytes.Equal(got, want) {
		t.Fatalf("encoded\n%x, want\n%x", got, want)
	}
	h, err := decodeEntry(want)
	if err != nil || h.times != times || h.batch != id || h.count != 2 {
		t.Fatalf("%+v %v", h, err)
	}
	for i, c := range commands {
		if b, err := h.next(i == 1); err != nil || !bytes.Equal(b, c) {
			t.Errorf("command %d: %q %v", i, b, err)
		}
	}
}

// decodeAll decodes a whole entry as apply does.
func decodeAll(b []byte) (entryHead, [][]byte, error) {
	h, err := decodeEntry(b)
	if err != nil {
		return h, nil, err
	}
	var commands [][]byte
	head := h
	for i := range h.count {
		c, err := head.next(i == h.count-1)
		if err != nil {
			return h, nil, err
		}
		commands = append(commands, c)
	}
	return h, commands, nil
}

func TestEntryDecodingIsStrict(t *testing.T) {
	t.Parallel()
	good, _ := hex.DecodeString(goldenEntry)
	for i := range good {
		if _, _, err := decodeAll(good[:i]); err == nil {
			t.Errorf("cut at %d decodes", i)
		}
	}
	for name, text := range map[string]string{
		"version 0":       "00" + goldenEntry[2:],
		"version 2":       "92" + goldenEntry[2:],
		"long serving":    "91" + "05" + "8500" + goldenRest,
		"no commands":     "91" + "05" + "05" + "0000000000000000" + "00",
		"long number":     "91" + "8500" + "05" + "0000000000000000" + "01" + "00",
		"bytes left over": goldenEntry + "00",
		"huge count":      "91" + "05" + "05" + "0000000000000000" + "ffffffff0f" + "00",
	} {
		b := kit.Must(hex.DecodeString(text))(t)
		if _, _, err := decodeAll(b); err == nil {
			t.Errorf("%s decodes", name)
		}
	}
}

func FuzzEntry(f *testing.F) {
	good, _ := hex.DecodeString(goldenEntry)
	f.Add(good)
	f.Fuzz(func(t *testing.T, b []byte) {
		h, commands, err := decodeAll(b)
		if err != nil {
			return
		}
		if again := encodeEntry(h.times, h.batch, commands); !bytes.Equal(again, b) {
			t.Errorf("%x encodes to %x", b, again)
		}
	})
}
