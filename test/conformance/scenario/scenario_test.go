package scenario

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/test/kit"
)

const report = `<?xml version="1.0"?><testsuites><testsuite name="outer"><testsuite>
<testcase name="good[sync]" classname="a"/><testcase name="good[aio]" classname="a"/>
<testcase name="half[sync]" classname="a"/><testcase name="half[aio]" classname="a"><failure/></testcase>
</testsuite><testcase name="late" classname="b"><error/></testcase><testcase name="left out" classname="b"><skipped/></testcase>
</testsuite></testsuites>`

// TestScenarioNeedsCasesThatPassed checks that a scenario fails when a case failed, was skipped or does not exist, and
// when it has no case at all.
func TestScenarioNeedsCasesThatPassed(t *testing.T) {
	t.Parallel()
	var o Outcomes
	kit.OK(t, o.AddJUnit([]byte(report), func(class, test string) string {
		if class == "a" {
			return test[:4]
		}
		return class + "." + test
	}))
	cases := "# about\nsend\n    good\nbatch\n    good\n    half\nschedule\n    b.late\nabandon\n    b.left out\ndefer\n    renamed\n" +
		"complete\ntransaction\n    not offered: it has none\n"
	lines := kit.Must(o.judge(Client{ID: "test", Of: Generic}, []byte(cases)))(t)
	got := map[string]bool{}
	for _, line := range lines {
		got[line] = true
	}
	for _, want := range []string{
		"send\tok\t\n", "batch\tfailed\thalf\n", "schedule\tfailed\tb.late\n", "abandon\tfailed\tb.left out\n",
		"defer\tfailed\tdid not run: renamed\n", "complete\tfailed\tno case shows it\n", "transaction\tnot-offered\tit has none\n",
		"topic\tfailed\tno case shows it\n",
	} {
		if !got[want] {
			t.Errorf("%q is missing in %q", want, lines)
		}
	}
	for _, bad := range []string{"send\n    good\nsend\n", "    good\n", "no-such-scenario\n    good\n", "session-next\n    good\n"} {
		if lines, err := o.judge(Client{ID: "test", Of: Generic}, []byte(bad)); err == nil {
			t.Errorf("%q was taken, as %q", bad, lines)
		}
	}
}

// TestEveryClientIsDescribedCompletely checks that each client has a version, a suite, and a file that covers exactly
// the scenarios that the client must show.
func TestEveryClientIsDescribedCompletely(t *testing.T) {
	t.Parallel()
	list := kit.Must(List())(t)
	read := func(path string) ([]byte, error) { return os.ReadFile(filepath.Join("../../..", path)) }
	for _, c := range Clients() {
		if version, err := c.Version(read); err != nil || version == "" {
			t.Errorf("%s: version %q, %v", c.ID, version, err)
		}
		content, err := os.ReadFile(filepath.Join("..", c.Suite, c.ID+".scenarios"))
		if err != nil {
			t.Error(err)
			continue
		}
		shownBy, err := parse(string(content))
		if err != nil {
			t.Errorf("%s: %v", c.ID, err)
		}
		want, got := map[string]bool{}, map[string]bool{}
		for _, s := range list {
			if c.Asked(s) {
				want[s.Name] = true
			}
		}
		for name, cases := range shownBy {
			got[name] = len(cases) > 0
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-asked +shown)\n%s", c.ID, diff)
		}
	}
}
