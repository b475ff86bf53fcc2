package contexts

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
)

// The file may hold secrets: nobody else can read it, and one that others can read is refused.
func TestContextsAreForTheirUserAlone(t *testing.T) {
	t.Parallel()
	p := cli.Process{Env: []string{"HOME=" + t.TempDir()}}
	want := Set{Current: "prod", Contexts: []Context{{Name: "prod", Servers: []string{"https://a:5300"}, Key: "secret"}}}
	if err := want.Save(p); err != nil {
		t.Fatal(err)
	}
	got, err := Load(p)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	info, err := os.Stat(Path(p))
	if err != nil || info.Mode().Perm() != fileMode {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	rest, err := os.ReadDir(filepath.Dir(Path(p)))
	if err != nil || len(rest) != 1 {
		t.Errorf("the folder has %d files: %v", len(rest), err)
	}
	if err := os.Chmod(Path(p), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(p); !errors.As(err, new(cli.UsageError)) {
		t.Errorf("a readable file: %v", err)
	}
}

func TestContextsHaveLimits(t *testing.T) {
	t.Parallel()
	var s Set
	for i := range CountMax {
		if err := s.Put(Context{Name: "c" + strconv.Itoa(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if s.Put(Context{Name: "one-more"}) == nil {
		t.Error("no limit")
	}
	if err := s.Put(Context{Name: "c7", Namespace: "shop"}); err != nil {
		t.Errorf("replace: %v", err)
	}
	for _, name := range []string{"", "-a", "a/b", "a b", strings.Repeat("x", 65)} {
		if s.Put(Context{Name: name}) == nil {
			t.Errorf("%q is accepted", name)
		}
	}
	p := cli.Process{Env: []string{"XDG_CONFIG_HOME=" + t.TempDir()}}
	if err := os.MkdirAll(filepath.Dir(Path(p)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(Path(p), make([]byte, fileBytesMax+1), fileMode); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(p); err == nil {
		t.Error("a large file is read")
	}
}

func TestConnectionStrings(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Endpoint=sb://shop.example.com/;SharedAccessKeyName=app;SharedAccessKey=c2Vj==":                              "https://shop.example.com:5671 app c2Vj==",
		"Endpoint=sb://localhost;SharedAccessKeyName=app;SharedAccessKey=x;UseDevelopmentEmulator=true;":              "http://localhost:5672 app x",
		"Endpoint=sb://[::1]:5682;SharedAccessKeyName=app;SharedAccessKey=x;EntityPath=q;UseDevelopmentEmulator=true": "http://[::1]:5682 app x",
		"Endpoint=https://a;SharedAccessKeyName=app;SharedAccessKey=topsecret":                                        "",
		"Endpoint=sb://a;SharedAccessKey=topsecret":                                                                   "",
		"topsecret": "",
	} {
		parsed, err := ParseConnectionString(text)
		got := parsed.Context()
		if err == nil && strings.Join(append(got.Servers, got.KeyName, got.Key), " ") != want || (err == nil) != (want != "") {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		if err != nil && strings.Contains(err.Error(), "topsecret") {
			t.Errorf("the error has the secret: %v", err)
		}
	}
}
