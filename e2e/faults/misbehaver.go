package faults

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A misbehaver is a receiver that does to each connection, byte by byte, what no library would let it do.
type misbehaver struct {
	url string
	// requests counts those that were read to the end of their head.
	requests atomic.Int64
	conns    sync.WaitGroup
}

// An exchange answers one request on a connection; the nth, from 1, of this receiver. It returns whether the connection is kept.
type exchange func(conn net.Conn, req *http.Request, nth int) (keep bool)

// misbehave listens on a free port, over TLS if there is a configuration.
func misbehave(tb testing.TB, config *tls.Config, do exchange) *misbehaver {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	m := &misbehaver{url: "http://" + l.Addr().String()}
	if config != nil {
		m.url = "https://" + l.Addr().String()
		l = tls.NewListener(l, config)
	}
	var mu sync.Mutex
	open := make(map[net.Conn]bool)
	m.conns.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			mu.Lock()
			open[conn] = true
			mu.Unlock()
			m.conns.Go(func() {
				m.serve(conn, do)
				mu.Lock()
				delete(open, conn)
				mu.Unlock()
			})
		}
	})
	tb.Cleanup(func() {
		l.Close()
		mu.Lock()
		for conn := range open {
			conn.Close()
		}
		mu.Unlock()
		m.conns.Wait()
	})
	return m
}

func (m *misbehaver) serve(conn net.Conn, do exchange) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return // the sender has gone, or its handshake failed
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
		if !do(conn, req, int(m.requests.Add(1))) {
			return
		}
	}
}

// says answers with these bytes and closes the connection.
func says(text string) exchange {
	return func(conn net.Conn, _ *http.Request, _ int) bool {
		io.WriteString(conn, text) // the sender may have closed it first
		return false
	}
}

// answersWith answers with a status, headers and a body of known length.
func answersWith(status int, body string, headers ...string) exchange {
	head := fmt.Sprintf("HTTP/1.1 %03d Text\r\nContent-Length: %d\r\nConnection: close\r\n", status, len(body))
	for _, h := range headers {
		head += h + "\r\n"
	}
	return says(head + "\r\n" + body)
}

// drips sends a piece of text each 50 ms, after what comes first, until the sender has had enough.
func drips(first, piece string) exchange {
	return func(conn net.Conn, _ *http.Request, _ int) bool {
		if _, err := io.WriteString(conn, first); err != nil {
			return false
		}
		for range 1200 {
			if _, err := io.WriteString(conn, piece); err != nil {
				return false
			}
			time.Sleep(50 * time.Millisecond)
		}
		return false
	}
}

// floods sends first, and then a piece again and again as fast as the sender reads, at most 64 MiB.
func floods(first, piece string) exchange {
	return func(conn net.Conn, _ *http.Request, _ int) bool {
		if _, err := io.WriteString(conn, first); err != nil {
			return false
		}
		for sent := 0; sent < 64<<20; sent += len(piece) {
			if _, err := io.WriteString(conn, piece); err != nil {
				return false
			}
		}
		return false
	}
}

// silent answers nothing and waits until the sender gives up.
func silent(conn net.Conn, _ *http.Request, _ int) bool {
	io.Copy(io.Discard, conn) // ends when the sender closes
	return false
}

// resets ends the connection without an answer: with a reset, not with an end.
func resets(conn net.Conn, _ *http.Request, _ int) bool {
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	return false
}

// dropsReused answers the first request of a connection and keeps that, and ends it at the second.
func dropsReused() exchange {
	var mu sync.Mutex
	seen := make(map[net.Conn]int)
	return func(conn net.Conn, _ *http.Request, _ int) bool {
		mu.Lock()
		seen[conn]++
		first := seen[conn] == 1
		mu.Unlock()
		if !first {
			return false
		}
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		return true
	}
}

// early answers before it has read the body, as a proxy with a limit does.
func early(tb testing.TB, status int) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			conns.Go(func() {
				defer conn.Close()
				if _, err := http.ReadRequest(bufio.NewReaderSize(conn, 512)); err != nil {
					return
				}
				fmt.Fprintf(conn, "HTTP/1.1 %d Text\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", status)
				conn.SetReadDeadline(time.Now().Add(time.Second))
				io.Copy(io.Discard, conn) // so that what is still being sent is not answered with a reset
			})
		}
	})
	tb.Cleanup(func() {
		l.Close()
		conns.Wait()
	})
	return "http://" + l.Addr().String()
}

// chunked is a chunk of that many bytes.
func chunked(n int) string { return fmt.Sprintf("%x\r\n%s\r\n", n, strings.Repeat("s", n)) }
