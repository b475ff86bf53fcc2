package kit

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// SmallDisk mounts a tmpfs of a size such as "1m" and returns its folder. It skips the test where that is not
// possible.
func SmallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// LoopDisk mounts an ext4 file system of its own, on a loop device over a file, and returns its folder. It skips the test where
// that is not possible: it needs root, losetup and mkfs.ext4.
func LoopDisk(t *testing.T, bytes int64) string {
	t.Helper()
	image := filepath.Join(t.TempDir(), "disk")
	file, err := os.Create(image)
	if err == nil {
		err = errors.Join(file.Truncate(bytes), file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
		if err != nil {
			t.Skipf("a loop device cannot be made here: %s: %v: %s", name, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	run("mkfs.ext4", "-q", "-F", image)
	device := run("losetup", "--find", "--show", image)
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
			t.Errorf("detach %s: %v: %s", device, err, out)
		}
	})
	dir := t.TempDir()
	if err := syscall.Mount(device, dir, "ext4", 0, ""); err != nil {
		t.Skipf("a loop device cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// FillDisk takes all space that is free in the file system of a folder, down to 0 bytes, until end is called. It skips the test where
// the file system cannot reserve space.
func FillDisk(t *testing.T, dir string) (end func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for step := int64(1 << 30); step >= 4<<10; step /= 2 {
		for err == nil {
			var end int64
			if end, err = file.Seek(0, io.SeekEnd); err == nil {
				err = syscall.Fallocate(int(file.Fd()), 0, end, step)
			}
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Skipf("the volume cannot be filled: %v", err)
		}
		err = nil
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	}
}
