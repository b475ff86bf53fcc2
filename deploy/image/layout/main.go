package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Media types of OCI image layouts (OCI Image Format 1.1).
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        descriptor   `json:"config"`
	Layers        []descriptor `json:"layers"`
}

type imageConfig struct {
	platform

	Config runConfig `json:"config"`
	RootFS rootFS    `json:"rootfs"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

// runConfig is the configuration of a container. Healthcheck is an extension of Docker, with times in nanoseconds.
type runConfig struct {
	User         string              `json:"User"`
	ExposedPorts map[string]struct{} `json:"ExposedPorts"`
	Env          []string            `json:"Env"`
	Entrypoint   []string            `json:"Entrypoint"`
	Cmd          []string            `json:"Cmd"`
	Labels       map[string]string   `json:"Labels"`
	Healthcheck  healthcheck         `json:"Healthcheck"`
}

type healthcheck struct {
	Test          []string      `json:"Test"`
	Interval      time.Duration `json:"Interval"`
	Timeout       time.Duration `json:"Timeout"`
	StartPeriod   time.Duration `json:"StartPeriod"`
	StartInterval time.Duration `json:"StartInterval"`
	Retries       int           `json:"Retries"`
}

// emulator is the configuration of the image. Any user may run it.
func emulator() runConfig {
	return runConfig{
		User: "65532:65532", ExposedPorts: map[string]struct{}{"5672/tcp": {}, "5300/tcp": {}}, Env: []string{"PATH=/"},
		Entrypoint: []string{"/peeklock"}, Cmd: []string{"emulator"},
		Labels: map[string]string{"org.opencontainers.image.title": "Peeklock in the place of the Service Bus emulator"},
		Healthcheck: healthcheck{
			Test: []string{"CMD", "/peeklock", "healthcheck"}, Interval: 10 * time.Second, Timeout: 5 * time.Second,
			StartPeriod: 30 * time.Second, StartInterval: 500 * time.Millisecond, Retries: 3,
		},
	}
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "layout:", err)
		os.Exit(1) //nolint:forbidigo // the main function of a small program
	}
}

func run(args []string) error {
	if len(args) < 3 {
		return errors.New("usage: layout DIR NAME:TAG ARCHITECTURE=BINARY [ARCHITECTURE=BINARY]")
	}
	w := writer{dir: args[0]}
	var images []descriptor
	for _, pair := range args[2:] {
		architecture, path, _ := strings.Cut(pair, "=")
		binary, err := os.ReadFile(path) //nolint:gosec // the caller names the file
		if err != nil {
			return fmt.Errorf("read the binary: %w", err)
		}
		images = append(images, w.image(architecture, binary))
	}
	_, tag, _ := strings.Cut(filepath.Base(args[1]), ":")
	all := w.json(typeIndex, index{SchemaVersion: 2, MediaType: typeIndex, Manifests: images})
	all.Annotations = map[string]string{"org.opencontainers.image.ref.name": tag, "io.containerd.image.name": args[1]}
	w.file("index.json", index{SchemaVersion: 2, MediaType: typeIndex, Manifests: []descriptor{all}})
	w.file("oci-layout", map[string]string{"imageLayoutVersion": "1.0.0"})
	return w.err
}

// writer writes a layout; it keeps the first error.
type writer struct {
	dir string
	err error
}

// image writes the image of one architecture.
func (w *writer) image(architecture string, binary []byte) descriptor {
	plain, packed, err := layer(binary)
	w.err = errors.Join(w.err, err)
	on := platform{Architecture: architecture, OS: "linux"}
	config := imageConfig{platform: on, Config: emulator(), RootFS: rootFS{Type: "layers", DiffIDs: []string{digest(plain)}}}
	d := w.json(typeManifest, manifest{
		SchemaVersion: 2, MediaType: typeManifest, Config: w.json(typeConfig, config), Layers: []descriptor{w.blob(typeLayer, packed)},
	})
	d.Platform = &on
	return d
}

// layer returns the only layer of an image, plain and compressed.
func layer(binary []byte) (plain, packed []byte, err error) {
	var content bytes.Buffer
	archive := tar.NewWriter(&content)
	for _, h := range []tar.Header{
		{Name: "peeklock", Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(binary))},
		{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777},
		{Name: "ServiceBus_Emulator/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "ServiceBus_Emulator/ConfigFiles/", Typeflag: tar.TypeDir, Mode: 0o755},
	} {
		h.ModTime = time.Unix(0, 0)
		err = errors.Join(err, archive.WriteHeader(&h))
		if h.Size > 0 {
			_, failed := archive.Write(binary)
			err = errors.Join(err, failed)
		}
	}
	err = errors.Join(err, archive.Close())
	var compressed bytes.Buffer
	zip := gzip.NewWriter(&compressed)
	_, failed := zip.Write(content.Bytes())
	err = errors.Join(err, failed, zip.Close())
	return content.Bytes(), compressed.Bytes(), err
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// blob writes a blob under its digest.
func (w *writer) blob(mediaType string, content []byte) descriptor {
	d := descriptor{MediaType: mediaType, Digest: digest(content), Size: len(content)}
	w.write(filepath.Join("blobs", strings.Replace(d.Digest, ":", "/", 1)), content)
	return d
}

func (w *writer) json(mediaType string, value any) descriptor {
	content, err := json.Marshal(value)
	w.err = errors.Join(w.err, err)
	return w.blob(mediaType, content)
}

func (w *writer) file(name string, value any) {
	content, err := json.Marshal(value)
	w.err = errors.Join(w.err, err)
	w.write(name, content)
}

func (w *writer) write(name string, content []byte) {
	path := filepath.Join(w.dir, name)
	w.err = errors.Join(w.err, os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, content, 0o600))
}
