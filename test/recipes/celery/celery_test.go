// Package celery runs Celery with the transport azureservicebus of kombu, as they are published, against one member. The
// transport takes the name of a host that ends in .net and no port, so the test runs in namespaces of its own, which the
// script run makes.
package celery

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/harness"
	"github.com/peeklock/peeklock/test/kit"
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
	certificate, key, authority := harness.Certificate(t, host)
	cluster := harness.Start(t, harness.Options{Members: 1, Args: []string{"--tls-cert", certificate, "--tls-key", key, "--trust-loopback"}})
	for _, port := range []string{"443", "5671"} { // HTTPS and AMQP; the member accepts both at one port
		harness.Relay(t, "127.0.0.1:"+port, func() string { return cluster.Members[0].AMQP })
	}
	hosts := filepath.Join(dir, "hosts")
	kit.OK(t, os.WriteFile(hosts, []byte("127.0.0.1 localhost "+host+"\n"), 0o600))
	mount(t, hosts, "/etc/hosts")
	bundles, err := filepath.Glob(filepath.Join(environment, "lib/python*/site-packages/certifi/cacert.pem"))
	if err != nil || len(bundles) != 1 {
		t.Fatalf("bundles of certifi: %v, %v", bundles, err)
	}
	mount(t, authority, bundles[0])

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
