package auth

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// reading is an independent reading of a resource: the URL parser of the standard library splits it into
// parts. ok is false for texts that it cannot read.
func reading(text string) (host string, parts []string, ok bool) {
	if !strings.Contains(text, "://") {
		text = "sb://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" || u.User != nil || u.Fragment != "" {
		return "", nil, false
	}
	for part := range strings.SplitSeq(strings.Trim(u.Path, "/"), "/") {
		if part != "" {
			parts = append(parts, strings.Map(func(c rune) rune {
				if c >= 'A' && c <= 'Z' {
					return c + 'a' - 'A'
				}
				return c
			}, part))
		}
	}
	return u.Hostname(), parts, true
}

// isBelow is the rule: the target is the signed resource or is below it.
func isBelow(target, signed []string) bool {
	return len(target) >= len(signed) && slices.Equal(target[:len(signed)], signed)
}

// ofEntity is the rule for keys of the queue "mine": the target is the queue, or a part of it.
func ofEntity(target []string) bool {
	if len(target) == 0 || target[0] != "mine" {
		return false
	}
	return len(target) == 1 || target[1] == "subscriptions" || strings.HasPrefix(target[1], "$")
}

// mineOnly returns a keyring with a key of the queue "mine" and one of the namespace.
func mineOnly(t testing.TB) *Keyring {
	t.Helper()
	k, s := newKeyringWithRules(t, nil)
	s.set(fsm.DefaultNamespace, "mine", fsm.AccessRule{Name: "mine", Primary: "mine-key", Rights: fsm.Send | fsm.Listen})
	return k
}

// For any signed resource and any target, a grant covers only what an independent reading of the texts allows:
// a key of "mine" covers only "mine" and its parts, and every key only the signed resource and everything
// below it.
func FuzzAudience(f *testing.F) {
	for _, audience := range []string{
		"?://localhost/mine", "theirs?://localhost/mine", "sb://localhost/mine", "sb://localhost/theirs", "sb://localhost/mine/../theirs",
		"amqps://localhost:5671/Mine/$Management", "sb://localhost/mine/Subscriptions/a", "sb://localhost/mine%2F..%2Ftheirs", "sb://theirs@localhost/mine",
	} {
		f.Add("sb://localhost/mine", audience, "theirs")
		f.Add("http://localhost/Mine?x=://y/", audience, "mine/$deadletterqueue")
		f.Add("localhost", audience, "mine/new")
	}
	f.Fuzz(func(t *testing.T, signed, audience, target string) {
		k := mineOnly(t)
		_, asked, readable := reading(audience)
		_, limit, limited := reading(signed)
		for name, secret := range map[string]string{"mine": "mine-key", "app": "one"} {
			grant, err := k.Token(t.Context(), somebody, KindSAS, Sign(signed, name, secret, noon().Add(time.Hour)), audience)
			if err != nil {
				continue
			}
			if !readable || !limited || !isBelow(asked, limit) {
				t.Fatalf("%s signed %q and was granted %q as %q", name, signed, audience, grant.Path)
			}
			if name == "mine" && !ofEntity(asked) {
				t.Fatalf("the key of mine was granted %q", audience)
			}
			// The requested target is stored: the gateway permits the paths below it.
			if grant.Path != strings.Join(asked, "/") {
				t.Fatalf("%q is stored as %q", audience, grant.Path)
			}
			place, err := TargetPath(target)
			if err != nil {
				continue
			}
			for at := place; at != ""; at = fsm.PathAbove(at) {
				if at == grant.Path && !isBelow(strings.Split(place, "/"), limit) {
					t.Fatalf("%s signed %q, put %q, and has %q", name, signed, audience, target)
				}
			}
		}
	})
}
