package fsm_test

import (
	"testing"

	"github.com/peeklock/peeklock/fsm"
)

func TestPathsAboveEntities(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]struct{ entity, above string }{
		"":                                      {"", ""},
		"orders":                                {"orders", ""},
		"orders/new":                            {"orders/new", ""},
		"orders/$management":                    {"orders", "orders"},
		"orders/$deadletterqueue":               {"orders", "orders"},
		"orders/$deadletterqueue/$management":   {"orders", "orders/$deadletterqueue"},
		"orders/$transfer/$deadletterqueue":     {"orders", "orders/$transfer"},
		"a/b/$management":                       {"a/b", "a/b"},
		"t/subscriptions":                       {"t", "t"},
		"t/Subscriptions/s":                     {"t", "t"},
		"t/subscriptions/s/$management":         {"t", "t/subscriptions/s"},
		"t/subscriptions/s/rules/x/y":           {"t", "t"},
		"a/t/subscriptions/s/$deadletterqueue":  {"a/t", "a/t/subscriptions/s"},
		"t/subscriptions/s/subscriptions/other": {"t", "t"},
		"$cbs":                                  {"", ""},
		"$namespaceinfo":                        {"", ""},
		"subscriptions":                         {"subscriptions", ""},
	} {
		if got := fsm.EntityPath(path); got != want.entity {
			t.Errorf("entity of %q is %q, want %q", path, got, want.entity)
		}
		if got := fsm.PathAbove(path); got != want.above {
			t.Errorf("above %q is %q, want %q", path, got, want.above)
		}
	}
	if got := fsm.PathKey("Orders/$Management\u212a"); got != "orders/$management\u212a" {
		t.Errorf("key %q", got)
	}
}

// From every path, PathAbove leads to its entity, and then to the namespace.
func FuzzPaths(f *testing.F) {
	f.Add("t/Subscriptions/s/$DeadLetterQueue/$management")
	f.Add("/a//$b/subscriptions/")
	f.Add("t/Subscriptions//$")
	f.Fuzz(func(t *testing.T, path string) {
		entity, met := fsm.EntityPath(path), false
		for at, steps := path, 0; at != ""; at, steps = fsm.PathAbove(at), steps+1 {
			if met = met || at == entity; steps > len(path) {
				t.Fatalf("%q: no end", path)
			}
		}
		if entity != "" && !met {
			t.Errorf("%q: its entity %q was not met", path, entity)
		}
	})
}
