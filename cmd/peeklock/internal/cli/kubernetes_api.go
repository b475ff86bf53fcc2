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
	p.log(ctx, text)
	p.sendEvent(ctx, eventNormal, text)
}

// log prints progress and has the member log it.
func (p *prestop) log(ctx context.Context, text string) {
	_, _ = fmt.Fprintln(p.Err, "prestop: "+text)
	p.tell(ctx, text)
}

// tell has the member log a text. The member may have stopped already, so a failure is not reported.
func (p *prestop) tell(ctx context.Context, text string) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeMax)
	defer cancel()
	_, _ = p.CallOnce(ctx, http.MethodPost, "/v1/notes", admin.Note{Source: "prestop", Text: truncate(text, admin.NoteBytesMax)}, nil)
}

// sendEvent creates an event of the pod. The service account may lack the right, so a failure is not reported.
func (p *prestop) sendEvent(ctx context.Context, kind, text string) {
	name, err := p.podName()
	if p.events++; err != nil || p.events > eventsMax {
		return
	}
	server, err := p.apiServer()
	if err != nil {
		return
	}
	now := time.Now().UTC().Truncate(time.Second)
	event := podEvent{Type: kind, Reason: "MemberRemoval", Message: truncate(text, eventBytesMax), First: now, Last: now, Count: 1}
	event.Metadata.GenerateName, event.Metadata.Namespace = name+"-", server.namespace
	event.Involved.APIVersion, event.Involved.Kind, event.Involved.Name, event.Involved.UID = "v1", "Pod", name, p.Getenv("POD_UID")
	event.Involved.Namespace = server.namespace
	event.Source.Component = "peeklock"
	ctx, cancel := context.WithTimeout(ctx, reportTimeMax)
	defer cancel()
	_ = server.call(ctx, http.MethodPost, "/api/v1", "events", event, nil)
}

// truncate returns the beginning of a text, without a part of a character at its end.
func truncate(text string, bytesMax int) string {
	return strings.ToValidUTF8(text[:min(len(text), bytesMax)], "")
}

// readStatefulSet reads the StatefulSet from the API server.
func (p *prestop) readStatefulSet(ctx context.Context, set *statefulSet) error {
	server, err := p.apiServer()
	if err != nil {
		return err
	}
	return server.call(ctx, http.MethodGet, "/apis/apps/v1", "statefulsets/"+url.PathEscape(p.set), nil, set)
}

// apiServer is the API server of Kubernetes, as the service account of the pod reaches it.
type apiServer struct {
	address          string // host:port
	namespace, token string
	roots            *x509.CertPool
}

// apiServer returns the API server. It reads the service account each time, because Kubernetes renews the token.
func (p *prestop) apiServer() (*apiServer, error) {
	host, port := p.Getenv("KUBERNETES_SERVICE_HOST"), cmp.Or(p.Getenv("KUBERNETES_SERVICE_PORT"), "443")
	if host == "" {
		return nil, errors.New("KUBERNETES_SERVICE_HOST is not set: this is no pod")
	}
	read := func(name string) (string, error) {
		text, err := os.ReadFile(filepath.Join(p.serviceAccount, name)) //nolint:gosec // of the folder that was named
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
		return nil, fmt.Errorf("%s holds no certificate", filepath.Join(p.serviceAccount, "ca.crt"))
	}
	return &apiServer{net.JoinHostPort(host, port), namespace, token, roots}, nil
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
