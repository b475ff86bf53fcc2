package entity

import (
	"encoding/json"
	"testing"
)

// Every value that can be read is written as the same value.
func FuzzValue(f *testing.F) {
	for _, seed := range []string{
		`null`, `true`, `-7`, `7.0`, `1e300`, `"text"`, `{"type":"guid","value":"0d2c3a5e-1b2c-4d5e-8f90-a1b2c3d4e5f6"}`,
		`{"type":"time","value":"2026-11-20T12:00:00.5+01:00"}`, `{"type":"binary","value":"AAEC"}`, `{"type":"double","value":"-Infinity"}`, `{"type":"int","value":1}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var first, second Value
		if json.Unmarshal(data, &first) != nil {
			return
		}
		text, err := json.Marshal(first)
		if err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if err := json.Unmarshal(text, &second); err != nil || first != second {
			t.Errorf("%s became %s and then %v, %v", data, text, second, err)
		}
	})
}
