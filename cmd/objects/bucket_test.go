package objects

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/test/objectstore"
)

// testPart is the smallest part that the protocol allows.
const testPart = 5 << 20

func TestMain(m *testing.M) {
	minio.DefaultRetryUnit, minio.DefaultRetryCap = time.Millisecond, time.Millisecond // between retries
	os.Exit(m.Run())
}

// environment returns a getenv; later pairs override earlier ones.
func environment(pairs ...string) func(string) string {
	return func(name string) string {
		value := ""
		for _, pair := range pairs {
			if v, found := strings.CutPrefix(pair, name+"="); found {
				value = v
			}
		}
		return value
	}
}

// at returns a bucket in a store, with small parts.
func at(t *testing.T, s *objectstore.Store, location string, pairs ...string) *bucket {
	t.Helper()
	place := kit.Must(Open(t.Context(), location, environment(append(s.Environment(), pairs...)...)))(t)
	b, ok := place.(*bucket)
	if !ok {
		t.Fatalf("%s is a %T", location, place)
	}
	b.part = testPart
	return b
}

// allNoise returns the bytes that noise uses.
var allNoise = sync.OnceValue(func() []byte {
	body := make([]byte, 3*testPart)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(body)
	return body
})

// noise returns n bytes, always the same.
func noise(n int) []byte { return allNoise()[:n] }

// writing writes a body and then returns err.
func writing(body []byte, err error) func(io.Writer) error {
	return func(w io.Writer) error {
		if _, failed := io.Copy(struct{ io.Writer }{w}, bytes.NewReader(body)); failed != nil {
			return failed
		}
		return err
	}
}

func get(t *testing.T, p Store, name string) ([]byte, error) {
	t.Helper()
	r, err := p.Get(t.Context(), name)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(r)
	return body, errors.Join(err, r.Close())
}

// What both kinds of stores guarantee.
func TestStoresKeepWholeObjectsOnly(t *testing.T) {
	t.Parallel()
	for kind, start := range map[string]func(t *testing.T) func() Store{
		"folder": func(t *testing.T) func() Store {
			dir := filepath.Join(t.TempDir(), "a", "copy")
			return func() Store { return folder(dir) }
		},
		"bucket": func(t *testing.T) func() Store {
			s := objectstore.Start(t)
			s.Set("copy-1/neighbour", []byte("x")) // not under the prefix
			s.Set("copy/", []byte{})               // a directory, as consoles create it
			return func() Store { return at(t, s, "s3://"+objectstore.Bucket+"/copy/") }
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			again := start(t)
			p := again()
			kit.OK(t, p.Claim(t.Context()))
			for _, size := range []int{0, 1, testPart, testPart + 1, 12 << 20} {
				body := noise(size)
				if err := p.Put(t.Context(), "one", writing(body, nil)); err != nil {
					t.Fatal(size, err)
				}
				if got, err := get(t, p, "one"); err != nil || !bytes.Equal(got, body) {
					t.Errorf("%d bytes came back as %d: %v", size, len(got), err)
				}
			}
			if _, err := get(t, p, "other"); !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
			if err := again().Claim(t.Context()); !errors.Is(err, ErrNotEmpty) {
				t.Error(err)
			}

			// A failed Put leaves the previous object. The third error is what a connection that breaks returns,
			// and what the library takes for the end of an object.
			for _, failure := range []error{errors.New("broken"), io.EOF, io.ErrUnexpectedEOF} {
				for _, size := range []int{100, testPart, testPart + 100} {
					if err := p.Put(t.Context(), "one", writing(noise(size), failure)); !errors.Is(err, failure) {
						t.Error(failure, err)
					}
					if err := p.Put(t.Context(), "new", writing(noise(size), failure)); !errors.Is(err, failure) {
						t.Error(failure, err)
					}
				}
			}
			if got, err := get(t, p, "one"); err != nil || len(got) != 12<<20 {
				t.Error(len(got), err)
			}
			if _, err := get(t, p, "new"); !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}

			ctx, cancel := context.WithCancel(t.Context())
			r := kit.Must(p.Get(ctx, "one"))(t)
			cancel()
			if _, err := io.Copy(io.Discard, r); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			_ = r.Close()
		})
	}
}

// A store that fails in the middle causes an error of the store, for the writer, too, and leaves no object and no
// part that would be billed. The same holds for a canceled upload.
func TestInterruptedUploadLeavesNoObject(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(w http.ResponseWriter, cancel func()){
		"refused": func(w http.ResponseWriter, _ func()) {
			objectstore.WriteError(w, http.StatusForbidden, "AccessDenied", "no more")
		},
		"full": func(w http.ResponseWriter, _ func()) {
			objectstore.WriteError(w, http.StatusInsufficientStorage, "XStorageFull", "full")
		},
		"broken":    func(http.ResponseWriter, func()) { panic(http.ErrAbortHandler) },
		"cancelled": func(_ http.ResponseWriter, cancel func()) { cancel(); panic(http.ErrAbortHandler) },
	} {
		for _, part := range []string{"1", "2", ""} { // "": the completion
			t.Run(name+part, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s := objectstore.Start(t)
				s.Before = func(w http.ResponseWriter, r *http.Request) bool {
					query := r.URL.Query()
					hit := query.Has("uploadId") && query.Get("partNumber") == part && r.Method != http.MethodDelete
					if hit {
						cut(w, cancel)
					}
					return hit
				}
				err := at(t, s, "s3://"+objectstore.Bucket+"/cut").Put(ctx, "one", writing(noise(2*testPart+1), nil))
				if place := new(Error); !errors.As(err, &place) || !strings.HasPrefix(err.Error(), "write s3://copies/cut/one: ") {
					t.Error(err)
				}
				if name == "refused" && !strings.Contains(err.Error(), "AWS_ACCESS_KEY_ID") {
					t.Error("does not say what to do:", err)
				}
				if names := s.Names(); len(names) != 0 || s.Unfinished() != 0 {
					t.Errorf("left behind: %v, %d uploads", names, s.Unfinished())
				}
			})
		}
	}
}

// One failed attempt of a part does not fail the upload.
func TestFailedPartIsRetried(t *testing.T) {
	t.Parallel()
	s := objectstore.Start(t)
	var mu sync.Mutex
	seen := map[string]bool{}
	s.Before = func(_ http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if part := r.URL.Query().Get("partNumber"); part != "" && !seen[part] {
			seen[part] = true
			panic(http.ErrAbortHandler)
		}
		return false
	}
	b := at(t, s, "s3://"+objectstore.Bucket)
	body := noise(2*testPart + 1)
	kit.OK(t, b.Put(t.Context(), "one", writing(body, nil)))
	if !bytes.Equal(s.Object("one"), body) || len(seen) != 3 {
		t.Error("it came otherwise", len(seen))
	}
}

// Data that the store is slow to accept is not read from the member.
func TestUploadMemoryIsBounded(t *testing.T) {
	t.Parallel()
	s := objectstore.Start(t)
	readAhead := make(chan struct{})
	s.Before = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("partNumber") == "1" {
			<-readAhead
		}
		return false
	}
	b := at(t, s, "s3://"+objectstore.Bucket)
	piece := noise(64 << 10)
	err := b.Put(t.Context(), "one", func(w io.Writer) error {
		for written := int64(0); written < 8*testPart; {
			if _, err := w.Write(piece); err != nil {
				return err
			}
			written += int64(len(piece))
			if written == 2*testPart { // the second is read while the first is sent
				close(readAhead)
			}
			if held := written - s.StoredBytes(); held > partsInMemory*testPart+int64(len(piece)) {
				t.Fatalf("%d bytes are read and not stored", held)
			}
		}
		return nil
	})
	if err != nil || len(s.Object("one")) != 8*testPart {
		t.Error(err)
	}
}

// The limit of an object, here a smaller one, is detected before the upload is completed.
func TestTooLargeObjectIsRefused(t *testing.T) {
	t.Parallel()
	if ObjectBytesMax != 10_000*16<<20 {
		t.Error("the README names another limit")
	}
	s := objectstore.Start(t)
	b := at(t, s, "s3://"+objectstore.Bucket)
	if b.bytesMax != ObjectBytesMax {
		t.Error(b.bytesMax)
	}
	b.bytesMax = 1000
	if err := b.Put(t.Context(), "one", writing(noise(1000), nil)); err != nil {
		t.Error(err)
	}
	if err := b.Put(t.Context(), "two", writing(noise(1001), nil)); err == nil || !strings.Contains(err.Error(), "copy to a folder") {
		t.Error(err)
	}
	if names := s.Names(); !slices.Equal(names, []string{"one"}) || s.Unfinished() != 0 {
		t.Error(names)
	}
}

// Mistakes of operators, and the hints for them.
func TestStoreErrorsHaveHints(t *testing.T) {
	t.Parallel()
	s := objectstore.Start(t)
	for _, c := range []struct {
		name, location, pair, want string
	}{
		{"key", "s3://copies/a", "AWS_ACCESS_KEY_ID=other", "look at AWS_ACCESS_KEY_ID"},
		{"secret", "s3://copies/a", "AWS_SECRET_ACCESS_KEY=other", "look at AWS_ACCESS_KEY_ID"},
		{"bucket", "s3://missing/a", "", "make the bucket first"},
		{"endpoint", "s3://copies/a", "AWS_ENDPOINT_URL_S3=http://127.0.0.1:1", "look at AWS_ENDPOINT_URL_S3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := at(t, s, c.location, c.pair)
			for doing, err := range map[string]error{
				"claim": b.Claim(t.Context()),
				"put":   b.Put(t.Context(), "one", writing(noise(10), nil)),
			} {
				if place := new(Error); !errors.As(err, &place) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: %v", doing, err)
				}
			}
			if _, err := get(t, b, "one"); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Error("get:", err)
			}
		})
	}
}
