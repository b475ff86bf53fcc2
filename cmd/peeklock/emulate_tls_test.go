package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/test/kit"
)

// With --tls, a client that has fetched the authority uses every protocol on every port, by each name of the setting. The
// authority stays with kept data, and signs for no name that it was not made for.
func TestEmulatorSpeaksTLSOnDemand(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(emulatorTLSFolder); err == nil {
		t.Skip(emulatorTLSFolder + " exists on this machine")
	}
	dir := filepath.Join(kit.MemoryDir(t), "data")
	names := []string{"127.0.0.1", "localhost", "emulator", "10.9.8.7"}
	e := startEmulator(t, nil, jsonReady, "-o", "json", "--tls", "--tls-names", "emulator,10.9.8.7", "--require-key", "--dir", dir)
	status, ca := get(t, e.Admin+"/ca.pem")
	if file, err := os.ReadFile(e.TLS.CA); status != http.StatusOK || err != nil || ca != string(file) {
		t.Fatalf("GET /ca.pem: %d %s, %v", status, ca, err)
	}
	trusted := func(name string) *tls.Config {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM([]byte(ca))
		return &tls.Config{RootCAs: pool, ServerName: name, MinVersion: tls.VersionTLS12}
	}
	shakes := func(e *emulation, name string) error {
		conn, err := (&tls.Dialer{Config: trusted(name)}).DialContext(t.Context(), "tcp", e.AMQP)
		if err == nil {
			_ = conn.Close()
		}
		return err
	}
	for _, name := range names {
		if err := shakes(e, name); err != nil {
			t.Errorf("by the name %s: %v", name, err)
		}
	}
	if shakes(e, "host.docker.internal") == nil {
		t.Error("accepted by a name that is not in the setting")
	}
	// The administration client of Go keeps a mapped port.
	options := &admin.ClientOptions{}
	transport := &http.Transport{TLSClientConfig: trusted("")}
	defer transport.CloseIdleConnections()
	options.Transport = &http.Client{Transport: transport}
	client, err := admin.NewClientFromConnectionString(strings.TrimSuffix(connectionString(strings.TrimPrefix(e.Admin, "http://"), auth.DevKeyName, auth.DevKey), ";UseDevelopmentEmulator=true"), options)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := client.GetQueue(context.WithoutCancel(t.Context()), "queue.1", nil); err != nil || got == nil {
		t.Errorf("administration over TLS: %v, %v", got, err)
	}
	if code := e.stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	e = startEmulator(t, nil, jsonReady, "-o", "json", "--tls", "--tls-names", "emulator,other", "--dir", dir)
	if err := shakes(e, "emulator"); err != nil {
		t.Error("after a restart:", err)
	}
	wants(t, e.errs.String(), "the certificate lacks other")
	if e = startEmulator(t, nil, jsonReady, "-o", "json"); e.TLS != nil {
		t.Errorf("TLS without --tls: %+v", e.TLS)
	}
	if _, body := get(t, e.Admin+"/ca.pem"); strings.Contains(body, "CERTIFICATE") {
		t.Error("an authority without --tls")
	}
}
