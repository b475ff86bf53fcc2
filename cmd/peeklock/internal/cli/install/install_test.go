package install

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
)

func readFile(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestCertificatesAreForTheirUse: a certificate of a member is signed by the authority of members and valid at both ends; that for
// clients has the names of the member and of the load balancer, and another authority, so that it proves no member.
func TestCertificatesAreForTheirUse(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	c := &cluster{dir: dir, members: []string{"a.example.com", "9.9.0.12", "fd00::3"}, clientNames: []string{"broker.example.com"}}
	if err := c.validate(); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if err := c.write(now); err != nil {
		t.Fatal(err)
	}
	roots := func(name string) *x509.CertPool {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM([]byte(readFile(t, dir, authorityFolder, name)))
		return pool
	}
	for _, m := range c.members {
		for _, part := range []struct {
			name   string
			roots  *x509.CertPool
			usages []x509.ExtKeyUsage
			hosts  []string
		}{
			{"member", roots("members-ca.crt"), []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, []string{m}},
			{"clients", roots("clients-ca.crt"), []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, []string{m, "broker.example.com"}},
		} {
			pair, err := tls.LoadX509KeyPair(filepath.Join(dir, m, part.name+".crt"), filepath.Join(dir, m, part.name+".key"))
			if err != nil {
				t.Fatal(err)
			}
			for _, host := range part.hosts {
				for _, usage := range part.usages {
					if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: part.roots, DNSName: host, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
						t.Errorf("%s of %s as %s: %v", part.name, m, host, err)
					}
				}
			}
			if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots("members-ca.crt"), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); (err == nil) != (part.name == "member") {
				t.Errorf("%s of %s is signed by the authority of members: %v", part.name, m, err == nil)
			}
		}
		if got := readFile(t, dir, m, "peeklock.yaml"); !strings.Contains(got, "expect: 3\n") || !strings.Contains(got, "advertise: \""+m+"\"\n") {
			t.Errorf("configuration of %s:\n%s", m, got)
		}
	}
	if got := readFile(t, dir, "fd00::3", "peeklock.yaml"); !strings.Contains(got, `gossip: "[::]:7946"`) {
		t.Errorf("a member with an IPv6 address must be bound to it:\n%s", got)
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if info, _ := d.Info(); info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v: others can read it", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSecondRunRenewsCertificates: a second run with the same folder keeps authorities, secrets and configuration files, renews the
// certificates, and lets a further member join.
func TestSecondRunRenewsCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := &cluster{dir: dir, members: []string{"a", "b", "c"}}
	now := time.Now()
	if err := c.write(now); err != nil {
		t.Fatal(err)
	}
	changed := []byte("name: a # changed\n")
	if err := os.WriteFile(filepath.Join(dir, "a", "peeklock.yaml"), changed, fileMode); err != nil {
		t.Fatal(err)
	}
	kept := []string{"authority/members-ca.crt", "authority/clients-ca.key", "key", "gossip.keys", "a/members-ca.crt", "b/peeklock.yaml"}
	before := make(map[string]string)
	for _, path := range append(kept, "a/member.crt", "a/clients.crt") {
		before[path] = readFile(t, dir, path)
	}
	c.members = append(c.members, "d")
	if err := c.write(now.Add(certificateLife)); err != nil {
		t.Fatal(err)
	}
	for _, path := range kept {
		if readFile(t, dir, path) != before[path] {
			t.Errorf("%s was replaced", path)
		}
	}
	if got := readFile(t, dir, "a", "peeklock.yaml"); got != string(changed) {
		t.Errorf("the changed configuration was replaced by\n%s", got)
	}
	for _, path := range []string{"a/member.crt", "a/clients.crt"} {
		if readFile(t, dir, path) == before[path] {
			t.Errorf("%s was not renewed", path)
		}
	}
	if got := readFile(t, dir, "d", "peeklock.yaml"); !strings.Contains(got, "expect: 0\n") || !strings.Contains(got, `"a:7946"`) {
		t.Errorf("a further member must only join:\n%s", got)
	}
	if !bytes.Equal([]byte(readFile(t, dir, "d", "key")), []byte(before["key"])) {
		t.Error("the further member has another operator key")
	}
	if err := (&cluster{dir: dir, members: []string{"e"}}).write(now); err == nil {
		t.Error("a member that joins nobody is written")
	}
	if err := c.write(now.Add(2 * authorityLife)); err == nil || !strings.Contains(err.Error(), "has expired") {
		t.Errorf("with expired authorities: %v", err)
	}
}

// TestMembersMustBeReachable: names that are no hosts, or at which only one machine reaches itself, are refused before anything is written.
func TestMembersMustBeReachable(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"": "name the machines", "a,a": "listed twice", "localhost": "other machines", "127.0.0.1": "other machines", "a,b,c,d,e,f,g,h": "1 to 7 members",
		"../a": "neither", "a b": "neither", "a..b": "neither", "-a": "neither", "authority": "another file", "key": "another file",
	} {
		c := &cluster{dir: t.TempDir()}
		if name != "" {
			c.members = strings.Split(name, ",")
		}
		if err := c.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("members %q: %v, want %q", name, err, want)
		}
	}
}

// TestNotesNameFilesThatExist: the files that init cluster tells operators and clients to use are those that it wrote.
func TestNotesNameFilesThatExist(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	var text bytes.Buffer
	process := cli.Process{Out: &text, Err: &text}
	root := cli.Group("peeklock", "", New(process))
	root.PersistentFlags().StringP("output", "o", "table", "")
	root.SetArgs([]string{"init", "cluster", "--members", "a", "--dir", dir})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	found := 0
	words := strings.Fields(text.String())
	for i, word := range words[:len(words)-1] {
		if word == "--ca" || word == "--key-file" || word == "trust" {
			found++
			if _, err := os.Stat(words[i+1]); err != nil {
				t.Errorf("the notes name a file after %q that was not written: %v", word, err)
			}
		}
	}
	if found != 3 {
		t.Errorf("got %d files in the notes, want 3: %s", found, text.String())
	}
}
