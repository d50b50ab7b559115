//go:build unix

package machine

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"
)

// A file can be locked again as soon as it is closed, though a process that is being started still has a copy
// of the open file.
func TestClosedLockIsFree(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	lock, err := LockFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := LockFile(path); !errors.Is(err, ErrLocked) {
		t.Errorf("a second lock: %v, want %v", err, ErrLocked)
	}
	inherited, err := syscall.Dup(int(lock.(lockedFile).Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(inherited)
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := LockFile(path)
	if err != nil {
		t.Fatalf("after the end of the first lock: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}
