package machine

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// errSharing is ERROR_SHARING_VIOLATION: the file is open elsewhere without sharing.
const errSharing = syscall.Errno(32)

// LockFile opens the file so that no other process can open it until it is closed or the process ends. The
// error is ErrLocked if another process has it open.
func LockFile(path string) (io.Closer, error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	h, err := syscall.CreateFile(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, 0, nil,
		syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if err != nil {
		if errors.Is(err, errSharing) {
			return nil, ErrLocked
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return os.NewFile(uintptr(h), path), nil
}

// SyncDir does nothing: on Windows names are durable without it.
func SyncDir(string) error { return nil }
