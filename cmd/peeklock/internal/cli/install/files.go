package install

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	membersMax   = 7 // initial members: the largest value of the setting expect
	nameBytesMax = 64
	secretBytes  = 32
	folderMode   = 0o700
)

// The files that hold secrets of the whole cluster or identify it. Their names are those of the example in
// docs/configuration.md.
const (
	authorityFolder = "authority"
	membersCA       = "members-ca"
	clientsCA       = "clients-ca"
	operatorKey     = "key"
	gossipKeys      = "gossip.keys"
)

// configFolder is the folder on the machine of a member that gets the files of the member, and dataFolder has its data.
const (
	configFolder = "/etc/peeklock"
	dataFolder   = "/var/lib/peeklock"
)

// cluster describes the files to write.
type cluster struct {
	dir         string
	members     []string // hosts, each of which is the name of a member
	clientNames []string // further names and addresses at which clients connect
}

func (c *cluster) validate() error {
	switch {
	case len(c.members) == 0:
		return errors.New("name the machines of the members: --members a.example.com,b.example.com,c.example.com")
	case len(c.members) > membersMax:
		return fmt.Errorf("--members: 1 to %d members, not %d: more can join later", membersMax, len(c.members))
	}
	for i, m := range c.members {
		switch {
		case !isHost(m):
			return fmt.Errorf("--members: %q is neither a host name nor an IP address", m)
		case slices.Contains(c.members[:i], m):
			return fmt.Errorf("--members: %s is listed twice", m)
		case slices.Contains([]string{authorityFolder, operatorKey, gossipKeys, clientsCA + ".crt"}, m):
			return fmt.Errorf("--members: %s is the name of another file of the cluster", m)
		case net.ParseIP(m).IsLoopback() || m == "localhost":
			return fmt.Errorf("--members: %s is not a name at which other machines can reach a member", m)
		}
	}
	for _, name := range c.clientNames {
		if !isHost(strings.TrimPrefix(name, "*.")) {
			return fmt.Errorf("--client-name: %q is neither a host name nor an IP address", name)
		}
	}
	return nil
}

// isHost reports whether a text is an IP address or a host name (RFC 1123), which is also fit for the name of a folder.
func isHost(text string) bool {
	if net.ParseIP(text) != nil {
		return len(text) <= nameBytesMax
	}
	for label := range strings.SplitSeq(text, ".") {
		if label == "" || strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-") ||
			strings.Trim(label, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") != "" {
			return false
		}
	}
	return len(text) <= nameBytesMax
}

// write writes the files of all members.
func (c *cluster) write(now time.Time) error {
	authorities := filepath.Join(c.dir, authorityFolder)
	_, err := os.Stat(authorities)
	isNew := errors.Is(err, fs.ErrNotExist)
	if !isNew && len(c.members) == 1 {
		return fmt.Errorf("%s has a cluster: list all members, and the new one with those that it joins", c.dir)
	}
	if err := os.MkdirAll(authorities, folderMode); err != nil {
		return err
	}
	members, err := openAuthority(authorities, membersCA, now)
	if err != nil {
		return err
	}
	clients, err := openAuthority(authorities, clientsCA, now)
	if err != nil {
		return err
	}
	common := make(map[string][]byte) // files that all members get
	for _, name := range []string{operatorKey, gossipKeys} {
		if common[name], err = readOrCreateSecret(filepath.Join(c.dir, name)); err != nil {
			return err
		}
	}
	for _, name := range []string{membersCA + ".crt", clientsCA + ".crt"} {
		if common[name], err = os.ReadFile(filepath.Join(authorities, name)); err != nil { //nolint:gosec // the operator names the folder
			return err
		}
	}
	if err := replaceFile(filepath.Join(c.dir, clientsCA+".crt"), common[clientsCA+".crt"]); err != nil {
		return err
	}
	delete(common, clientsCA+".crt") // clients need it, and members do not
	for _, m := range c.members {
		dir := filepath.Join(c.dir, m)
		if err := os.MkdirAll(dir, folderMode); err != nil {
			return err
		}
		for name, data := range common {
			if err := replaceFile(filepath.Join(dir, name), data); err != nil {
				return err
			}
		}
		file := func(name string) string { return filepath.Join(dir, name) }
		err := errors.Join(
			members.issueFor(file("member.crt"), file("member.key"), []string{m}, now, x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth),
			clients.issueFor(file("clients.crt"), file("clients.key"), append([]string{m}, c.clientNames...), now, x509.ExtKeyUsageServerAuth),
			c.writeConfig(file("peeklock.yaml"), m, isNew),
		)
		if err != nil {
			return err
		}
	}
	return nil
}

// readOrCreateSecret reads a secret, or creates a random one.
func readOrCreateSecret(path string) ([]byte, error) {
	data, err := os.ReadFile(path) //nolint:gosec // the operator names the folder
	if !errors.Is(err, fs.ErrNotExist) {
		return data, err
	}
	secret := make([]byte, secretBytes)
	_, _ = rand.Read(secret) // never fails
	data = []byte(base64.StdEncoding.EncodeToString(secret) + "\n")
	return data, replaceFile(path, data)
}

// writeConfig writes the configuration file of a member, unless it exists: an operator may have changed it. In a folder
// that has been used before, the cluster exists, and a further member only joins it.
func (c *cluster) writeConfig(path, member string, isNew bool) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	all := "0.0.0.0"
	if ip := net.ParseIP(member); ip != nil && ip.To4() == nil {
		all = "::"
	}
	join := []string{}
	for _, other := range c.members {
		if other != member {
			join = append(join, net.JoinHostPort(other, "7946"))
		}
	}
	expect := len(c.members)
	if !isNew {
		expect = 0
	}
	file := func(name string) string { return configFolder + "/" + name }
	var out bytes.Buffer
	out.WriteString("# Settings of one member: docs/configuration.md lists all. This file and its neighbours belong into " + configFolder + ",\n" +
		"# owned by root:peeklock, with mode 0640.\n")
	for _, s := range []struct {
		name  string
		value any
	}{
		{"name", member},
		{"dir", dataFolder},
		{"amqp", net.JoinHostPort(all, "5671")},
		{"admin", net.JoinHostPort(all, "5300")},
		{"peer", net.JoinHostPort(all, "7947")},
		{"gossip", net.JoinHostPort(all, "7946")},
		{"advertise", member},
		{"join", join},
		{"expect", expect},
		{"key_file", file(operatorKey)},
		{"tls_cert", file("clients.crt")},
		{"tls_key", file("clients.key")},
		{"require_tls", true},
		{"peer_cert", file("member.crt")},
		{"peer_key", file("member.key")},
		{"peer_ca", file(membersCA + ".crt")},
		{"gossip_key", file(gossipKeys)},
	} {
		value, err := json.Marshal(s.value) // JSON is YAML
		if err != nil {
			return err
		}
		fmt.Fprintf(&out, "%s: %s\n", s.name, value)
	}
	return replaceFile(path, out.Bytes())
}
