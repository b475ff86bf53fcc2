package kubernetes

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Account is the directory of the service account of a pod: token, ca.crt, namespace.
const Account = "/var/run/secrets/kubernetes.io/serviceaccount"

// Limits and times of requests to Kubernetes.
const (
	kubernetesAskMax   = 10 * time.Second
	kubernetesBytesMax = 4 << 20
	eventsMax          = 20   // of one hook: its reasons to wait may alternate for an hour
	eventBytesMax      = 1024 // bytes of the text of an event; Kubernetes refuses more
	reportTimeMax      = 2 * time.Second
)

// The types of events.
const (
	eventNormal  = "Normal"
	eventWarning = "Warning"
)

// statefulSet has the fields of a StatefulSet that prestop reads.
type statefulSet struct {
	Metadata struct {
		Deleted *time.Time `json:"deletionTimestamp"`
	} `json:"metadata"`
	Spec struct {
		Replicas *int `json:"replicas"`
		Ordinals struct {
			Start int `json:"start"`
		} `json:"ordinals"`
	} `json:"spec"`
}

// podEvent is an event about this pod.
type podEvent struct {
	Metadata struct {
		GenerateName string `json:"generateName"`
		Namespace    string `json:"namespace"`
	} `json:"metadata"`
	Involved struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Name       string `json:"name"`
		Namespace  string `json:"namespace"`
		UID        string `json:"uid,omitempty"`
	} `json:"involvedObject"`
	Source struct {
		Component string `json:"component"`
	} `json:"source"`
	Type    string    `json:"type"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	First   time.Time `json:"firstTimestamp"`
	Last    time.Time `json:"lastTimestamp"`
	Count   int       `json:"count"`
}

// apiServer is the API server of Kubernetes, as the service account of the pod reaches it.
type apiServer struct {
	address          string // host:port
	namespace, token string
	roots            *x509.CertPool
}

// findServer returns the API server of the pod with these variables. It reads the service account each time, because Kubernetes
// renews the token.
func findServer(getenv func(string) string, account string) (*apiServer, error) {
	host, port := getenv("KUBERNETES_SERVICE_HOST"), cmp.Or(getenv("KUBERNETES_SERVICE_PORT"), "443")
	if host == "" {
		return nil, errors.New("not running in a pod (KUBERNETES_SERVICE_HOST is not set)")
	}
	read := func(name string) (string, error) {
		text, err := os.ReadFile(filepath.Join(account, name)) //nolint:gosec // of the folder that was named
		return strings.TrimSpace(string(text)), err
	}
	token, err := read("token")
	namespace, errNamespace := read("namespace")
	authority, errAuthority := read("ca.crt")
	if err := errors.Join(err, errNamespace, errAuthority); err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(authority)) {
		return nil, fmt.Errorf("%s holds no certificate", filepath.Join(account, "ca.crt"))
	}
	return &apiServer{net.JoinHostPort(host, port), namespace, token, roots}, nil
}

// ReplaceSecret replaces the data of a Secret in the namespace of the pod with these variables; account is the directory of its
// service account. The Secret has to exist: then the right to patch this one Secret is enough, and it reads no other.
func ReplaceSecret(ctx context.Context, getenv func(string) string, account, name string, data map[string][]byte) error {
	server, err := findServer(getenv, account)
	if err == nil {
		patch := []map[string]any{{"op": "add", "path": "/data", "value": data}} // "add" replaces what is there
		err = server.call(ctx, http.MethodPatch, "/api/v1", "secrets/"+url.PathEscape(name), patch, nil)
	}
	if err != nil {
		return fmt.Errorf("write the Secret %s: %w", name, err)
	}
	return nil
}

// call sends a request about a resource in the namespace of the pod. in and out may be nil.
func (s *apiServer) call(ctx context.Context, method, api, resource string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, kubernetesAskMax)
	defer cancel()
	address := "https://" + s.address + api + "/namespaces/" + url.PathEscape(s.namespace) + "/" + resource
	request, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/json-patch+json")
	}
	return s.send(request, out)
}

// send sends a request and decodes the answer into out, unless that is nil.
func (s *apiServer) send(request *http.Request, out any) error {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.roots, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, kubernetesBytesMax))
	if err != nil {
		return err
	}
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("the API server answers %s at %s", response.Status, request.URL.Path)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(body, out)
}
