package document

import "testing"

func TestReplaceKeepsTheRest(t *testing.T) {
	t.Parallel()
	const text = "a\n<!-- generated: x -->\nold\n<!-- end: x -->\nb\n"
	got, ok := replace(text, "x", "new\n")
	if want := "a\n<!-- generated: x -->\n\nnew\n\n<!-- end: x -->\nb\n"; !ok || got != want {
		t.Errorf("got %q, %v", got, ok)
	}
	if again, ok := replace(got, "x", "new\n"); !ok || again != got {
		t.Errorf("a second replacement changed the text: %q", again)
	}
	if _, ok := replace(text, "y", "new"); ok {
		t.Error("a section that does not exist was replaced")
	}
}
