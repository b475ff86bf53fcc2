package objectstore

import (
	"bytes"
	"crypto/md5"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Store is an object store, an http.Handler. It is safe for concurrent use.
type Store struct {
	URL string // http://127.0.0.1:port, set by Start
	// Before is called for each request with a valid signature. It returns true when it has answered
	// the request. Set it before the first request.
	Before func(w http.ResponseWriter, r *http.Request) bool

	mu          sync.Mutex
	objects     map[string][]byte
	uploads     map[string]map[int][]byte // parts by upload
	begun       int
	storedBytes int64
}

// New returns an empty store that no server serves.
func New() *Store {
	return &Store{objects: map[string][]byte{}, uploads: map[string]map[int][]byte{}}
}

// Start starts a store that stops at the end of the test.
func Start(t testing.TB) *Store {
	t.Helper()
	s := New()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

// Environment returns the environment variables for a client of the store.
func (s *Store) Environment() []string {
	return []string{
		"AWS_ENDPOINT_URL_S3=" + s.URL, "AWS_ACCESS_KEY_ID=" + KeyID, "AWS_SECRET_ACCESS_KEY=" + Secret,
		"AWS_REGION=" + Region, "AWS_EC2_METADATA_DISABLED=true",
	}
}

// Names returns the names of the objects in order.
func (s *Store) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.objects))
}

// Object returns an object, or nil when it does not exist.
func (s *Store) Object(name string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[name]
}

// Set stores an object.
func (s *Store) Set(name string, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[name] = body
}

// Unfinished returns the number of uploads that were neither completed nor aborted.
func (s *Store) Unfinished() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.uploads)
}

// StoredBytes returns the total size of all stored parts.
func (s *Store) StoredBytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.storedBytes
}

// WriteError answers with an error of the protocol.
func WriteError(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", code, message)
}

// ServeHTTP handles one request of the protocol.
func (s *Store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if code := signatureError(r); code != "" {
		WriteError(w, http.StatusForbidden, code, "the request is not signed as it should be")
		return
	}
	if s.Before != nil && s.Before(w, r) {
		return
	}
	bucket, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if bucket != Bucket {
		WriteError(w, http.StatusNotFound, "NoSuchBucket", "The specified bucket does not exist")
		return
	}
	query := r.URL.Query()
	switch upload := query.Get("uploadId"); {
	case name == "" && r.Method == http.MethodGet:
		s.list(w, query.Get("prefix"))
	case r.Method == http.MethodPost && query.Has("uploads"):
		s.begin(w, name)
	case r.Method == http.MethodPut && upload != "":
		s.part(w, r, upload, query.Get("partNumber"))
	case r.Method == http.MethodPost && upload != "":
		s.complete(w, r, name, upload)
	case r.Method == http.MethodDelete && upload != "":
		s.abort(w, upload)
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		s.read(w, r, name)
	default:
		WriteError(w, http.StatusNotImplemented, "NotImplemented", "this store does not know it")
	}
}

func (s *Store) list(w http.ResponseWriter, prefix string) {
	type content struct {
		Key          string
		Size         int
		LastModified time.Time
	}
	var found struct {
		XMLName     xml.Name `xml:"ListBucketResult"`
		Name        string
		Prefix      string
		IsTruncated bool
		Contents    []content
	}
	found.Name, found.Prefix = Bucket, prefix
	for _, name := range s.Names() {
		if strings.HasPrefix(name, prefix) {
			found.Contents = append(found.Contents, content{name, len(s.Object(name)), time.Unix(0, 0).UTC()})
		}
	}
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(found)
}

func (s *Store) begin(w http.ResponseWriter, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun++
	id := strconv.Itoa(s.begun)
	s.uploads[id] = map[int][]byte{}
	_, _ = fmt.Fprintf(w, "<InitiateMultipartUploadResult><Bucket>%s</Bucket><Key>%s</Key><UploadId>%s</UploadId></InitiateMultipartUploadResult>", Bucket, name, id)
}

func (s *Store) part(w http.ResponseWriter, r *http.Request, upload, number string) {
	body, err := payload(r)
	if err != nil {
		WriteError(w, http.StatusBadRequest, "IncompleteBody", "the body broke off")
		return
	}
	sum := md5.Sum(body)
	if base64.StdEncoding.EncodeToString(sum[:]) != r.Header.Get("Content-Md5") {
		WriteError(w, http.StatusBadRequest, "BadDigest", "the body is not what was sent")
		return
	}
	n, err := strconv.Atoi(number)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || s.uploads[upload] == nil {
		WriteError(w, http.StatusNotFound, "NoSuchUpload", "there is no such upload")
		return
	}
	s.uploads[upload][n] = body
	s.storedBytes += int64(len(body))
	w.Header().Set("ETag", `"`+hex.EncodeToString(sum[:])+`"`)
}

func (s *Store) complete(w http.ResponseWriter, r *http.Request, name, upload string) {
	var asked struct {
		Part []struct{ PartNumber int }
	}
	err := xml.NewDecoder(r.Body).Decode(&asked)
	s.mu.Lock()
	defer s.mu.Unlock()
	parts := s.uploads[upload]
	if err != nil || parts == nil || len(asked.Part) != len(parts) {
		WriteError(w, http.StatusBadRequest, "InvalidPart", "not the parts that are here")
		return
	}
	var whole bytes.Buffer
	for _, p := range asked.Part {
		whole.Write(parts[p.PartNumber])
	}
	s.objects[name] = whole.Bytes()
	delete(s.uploads, upload)
	_, _ = fmt.Fprintf(w, "<CompleteMultipartUploadResult><Bucket>%s</Bucket><Key>%s</Key><ETag>&quot;1&quot;</ETag></CompleteMultipartUploadResult>", Bucket, name)
}

func (s *Store) abort(w http.ResponseWriter, upload string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.uploads, upload)
	w.WriteHeader(http.StatusNoContent)
}

func (s *Store) read(w http.ResponseWriter, r *http.Request, name string) {
	s.mu.Lock()
	body, found := s.objects[name]
	s.mu.Unlock()
	if !found {
		WriteError(w, http.StatusNotFound, "NoSuchKey", "The specified key does not exist.")
		return
	}
	w.Header().Set("ETag", `"1"`)
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Unix(1, 0), bytes.NewReader(body))
}

// payload returns the body of a request: as sent, or decoded from signed chunks.
func payload(r *http.Request) ([]byte, error) {
	if !strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") {
		return io.ReadAll(r.Body)
	}
	return decodeChunks(r.Body)
}
