package partition

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/peeklock/peeklock/fsm"
)

// The log format: these bytes must decode in all future releases.
const (
	goldenEntry  = "01" + "8080e4c3f433" + goldenRest
	goldenEntry2 = "02" + "8080e4c3f433" + "98ffe3c3f433" + goldenRest
	goldenRest   = "efcdab8967452301" + "02" + "03616263" + "00"
)

func goldenParts() (fsm.Times, uint64, [][]byte) {
	return fsm.Times{Wall: 1783627317248, Serving: 1783627317144}, 0x0123456789abcdef, [][]byte{[]byte("abc"), {}}
}

func TestEntryEncodingIsStable(t *testing.T) {
	t.Parallel()
	for version, text := range map[byte]string{entryVersion1: goldenEntry, entryVersion2: goldenEntry2} {
		times, id, commands := goldenParts()
		got := encodeEntry(version, times, id, commands)
		want, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("encoded\n%x, want\n%x", got, want)
		}
		if version == entryVersion1 {
			times.Serving = 0
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
	for _, text := range []string{goldenEntry, goldenEntry2} {
		good, _ := hex.DecodeString(text)
		for i := range good {
			if _, _, err := decodeAll(good[:i]); err == nil {
				t.Errorf("cut at %d decodes", i)
			}
		}
	}
	for name, text := range map[string]string{
		"version 0":       "00" + goldenEntry[2:],
		"version 3":       "03" + goldenEntry2[2:],
		"long serving":    "02" + "05" + "8500" + goldenRest,
		"no commands":     "01" + "05" + "0000000000000000" + "00",
		"long number":     "01" + "8500" + "0000000000000000" + "01" + "00",
		"bytes left over": goldenEntry + "00",
		"huge count":      "01" + "05" + "0000000000000000" + "ffffffff0f" + "00",
	} {
		b, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := decodeAll(b); err == nil {
			t.Errorf("%s decodes", name)
		}
	}
}

func FuzzEntry(f *testing.F) {
	good, _ := hex.DecodeString(goldenEntry)
	f.Add(good)
	second, _ := hex.DecodeString(goldenEntry2)
	f.Add(second)
	f.Fuzz(func(t *testing.T, b []byte) {
		h, commands, err := decodeAll(b)
		if err != nil {
			return
		}
		if again := encodeEntry(b[0], h.times, h.batch, commands); !bytes.Equal(again, b) {
			t.Errorf("%x encodes to %x", b, again)
		}
	})
}
