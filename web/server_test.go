package web_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web"
)

// run starts a server. end stops it and returns the error of Run.
func run(t *testing.T, s *web.Server) (end func() error) {
	t.Helper()
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	ended := false
	end = func() error {
		ended = true
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(30 * time.Second):
			return errors.New("Run does not return within 30 s")
		}
	}
	t.Cleanup(func() {
		if !ended {
			if err := end(); err != nil {
				t.Error(err)
			}
		}
	})
	return end
}

// TestRunEndsGracefully checks that an open request ends normally, while the public port is closed and the
// ops port still responds.
func TestRunEndsGracefully(t *testing.T) {
	t.Parallel()
	began, release := make(chan struct{}), make(chan struct{})
	b := &backend{health: dispatch.Health{Ready: true},
		accept: func(_ context.Context, subs []accept.Submission) ([]store.Accepted, error) {
			close(began)
			<-release
			return make([]store.Accepted, len(subs)), nil
		}}
	s, _ := newServer(t, b, web.Options{})
	end := run(t, s)
	status := make(chan int, 1)
	go func() { status <- post(s, "/v1/callbacks", `{"url":"u"}`) }()
	<-began
	closed := make(chan error, 1)
	go func() { closed <- s.ClosePublic() }()
	testserver.Until(t, "the public port is closed", func() bool {
		_, err := net.Dial("tcp", s.Addr().String())
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	resp, err := http.Get("http://" + s.OpsAddr().String() + "/healthz")
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("the ops port while the public port closes: %v %v", resp, err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	close(release)
	if got := <-status; got != 202 {
		t.Errorf("the open request ended with %d", got)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", s.OpsAddr().String()); err == nil {
		t.Error("the ops port is open after Run")
	}
}

// TestRunEndsWithAHangingRequest checks that Run aborts a hanging request after the timeout.
func TestRunEndsWithAHangingRequest(t *testing.T) {
	t.Parallel()
	began := make(chan struct{})
	b := &backend{accept: func(ctx context.Context, _ []accept.Submission) ([]store.Accepted, error) {
		close(began)
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	s, log := newServer(t, b, web.Options{ShutdownTimeout: 20 * time.Millisecond})
	end := run(t, s)
	go post(s, "/v1/callbacks", `{"url":"u"}`)
	<-began
	if err := end(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "aborted") {
		t.Error("the log does not say that requests were aborted")
	}
}

// post sends a request over the network, and returns the status of the response, or 0.
func post(s *web.Server, path, body string) int {
	req, err := http.NewRequest("POST", "http://"+s.Addr().String()+path, strings.NewReader(body))
	if err != nil {
		return 0
	}
	req.Header.Set("Authorization", "Bearer "+adminKey)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// TestLongCalls checks that a call that may exceed the server's timeouts can lift them on a real connection.
func TestLongCalls(t *testing.T) {
	t.Parallel()
	s, log := newServer(t, &backend{}, web.Options{})
	run(t, s)
	if status := post(s, "/v1/index/verify", ""); status != 200 {
		t.Errorf("verify: %d, %s", status, log)
	}
}

// TestListenErrors checks that an address in use and an invalid address are errors of Listen and Run.
func TestListenErrors(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, o := range []web.Options{
		{Health: &backend{}, OpsListen: taken.Addr().String()},
		{Health: &backend{}, OpsListen: "256.0.0.1:x"},
	} {
		s, err := web.New(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Listen(); err == nil {
			t.Errorf("%s: Listen returns no error", o.OpsListen)
		}
		if err := s.Run(context.Background()); err == nil {
			t.Errorf("%s: Run returns no error", o.OpsListen)
		}
	}
}

func TestOpsListenerWithoutAnAPI(t *testing.T) {
	t.Parallel()
	s, err := web.New(web.Options{Health: &backend{}, OpsListen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	end := run(t, s)
	if s.Addr() != nil || s.OpsAddr() == nil || s.Handler() != nil {
		t.Errorf("listens on %v and %v", s.Addr(), s.OpsAddr())
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// TestTooLargeOnAConnection (case 65) sends bodies over the limit, with and without a declared length. It
// expects a response, and the end of the connection, while the body is still arriving.
func TestTooLargeOnAConnection(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t, &backend{}, web.Options{})
	run(t, s)
	for _, head := range []string{
		"Transfer-Encoding: chunked\r\n", "Content-Length: 524289\r\n",
		"Content-Length: 99999999999\r\nExpect: 100-continue\r\n",
	} {
		conn, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SetDeadline(time.Now().Add(60 * time.Second)); err != nil {
			t.Fatal(err)
		}
		go func() {
			chunked := strings.HasPrefix(head, "Transfer")
			const request = "POST /v1/callbacks HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer %s\r\n%s\r\n"
			_, err := fmt.Fprintf(conn, request, adminKey, head)
			for sent := 0; err == nil && chunked && sent < 64<<20; sent += 64 << 10 {
				_, err = fmt.Fprintf(conn, "10000\r\n%s\r\n", strings.Repeat("x", 64<<10))
			}
		}()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%q: %v", head, err)
		}
		if resp.StatusCode != 413 || !resp.Close {
			t.Errorf("%q: %d, close %v", head, resp.StatusCode, resp.Close)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Errorf("%q: %v", head, err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestSlowHeaders (case 66) checks that a client that never ends its header is disconnected after seconds,
// not minutes.
func TestSlowHeaders(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t, &backend{}, web.Options{})
	run(t, s)
	conn, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "POST /v1/callbacks HTTP/1.1\r\nHost: h\r\nX-Slow: "); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Fatalf("the connection is still open: %v", err)
	}
	if len(answer) > 0 && !strings.HasPrefix(string(answer), "HTTP/1.1 408 ") {
		t.Errorf("answer: %q", answer)
	}
}

// TestIdleConnections (case 66) checks that connections that send nothing, or never end a header, do not
// block others.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	const idle = 1000
	s, _ := newServer(t, &backend{}, web.Options{ShutdownTimeout: time.Second})
	run(t, s)
	for i := range idle {
		conn, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }() // the server may have closed it
		if _, err := io.WriteString(conn, "POST /v1/callbacks HTTP/1.1\r\nX: "[:i%30]); err != nil {
			t.Fatal(err)
		}
	}
	if status := post(s, "/v1/callbacks", `{"url":"u"}`); status != 202 {
		t.Errorf("a request with %d idle connections: %d", idle, status)
	}
}
