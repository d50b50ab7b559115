package source

import (
	"errors"
	"strings"
	"syscall"
)

// tcpUserTimeout is TCP_USER_TIMEOUT, which syscall does not have for each architecture.
const tcpUserTimeout = 18

// control sets how long sent data may be without an acknowledgement. The default is about 15 minutes.
func (l limits) control() func(network, address string, c syscall.RawConn) error {
	return func(network, _ string, c syscall.RawConn) (err error) {
		if !strings.HasPrefix(network, "tcp") {
			return nil
		}
		failed := c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout,
				int(l.silence.Milliseconds()))
		})
		return errors.Join(failed, err)
	}
}
