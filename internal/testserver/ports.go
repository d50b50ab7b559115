package testserver

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
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

// FreePorts returns n ports of 127.0.0.1 that had no listener, and that this process never chooses again.
func FreePorts(tb testing.TB, n int) []int {
	tb.Helper()
	lastPort.CompareAndSwap(0, 1+rand.Int64N(portCount))
	ports := make([]int, 0, n)
	for range portCount {
		if len(ports) == n {
			return ports
		}
		port := firstPort + int(lastPort.Add(1)%portCount)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			tb.Fatalf("close a port: %v", err)
		}
		ports = append(ports, port)
	}
	tb.Fatalf("no %d free ports of 127.0.0.1 from %d on", n, firstPort)
	return nil
}
