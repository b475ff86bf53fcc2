package cli

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

	"github.com/peeklock/peeklock/admin"
)

// Limits, times and paths of requests to Kubernetes.
const (
	kubernetesAccount  = "/var/run/secrets/kubernetes.io/serviceaccount"
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

// report prints progress, has the member log it, and makes it an event of the pod.
func (p *prestop) report(ctx context.Context, text string) {
	_, _ = fmt.Fprintln(p.Err, "prestop: "+text)
	p.tell(ctx, text)
	p.sendEvent(ctx, eventNormal, text)
}

// tell has the member log a text. The member may have stopped already, so a failure is not reported.
func (p *prestop) tell(ctx context.Context, text string) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeMax)
	defer cancel()
	note := admin.Note{Source: "prestop", Text: strings.ToValidUTF8(text[:min(len(text), admin.NoteBytesMax)], "")}
	_, _ = p.callNow(ctx, http.MethodPost, "/v1/notes", note, nil)
}

// sendEvent creates an event of the pod. The service account may lack the right, so a failure is not reported.
func (p *prestop) sendEvent(ctx context.Context, kind, text string) {
	name, err := p.podName()
	if p.events++; err != nil || p.events > eventsMax {
		return
	}
	now := time.Now().UTC().Truncate(time.Second)
	event := podEvent{Type: kind, Reason: "MemberRemoval", Message: strings.ToValidUTF8(text[:min(len(text), eventBytesMax)], ""), First: now, Last: now, Count: 1}
	event.Metadata.GenerateName = name + "-"
	event.Involved.APIVersion, event.Involved.Kind, event.Involved.Name, event.Involved.UID = "v1", "Pod", name, p.Getenv("POD_UID")
	event.Source.Component = "peeklock"
	ctx, cancel := context.WithTimeout(ctx, reportTimeMax)
	defer cancel()
	_ = p.callKubernetes(ctx, func(namespace string) (method, path string, body []byte) {
		event.Metadata.Namespace, event.Involved.Namespace = namespace, namespace
		body, _ = json.Marshal(event) // strings and numbers
		return http.MethodPost, "/api/v1/namespaces/" + url.PathEscape(namespace) + "/events", body
	}, nil)
}

// readStatefulSet reads the StatefulSet from the API server.
func (p *prestop) readStatefulSet(ctx context.Context, set *statefulSet) error {
	return p.callKubernetes(ctx, func(namespace string) (method, path string, body []byte) {
		return http.MethodGet, "/apis/apps/v1/namespaces/" + url.PathEscape(namespace) + "/statefulsets/" + url.PathEscape(p.set), nil
	}, set)
}

// callKubernetes sends a request to the API server with the token of the service account, which is read each time because
// Kubernetes renews it. ask returns the request for the namespace of the pod; out may be nil.
func (p *prestop) callKubernetes(ctx context.Context, ask func(namespace string) (method, path string, body []byte), out any) error {
	host, port := p.Getenv("KUBERNETES_SERVICE_HOST"), cmp.Or(p.Getenv("KUBERNETES_SERVICE_PORT"), "443")
	if host == "" {
		return errors.New("KUBERNETES_SERVICE_HOST is not set: this is no pod")
	}
	read := func(name string) (string, error) {
		text, err := os.ReadFile(filepath.Join(p.serviceAccount, name)) //nolint:gosec // of the folder that was named
		return strings.TrimSpace(string(text)), err
	}
	token, err := read("token")
	namespace, errNamespace := read("namespace")
	authority, errAuthority := read("ca.crt")
	if err := errors.Join(err, errNamespace, errAuthority); err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(authority)) {
		return fmt.Errorf("%s holds no certificate", filepath.Join(p.serviceAccount, "ca.crt"))
	}
	method, path, body := ask(namespace)
	ctx, cancel := context.WithTimeout(ctx, kubernetesAskMax)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "https://"+net.JoinHostPort(host, port)+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Content-Type", "application/json")
	return sendKubernetes(request, roots, out)
}

// sendKubernetes sends a request and decodes the answer into out, unless that is nil.
func sendKubernetes(request *http.Request, roots *x509.CertPool, out any) error {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
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
