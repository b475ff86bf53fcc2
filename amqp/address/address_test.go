package address

import "testing"

func TestEveryFormOfAnAddressGivesOnePath(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"q": "q", "/q": "q", "q/": "q", "amqps://h/q": "q", "amqp://h:5672/a/b": "a/b", "sb://h": "", "sb://h/": "",
		"/a%2Fb%20c": "a/b c", "100%": "100%", "q/$DeadLetterQueue": "q/$DeadLetterQueue", "q/%24management": "q/$management",
	} {
		if got, ok := Reduce(address); !ok || got != want {
			t.Errorf("%q is %q, want %q", address, got, want)
		}
	}
	if _, ok := Reduce(nil); ok {
		t.Error("nil is a path")
	}
	for path, want := range map[string]string{"q/$management": "q", "a/b/$MANAGEMENT": "a/b", "q": "", "$management": "", "/$management": ""} {
		entity, ok := CutManagement(path)
		if ok != (want != "") || ok && entity != want {
			t.Errorf("%q: %q %v", path, entity, ok)
		}
	}
}
