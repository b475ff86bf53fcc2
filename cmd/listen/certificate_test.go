package listen

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/kit"
)

// development creates certificates in a directory of the test, and returns the configuration of a client that
// trusts them.
func development(t testing.TB) (DevelopmentFiles, *tls.Config) {
	t.Helper()
	files := kit.Must(Development(filepath.Join(t.TempDir(), "tls")))(t)
	return files, trust(t, files)
}

func trust(t testing.TB, files DevelopmentFiles) *tls.Config {
	t.Helper()
	ca := kit.Must(os.ReadFile(files.CA))(t)
	config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost"}
	if !config.RootCAs.AppendCertsFromPEM(ca) {
		t.Fatal("no certificate in", files.CA)
	}
	return config
}

func load(t testing.TB, files DevelopmentFiles) *Certificate {
	t.Helper()
	c := kit.Must(LoadCertificate(files.Cert, files.Key, slog.New(slog.DiscardHandler)))(t)
	return c
}

// serial returns the number of the certificate that the port presents now.
func (r *rig) serial(t testing.TB, config *tls.Config) *big.Int {
	t.Helper()
	conn := tls.Client(r.dial(t), config)
	kit.OK(t, conn.HandshakeContext(t.Context()))
	return conn.ConnectionState().PeerCertificates[0].SerialNumber
}

// A certificate is replaced while the port runs. One that does not match its key changes nothing and is logged
// once. Open connections continue.
func TestCertificateIsReplaced(t *testing.T) {
	t.Parallel()
	files, trusted := development(t)
	var log kit.LogLines
	cert := kit.Must(LoadCertificate(files.Cert, files.Key, slog.New(slog.NewTextHandler(&log, nil))))(t)
	r := openRig(t, func(c *Config) { c.TLS = cert.TLS() })
	before := r.serial(t, trusted)
	open := tls.Client(r.dial(t), trusted)
	exchange(t, open, "AMQP", "amqp:AMQP")

	if err := os.Remove(files.Cert); err != nil { // then Development recreates the pair
		t.Fatal(err)
	}
	key := kit.Must(os.ReadFile(files.Key))(t)
	kit.Must(Development(filepath.Dir(files.Cert)))(t)
	newKey := kit.Must(os.ReadFile(files.Key))(t)
	if err := os.WriteFile(files.Key, key, 0o600); err != nil { // the new certificate has not been written yet
		t.Fatal(err)
	}
	kit.Eventually(t, "the pair that does not fit is noticed", func() bool {
		if r.serial(t, trusted).Cmp(before) != 0 {
			t.Fatal("a certificate without its key is shown")
		}
		return strings.Contains(log.String(), "failed to reload certificate")
	})
	kit.OK(t, os.WriteFile(files.Key, newKey, 0o600))
	kit.Eventually(t, "the new certificate is shown", func() bool { return r.serial(t, trusted).Cmp(before) != 0 })
	exchange(t, open, "still here", "still here")
	if n := strings.Count(log.String(), "failed to reload certificate"); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

func TestUnusableCertificatesAreRefused(t *testing.T) {
	t.Parallel()
	files, _ := development(t)
	other, _ := development(t)
	huge := filepath.Join(t.TempDir(), "huge.pem")
	kit.OK(t, os.WriteFile(huge, make([]byte, pemBytesMax+1), 0o600))
	for want, pair := range map[string][2]string{
		"no such file":      {files.Cert + "x", files.Key},
		"key of the":        {files.Cert, files.Key + "x"},
		"does not match":    {files.Cert, other.Key},
		"failed to find":    {files.Key, files.Key},
		"larger than 1 MiB": {huge, files.Key},
	} {
		if _, err := LoadCertificate(pair[0], pair[1], slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// The authority outlives certificates and can sign for loopback only.
func TestDevelopmentCertificateIsReusedUntilItExpires(t *testing.T) {
	t.Parallel()
	files, trusted := development(t)
	read := func(path string) []byte {
		b := kit.Must(os.ReadFile(path))(t)
		return b
	}
	ca, cert := read(files.CA), read(files.Cert)
	again, err := Development(filepath.Dir(files.CA))
	if err != nil || !reflect.DeepEqual(again, files) || !bytes.Equal(read(files.CA), ca) || !bytes.Equal(read(files.Cert), cert) {
		t.Fatalf("a second start changes something: %+v %v", again, err)
	}
	for _, key := range []string{files.Key, filepath.Join(filepath.Dir(files.CA), "ca-key.pem")} {
		if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", key, info.Mode(), err)
		}
	}
	leaf, _, err := readPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"localhost", "shop.localhost", "127.0.0.1", "[::1]"} {
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: trusted.RootCAs, DNSName: name}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Another certificate from the same authority, for a name that is not of this machine.
	root, rootKey, err := readPair(files.CA, filepath.Join(filepath.Dir(files.CA), "ca-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*x509.Certificate){
		"example.com": func(c *x509.Certificate) { c.DNSNames, c.IPAddresses = []string{"example.com"}, nil },
		"192.0.2.1":   func(c *x509.Certificate) { c.DNSNames, c.IPAddresses = nil, []net.IP{net.IPv4(192, 0, 2, 1)} },
	} {
		forged := loopback(time.Now(), root)
		change(forged)
		dir := t.TempDir()
		forged, _, err = issue(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), forged, root, rootKey)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := forged.Verify(x509.VerifyOptions{Roots: trusted.RootCAs, DNSName: name}); err == nil {
			t.Errorf("the authority signs for %s", name)
		}
	}

	// Incomplete or about to expire: recreated under the same authority.
	kit.OK(t, os.WriteFile(files.Key, []byte("half"), 0o600))
	if _, err := Development(filepath.Dir(files.CA)); err != nil || bytes.Equal(read(files.Cert), cert) || !bytes.Equal(read(files.CA), ca) {
		t.Error("not created again:", err)
	}
	old := loopback(time.Now().Add(renewBefore-certificateLife), root)
	if _, _, err := issue(files.Cert, files.Key, old, root, rootKey); err != nil {
		t.Fatal(err)
	}
	cert = read(files.Cert)
	if _, err := Development(filepath.Dir(files.CA)); err != nil || bytes.Equal(read(files.Cert), cert) {
		t.Error("not renewed:", err)
	}
	kit.OK(t, os.WriteFile(files.CA, []byte("half"), 0o600))
	if _, err := Development(filepath.Dir(files.CA)); err == nil {
		t.Error("an authority that people trust was thrown away")
	}
}

// A certificate or authority that somebody else put into the folder is used, and never replaced.
func TestForeignCertificatesAreNeverReplaced(t *testing.T) {
	t.Parallel()
	foreign := func(template *x509.Certificate, life time.Duration) *x509.Certificate {
		template.Subject.Organization = []string{"somebody"}
		template.NotAfter = time.Now().Add(life)
		return template
	}
	now := time.Now()
	for name, c := range map[string]struct {
		authority, certificate bool // made by somebody
		life                   time.Duration
		without                string // file that is removed
		want                   string // part of the error
	}{
		"certificate":               {certificate: true, life: time.Hour},
		"certificate without ca":    {certificate: true, life: time.Hour, without: "ca.pem"},
		"certificate without key":   {certificate: true, life: time.Hour, without: "key.pem", want: "cannot be used"},
		"expired certificate":       {certificate: true, life: -time.Minute, want: "expired at"},
		"authority":                 {authority: true, life: time.Hour, without: "cert.pem"},
		"authority without its key": {authority: true, life: time.Hour, without: "ca-key.pem", want: "cannot be used"},
		"expired authority":         {authority: true, life: -time.Minute, want: "expired at"},
	} {
		dir := t.TempDir()
		path := func(file string) string { return filepath.Join(dir, file) }
		root := authority(now, nil)
		if c.authority {
			root = foreign(root, c.life)
		}
		root, key, err := issue(path("ca.pem"), path("ca-key.pem"), root, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		leaf := loopback(now, root)
		if c.certificate {
			leaf = foreign(leaf, c.life)
		}
		if _, _, err = issue(path("cert.pem"), path("key.pem"), leaf, root, key); err != nil {
			t.Fatal(err)
		}
		if c.without != "" {
			kit.OK(t, os.Remove(path(c.without)))
		}
		kept := map[string][]byte{}
		for file, isForeign := range map[string]bool{"ca.pem": c.authority, "ca-key.pem": c.authority, "cert.pem": c.certificate, "key.pem": c.certificate} {
			if isForeign {
				kept[file], _ = os.ReadFile(path(file))
			}
		}
		files, err := Development(dir)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
		for file, before := range kept {
			if after, _ := os.ReadFile(path(file)); !bytes.Equal(before, after) {
				t.Errorf("%s: %s was replaced", name, file)
			}
		}
		if err != nil {
			continue
		}
		if _, err := LoadCertificate(files.Cert, files.Key, slog.New(slog.DiscardHandler)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if c.without == "ca.pem" && files.CA != files.Cert {
			t.Errorf("%s: clients are told to trust %s", name, files.CA)
		}
	}
}
