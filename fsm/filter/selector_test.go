package filter_test

import (
	"strings"
	"testing"

	"github.com/peeklock/peeklock/fsm/filter"
)

func TestSelectorsBecomeSQL(t *testing.T) {
	for _, c := range []struct{ selector, sql string }{
		{"", "1=1"},
		{" \t\n", "1=1"},
		{"color = 'red'", "color = 'red'"},
		{"JMSType='car' AND color='blue' and weight > 2500", "sys.Label = 'car' AND color = 'blue' AND weight > 2500"},
		{"JMSMessageID = 'ID:1' OR JMSCorrelationID='x' or JMSXGroupID <> 'g'", "sys.MessageId = 'ID:1' OR sys.CorrelationId = 'x' OR sys.SessionId <> 'g'"},
		{"age BETWEEN 15 AND 19 AND x = 1", "(age >= 15 AND age <= 19) AND x = 1"},
		{"age + 1 NOT BETWEEN -1 AND (2 * 3)", "NOT (age + 1 >= -1 AND age + 1 <= 2 * 3)"},
		{"Country IN ('UK', 'US','Fran''ce')", "Country IN ('UK', 'US', 'Fran''ce')"},
		{"Country NOT IN ('UK')", "Country NOT IN ('UK')"},
		{"phone LIKE '12%3'", "phone LIKE '12%3'"},
		{`underscored NOT LIKE '\_%' ESCAPE '\'`, `underscored NOT LIKE '\_%' ESCAPE '\'`},
		{"prop_name IS NULL or prop_name Is Not Null", "prop_name IS NULL OR prop_name IS NOT NULL"},
		{"NOT (a OR b) AND NOT NOT c", "NOT (a OR b) AND NOT NOT c"},
		{"flag", "flag"},
		{"TRUE", "TRUE"},
		{"flag = TRUE AND (other) <> false", "flag = TRUE AND other <> FALSE"},
		{"57 = x AND -957=x AND +62 = x AND 62L=x AND 0x1F = x AND 017 = x AND 0b101 = x", "57 = x AND -957 = x AND 62 = x AND 62 = x AND 31 = x AND 15 = x AND 5 = x"},
		{"7E3 = x AND -57.9E-2 = x AND 7. = x AND .5 = x AND 3f = x AND 1.5D = x", "7000.0 = x AND -0.579 = x AND 7.0 = x AND 0.5 = x AND 3.0 = x AND 1.5 = x"},
		{"x = -9223372036854775808", "x = -9223372036854775808"},
		{"a*(b-c)/d = - - 5", "a * (b - c) / d = 5"},
		{"_a = 1 AND $b = 2 AND exists = 3 AND größe = 4", "[_a] = 1 AND [$b] = 2 AND [exists] = 3 AND größe = 4"},
		{`"a-b.c" = 1 AND "a]""b" = 2 AND "null" = 3`, `[a-b.c] = 1 AND [a]]"b] = 2 AND [null] = 3`},
		{"(JMSMessageID) = ('ID:AMQP_ULONG:7') AND (a) IS NULL AND (a) IN ('x')", "sys.MessageId = '7' AND a IS NULL AND a IN ('x')"},
		{"0xe-5 = x AND 0XFL = 1e-2f", "14 - 5 = x AND 15 = 0.01"},
		{`"between" = 1`, "between = 1"},
		{"sys = 1 AND newid = 2 AND p = 3 AND user = 4 AND set = 5", "sys = 1 AND newid = 2 AND p = 3 AND user = 4 AND [set] = 5"},

		{"JMSCorrelationID = 'ID:AMQP_NO_PREFIX:x'", "sys.CorrelationId = 'x'"},
		{"'ID:AMQP_UUID:0A1B' = JMSMessageID", "'0a1b' = sys.MessageId"},
		{"JMSMessageID IN ('ID:AMQP_ULONG:7', 'ID:AMQP_STRING:ID:AMQP_UUID:x')", "sys.MessageId IN ('7', 'ID:AMQP_UUID:x')"},
		{"JMSType = 'ID:AMQP_ULONG:7' AND JMSMessageID LIKE 'ID:AMQP_ULONG:7'", "sys.Label = 'ID:AMQP_ULONG:7' AND sys.MessageId LIKE 'ID:AMQP_ULONG:7'"},
		{"JMSMessageID = 'ID:AMQP_BINARY:00'", "sys.MessageId = 'ID:AMQP_BINARY:00'"},
	} {
		if sql, err := filter.SelectorSQL(c.selector); sql != c.sql || err != nil {
			t.Errorf("SelectorSQL(%q) = %q, %v; want %q", c.selector, sql, err, c.sql)
		}
	}
}

func TestErrorsTellWhereASelectorIsWrong(t *testing.T) {
	for _, c := range []struct{ selector, words string }{
		{"color =", "character 8: expected a value, a property or a condition, found the end"},
		{"color = 'red", `character 13: expected a closing ', found the end`},
		{`"a = 1`, `character 7: expected a closing ", found the end`},
		{`"" = 1`, "character 1: expected a name"},
		{"a = 1 b", `character 7: expected an operator or the end, found "b"`},
		{"größe = ?", `character 9: expected a name, a value or an operator, found "?"`},
		{"a != 1", `character 3: expected a name, a value or an operator, found "!"`},
		{"a.b = 1", `character 2: expected a name, a value or an operator, found "."`},
		{"5", "character 1: expected a condition"},
		{"'text' AND a", "character 1: expected a condition"},
		{"a + 1 OR b", "character 1: expected a condition"},
		{"(a = 1) = 2", "character 1: expected a value"},
		{"(a AND b) IS NULL", "character 1: expected a value"},
		{"a AND b > 1 = 2", "character 13: expected an operator or the end"},
		{"'a' IS NULL", "character 5: expected IS NULL after a property only"},
		{"'a' LIKE 'b'", "character 5: expected an identifier before IN or LIKE"},
		{"a LIKE b", "character 8: expected a string between single quotes"},
		{"a LIKE 'b' ESCAPE 'xx'", "ESCAPE of one character"},
		{"a LIKE 'bx' ESCAPE 'x'", "ESCAPE of one character"},
		{"a IN (1)", "character 7: expected a string between single quotes"},
		{"a IN ()", "character 7: expected a string between single quotes"},
		{"a IN ('x' 'y')", "character 11: expected , or )"},
		{"a NOT 1", "character 7: expected BETWEEN, IN or LIKE"},
		{"a BETWEEN 1 OR 2", "character 13: expected AND"},
		{"a IS 1", "character 6: expected NULL"},
		{"(a = 1", "character 7: expected an operator or ), found the end"},
		{"a = 12x", `character 5: expected an integer of 64 bits, found "12x"`},
		{"a = 08", "character 5: expected an integer of 64 bits"},
		{"a = 1_000", "character 5: expected an integer of 64 bits"},
		{"a = 0o17", "character 5: expected an integer of 64 bits"},
		{"a = 1_0.5", "character 5: expected a number"},
		{"a % 2 = 1", "character 3: expected a name, a value or an operator"},
		{"[a] = 1", "character 1: expected a name, a value or an operator"},
		{"a = @b", "character 5: expected a name, a value or an operator"},
		{"newid() = 'x'", "character 6: expected an operator or the end"},
		{"5 IN ('x')", "character 3: expected an identifier before IN or LIKE"},
		{"a = 1LL", "character 5: expected an integer of 64 bits"},
		{"a = 1.5L", "character 5: expected a number"},
		{"a = 1e", "character 5: expected a number"},
		{"a = 1ff", "character 5: expected a number"},
		{"a = 9223372036854775808", "an integer of 64 bits"},
		{"a = NULL", "character 5: expected a value, a property or a condition"},
		{"JMSPriority > 4", `character 1: expected a property of the message, or one of JMSMessageID, JMSCorrelationID, JMSType and JMSXGroupID`},
		{"a = 1 AND JMSTimestamp > 4", "character 11: expected a property"},
		{"JMSReplyTo IS NULL", "character 1: expected a property"},
		{"a = '\xff'", "character 6: expected UTF-8"},
		{strings.Repeat("(", filter.DepthMax+1) + "a" + strings.Repeat(")", filter.DepthMax+1), "at most 100 levels of nesting"},
		{strings.Repeat("NOT ", filter.DepthMax+1) + "a", "at most 100 levels of nesting"},
		{"a = " + strings.Repeat("- ", filter.DepthMax+1) + "1", "at most 100 levels of nesting"},
		{"a = '" + strings.Repeat("x", filter.TextCharactersMax) + "'", "character 1025: expected the end, after at most 1024 characters"},
		{strings.Repeat("$", filter.TextCharactersMax-4) + " = 1", "in the SQL filter that the selector becomes, character 1025"},
	} {
		if sql, err := filter.SelectorSQL(c.selector); err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("SelectorSQL(%q) = %q, %v; want an error with %q", c.selector, sql, err, c.words)
		}
	}
}

func TestLongestAndDeepestSelectorsAreTaken(t *testing.T) {
	for _, selector := range []string{
		"a = '" + strings.Repeat("ü", filter.TextCharactersMax-6) + "'",
		strings.Repeat("(", filter.DepthMax) + "a" + strings.Repeat(")", filter.DepthMax),
		strings.Repeat("NOT ", filter.DepthMax) + "a",
	} {
		if _, err := filter.SelectorSQL(selector); err != nil {
			t.Errorf("SelectorSQL of %d characters: %v", len(selector), err)
		}
	}
}

// car is a message with properties of all types.
type car struct{}

func (car) System(name string) filter.Value {
	switch name {
	case filter.MessageID:
		return filter.Text("ID:1")
	case filter.CorrelationID:
		return filter.Text("7")
	}
	return filter.Value{}
}

func (car) User(name string) (filter.Value, bool) {
	v, found := map[string]filter.Value{
		"color": filter.Text("blue"), "weight": filter.Int(2500), "price": filter.Double(0.5), "used": filter.Bool(true), "$x-y": filter.Int(1),
	}[name]
	return v, found
}

func (car) NewID(int) filter.GUID { return filter.GUID{} }

func TestSelectorsMeanWhatTheStandardSays(t *testing.T) {
	for selector, want := range map[string]filter.Truth{
		"":                                     filter.True,
		"color = 'blue'":                       filter.True,
		"color <> 'blue'":                      filter.False,
		"color IN ('red','blue')":              filter.True,
		"color NOT IN ('red')":                 filter.True,
		"missing = 1":                          filter.Unknown,
		"NOT missing = 1":                      filter.Unknown,
		"missing = 1 OR used":                  filter.True,
		"missing IN ('x')":                     filter.Unknown,
		"missing LIKE '%'":                     filter.Unknown,
		"missing IS NULL":                      filter.True,
		"color IS NULL":                        filter.False,
		"JMSType IS NULL":                      filter.True,
		"JMSMessageID = 'ID:1'":                filter.True,
		"JMSCorrelationID = 'ID:AMQP_ULONG:7'": filter.True,
		"weight BETWEEN 2500 AND 2500":         filter.True,
		"weight BETWEEN 2501 AND 3000":         filter.False,
		"weight NOT BETWEEN 1 AND 2":           filter.True,
		"missing BETWEEN 1 AND 2":              filter.Unknown,
		"weight * price = 1250":                filter.True,
		"weight / 1000 = 2":                    filter.True,
		"weight = 2500.0":                      filter.True,
		"weight = '2500'":                      filter.Unknown, // the standard says false
		"1 + 2 * 3 = 7 AND (1 + 2) * 3 = 9":    filter.True,
		"10 - 2 - 3 = 5":                       filter.True,
		"used = TRUE AND NOT used = FALSE":     filter.True,
		"used OR missing AND FALSE":            filter.True,
		"color LIKE 'b_u%'":                    filter.True,
		"color LIKE 'b^_u%' ESCAPE '^'":        filter.False,
		`"$x-y" = 1`:                           filter.True,
	} {
		sql, err := filter.SelectorSQL(selector)
		if err != nil {
			t.Errorf("SelectorSQL(%q): %v", selector, err)
			continue
		}
		parsed, err := filter.Parse(sql, nil)
		if err != nil {
			t.Errorf("parse %q: %v", sql, err)
			continue
		}
		if got, err := parsed.Match(car{}); got != want || err != nil {
			t.Errorf("%q is %v, %v; want %v", selector, got, err, want)
		}
	}
}

// FuzzSelectors: what the parser of selectors accepts is an SQL filter, unless that is too long or too deep.
func FuzzSelectors(f *testing.F) {
	for _, selector := range []string{
		"JMSType='car' AND color='blue' and weight > 2500", "age NOT BETWEEN -1.5e3 AND 0x1FL OR a IN ('x','y''z')",
		`"a]b" LIKE '\_%' ESCAPE '\' AND NOT (b IS NOT NULL) AND _c * 2 = - - .5f`, "JMSMessageID = 'ID:AMQP_UUID:x' OR flag = TRUE",
	} {
		f.Add(selector)
	}
	f.Fuzz(func(t *testing.T, selector string) {
		_, err := filter.SelectorSQL(selector)
		if err == nil || !strings.Contains(err.Error(), "in the SQL filter") {
			return
		}
		if why := err.Error(); !strings.Contains(why, "characters") && !strings.Contains(why, "levels of nesting") {
			t.Fatalf("%q: %v", selector, err)
		}
	})
}
