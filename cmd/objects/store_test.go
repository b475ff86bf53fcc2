package objects

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/test/objectstore"
)

func TestLocationsSelectFolderOrBucket(t *testing.T) {
	t.Parallel()
	s := objectstore.Start(t)
	getenv := environment(s.Environment()...)
	for location, want := range map[string]string{
		"copy":            "copy",
		"/a/b":            "/a/b",
		"s3://copies":     "s3://copies/",
		"s3://copies/":    "s3://copies/",
		"s3://copies/a":   "s3://copies/a/",
		"s3://copies/a/b": "s3://copies/a/b/",
		"s3://copies/a/":  "s3://copies/a/",
	} {
		p, err := Open(t.Context(), location, getenv)
		if err != nil || p.String() != want {
			t.Error(location, p, err)
		}
	}
	for _, location := range []string{
		"gs://copies/a", "http://127.0.0.1/a", "s3://", "s3:///a", "s3://id:secret@copies/a", "s3://copies/a?b=c", "s3://copies//a",
		"s3://No_Bucket/a",
	} {
		if p, err := Open(t.Context(), location, getenv); err == nil {
			t.Error(location, "is", p)
		}
	}
	for _, endpoint := range []string{"store:9000", "ftp://store", "https://", "https://store/path", "::"} {
		if _, err := Open(t.Context(), "s3://copies/a", environment(append(s.Environment(), "AWS_ENDPOINT_URL_S3="+endpoint)...)); err == nil || !strings.Contains(err.Error(), "AWS_ENDPOINT_URL_S3") {
			t.Error(endpoint, err)
		}
	}
}

// The endpoint of S3 takes precedence over the endpoint of all services; only a URL with http:// disables TLS.
func TestEndpointComesFromTheEnvironment(t *testing.T) {
	t.Parallel()
	keys := []string{"AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b"}
	for want, pairs := range map[string][]string{
		"https://s3.amazonaws.com": {},
		"http://a:1":               {"AWS_ENDPOINT_URL=http://a:1"},
		"https://b:2":              {"AWS_ENDPOINT_URL=http://a:1", "AWS_ENDPOINT_URL_S3=https://b:2/"},
	} {
		p := kit.Must(Open(t.Context(), "s3://copies/a", environment(append(pairs, keys...)...)))(t)
		if b, ok := p.(*bucket); !ok || b.client.EndpointURL().String() != want || b.withoutChecksums {
			t.Error(want, b.client.EndpointURL())
		}
	}
	p := kit.Must(Open(t.Context(), "s3://copies/a", environment(append(keys, "AWS_ENDPOINT_URL=https://storage.googleapis.com")...)))(t)
	if b, ok := p.(*bucket); !ok || !b.withoutChecksums {
		t.Error("the library makes no checksums for Google's")
	}
}

// Not parallel: the library reads the shared credentials file by the environment of the process.
func TestKeysComeFromTheEnvironment(t *testing.T) {
	s := objectstore.Start(t)
	for _, name := range []string{"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"} {
		t.Setenv(name, filepath.Join(t.TempDir(), "none"))
	}
	t.Setenv("AWS_PROFILE", "copies")
	bare := environment("AWS_ENDPOINT_URL=" + s.URL)
	if _, err := Open(t.Context(), "s3://copies/a", bare); err == nil || !strings.Contains(err.Error(), "set AWS_ACCESS_KEY_ID") {
		t.Error(err)
	}
	path := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(path, []byte("[copies]\naws_access_key_id = "+objectstore.KeyID+"\naws_secret_access_key = "+objectstore.Secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", path)
	p := kit.Must(Open(t.Context(), "s3://copies/a", bare))(t)
	if err := p.Claim(t.Context()); err != nil {
		t.Error(err)
	}
}

// The clock advances when all goroutines wait.
func TestRateLimitBoundsAllWriters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const perSecond = 1 << 20
		began := time.Now()
		w := NewRateLimit(perSecond).Writer(t.Context())
		piece := make([]byte, 256<<10)
		for range 4 * 60 {
			if n, err := w.Write(piece); n != len(piece) || err != nil {
				t.Fatal(n, err)
			}
		}
		// A tenth of a second is sent at once.
		if took := time.Since(began).Round(time.Second / 10); took < 59*time.Second || took > 60*time.Second {
			t.Error("60 MiB at 1 MiB a second took", took)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := NewRateLimit(RateBytesMin).Writer(ctx).Write(make([]byte, 1<<20)); err == nil || time.Since(began) > 62*time.Second {
			t.Error("it does not end with its context:", err)
		}
	})
	var none *RateLimit
	if n, err := none.Writer(t.Context()).Write(make([]byte, 7)); n != 7 || err != nil {
		t.Error(n, err)
	}
}

// A disk that fails causes an error of the store.
func TestFolderErrorsNameThePath(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	kit.OK(t, os.WriteFile(file, nil, 0o600))
	for doing, err := range map[string]error{
		"claim": folder(file).Claim(t.Context()),
		"put":   folder(file).Put(t.Context(), "one", writing(nil, nil)),
	} {
		if place := new(Error); !errors.As(err, &place) {
			t.Error(doing, err)
		}
	}
}
