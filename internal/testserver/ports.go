package testserver

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
)

// The servers' ports lie below those that the system gives to clients. Between the choice of a port and the
// listen on it, the system gives it to no other program. The bus of a Cluster's node is 10,000 above its
// port, still below them.
const (
	firstPort = 10_240
	portCount = 10_000
)

// lastPort counts the ports that this process has chosen. It starts at random, so that test binaries that run
// side by side do not try the same ones.
var lastPort atomic.Int64

// FreePort returns a port of 127.0.0.1 that had no listener, and that this process never chooses again.
func FreePort(tb testing.TB) string {
	tb.Helper()
	lastPort.CompareAndSwap(0, 1+rand.Int64N(portCount))
	for range portCount {
		port := strconv.FormatInt(firstPort+lastPort.Add(1)%portCount, 10)
		free, err := isFree(port)
		if err != nil {
			tb.Fatal(err)
		}
		if free {
			return port
		}
	}
	tb.Fatalf("no free port of 127.0.0.1 from %d on", firstPort)
	return ""
}

// isFree says whether the port has no listener. No program is forked meanwhile: it would hold our own listener
// until it has replaced itself, after we closed it.
func isFree(port string) (bool, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return false, nil
	}
	if err := l.Close(); err != nil {
		return false, fmt.Errorf("close a port: %w", err)
	}
	return true, nil
}
