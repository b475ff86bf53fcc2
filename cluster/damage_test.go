package cluster

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/peeklock/peeklock/test/kit"
)

// TestMemberWithADamagedIdentityDoesNotStart: a member whose member.json is damaged, or that of another member, refuses to
// start, so that it acts in the name of no other; the others go on, and it does too when the file is restored.
func TestMemberWithADamagedIdentityDoesNotStart(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newFileCluster(t, 3, 2)
		c.startAll()
		createQueue(t, c.nodes[0], "orders")
		for range 10 {
			sendMessage(t, c.nodes[0], resolve(t, c.nodes[0], "orders"), "before")
		}
		member := []byte(c.nodes[2].self)
		c.stop(2)
		path := filepath.Join(c.configs[2].Dir, "member.json")
		sound := kit.Must(os.ReadFile(path))(t)
		other := kit.Must(os.ReadFile(filepath.Join(c.configs[1].Dir, "member.json")))(t)
		flipped := bytes.Clone(sound)
		flipped[bytes.Index(sound, member)] ^= 1
		for how, content := range map[string][]byte{
			"flip a bit of the id": flipped,
			"truncate":             sound[:len(sound)/2],
			"empty":                {},
			"swap":                 other,
			"delete":               nil,
		} {
			err := os.WriteFile(path, content, 0o600)
			if content == nil {
				err = os.Remove(path)
			}
			if err != nil {
				t.Fatal(err)
			}
			if n, err := Open(t.Context(), c.configs[2]); err == nil {
				t.Errorf("%s: the member starts", how)
				_ = n.Close(t.Context())
			} else {
				t.Logf("%s: %v", how, err)
			}
			sendMessage(t, c.nodes[0], resolve(t, c.nodes[0], "orders"), how)
		}
		kit.OK(t, os.WriteFile(path, sound, 0o600))
		c.start(2)
		c.ready()
		if counts := countMessages(t, c.nodes[2], resolve(t, c.nodes[2], "orders")); counts.Active != 15 {
			t.Errorf("%+v", counts)
		}
	})
}
