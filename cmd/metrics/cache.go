package metrics

import (
	"bytes"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Limits of scrapes.
const (
	snapshotEvery = time.Second // maximum age of a snapshot or an answer that is used again
	scrapesMax    = 4           // concurrent scrapes; more are answered with 503
)

// cache answers scrapes with the last answer while it is recent, so that any number of scrapes encodes the metrics once in
// snapshotEvery for each form of the answer. It is safe for concurrent use.
type cache struct {
	next    http.Handler
	scrapes chan struct{} // one token for each in progress; further ones are refused
	answers [formCount]cachedAnswer
}

// form is a form of the answer that a client accepts.
type form int

const (
	compressed form = 1 << iota
	protobuf
	formCount
)

// cachedAnswer is the last answer in one form.
type cachedAnswer struct {
	mu     sync.Mutex // held while the answer is encoded
	at     time.Time
	status int
	header http.Header
	body   []byte
}

func newCache(next http.Handler) *cache {
	return &cache{next: next, scrapes: make(chan struct{}, scrapesMax)}
}

// formOf returns the form of the answer to a request.
func formOf(r *http.Request) (f form) {
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		f |= compressed
	}
	if strings.Contains(r.Header.Get("Accept"), "application/vnd.google.protobuf") {
		f |= protobuf
	}
	return f
}

// ServeHTTP implements http.Handler.
func (c *cache) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f := formOf(r)
	status, header, body := c.get(f)
	maps.Copy(w.Header(), header)
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// get returns an answer in a form, or 503 if too many wait for one.
func (c *cache) get(f form) (int, http.Header, []byte) {
	select {
	case c.scrapes <- struct{}{}:
		defer func() { <-c.scrapes }()
		return c.answers[f].get(c.next, f)
	default:
		return http.StatusServiceUnavailable, nil, nil
	}
}

// get returns the last answer if it is recent, otherwise a new one.
func (a *cachedAnswer) get(next http.Handler, f form) (int, http.Header, []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.at) < snapshotEvery { // before the first one, at is zero
		return a.status, a.header, a.body
	}
	answer := &recorder{header: make(http.Header), status: http.StatusOK}
	next.ServeHTTP(answer, f.request())
	if answer.status == http.StatusOK {
		a.at, a.status, a.header, a.body = time.Now(), answer.status, answer.header, answer.body.Bytes()
	}
	return answer.status, answer.header, answer.body.Bytes()
}

// request returns a request for an answer in this form. The headers of clients are not used: what else they contain could make
// an answer that other clients do not accept.
func (f form) request() *http.Request {
	r := &http.Request{Method: http.MethodGet, Header: make(http.Header)}
	if f&compressed != 0 {
		r.Header.Set("Accept-Encoding", "gzip")
	}
	if f&protobuf != 0 {
		r.Header.Set("Accept", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	}
	return r
}

// recorder keeps an answer.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *recorder) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *recorder) WriteHeader(status int) { a.status = status }

// Write implements http.ResponseWriter.
func (a *recorder) Write(b []byte) (int, error) { return a.body.Write(b) }

// Text returns the answer of a handler of New in the text format.
func Text(h http.Handler) []byte {
	answer := &recorder{header: make(http.Header)}
	h.ServeHTTP(answer, form(0).request())
	return answer.body.Bytes()
}
