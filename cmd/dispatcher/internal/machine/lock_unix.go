//go:build unix

package machine

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// LockFile opens the file and takes an exclusive lock on it. The lock ends when the file is closed or the
// process ends. The error is ErrLocked if another process has the lock.
func LockFile(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrLocked
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return lockedFile{f}, nil
}

type lockedFile struct{ *os.File }

// Close unlocks and closes the file. Without the explicit unlock, a child process that is being started would
// keep the lock until it has closed its copy of the file.
func (f lockedFile) Close() error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.File.Close())
}

// SyncDir makes new names in a directory durable.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
