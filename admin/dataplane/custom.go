package dataplane

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/peeklock/peeklock/amqp/wire"
)

// isTransport reports whether a header, in its canonical form, belongs to HTTP, to the interface or to what is between
// client and server, and is no property of a message.
func isTransport(canonical string) bool {
	switch canonical {
	case "Accept", "Authorization", "Brokerproperties", "Cache-Control", "Connection", "Cookie", "Date", "Dnt", "Expect", "Forwarded", "From", "Host",
		"Keep-Alive", "Location", "Max-Forwards", "Origin", "Pragma", "Range", "Referer", "Server", "Servicebusauthorization", "Te", "Trailer", "Transfer-Encoding",
		"Upgrade", "Upgrade-Insecure-Requests", "User-Agent", "Via", "Warning", "Strict-Transport-Security", "X-Real-Ip", "X-Request-Id":
		return true
	}
	for _, prefix := range []string{"Accept-", "Content-", "If-", "Proxy-", "Sec-", "X-Forwarded-", "X-Ms-"} {
		if strings.HasPrefix(canonical, prefix) {
			return true
		}
	}
	return false
}

// isHeaderName reports whether a property can be a header of an answer, and is none of HTTP itself.
func isHeaderName(name string) bool {
	for _, c := range []byte(name) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return name != "" && !isTransport(http.CanonicalHeaderKey(name))
}

// customProperties reads the properties in the headers of a request, in the order of their names.
func customProperties(header http.Header, spelling func(string) string) wire.Map {
	var custom wire.Map
	for canonical, values := range header {
		if !isTransport(canonical) {
			custom = append(custom, wire.Pair{Key: spelling(canonical), Value: headerValue(strings.Join(values, ","))})
		}
	}
	sortMap(custom)
	return custom
}

// userProperties reads the properties of a message in a batch.
func userProperties(from map[string]any) wire.Map {
	var custom wire.Map
	for name, value := range from {
		switch v := value.(type) {
		case nil:
			continue
		case float64:
			value = number(v)
		case string, bool:
		default: // a list or an object
			text, _ := json.Marshal(v)
			value = string(text)
		}
		custom = append(custom, wire.Pair{Key: name, Value: value})
	}
	sortMap(custom)
	return custom
}

func sortMap(m wire.Map) {
	slices.SortFunc(m, func(a, b wire.Pair) int { return strings.Compare(a.Key.(string), b.Key.(string)) }) //nolint:forcetypeassert // made above
}

// number is a number of JSON: a long if it is whole.
func number(v float64) any {
	if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
		return int64(v)
	}
	return v
}

// headerValue reads the value of a property: a text or a time in quotes, a number, true or false; any other text as it is.
func headerValue(text string) any {
	if len(text) >= 2 && text[0] == '"' && text[len(text)-1] == '"' {
		inner := strings.ReplaceAll(text[1:len(text)-1], `\"`, `"`)
		if at, err := time.Parse(http.TimeFormat, inner); err == nil {
			return at.UTC()
		}
		return strings.ToValidUTF8(inner, "\ufffd")
	}
	switch strings.ToLower(text) {
	case "true":
		return true
	case "false":
		return false
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
		return f
	}
	return strings.ToValidUTF8(text, "\ufffd")
}

// headerText writes the value of a property; false for values that headers cannot have: null, lists and maps.
func headerText(v any) (string, bool) {
	switch v := v.(type) {
	case nil, []any, wire.Map, wire.Array, wire.Raw:
		return "", false
	case bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float32, float64:
		return fmt.Sprint(v), true
	case time.Time:
		return `"` + v.UTC().Format(http.TimeFormat) + `"`, true
	}
	text := strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, plainText(v))
	return `"` + strings.ReplaceAll(text, `"`, `\"`) + `"`, true
}

// plainText is a value as text.
func plainText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case wire.Symbol:
		return string(v)
	case wire.Char:
		return string(rune(v))
	case wire.UUID:
		return fmt.Sprintf("%x-%x-%x-%x-%x", v[:4], v[4:6], v[6:8], v[8:10], v[10:])
	case []byte:
		return fmt.Sprintf("%x", v)
	case wire.Described:
		return plainText(v.Value)
	case time.Time:
		return v.UTC().Format(http.TimeFormat)
	}
	return fmt.Sprint(v)
}

// body collects the body sections of a message.
type body struct {
	sections []any
}

func (b *body) add(v any) { b.sections = append(b.sections, v) }

// bytes returns bytes and texts as they are, one after another, and any other value as JSON.
func (b *body) bytes() []byte {
	var out []byte
	for _, v := range b.sections {
		switch v := v.(type) {
		case []byte:
			out = append(out, v...)
		case string:
			out = append(out, v...)
		case nil:
		default:
			text, err := json.Marshal(jsonValue(v))
			if err != nil { // a number that JSON lacks
				text = []byte(plainText(v))
			}
			out = append(out, text...)
		}
	}
	return out
}

// jsonValue converts a value of AMQP to one that JSON has.
func jsonValue(v any) any {
	switch v := v.(type) {
	case nil, bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float32, float64, string:
		return v
	case []byte:
		if utf8.Valid(v) {
			return string(v)
		}
		return v // base64
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = jsonValue(v[i])
		}
		return list
	case wire.Map:
		object := make(map[string]any, len(v))
		for _, pair := range v {
			object[plainText(pair.Key)] = jsonValue(pair.Value)
		}
		return object
	case wire.Array:
		return v.Values
	case wire.Described:
		return jsonValue(v.Value)
	}
	return plainText(v)
}
