package outbound

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign/signtest"
)

// newTestClient returns a client that may connect to this machine.
func newTestClient(t testing.TB, o Options) *Client {
	t.Helper()
	if o.Guard == nil && o.Transport == nil {
		o.Guard = mustGuard(t, "127.0.0.1", "::1")
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdle)
	return c
}

// newConnectedClient returns a client with an idle connection to http://shop.example/, and the receiver's end
// of it. It uses no network, so it works with the fake clock of synctest.
func newConnectedClient(t *testing.T) (*Client, net.Conn) {
	t.Helper()
	c := newTestClient(t, Options{})
	ours, theirs := net.Pipe()
	c.transport.pool.put(newConnection(ours, ours, poolKey{"http", "shop.example"}))
	return c, theirs
}

func mustGuard(t testing.TB, allow ...string) *Guard {
	t.Helper()
	g, err := NewGuard(allow)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// newRequest returns a request for a signed POST with a small body.
func newRequest(url string) Request {
	return Request{
		ID: "cb_01JD0000000000000000000001", Number: 1, URL: url, Method: "POST",
		ContentType: "application/json",
		Body:        []byte(`{"paid":10000}`), Timeout: 5 * time.Second,
		Secrets: signtest.Secrets(signtest.Shortest()),
	}
}

// A rawServer is a receiver that a test controls byte by byte.
type rawServer struct {
	URL, Addr string
	// Port begins with a colon.
	Port  string
	conns atomic.Int32
}

// serveRaw runs handle for each connection, numbered from 1, and then closes the connection.
func serveRaw(t testing.TB, handle func(c *net.TCPConn, n int)) *rawServer {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	s := &rawServer{URL: "http://" + addr + "/", Addr: addr, Port: addr[strings.LastIndexByte(addr, ':'):]}
	var open sync.WaitGroup
	var all sync.Map
	open.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n := int(s.conns.Add(1))
			all.Store(c, true)
			open.Go(func() {
				defer c.Close()
				handle(c.(*net.TCPConn), n)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		all.Range(func(c, _ any) bool { c.(net.Conn).Close(); return true })
		open.Wait()
	})
	return s
}

// readRequest reads one request from a connection, body included.
func readRequest(c net.Conn) (*http.Request, error) {
	req, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, req.Body)
	return req, err
}

// serveAnswer sends the bytes as the answer to the first request of each connection, and then closes it.
func serveAnswer(t testing.TB, answer string) *rawServer {
	return serveRaw(t, func(c *net.TCPConn, _ int) {
		if _, err := readRequest(c); err == nil {
			io.WriteString(c, answer)
		}
	})
}

// silence is a handler that reads everything and never answers.
func silence(c *net.TCPConn, _ int) { io.Copy(io.Discard, c) }

// reset closes a connection with RST.
func reset(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}

// expect fails the test unless the first line of describe is want. The error text is not compared.
func expect(t *testing.T, r Response, want string) {
	t.Helper()
	text, rest, _ := strings.Cut(describe(t, r), "\n")
	if got, err, _ := strings.Cut(text, ", error "); got != want {
		t.Errorf("got %s, want %s; error %q, %s", got, want, err, rest)
	}
}

const okay = "ok succeeded, status 200"

// checkSound checks what holds for every result.
func checkSound(t *testing.T, r Response) {
	t.Helper()
	if r.Answered == (r.Error != "") {
		t.Errorf("answered %v with error %q: want either an answer or an error", r.Answered, r.Error)
	}
	if r.EndedAt.Before(r.StartedAt) || r.StartedAt.IsZero() {
		t.Errorf("times: started %v, ended %v", r.StartedAt, r.EndedAt)
	}
}

// roundTrip is a function as a transport.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

const answerOK = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nsuccess"

// serveRequests calls answer for every request of every connection, with the number of the connection and of
// the request on it.
func serveRequests(t *testing.T, answer func(c *net.TCPConn, conn, n int)) *rawServer {
	return serveRaw(t, func(c *net.TCPConn, conn int) {
		in := bufio.NewReader(c)
		for n := 1; ; n++ {
			req, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, req.Body); err != nil {
				return
			}
			answer(c, conn, n)
		}
	})
}

// A recorder is a receiver that stores the last request.
type recorder struct {
	*httptest.Server
	arrived chan arrival
}

// An arrival is a received request with its body.
type arrival struct {
	*http.Request
	body []byte
}

func newRecorder(t testing.TB) *recorder {
	t.Helper()
	arrived := make(chan arrival, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		arrived <- arrival{r, body}
		io.WriteString(w, "success")
	}))
	t.Cleanup(srv.Close)
	return &recorder{srv, arrived}
}

// take returns the request of an attempt that has ended, and whether there was one.
func (rec *recorder) take() (arrival, bool) {
	select {
	case got := <-rec.arrived:
		return got, true
	default:
		return arrival{}, false
	}
}
