package kit

import (
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// KubernetesAPI starts an API server of Kubernetes. It returns the environment and the folder of the service
// account with which a pod in the namespace "queues" finds it; the token is "secret".
func KubernetesAPI(t testing.TB, handler http.HandlerFunc) (env []string, account string) {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	account = t.TempDir()
	for name, text := range map[string]string{
		"token": "secret\n", "namespace": "queues",
		"ca.crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})),
	} {
		if err := os.WriteFile(filepath.Join(account, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return []string{"KUBERNETES_SERVICE_HOST=" + host, "KUBERNETES_SERVICE_PORT=" + port}, account
}
