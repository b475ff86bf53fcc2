package kubernetes

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
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

// apiServer is the API server of Kubernetes, as the service account of the pod reaches it.
type apiServer struct {
	address          string // host:port
	namespace, token string
	roots            *x509.CertPool
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
