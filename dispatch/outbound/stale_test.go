package outbound

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A mortuary is a receiver that answers the first request of each connection, keeps the connection alive, and ends it
// when it has taken in a second request. It counts the requests that arrived, by webhook-id.
type mortuary struct {
	*rawServer
	mu       sync.Mutex
	requests map[string]int
}

func serveMortuary(t *testing.T, end func(*net.TCPConn)) *mortuary {
	m := &mortuary{requests: make(map[string]int)}
	m.rawServer = serveRaw(t, func(c *net.TCPConn, _ int) {
		in := bufio.NewReader(c)
		for n := 1; ; n++ {
			req, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			io.Copy(io.Discard, req.Body)
			m.mu.Lock()
			m.requests[req.Header.Get("webhook-id")]++
			m.mu.Unlock()
			if n > 1 {
				end(c)
				return
			}
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n")
			if req.Method != "HEAD" {
				io.WriteString(c, "success")
			}
		}
	})
	return m
}

func (m *mortuary) arrived(id string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.requests[id]
}

// TestOneAttemptIsOneRequest: HTTP clients may send a request again by themselves when a kept-alive connection dies and the
// request looks repeatable. Ours does not, whatever a caller sets.
func TestOneAttemptIsOneRequest(t *testing.T) {
	t.Parallel()
	ends := map[string]func(*net.TCPConn){
		"FIN": func(c *net.TCPConn) { c.Close() },
		"RST": reset,
	}
	keys := []store.Header{{Name: "Idempotency-Key", Value: "k"}, {Name: "X-Idempotency-Key", Value: "k"}}
	for name, end := range ends {
		for _, method := range []string{"POST", "PUT", "GET", "HEAD", "OPTIONS", "DELETE", "PATCH"} {
			for _, headers := range [][]store.Header{nil, keys} {
				for _, body := range [][]byte{nil, []byte("body")} {
					srv := serveMortuary(t, end)
					c := newTestClient(t, Options{})
					r := newRequest(srv.URL)
					r.Method, r.Headers, r.Body = method, headers, body
					r.ID = "cb_first"
					if first := c.Send(t.Context(), r); first.Class != store.ClassOK {
						t.Fatalf("%s: %s %s", method, first.Class, first.Error)
					}
					r.ID = "cb_second"
					second := c.Send(t.Context(), r)
					want{class: store.ClassConnReset, outcome: store.AttemptUnknown, uncharged: true, stale: true}.check(t, second)
					if n := srv.arrived("cb_second"); n != 1 {
						t.Errorf("%s, %s, keys %v, body %q: %d requests arrived for one attempt", name, method, headers != nil, body, n)
					}
					// Off kept-alive connections the same end is charged, and no other request is made for it.
					r.ID, r.Fresh = "cb_third", true
					want{class: store.ClassOK, outcome: store.AttemptSucceeded, answered: true, status: 200}.check(t, c.Send(t.Context(), r))
				}
			}
		}
	}
}

func TestDeadFreshConnectionIsCharged(t *testing.T) {
	t.Parallel()
	srv := serveRaw(t, func(c *net.TCPConn, _ int) {
		readRequest(c)
		reset(c)
	})
	r := newRequest(srv.URL)
	r.Fresh = true
	want{class: store.ClassConnReset, outcome: store.AttemptUnknown}.check(t, newTestClient(t, Options{}).Send(t.Context(), r))
	if n := srv.conns.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// TestReuseAfterEveryKindOfAnswer: what is small is read to its end, whatever it is, so that the next attempt finds the
// connection open.
func TestReuseAfterEveryKindOfAnswer(t *testing.T) {
	t.Parallel()
	packed := string(gzipped(t, []byte("success")))
	for name, answer := range map[string]string{
		"length":       "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nsuccess",
		"none":         "HTTP/1.1 204 No Content\r\n\r\n",
		"chunked":      "HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n7\r\nsuccess\r\n0\r\n\r\n",
		"gzip":         "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(packed) + "0\r\n\r\n",
		"not gzip":     "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("success") + "0\r\n\r\n",
		"not decoded":  "HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 7\r\n\r\nsuccess",
		"redirect":     "HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 7\r\n\r\nsuccess",
		"exactly full": "HTTP/1.1 200 OK\r\nContent-Length: 65536\r\n\r\n" + string(make([]byte, MaxResponseBytes)),
	} {
		srv := serveRaw(t, func(c *net.TCPConn, _ int) {
			in := bufio.NewReader(c)
			for {
				req, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				io.Copy(io.Discard, req.Body)
				io.WriteString(c, answer)
			}
		})
		c := newTestClient(t, Options{})
		for range 3 {
			if r := c.Send(t.Context(), newRequest(srv.URL)); !r.Answered {
				t.Errorf("%s: %s %s", name, r.Class, r.Error)
			}
		}
		if n := srv.conns.Load(); n != 1 {
			t.Errorf("%s: %d connections for three requests", name, n)
		}
	}
}

func chunk(data string) string {
	const hex = "0123456789abcdef"
	return string([]byte{hex[len(data)>>4], hex[len(data)&15]}) + "\r\n" + data + "\r\n"
}
