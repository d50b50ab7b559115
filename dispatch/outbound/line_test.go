package outbound

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// TestWhatComesInOnAnIdleConnectionEndsIt: what a receiver says unasked must not be taken for the next answer.
func TestWhatComesInOnAnIdleConnectionEndsIt(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*net.TCPConn){
		"FIN": func(c *net.TCPConn) { c.CloseWrite() }, "RST": reset,
		"an answer": func(c *net.TCPConn) { io.WriteString(c, answerOops) },
	} {
		idle := make(chan bool)
		srv := serveRequests(t, func(c *net.TCPConn, _, _ int) {
			io.WriteString(c, answerOK)
			if <-idle {
				end(c)
			}
			idle <- true
		})
		c := newTestClient(t, Options{})
		for range 3 {
			expect(t, c.Send(t.Context(), newRequest(srv.URL)), okay)
			idle <- true
			<-idle
		}
		if n := srv.conns.Load(); n != 3 {
			t.Errorf("%s: %d connections for 3 attempts", name, n)
		}
	}
}

const answerOops = "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"

// TLS hands out what it has taken in bit by bit: what is behind the answer may not have been seen yet.
func TestAnAnswerTooManyOverTLSEndsTheConnection(t *testing.T) {
	t.Parallel()
	certificate, pool := testCertificate(t)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for name, x := range map[string]struct {
			records []string
			leaves  bool
		}{
			"in another record":       {records: []string{answerOK, answerOops}},
			"more than was announced": {records: []string{"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n" + strings.Repeat("a", 10001)}},
			"takes its leave":         {records: []string{answerOK}, leaves: true},
		} {
			config := &tls.Config{Certificates: []tls.Certificate{certificate}, MaxVersion: version}
			srv := serveRaw(t, func(c *net.TCPConn, _ int) {
				held := &holding{Conn: c}
				s := tls.Server(held, config)
				in := bufio.NewReader(s)
				for {
					req, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					if _, err := io.Copy(io.Discard, req.Body); err != nil {
						return
					}
					held.holds = true
					for _, r := range x.records {
						io.WriteString(s, r)
					}
					if x.leaves {
						s.CloseWrite()
					}
					held.holds = false
					c.Write(held.held) // in one segment
					held.held = nil
				}
			})
			c := newTLSClient(t, pool, nil)
			for range 2 {
				if r := c.Send(t.Context(), newRequest("https://"+srv.Addr+"/")); r.Class != store.ClassOK {
					t.Errorf("%s, version %x: %s %s", name, version, r.Class, r.Error)
				}
			}
			if n := srv.conns.Load(); n != 2 {
				t.Errorf("%s, version %x: %d connections for 2 attempts", name, version, n)
			}
		}
	}
}

// A holding connection keeps back what is written while it holds.
type holding struct {
	net.Conn
	holds bool
	held  []byte
}

// SetWriteDeadline is what TLS shuts the connection with behind its last word.
func (*holding) SetWriteDeadline(time.Time) error { return nil }

func (h *holding) Write(p []byte) (int, error) {
	if !h.holds {
		return h.Conn.Write(p)
	}
	h.held = append(h.held, p...)
	return len(p), nil
}

// An attempt that is over before it begins sends nothing, also where a connection is there for it.
func TestAnAttemptThatIsOverSendsNothing(t *testing.T) {
	t.Parallel()
	var arrived atomic.Int32
	srv := serveRequests(t, func(c *net.TCPConn, _, _ int) {
		arrived.Add(1)
		io.WriteString(c, answerOK)
	})
	c := newTestClient(t, Options{})
	expect(t, c.Send(t.Context(), newRequest(srv.URL)), okay)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 {
		expect(t, c.Send(ctx, newRequest(srv.URL)), "interrupted failed, uncharged")
	}
	expect(t, c.Send(t.Context(), newRequest(srv.URL)), okay)
	if n := arrived.Load(); n != 2 {
		t.Errorf("%d requests arrived, want 2", n)
	}
	if n := srv.conns.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// TestOneAttemptIsOneRequest: case 33. HTTP clients may repeat a request that looks repeatable when its
// kept-alive connection dies. This client does not, whatever a caller sets.
func TestOneAttemptIsOneRequest(t *testing.T) {
	t.Parallel()
	ends := map[string]func(*net.TCPConn){"FIN": func(c *net.TCPConn) { c.Close() }, "RST": reset}
	keys := []store.Header{{Name: "Idempotency-Key", Value: "k"}, {Name: "X-Idempotency-Key", Value: "k"}}
	for name, end := range ends {
		for _, method := range []string{"POST", "PUT", "GET", "HEAD", "OPTIONS", "DELETE", "PATCH"} {
			for _, headers := range [][]store.Header{nil, keys} {
				var arrived atomic.Int32
				srv := serveRequests(t, func(c *net.TCPConn, _, n int) {
					arrived.Add(1)
					if n > 1 {
						end(c)
						return
					}
					io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
				})
				c := newTestClient(t, Options{})
				r := newRequest(srv.URL)
				r.Method, r.Headers = method, headers
				if headers == nil {
					r.Body = nil
				}
				const none = "ok succeeded, status 204"
				expect(t, c.Send(t.Context(), r), none)
				expect(t, c.Send(t.Context(), r), "conn_reset unknown, uncharged, stale")
				if n := arrived.Load(); n != 2 {
					t.Errorf("%s, %s, keys %v: %d requests arrived for two attempts", name, method, headers != nil, n)
				}
				r.Fresh = true
				expect(t, c.Send(t.Context(), r), none)
			}
		}
	}
}

// TestWhatKeepsAConnection: the transcript has answers, as that of TestAnswers does, and how many connections are opened for three
// attempts. What is small is read to its end, so that the next attempt finds the connection open.
func TestWhatKeepsAConnection(t *testing.T) {
	t.Parallel()
	transcript.Run(t, "testdata/kept.txt", func(line string) string {
		answer := rawAnswer(t, line)
		srv := serveRequests(t, func(c *net.TCPConn, _, _ int) { io.WriteString(c, answer) })
		c := newTestClient(t, Options{})
		for _, r := range []Request{newRequest(srv.URL), large(srv.URL), newRequest(srv.URL)} {
			if got := c.Send(t.Context(), r); !got.Answered {
				t.Errorf("%s: %s %s", line, got.Class, got.Error)
			}
		}
		return fmt.Sprint(srv.conns.Load())
	})
}

// large is a body that a connection does not take in one go.
func large(url string) Request {
	r := newRequest(url)
	r.Body = bytes.Repeat([]byte("x"), 8<<20)
	return r
}

// A receiver may answer before it has read the request, and then read no more and close nothing.
func TestAnAnswerWhileTheRequestIsSent(t *testing.T) {
	t.Parallel()
	srv := serveRaw(t, func(c *net.TCPConn, _ int) {
		c.Read(make([]byte, 1024))
		io.WriteString(c, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n")
		<-t.Context().Done()
	})
	c := newTestClient(t, Options{})
	r := large(srv.URL)
	r.Timeout = time.Minute
	for range 2 {
		expect(t, c.Send(t.Context(), r), "http_413 failed, status 413")
	}
	if n := srv.conns.Load(); n != 2 {
		t.Errorf("%d connections: what was not sent to its end cannot be used again", n)
	}
}

func TestTheEndOfAnAttemptWhileTheRequestIsSent(t *testing.T) {
	t.Parallel()
	reading := make(chan bool, 1)
	srv := serveRaw(t, func(c *net.TCPConn, _ int) {
		c.Read(make([]byte, 1024))
		reading <- true
		<-t.Context().Done()
	})
	c := newTestClient(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-reading
		cancel()
	}()
	expect(t, c.Send(ctx, large(srv.URL)), "interrupted unknown, uncharged")
	synctest.Test(t, func(t *testing.T) {
		c, receiver := newConnectedClient(t)
		go receiver.Read(make([]byte, 1024))
		got := c.Send(t.Context(), large("http://shop.example/"))
		expect(t, got, "timeout_headers unknown, timed out")
	})
}

// An interrupted attempt is none that ran out of time, wherever it was.
func TestInterruptedWhileTheBodyIsRead(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	go func() {
		readRequest(theirs)
		io.WriteString(theirs, "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nsucc")
	}()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://shop.example/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	l := newLine(ours, ours, place{"http", "shop.example"})
	resp, err := l.exchange(req, &attempt{Context: ctx}, func(*line) { t.Error("the line was given back") })
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	body, err := io.ReadAll(resp.Body)
	if string(body) != "succ" && string(body) != "" || !errors.Is(err, context.Canceled) {
		t.Errorf("read %q, %v; want what was sent, and that it was interrupted", body, err)
	}
	if _, again := resp.Body.Read(make([]byte, 1)); !errors.Is(again, context.Canceled) {
		t.Errorf("read again: %v", again)
	}
	if _, err := theirs.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the connection is open: %v", err)
	}
}
