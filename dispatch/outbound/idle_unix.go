//go:build unix

package outbound

import (
	"errors"
	"syscall"
)

var errNotIdle = errors.New("unexpected data, or the connection is closed")

// checkSilent reads from a non-blocking socket. It returns nil if the connection is open and has nothing to
// read.
func checkSilent(fd uintptr, p []byte) error {
	for {
		switch _, err := syscall.Read(int(fd), p); err {
		case syscall.EAGAIN:
			return nil
		case syscall.EINTR:
		default:
			return errNotIdle
		}
	}
}
