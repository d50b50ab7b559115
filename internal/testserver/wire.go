package testserver

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
)

// A Wire is a proxy on 127.0.0.1 in front of a server. It counts bytes.
type Wire struct {
	Address string
	// Sent counts the bytes to the server, and Received those from it.
	Sent, Received atomic.Int64
}

// NewWire starts a proxy to a server's address. For each connection it calls follow, which must read all data
// from the client to its end. Nil: the data is only counted. The proxy ends with the test.
func NewWire(tb testing.TB, server string, follow func(fromClient io.Reader)) *Wire {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { listener.Close() }) // connections end with their clients
	if follow == nil {
		follow = func(fromClient io.Reader) { _, _ = io.Copy(io.Discard, fromClient) }
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

// pass connects a client with the server until either side closes its connection.
func (w *Wire) pass(client net.Conn, server string, follow func(io.Reader)) {
	defer client.Close()
	conn, err := net.Dial("tcp", server)
	if err != nil {
		return // the client's connection is closed, as if the server had refused it
	}
	go func() {
		defer client.Close()
		// The copy ends with the error of a closed connection.
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
