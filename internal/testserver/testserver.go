// Package testserver starts real servers for tests on free ports of 127.0.0.1: a single Redis, Redis with
// Sentinels, a Redis Cluster, other servers with Redis's protocol, PostgreSQL, PgBouncer and MariaDB.
//
// A server ends with the test that started it, and with the test's process, even if that is killed. If a
// server is not installed, the test fails with a hint. It is not skipped. Tests that only need a separate
// database or key prefix can share one server of each kind: the TestMain of their package calls [Main], and
// they call [SharedRedis], [SharedCluster], [SharedPostgres] and [SharedMariaDB].
package testserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// startTimeout bounds the wait for a server to answer. A loaded machine needs far less.
const startTimeout = 30 * time.Second

// shared has the servers that live as long as the test binary. Main and Run set it.
var shared *lifetime

// Main runs the tests of a package and then ends their shared servers. It does not return:
//
//	func TestMain(m *testing.M) { testserver.Main(m) }
func Main(m *testing.M) { os.Exit(Run(m)) }

// Run is Main that returns the exit code, for a TestMain with more work.
func Run(m *testing.M) (code int) {
	shared = &lifetime{}
	defer func() {
		if err := shared.end(); err != nil {
			fmt.Fprintln(os.Stderr, "end the shared servers:", err)
			code = max(code, 1)
		}
	}()
	return m.Run()
}

// Outside calls f with a TB outside of a test, for programs such as the benchmark. Servers that f starts with
// it end when f returns. The error joins the errors of Fatal, Fatalf and Errorf. f may also call Helper,
// Context, Failed, Cleanup and TempDir. It must not call Fatal and Fatalf from other goroutines.
func Outside(f func(testing.TB)) (err error) {
	l := &lifetime{}
	defer func() { err = l.end() }()
	if err := failure(func() { f(l) }); err != nil {
		l.errs = append(l.errs, err)
	}
	return nil
}

// failure calls f and returns the error of a lifetime's Fatal or Fatalf, or nil. A test's Fatal ends the
// goroutine. A lifetime's Fatal panics, and this function recovers.
func failure(f func()) (err error) {
	defer func() {
		if thrown := recover(); thrown != nil {
			failed, ok := thrown.(startFailed)
			if !ok {
				panic(thrown)
			}
			err = failed.error
		}
	}()
	f()
	return nil
}

// A lifetime is a TB for servers that live longer than a test. They end with the test binary or with Outside.
type lifetime struct {
	testing.TB // nil: only the methods below may be called

	redis    once[*Redis]
	cluster  once[*Cluster]
	postgres once[*Postgres]
	mariadb  once[*MariaDB]

	mu       sync.Mutex
	cleanups []func()
	errs     []error
}

// sharedServers returns the lifetime of the shared servers. Without Main it fails the test.
func sharedServers(tb testing.TB) *lifetime {
	tb.Helper()
	if shared == nil {
		tb.Fatal("shared servers need: func TestMain(m *testing.M) { testserver.Main(m) }")
	}
	return shared
}

// A once starts a server for the first test that needs it. Later tests get the same server or error.
type once[S any] struct {
	sync.Once
	server S
	err    error
}

func (o *once[S]) get(tb testing.TB, start func(testing.TB) S) S {
	tb.Helper()
	o.Do(func() {
		o.err = failure(func() { o.server = start(shared) })
	})
	if o.err != nil {
		tb.Fatal(o.err)
	}
	return o.server
}

// startFailed is the panic value of a lifetime's Fatal and Fatalf (see failure).
type startFailed struct{ error }

func (l *lifetime) Helper()                  {}
func (l *lifetime) Failed() bool             { return len(l.errs) > 0 }
func (l *lifetime) Context() context.Context { return context.Background() }
func (l *lifetime) Fatal(args ...any)        { panic(startFailed{errors.New(fmt.Sprint(args...))}) }
func (l *lifetime) Fatalf(format string, args ...any) {
	panic(startFailed{fmt.Errorf(format, args...)})
}

// Errorf needs no lock: only the cleanups call it, and they run one after another.
func (l *lifetime) Errorf(format string, args ...any) {
	l.errs = append(l.errs, fmt.Errorf(format, args...))
}

func (l *lifetime) Cleanup(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cleanups = append(l.cleanups, f)
}

func (l *lifetime) TempDir() string {
	dir, err := os.MkdirTemp("", "testserver-*")
	if err != nil {
		l.Fatalf("create the directory of a server: %v", err)
	}
	l.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			l.Errorf("remove the directory of a server: %v", err)
		}
	})
	return dir
}

// end runs the cleanups, last one first.
func (l *lifetime) end() error {
	for _, f := range slices.Backward(l.cleanups) {
		f()
	}
	return errors.Join(l.errs...)
}

// The tests have three sizes. The Makefile selects one with the environment variable TEST_SIZE:
//
//	(unset)  make test: ten minutes
//	full     make test-full: an hour, with up to two minutes for each test
//	long     make test-long: the rest
const sizeVariable = "TEST_SIZE"

// Full reports whether tests run in their full or their long size.
func Full() bool { return os.Getenv(sizeVariable) == "full" || Long() }

// Long reports whether tests run in their long size.
func Long() bool { return os.Getenv(sizeVariable) == "long" }

// Sized returns the value for the size of the run.
func Sized[T any](small, full, long T) T {
	switch {
	case Long():
		return long
	case Full():
		return full
	}
	return small
}

// The servers' ports lie below the ephemeral ports of the system. So the system does not give a chosen port
// to a client before the server listens on it. The default bus port of a Cluster's node is 10,000 above its
// port, and still below the ephemeral ports.
//
// The ports are divided into blocks. Each test process holds one, so parallel test binaries cannot choose the
// same port. There are more blocks than packages with servers.
const (
	firstPort  = 10_240
	blockCount = 20
	blockSize  = 625

	// portCount is the number of ports that a process chooses from. The first port of its block is its guard.
	portCount = blockSize - 1
)

// ownBlock returns the guard of this process's block. It stays open until the process ends.
var ownBlock = sync.OnceValues(func() (net.Listener, error) {
	// Before the first use of a process, package os forks without the fork lock, to try the system's calls.
	// This use lets it fork before isFree relies on the lock.
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return nil, err
	}
	if err := self.Release(); err != nil {
		return nil, err
	}
	return holdBlock()
})

// holdBlock holds the first block that no process holds. A process holds a block while it listens on the
// block's first port: its guard.
func holdBlock() (guard net.Listener, err error) {
	for i := range blockCount {
		guard, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+i*blockSize)))
		if err == nil {
			return guard, nil
		}
	}
	return nil, fmt.Errorf("no free block of ports from %d, in steps of %d: %w", firstPort, blockSize, err)
}

// lastPort counts the ports that this process has chosen. It starts at a random number, because a port that
// another process has just used can have old connections.
var lastPort atomic.Int64

// FreePort returns a port of 127.0.0.1 without a listener. No other process gets it from FreePort while this
// process runs. It does not return the same port again, except after portCount calls.
func FreePort(tb testing.TB) string {
	tb.Helper()
	guard, err := ownBlock()
	if err != nil {
		tb.Fatal(err)
	}
	first := int64(guard.Addr().(*net.TCPAddr).Port) + 1
	lastPort.CompareAndSwap(0, 1+rand.Int64N(portCount))
	for range portCount {
		port := strconv.FormatInt(first+lastPort.Add(1)%portCount, 10)
		free, err := isFree(port)
		if err != nil {
			tb.Fatal(err)
		}
		if free {
			return port
		}
	}
	tb.Fatalf("no free port of 127.0.0.1 from %d to %d", first, first+portCount-1)
	return ""
}

// isFree reports whether the port has no listener. The fork lock prevents a fork while the listener of this
// check is open. A forked process would keep the listener open until its exec.
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

// SQLiteTemplate returns a function that returns the bytes of a SQLite file. Its first call creates the file:
// fill gets the URL of a file that does not exist, and must close its connections. A test that needs a
// migrated database writes the bytes to a new file instead of migrating.
func SQLiteTemplate(fill func(url string) error) func() ([]byte, error) {
	return sync.OnceValues(func() (file []byte, err error) {
		dir, err := os.MkdirTemp("", "sqlite-*")
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		path := filepath.Join(dir, "template.db")
		if err := fill("sqlite:" + path); err != nil {
			return nil, err
		}
		return os.ReadFile(path)
	})
}
