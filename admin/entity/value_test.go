package entity

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/peeklock/peeklock/fsm/filter"
)

// Every value is read back as the same value of the same type.
func TestValuesKeepTheirTypeInJSON(t *testing.T) {
	t.Parallel()
	for _, v := range []filter.Value{
		{},
		filter.Bool(true), filter.Bool(false), filter.Int(0), filter.Int(math.MinInt64), filter.Int(math.MaxInt64), filter.Int(1<<53 + 1),
		filter.Double(0), filter.Double(math.Copysign(0, -1)), filter.Double(5), filter.Double(-2.5), filter.Double(1e300), filter.Double(5e-324), filter.Double(1 << 62),
		filter.Double(math.Inf(1)), filter.Double(math.Inf(-1)), filter.Double(math.NaN()),
		filter.Text(""), filter.Text("a \"b\" \u00e4 <&>"), filter.Time(0), filter.Time(-1), filter.Time(1795176000123),
		filter.ID(filter.GUID{1, 2, 0xfe}), filter.Binary(nil), filter.Binary([]byte{0, 255}),
	} {
		text, err := json.Marshal(Value{Value: v})
		if err != nil {
			t.Errorf("%v: %v", v, err)
			continue
		}
		var got Value
		if err := json.Unmarshal(text, &got); err != nil || got.Value != v {
			t.Errorf("%v: %s became %v, %v", v, text, got.Value, err)
		}
	}
	for text, want := range map[string]filter.Value{
		`1e2`: filter.Double(100), `-0`: filter.Int(0), `{"type":"double","value":5}`: filter.Double(5), `{"type":"int","value":7}`: filter.Int(7),
		`{"type":"guid","value":"0D2C3A5E-1B2C-4D5E-8F90-A1B2C3D4E5F6"}`: filter.ID(filter.GUID{0x0d, 0x2c, 0x3a, 0x5e, 0x1b, 0x2c, 0x4d, 0x5e, 0x8f, 0x90, 0xa1, 0xb2, 0xc3, 0xd4, 0xe5, 0xf6}),
	} {
		var got Value
		if err := json.Unmarshal([]byte(text), &got); err != nil || got.Value != want {
			t.Errorf("%s: %v %v", text, got.Value, err)
		}
	}
	for _, text := range []string{
		`[]`, `{}`, `{"type":"guid"}`, `{"type":"text","value":"x"}`, `{"type":"time","value":"today"}`, `{"type":"binary","value":"?"}`,
		`{"type":"int","value":"1.5"}`, `{"type":"double","value":"x"}`, `{"type":"int","value":1,"more":2}`, `1e999`,
		`{"type":"guid","value":"0d2c3a5e1b2c4d5e8f90a1b2c3d4e5f6"}`, `{"type":"guid","value":""}`,
	} {
		var got Value
		if err := json.Unmarshal([]byte(text), &got); err == nil {
			t.Errorf("%s is %v", text, got.Value)
		}
	}
}
