// Package celery runs Celery with the transport azureservicebus of kombu, as they are published, against one member. The
// transport takes the name of a host that ends in .net and no port, so the test runs in namespaces of its own, which the
// script run makes.
package celery

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/harness"
)

const (
	host   = "peeklock.servicebus.net"
	within = 5 * time.Minute
)

func TestMain(m *testing.M) { harness.Main(m) }

func TestTasks(t *testing.T) {
	t.Parallel()
	environment := os.Getenv("PEEKLOCK_CELERY")
	if environment == "" {
		t.Skip("Celery is left out: `bash run` in this folder installs what it needs and runs it")
	}
	dir := t.TempDir()
	certificate, key := selfSigned(t, dir)
	cluster := harness.Start(t, harness.Options{Members: 1, Args: []string{"--tls-cert", certificate, "--tls-key", key, "--trust-loopback"}})
	for _, port := range []string{"443", "5671"} { // HTTPS and AMQP; the member accepts both at one port
		relay(t, "127.0.0.1:"+port, cluster.Members[0].AMQP)
	}
	hosts := filepath.Join(dir, "hosts")
	if err := os.WriteFile(hosts, []byte("127.0.0.1 localhost "+host+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mount(t, hosts, "/etc/hosts")
	bundles, err := filepath.Glob(filepath.Join(environment, "lib/python*/site-packages/certifi/cacert.pem"))
	if err != nil || len(bundles) != 1 {
		t.Fatalf("bundles of certifi: %v, %v", bundles, err)
	}
	mount(t, certificate, bundles[0])

	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(environment, "bin/python"), "-B", "-m", "pytest", "-p", "no:cacheprovider", "-v", "test_tasks.py")
	// Variables that name another bundle than that of certifi are emptied.
	cmd.Env = append(os.Environ(), "REQUESTS_CA_BUNDLE=", "CURL_CA_BUNDLE=", "SSL_CERT_FILE=",
		"BROKER=azureservicebus://"+harness.KeyName+":"+harness.Key+"@"+host, "ADMIN=http://"+cluster.Members[0].Admin, "FOLDER="+dir)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
}

// mount puts a file in the place of another one, in the mount namespace of the test.
func mount(t *testing.T, file, place string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "mount", "--bind", file, place).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v: %s", err, out)
	}
}

// relay makes an address lead to another one until the test ends.
func relay(t *testing.T, address, to string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			target, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", to)
			if err != nil {
				_ = from.Close()
				continue
			}
			one := func(to, from net.Conn) {
				_, _ = io.Copy(to, from)
				_ = to.Close()
				_ = from.Close()
			}
			go one(target, from)
			go one(from, target)
		}
	}()
}

// selfSigned writes a certificate of the host that is its own authority, and its key.
func selfSigned(t *testing.T, dir string) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	bytes, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{certificate: {Type: "CERTIFICATE", Bytes: signed}, key: {Type: "PRIVATE KEY", Bytes: bytes}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certificate, key
}
