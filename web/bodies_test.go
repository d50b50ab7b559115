package web_test

import (
	"bufio"
	"fmt"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/web"
)

// promise opens a connection and declares a body of so many bytes, of which it sends none. It returns when
// the server has begun to wait for them.
func promise(t *testing.T, s *web.Server, path string, bytes int64) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(60 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n"+
		"Expect: 100-continue\r\n\r\n", path, adminKey, bytes); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	for _, want := range []string{"HTTP/1.1 100 Continue\r\n", "\r\n"} { // net/http says so when the body is first read
		if line, err := r.ReadString('\n'); err != nil || line != want {
			t.Fatalf("%s: %q, %v, want %q", path, line, err, want)
		}
	}
	return conn, r
}

// TestSilentBodiesHoldNoMemory, case 65: what a request declares is not allocated before it comes, and others
// are served beside it.
func TestSilentBodiesHoldNoMemory(t *testing.T) {
	s, _ := newServer(t, &backend{}, web.Options{})
	run(t, s)
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	const silent, declared = 60, 16 << 20
	for i := range silent {
		promise(t, s, []string{"/v1/callbacks/batch", "/v1/reconcile/compare"}[i%2], declared)
	}
	if grown := heap() - before; grown > silent*declared/10 {
		t.Errorf("%d requests that have sent nothing hold %d MiB", silent, grown>>20)
	}
	if status := post(s, "/v1/callbacks", `{"url":"u"}`); status != 202 {
		t.Errorf("another request: %d", status)
	}
}
