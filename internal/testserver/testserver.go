// Package testserver starts the real servers that tests need, on free ports of 127.0.0.1: Redis alone, behind
// Sentinels and as a Cluster, other servers that speak Redis's protocol, and PostgreSQL.
//
// A server ends with the test that started it, and with the test's process, also where that is killed. A test
// whose server is not installed fails and says what to install; it is not skipped. A package whose tests only
// need a database or a key prefix of their own shares one server of each kind: its TestMain calls [Main], its
// tests call [SharedRedis], [SharedCluster] and [SharedPostgres].
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

// shared holds what lives as long as the test binary. Main sets it.
var shared *lifetime

// Main runs the tests of a package and then ends the servers that they shared. It does not return:
//
//	func TestMain(m *testing.M) { testserver.Main(m) }
func Main(m *testing.M) { os.Exit(Run(m)) }

// Run is Main that returns the exit code, for a TestMain that has more to do.
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

// Outside calls f with a TB that belongs to no test, for programs such as the benchmark. What f starts with
// it ends when f returns. The error joins those of f's Fatal, Fatalf and Errorf. Of TB's other methods f may
// call Helper, Context, Failed, Cleanup and TempDir; Fatal and Fatalf from the goroutine that called Outside
// alone.
func Outside(f func(testing.TB)) (err error) {
	l := &lifetime{}
	defer func() { err = l.end() }()
	if err := failure(func() { f(l) }); err != nil {
		l.errs = append(l.errs, err)
	}
	return nil
}

// failure calls f, and returns what the lifetime's Fatal or Fatalf ended it with. In a test they end the
// goroutine, here they unwind to this function.
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

// A lifetime stands in for a test: the servers started with it end when the test binary or Outside does.
type lifetime struct {
	testing.TB // nil; only the methods below may be called

	redis    once[*Redis]
	cluster  once[*Cluster]
	postgres once[*Postgres]

	mu       sync.Mutex
	cleanups []func()
	errs     []error
}

// lived returns what lives as long as the test binary.
func lived(tb testing.TB) *lifetime {
	tb.Helper()
	if shared == nil {
		tb.Fatal("shared servers need: func TestMain(m *testing.M) { testserver.Main(m) }")
	}
	return shared
}

// A once starts a server for the first test that asks, and answers every later test alike.
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

// startFailed is the panic value of a lifetime's Fatal and Fatalf.
type startFailed struct{ error }

func (l *lifetime) Helper()                  {}
func (l *lifetime) Failed() bool             { return len(l.errs) > 0 }
func (l *lifetime) Context() context.Context { return context.Background() }
func (l *lifetime) Fatal(args ...any)        { panic(startFailed{errors.New(fmt.Sprint(args...))}) }
func (l *lifetime) Fatalf(format string, args ...any) {
	panic(startFailed{fmt.Errorf(format, args...)})
}

// Errorf is called by the cleanups, which run one after another.
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
		l.Fatalf("directory of a server: %v", err)
	}
	l.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			l.Errorf("remove the directory of a server: %v", err)
		}
	})
	return dir
}

// end runs the cleanups, the last one first.
func (l *lifetime) end() error {
	for _, f := range slices.Backward(l.cleanups) {
		f()
	}
	return errors.Join(l.errs...)
}

// The tests come in three sizes. The environment variable TEST_SIZE picks one; the Makefile sets it:
//
//	(unset)  make test: ten minutes
//	full     make test-full: an hour; a test does all that it can in two minutes
//	long     make test-long: the rest
const sizeVariable = "TEST_SIZE"

// Full reports whether tests run in their full or their long size.
func Full() bool { return os.Getenv(sizeVariable) == "full" || Long() }

// Long reports whether tests run in their long size.
func Long() bool { return os.Getenv(sizeVariable) == "long" }

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

// isFree says whether the port has no listener. No program is forked meanwhile: it would hold our own
// listener until it has replaced itself, after we closed it.
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

// SQLiteTemplate returns a function that returns the bytes of a SQLite file. The first call makes the file:
// fill gets the URL of one that does not exist yet, and must close its connections. A test that needs a
// migrated database writes the bytes to a file of its own and need not migrate one.
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
