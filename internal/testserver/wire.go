package testserver

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
)

// A Wire is a proxy on the loopback before a server. It counts bytes.
type Wire struct {
	Address        string
	Sent, Received atomic.Int64 // to the server, and from it
}

// NewWire starts a wire to a server's address. follow reads to its end what one connection says to the
// server; nil: nothing but the bytes matters. The wire ends with the test.
func NewWire(tb testing.TB, server string, follow func(said io.Reader)) *Wire {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { listener.Close() }) // connections end with their clients
	if follow == nil {
		follow = func(said io.Reader) { _, _ = io.Copy(io.Discard, said) }
	}
	w := &Wire{Address: listener.Addr().String()}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go w.pass(client, server, follow)
		}
	}()
	return w
}

// pass joins one connection with the server, until either side ends it.
func (w *Wire) pass(client net.Conn, server string, follow func(io.Reader)) {
	defer client.Close()
	conn, err := net.Dial("tcp", server)
	if err != nil {
		return // the client sees what it would see of the server
	}
	go func() {
		defer client.Close()
		// its error is that of a closed connection
		_, _ = io.Copy(io.MultiWriter(client, counter{&w.Received}), conn)
	}()
	defer conn.Close()
	follow(io.TeeReader(client, io.MultiWriter(conn, counter{&w.Sent})))
}

type counter struct{ *atomic.Int64 }

func (c counter) Write(b []byte) (int, error) {
	c.Add(int64(len(b)))
	return len(b), nil
}
