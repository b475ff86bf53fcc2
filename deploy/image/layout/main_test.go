package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// read reads a blob and checks its digest and size.
func read(t *testing.T, dir string, d descriptor, into any) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, "blobs", strings.Replace(d.Digest, ":", "/", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if got := digest(content); got != d.Digest || len(content) != d.Size {
		t.Errorf("the blob has the digest %s and %d bytes, want %s and %d", got, len(content), d.Digest, d.Size)
	}
	if into != nil {
		if err := json.Unmarshal(content, into); err != nil {
			t.Fatal(err)
		}
	}
	return content
}

// write writes a layout with two architectures, whose binaries hold their names.
func write(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	args := []string{filepath.Join(dir, "layout"), "example.org/peeklock-emulator:dev"}
	for _, architecture := range []string{"amd64", "arm64"} {
		path := filepath.Join(dir, architecture)
		if err := os.WriteFile(path, []byte("the binary for "+architecture), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, architecture+"="+path)
	}
	if err := run(args); err != nil {
		t.Fatal(err)
	}
	return args[0]
}

// An engine that loads the layout finds one image for each architecture, with the binary, a folder for temporary files and
// the folder of the configuration.
func TestLayoutHasAnImageForEachArchitecture(t *testing.T) {
	t.Parallel()
	dir := write(t)
	content, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var top, all index
	if err := json.Unmarshal(content, &top); err != nil || len(top.Manifests) != 1 {
		t.Fatalf("%s: %v", content, err)
	}
	if got := top.Manifests[0].Annotations; got["org.opencontainers.image.ref.name"] != "dev" || got["io.containerd.image.name"] != "example.org/peeklock-emulator:dev" {
		t.Errorf("annotations %v", got)
	}
	read(t, dir, top.Manifests[0], &all)
	var architectures []string
	for _, d := range all.Manifests {
		architectures = append(architectures, d.Platform.OS+"/"+d.Platform.Architecture)
		var m manifest
		read(t, dir, d, &m)
		var config imageConfig
		read(t, dir, m.Config, &config)
		if config.platform != *d.Platform || len(m.Layers) != 1 || len(config.RootFS.DiffIDs) != 1 {
			t.Errorf("config %+v of manifest %+v", config, m)
		}
		if diff := cmp.Diff(emulator(), config.Config); diff != "" {
			t.Error(diff)
		}
		plain, files := unpack(t, read(t, dir, m.Layers[0], nil))
		if got := digest(plain); got != config.RootFS.DiffIDs[0] {
			t.Errorf("the layer has the digest %s, want %s", got, config.RootFS.DiffIDs[0])
		}
		want := map[string]string{
			"peeklock": "755 the binary for " + d.Platform.Architecture, "tmp/": "1777 ", "ServiceBus_Emulator/": "755 ", "ServiceBus_Emulator/ConfigFiles/": "755 ",
		}
		if diff := cmp.Diff(want, files); diff != "" {
			t.Error(diff)
		}
	}
	if diff := cmp.Diff([]string{"linux/amd64", "linux/arm64"}, architectures); diff != "" {
		t.Error(diff)
	}
	if layout, err := os.ReadFile(filepath.Join(dir, "oci-layout")); err != nil || string(layout) != `{"imageLayoutVersion":"1.0.0"}` {
		t.Errorf("oci-layout: %s, %v", layout, err)
	}
}

// unpack returns a layer without compression, and mode and content of its files.
func unpack(t *testing.T, packed []byte) (plain []byte, files map[string]string) {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	if plain, err = io.ReadAll(zip); err != nil {
		t.Fatal(err)
	}
	files = make(map[string]string)
	for archive := tar.NewReader(bytes.NewReader(plain)); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return plain, files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = strconv.FormatInt(h.Mode, 8) + " " + string(content)
	}
}

// The same binaries give the same bytes, so that an image can be compared with its sources.
func TestLayoutIsReproducible(t *testing.T) {
	t.Parallel()
	var indexes [2]string
	for i := range indexes {
		content, err := os.ReadFile(filepath.Join(write(t), "index.json"))
		if err != nil {
			t.Fatal(err)
		}
		indexes[i] = string(content)
	}
	if indexes[0] != indexes[1] {
		t.Errorf("%s\n%s", indexes[0], indexes[1])
	}
}
