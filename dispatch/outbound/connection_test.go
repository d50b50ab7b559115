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
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// TestConnections is case 33 of the security list and checks the reuse of connections.
//
// "serve NAME | STEPS | …" starts a receiver. The steps are for the first request of each connection, for the
// second and so on; the last ones are for all further requests. "send NAME how…, …" makes attempts in turn.
// It prints for each attempt the receiver's connection and request; equal lines in a row are printed once.
// "go" continues a receiver at its step "wait".
func TestConnections(t *testing.T) {
	t.Parallel()
	transcript.File(t, "testdata/connections.txt", func(t *testing.T, text string) string {
		return transcript.Cases(t, text, func(t *testing.T, _, body string) string {
			s := newSwitchboard(t)
			return transcript.Lines(body, func(line string) string {
				words := strings.Split(transcript.Expand(t, line), " | ")
				command, rest, _ := strings.Cut(words[0], " ")
				switch command {
				case "serve":
					s.serve(rest, words[1:])
				case "go":
					select {
					case s.goOn <- true:
						<-s.done
					case <-time.After(time.Minute):
						t.Error("no receiver is at its step wait")
					}
				case "close":
					s.client.CloseIdle()
				case "send":
					var results []string
					for one := range strings.SplitSeq(rest, ", ") {
						results = append(results, s.send(strings.Fields(one)))
					}
					return strings.Join(slices.Compact(results), "\n")
				}
				return ""
			})
		})
	})
}

// A switchboard has a client and named receivers.
type switchboard struct {
	t          *testing.T
	client     *Client
	receivers  map[string]*rawServer
	requests   map[string]*atomic.Int32
	goOn, done chan bool
}

func newSwitchboard(t *testing.T) *switchboard {
	return &switchboard{
		t: t, client: newTestClient(t, Options{}), receivers: make(map[string]*rawServer),
		requests: make(map[string]*atomic.Int32), goOn: make(chan bool), done: make(chan bool, 9),
	}
}

// serve starts a receiver. does has the steps for the first, second, … request of a connection.
func (s *switchboard) serve(name string, does []string) {
	s.requests[name] = new(atomic.Int32)
	s.receivers[name] = serveRequests(s.t, func(c *net.TCPConn, _, n int) {
		s.requests[name].Add(1)
		for step := range strings.SplitSeq(does[min(n, len(does))-1], " ; ") {
			switch what, text, _ := strings.Cut(step, " "); what {
			case "write":
				io.WriteString(c, text)
			case "close-write":
				c.CloseWrite()
			case "close":
				c.Close()
			case "reset":
				reset(c)
			case "wait":
				select {
				case <-s.goOn:
				case <-s.t.Context().Done():
				}
				defer func() { s.done <- true }()
			}
		}
	})
}

// send makes one attempt.
func (s *switchboard) send(words []string) string {
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	name := words[0]
	r := newRequest(s.receivers[name].URL)
	for _, how := range words[1:] {
		switch how {
		case "over":
			cancel()
		case "fresh":
			r.Fresh = true
		case "empty":
			r.Body = nil
		case "repeatable": // some clients repeat requests with these headers
			r.Headers = []store.Header{{Name: "Idempotency-Key", Value: "k"},
				{Name: "X-Idempotency-Key", Value: "k"}}
		default:
			r.Method = how
		}
	}
	got := s.client.Send(ctx, r)
	text, _, _ := strings.Cut(describe(s.t, got), "\n")
	opened := map[bool]string{true: "opens "}[got.Timings.Connect > 0]
	conn, request := s.receivers[name].conns.Load(), s.requests[name].Load()
	return fmt.Sprintf("%s; %sconnection %d, request %d", text, opened, conn, request)
}

const answerOops = "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"

// TLS returns received data record by record, so data after the answer may not be visible yet.
func TestExtraDataOverTLSEndsTheConnection(t *testing.T) {
	t.Parallel()
	certificate, pool := testCertificate(t)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for name, x := range map[string]struct {
			records []string
			closes  bool
		}{
			"in another record": {records: []string{answerOK, answerOops}},
			"more than was announced": {records: []string{"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n" +
				strings.Repeat("a", 10001)}},
			"sends close_notify": {records: []string{answerOK}, closes: true},
		} {
			config := &tls.Config{Certificates: []tls.Certificate{certificate}, MaxVersion: version}
			srv := serveRaw(t, func(c *net.TCPConn, _ int) {
				buffered := &bufferedConn{Conn: c}
				s := tls.Server(buffered, config)
				in := bufio.NewReader(s)
				for {
					req, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					if _, err := io.Copy(io.Discard, req.Body); err != nil {
						return
					}
					buffered.buffering = true
					for _, r := range x.records {
						io.WriteString(s, r)
					}
					if x.closes {
						s.CloseWrite()
					}
					buffered.buffering = false
					c.Write(buffered.data) // in one segment
					buffered.data = nil
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

// A bufferedConn collects writes while buffering is set.
type bufferedConn struct {
	net.Conn
	buffering bool
	data      []byte
}

// SetWriteDeadline does nothing: crypto/tls sets a deadline to write its close message.
func (*bufferedConn) SetWriteDeadline(time.Time) error { return nil }

func (h *bufferedConn) Write(p []byte) (int, error) {
	if !h.buffering {
		return h.Conn.Write(p)
	}
	h.data = append(h.data, p...)
	return len(p), nil
}

// TestReusedConnections has answers as in TestAnswers, and prints how many connections three attempts open.
// An answer that is read to its end leaves the connection open for the next attempt.
func TestReusedConnections(t *testing.T) {
	t.Parallel()
	transcript.Run(t, "testdata/reused.txt", func(line string) string {
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

// large returns a request with a body that is too large for the buffers of a socket.
func large(url string) Request {
	r := newRequest(url)
	r.Body = bytes.Repeat([]byte("x"), 8<<20)
	return r
}

// A receiver may answer before it has read the request, and then neither read nor close.
func TestAnswerBeforeTheRequestIsSent(t *testing.T) {
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
		t.Errorf("%d connections: one with a partly sent request must not be reused", n)
	}
}

func TestAttemptEndsWhileTheRequestIsSent(t *testing.T) {
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

// An interrupted attempt is never reported as a timeout.
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
	l := newConnection(ours, ours, poolKey{"http", "shop.example"})
	done := func(*connection) { t.Error("the connection went back to the pool") }
	resp, err := l.exchange(req, &attempt{Context: ctx}, done)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	body, err := io.ReadAll(resp.Body)
	if string(body) != "succ" && string(body) != "" || !errors.Is(err, context.Canceled) {
		t.Errorf("read %q, %v; want the sent part and context.Canceled", body, err)
	}
	if _, again := resp.Body.Read(make([]byte, 1)); !errors.Is(again, context.Canceled) {
		t.Errorf("read again: %v", again)
	}
	if _, err := theirs.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the connection is open: %v", err)
	}
}
