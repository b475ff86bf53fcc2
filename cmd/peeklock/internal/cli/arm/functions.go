package arm

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// functions are those that Bicep writes for texts, lists, objects and conditions. The names are in lower case.
var functions = map[string]func(arguments []any) (any, error){ //nolint:gochecknoglobals // never changed
	"concat": concat, "format": format, "length": length, "empty": empty, "equals": equals, "contains": contains, "union": union,
	"range": integers, "split": split, "join": join, "replace": replace, "substring": substring, "tryget": tryGet,
	"true":        func([]any) (any, error) { return true, nil },
	"false":       func([]any) (any, error) { return false, nil },
	"null":        func([]any) (any, error) { return nil, nil },
	"createarray": func(a []any) (any, error) { return slices.Concat([]any{}, a), nil },
	"createobject": func(a []any) (any, error) {
		made := map[string]any{}
		for i := 0; i+1 < len(a); i += 2 {
			key, _ := a[i].(string)
			made[key] = a[i+1]
		}
		return made, nil
	},
	"string":  func(a []any) (any, error) { return textOf(argument(a, 0)), nil },
	"int":     func(a []any) (any, error) { return strconv.ParseInt(textOf(argument(a, 0)), 10, 64) },
	"bool":    func(a []any) (any, error) { return strings.EqualFold(textOf(argument(a, 0)), "true"), nil },
	"tolower": ofText(strings.ToLower), "toupper": ofText(strings.ToUpper), "trim": ofText(strings.TrimSpace),
	"first": func(a []any) (any, error) { return element(argument(a, 0), 0) },
	"last": func(a []any) (any, error) {
		list, _ := argument(a, 0).([]any)
		return element(argument(a, 0), int64(len(list)-1))
	},
	"add": ofNumbers(func(a, b int64) int64 { return a + b }), "sub": ofNumbers(func(a, b int64) int64 { return a - b }), "mul": ofNumbers(func(a, b int64) int64 { return a * b }),
	"not": func(a []any) (any, error) {
		is, ok := argument(a, 0).(bool)
		return !is, mustBe(ok, "a condition")
	},
}

// passing are the functions to whose arguments unknown texts may belong: they become a part of the value.
var passing = []string{"concat", "format", "createarray", "createobject", "union", "tryget", "string"} //nolint:gochecknoglobals // never changed

// inAzure are the functions that only a deployment can evaluate. Their values are unknown.
var inAzure = []string{ //nolint:gochecknoglobals // never changed
	"resourcegroup", "subscription", "tenant", "managementgroup", "deployment", "environment", "uniquestring", "guid", "newguid", "utcnow",
	"resourceid", "subscriptionresourceid", "extensionresourceid", "reference", "listkeys",
}

// mustBe returns an error unless the arguments are what a function needs.
func mustBe(ok bool, what string) error {
	if !ok {
		return errors.New("needs " + what)
	}
	return nil
}

func argument(list []any, at int) any {
	if at >= len(list) {
		return nil
	}
	return list[at]
}

// textOf returns a value as format and string write it.
func textOf(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case bool:
		if v {
			return "True"
		}
		return "False"
	}
	return fmt.Sprint(value)
}

func ofText(change func(string) string) func([]any) (any, error) {
	return func(a []any) (any, error) { return change(textOf(argument(a, 0))), nil }
}

func ofNumbers(combine func(a, b int64) int64) func([]any) (any, error) {
	return func(list []any) (any, error) {
		a, isA := argument(list, 0).(int64)
		b, isB := argument(list, 1).(int64)
		return combine(a, b), mustBe(isA && isB, "two whole numbers")
	}
}

// concat joins texts, or lists.
func concat(a []any) (any, error) {
	if _, lists := argument(a, 0).([]any); lists {
		whole := []any{}
		for _, value := range a {
			list, ok := value.([]any)
			if !ok {
				return nil, mustBe(ok, "lists alone, or texts alone")
			}
			whole = append(whole, list...)
		}
		return whole, nil
	}
	text := ""
	for _, value := range a {
		text += textOf(value)
	}
	return text, nil
}

// format replaces {0}, {1} and so on. A format such as {0:D3} is not supported.
func format(a []any) (any, error) {
	rest, ok := argument(a, 0).(string)
	if !ok {
		return nil, mustBe(ok, "a text as its first argument")
	}
	text := ""
	for rest != "" {
		c, after := rest[0], rest[1:]
		switch {
		case (c == '{' || c == '}') && strings.HasPrefix(after, string(c)):
			text, rest = text+string(c), after[1:]
		case c == '{':
			number, behind, closed := strings.Cut(after, "}")
			at, err := strconv.Atoi(number)
			if err != nil || !closed || at < 0 || at+1 >= len(a) {
				return nil, fmt.Errorf("has no argument for {%.20s}", number)
			}
			text, rest = text+textOf(a[at+1]), behind
		default:
			text, rest = text+string(c), after
		}
	}
	return text, nil
}

func length(a []any) (any, error) {
	switch v := argument(a, 0).(type) {
	case string:
		return int64(len([]rune(v))), nil
	case []any:
		return int64(len(v)), nil
	case map[string]any:
		return int64(len(v)), nil
	}
	return nil, mustBe(false, "a list, an object or a text")
}

func empty(a []any) (any, error) {
	if argument(a, 0) == nil {
		return true, nil
	}
	n, err := length(a)
	return n == int64(0), err
}

func equals(a []any) (any, error) {
	return fmt.Sprintf("%T %[1]v", argument(a, 0)) == fmt.Sprintf("%T %[1]v", argument(a, 1)), nil
}

func contains(a []any) (any, error) {
	key := argument(a, 1)
	switch v := argument(a, 0).(type) {
	case string:
		return strings.Contains(v, textOf(key)), nil
	case []any:
		return slices.ContainsFunc(v, func(e any) bool { is, _ := equals([]any{e, key}); return is == true }), nil
	case map[string]any:
		_, found := property(v, textOf(key))
		return found, nil
	}
	return nil, mustBe(false, "a list, an object or a text")
}

// union returns an object with the keys of all objects, or a list without repetitions.
func union(a []any) (any, error) {
	if _, lists := argument(a, 0).([]any); lists {
		whole, err := concat(a)
		list, _ := whole.([]any)
		unique := []any{}
		for _, e := range list {
			if has, _ := contains([]any{unique, e}); has != true {
				unique = append(unique, e)
			}
		}
		return unique, err
	}
	whole := map[string]any{}
	for _, value := range a {
		object, ok := value.(map[string]any)
		if !ok {
			return nil, mustBe(ok, "objects alone, or lists alone")
		}
		for key, v := range object {
			whole[key] = v
		}
	}
	return whole, nil
}

// integers is range(start, count).
func integers(a []any) (any, error) {
	start, isA := argument(a, 0).(int64)
	count, isB := argument(a, 1).(int64)
	if !isA || !isB || count < 0 || count > copiesMax {
		return nil, mustBe(false, fmt.Sprintf("a start and a count up to %d", copiesMax))
	}
	list := make([]any, count)
	for i := range list {
		list[i] = start + int64(i)
	}
	return list, nil
}

func split(a []any) (any, error) {
	list := []any{}
	for part := range strings.SplitSeq(textOf(argument(a, 0)), textOf(argument(a, 1))) {
		list = append(list, part)
	}
	return list, nil
}

func join(a []any) (any, error) {
	list, ok := argument(a, 0).([]any)
	texts := make([]string, len(list))
	for i, e := range list {
		texts[i] = textOf(e)
	}
	return strings.Join(texts, textOf(argument(a, 1))), mustBe(ok, "a list")
}

func replace(a []any) (any, error) {
	return strings.ReplaceAll(textOf(argument(a, 0)), textOf(argument(a, 1)), textOf(argument(a, 2))), nil
}

func substring(a []any) (any, error) {
	text := []rune(textOf(argument(a, 0)))
	from, ok := argument(a, 1).(int64)
	count := int64(len(text)) - from
	if len(a) > 2 {
		count, _ = a[2].(int64)
	}
	if !ok || from < 0 || count < 0 || from+count > int64(len(text)) {
		return nil, mustBe(false, "a start and a length within the text")
	}
	return string(text[from : from+count]), nil
}

// tryGet is a property or element that may be missing.
func tryGet(a []any) (any, error) {
	value := argument(a, 0)
	for _, key := range a[min(1, len(a)):] {
		var err error
		if value, err = member(value, key); err != nil {
			return nil, nil //nolint:nilerr // what is missing is null
		}
	}
	return value, nil
}

// member returns the property or the element of a value.
func member(of, key any) (any, error) {
	switch k := key.(type) {
	case int64:
		return element(of, k)
	case string:
		object, ok := of.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("has no property %.60q", k)
		}
		if value, found := property(object, k); found {
			return value, nil
		}
		return nil, fmt.Errorf("has no property %.60q", k)
	}
	return nil, errors.New("needs the name of a property or the number of an element")
}

// property finds a key in any case.
func property(object map[string]any, key string) (any, bool) {
	if value, found := object[key]; found {
		return value, true
	}
	for name, value := range object {
		if strings.EqualFold(name, key) {
			return value, true
		}
	}
	return nil, false
}

func element(of any, at int64) (any, error) {
	list, ok := of.([]any)
	if !ok || at < 0 || at >= int64(len(list)) {
		return nil, fmt.Errorf("has no element %d", at)
	}
	return list[at], nil
}
