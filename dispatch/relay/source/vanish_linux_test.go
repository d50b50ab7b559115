package source_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// A road is a proxy for one connection to a server.
type road struct {
	url string
	// ends are its two connections: that of the client, then that to the server.
	ends chan net.Conn
	// passed is the number of bytes that went to the server.
	passed atomic.Int64
}

func newRoad(t *testing.T, server string) *road {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	to, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u.Host = listener.Addr().String()
	r := &road{url: u.String(), ends: make(chan net.Conn, 2)}
	var copies sync.WaitGroup
	copies.Go(func() {
		from, err := listener.Accept()
		if err != nil {
			return
		}
		r.ends <- from
		r.ends <- to
		copies.Go(func() {
			_, _ = io.Copy(from, to)
			_ = from.Close()
		})
		_, _ = io.Copy(to, io.TeeReader(from, r))
	})
	t.Cleanup(func() {
		_, _ = listener.Close(), to.Close()
		copies.Wait()
	})
	return r
}

// Write counts bytes.
func (r *road) Write(p []byte) (int, error) {
	r.passed.Add(int64(len(p)))
	return len(p), nil
}

// vanish lets the system drop every packet to a connection, as if nothing were at its address.
func vanish(t *testing.T, conn net.Conn) {
	t.Helper()
	connection, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	nothing := []syscall.SockFilter{{Code: syscall.BPF_RET | syscall.BPF_K}}
	failed := connection.Control(func(fd uintptr) {
		//lint:ignore SA1019 a filter of one line needs no package
		err = syscall.AttachLsf(int(fd), nothing)
	})
	if err := errors.Join(failed, err); err != nil {
		t.Fatal(err)
	}
}

// TestVanishedServer checks that a patient Read ends soon if the server can no longer be reached:
// before it got the query, and while it works on it.
func TestVanishedServer(t *testing.T) {
	directly(t, func(t *testing.T, s server) {
		w := newWorld(t, s)
		const silence = 3 * time.Second
		connect := func() (*road, *source.Conn) {
			r := newRoad(t, w.url)
			return r, w.connectTo(source.OpenSilence(source.Options{DSN: r.url}, silence))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*silence)
		defer cancel()
		before, idle := connect()
		during, waiting := connect()
		tx := w.begin()
		w.in(tx, w.sql("LOCK TABLE dispatcher_outbox IN ACCESS EXCLUSIVE MODE",
			"LOCK TABLES dispatcher_outbox WRITE"))
		client, server := <-during.ends, <-during.ends
		vanish(t, server) // the query arrives, and its result does not
		passed := during.passed.Load()
		read := make(chan error, 2)
		go func() {
			_, _, err := waiting.Read(ctx, 0, 9, true)
			read <- err
		}()
		testserver.Until(t, "the query to pass", func() bool { return during.passed.Load() > passed })
		vanish(t, client)
		vanish(t, <-before.ends)
		vanish(t, <-before.ends)
		_, _, err := idle.Read(ctx, 0, 9, true)
		read <- err
		for range 2 {
			if err := <-read; !errors.Is(err, source.ErrBroken) || ctx.Err() != nil {
				t.Errorf("read from a server that vanished: %v, want ErrBroken before its limit", err)
			}
		}
		w.in(tx, w.sql("SELECT 1", "UNLOCK TABLES"))
	})
}
