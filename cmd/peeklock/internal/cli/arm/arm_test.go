package arm

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// evaluated returns the value of an expression in a template with a parameter and variables.
func evaluated(expression string) (any, error) {
	s := scope{
		reader: new(reader), given: map[string]any{"list": []any{"a", "b"}, "none": nil}, loops: map[string]int64{"": 1, "outer": 2},
		parameters: map[string]any{"text": map[string]any{"type": "string", "defaultValue": "[toUpper('t')]"}, "open": map[string]any{"type": "string"}},
		variables:  map[string]any{"object": map[string]any{"Key": int64(7)}, "circle": "[variables('circle')]", "twice": "[concat(variables('circle2'), variables('circle2'))]", "circle2": "[concat(variables('twice'), variables('twice'))]"},
	}
	return s.value(expression)
}

// TestExpressions evaluates what Bicep and people write.
func TestExpressions(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]any{
		"plain": "plain", "[[escaped]": "[escaped]", "[open": "[open",
		"['it''s']": "it's", "[ -7 ]": int64(-7), "[concat('a', 1, true())]": "a1True", "[concat(createArray('x'), parameters('list'))]": []any{"x", "a", "b"},
		"[format('{0}/{1} {{}}', 'a', 2)]": "a/2 {}", "[parameters('TEXT')]": "T", "[parameters('list')[1]]": "b", "[variables('object').key]": int64(7),
		"[variables('object')['Key']]": int64(7), "[if(equals(1, 1), 'yes', fail())]": "yes", "[if(false(), fail(), 'no')]": "no",
		"[coalesce(parameters('none'), null(), 'z')]": "z", "[and(true(), not(false()))]": true, "[or(false(), true(), fail())]": true,
		"[length(range(3, 4))]": int64(4), "[last(range(3, 4))]": int64(6), "[first(split('a,b', ','))]": "a", "[join(parameters('list'), '-')]": "a-b",
		"[copyIndex()]": int64(1), "[copyIndex(10)]": int64(11), "[copyIndex('outer', 1)]": int64(3), "[tryGet(variables('object'), 'x', 'y')]": nil,
		"[empty(createObject())]": true, "[contains(parameters('list'), 'b')]": true, "[union(createObject('a', 1), createObject('a', 2)).a]": int64(2),
		"[union(createArray(1, 2), createArray(2))]": []any{int64(1), int64(2)}, "[substring('queue', 1, 2)]": "ue", "[replace('a.b', '.', '-')]": "a-b",
		"[int('7')]": int64(7), "[string(7)]": "7", "[bool('True')]": true, "[add(1, mul(2, 3))]": int64(7), "[trim(toLower(' A '))]": "a",
		"[format('{0}/q', resourceGroup().name)]": mark + "resourceGroup().name" + mark + "/q", "[toLower(parameters('open'))]": mark + "toLower(parameters('open'))" + mark,
	} {
		got, err := evaluated(expression)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %#v, %v, want %#v", expression, got, err, want)
		}
	}
	for expression, want := range map[string]string{
		"[fail()]": "the function fail is not supported", "[parameters('list')[2]]": "has no element 2", "[variables('object').other]": `has no property "other"`,
		"[variables('circle')]": "refer to each other", "[copyIndex('inner')]": "a loop of that name", "[format('{1}', 'a')]": "no argument for {1}", "['a' 'b']": "more after the end",
		"['a]": "does not end", "[createArray(1)[0]": "", "[parameters('x')]": "no such parameter", "[" + strings.Repeat("not(", depthMax+2) + "]": "nested more than", "[]": "a function",
		"[substring('a', 1, 2)]": "within the text", "[length(1)]": "a list, an object or a text", "[int('x')]": "invalid syntax", "[variables('twice')]": "more than",
		"[range(0, 10001)]": "a count up to 10000", "[if(true())]": "three arguments",
		"[" + strings.Repeat("a", expressionBytesMax+1) + "]": "longer than 24576 bytes",
	} {
		if got, err := evaluated(expression); want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, %v, want %q", expression, got, err, want)
		}
	}
}

// FuzzRead: no template makes the reader fail in another way than with an error.
func FuzzRead(f *testing.F) {
	f.Add("[format('{0}/q', parameters('a'))]", "[parameters('a')[0].b]")
	f.Add("[concat('ns/', copyIndex())]", "['it''s']")
	f.Fuzz(func(t *testing.T, name, property string) {
		resource := map[string]any{"type": "a/b", "name": name, "properties": map[string]any{"p": property}, "copy": map[string]any{"name": "x", "count": 2}}
		text, err := json.Marshal(map[string]any{"parameters": map[string]any{"a": map[string]any{"defaultValue": name}}, "resources": []any{resource}})
		if err != nil {
			t.Skip(err)
		}
		found, err := Read(text, "a/", nil)
		if err == nil && len(found) != 2 {
			t.Errorf("got %d resources, want 2", len(found))
		}
	})
}
