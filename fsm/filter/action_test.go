package filter

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// changes says what an action changed: what differs from the sample, by name.
func changes(m *fake) string {
	before := sample()
	var out []string
	list := func(prefix string, was, is map[string]Value) {
		for _, name := range sortedKeys(was) {
			if _, still := is[name]; !still {
				out = append(out, "-"+prefix+name)
			}
		}
		for _, name := range sortedKeys(is) {
			if old, had := was[name]; !had || old != is[name] {
				out = append(out, fmt.Sprintf("%s%s=%v %v", prefix, name, is[name].Kind(), is[name]))
			}
		}
	}
	list("sys.", before.system, m.system)
	list("", before.user, m.user)
	return strings.Join(out, "; ")
}

func TestActionsChangeProperties(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		// SET makes and changes, REMOVE takes away
		"SET x = 1":                           "x=an integer 1",
		"set x = 'a'":                         "x=a string a",
		"SET x = 2.5;":                        "x=a decimal 2.5",
		"SET x = TRUE":                        "x=a boolean True",
		"SET x = NULL":                        "x=NULL NULL",
		"SET x = missing":                     "x=NULL NULL",
		"SET [two words] = 3":                 "two words=an integer 3",
		"SET user.x = sys.Label":              "x=a string order",
		"SET x = @s + '-' + @i":               "x=a string red-10",
		"SET x = property('color')":           "x=a string red",
		"SET x = newid()":                     "x=a GUID " + DeriveID(42, 7, 0).String(),
		"REMOVE color":                        "-color",
		"REMOVE missing":                      "",
		"REMOVE COLOR":                        "", // the fake removes by spelling only
		"SET sys.Label = 'x'":                 "sys.Label=a string x",
		"SET SYS.label = 'x'":                 "sys.Label=a string x",
		"SET sys.To = 'q2'; REMOVE user.Size": "sys.To=a string q2; -Size",
		"REMOVE sys.Label":                    "sys.Label=NULL NULL",
		// statements see what those before them did; semicolons may be left out
		"SET x = 1; SET y = x + 1; SET x = y * 10":   "x=an integer 20; y=an integer 2",
		"SET x = 1 SET y = x REMOVE Size":            "-Size; x=an integer 1; y=an integer 1",
		"SET x = color; REMOVE color; SET y = color": "-color; x=a string red; y=NULL NULL",
		// the documentation's example
		"SET Size = Size / 2;": "Size=an integer 5",
		// a new value takes the type of the old one if it can
		"SET price = 3":      "price=a decimal 3",
		"SET price = '3.5'":  "price=a decimal 3.5",
		"SET price = 'x'":    "price=a string x",
		"SET Size = '11'":    "Size=an integer 11",
		"SET Size = 11.0":    "Size=an integer 11",
		"SET Size = 11.5":    "Size=a decimal 11.5",
		"SET Size = 1E300":   "Size=a decimal 1E+300",
		"SET Size = nan":     "Size=a decimal NaN",
		"SET price = 'NaN'":  "price=a string NaN",
		"SET price = '0x10'": "price=a string 0x10",
		"SET flag = 'false'": "flag=a boolean False",
		"SET off = 'TRUE'":   "off=a boolean True",
		"SET flag = 'yes'":   "flag=a string yes",
		"SET flag = 0":       "flag=an integer 0",
		"SET color = 5":      "color=a string 5",
		"SET color = 5.5":    "color=a string 5.5",
		"SET color = off":    "color=a string False",
		"SET color = guid":   "color=a string 01020304-0506-0708-090a-0b0c0d0e0f10",
		"SET color = NULL":   "color=NULL NULL",
		"SET sys.Label = 5":  "sys.Label=a string 5",
		"SET color = when":   "color=a timestamp 2000",
		"SET guid = 'a1020304-0506-0708-090A-0b0c0d0e0f1f'": "guid=a GUID a1020304-0506-0708-090a-0b0c0d0e0f1f",
		"SET guid = 'a1020304+0506-0708-090a-0b0c0d0e0f1f'": "guid=a string a1020304+0506-0708-090a-0b0c0d0e0f1f",
		"SET guid = 'a102'": "guid=a string a102",
	} {
		a, err := ParseAction(text, parameters())
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		m := sample()
		if err := a.Apply(m, m); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if got := strings.ReplaceAll(changes(m), "nan=a decimal NaN; ", ""); got != want {
			t.Errorf("%s:\n got %s\nwant %s", text, got, want)
		}
		again, err := ParseAction(a.String(), parameters())
		if err != nil || again.String() != a.String() {
			t.Errorf("%s printed as %s: %v", text, a, err)
		}
	}
}

func TestActionsThatDoNotParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"": 1, ";": 1, "x = 1": 1, "UPDATE x = 1": 1, "SET": 4, "SET x": 6, "SET x 1": 7, "SET x = ": 9, "SET x = 1 = 2": 11,
		"SET x = (1 = 1)": 9, "SET 1 = 1": 5, "SET @s = 1": 5, "SET set = 1": 5, "REMOVE": 7, "REMOVE x y": 10,
		"SET x = 1;; SET y = 2": 11, "SET x = 1, SET y = 2": 10, "SET other.x = 1": 5, "SET x = NOT TRUE": 9, "SET p('x') = 1": 6,
	} {
		_, err := ParseAction(text, parameters())
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || syntax.Position != want {
			t.Errorf("%q: got %v, want an error at %d", text, err, want)
		}
	}
}

// stubborn refuses every change.
type stubborn struct{ *fake }

var errStubborn = errors.New("no")

func (stubborn) Set(Property, Value, string) error { return errStubborn }
func (stubborn) Remove(Property) error             { return errStubborn }

func TestActionsFailAtTheFirstError(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]error{
		"SET x = 1; SET y = 1/0; SET z = 1":      ErrDivision,
		"SET x = 1; SET sys.Nonsense = 1":        ErrUnknownProperty,
		"SET x = 1; REMOVE sys.Nonsense":         ErrUnknownProperty,
		"SET x = 1; SET y = sys.Nonsense":        ErrUnknownProperty,
		"SET x = 1; SET y = -color; REMOVE Size": ErrOperand,
	} {
		a, err := ParseAction(text, nil)
		if err != nil {
			t.Fatal(err)
		}
		m := sample()
		err = a.Apply(m, m)
		if !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", text, err, want)
		}
		if got := changes(m); !strings.HasSuffix(got, "x=an integer 1") || strings.Contains(got, "-Size") {
			t.Errorf("%s: changed %s", text, got)
		}
	}
	for _, text := range []string{"SET x = 1", "REMOVE x"} {
		a, err := ParseAction(text, nil)
		if err != nil {
			t.Fatal(err)
		}
		m := sample()
		if err := a.Apply(m, stubborn{m}); !errors.Is(err, errStubborn) || !strings.Contains(err.Error(), text[:3]) {
			t.Errorf("%s: got %v", text, err)
		}
	}
}
