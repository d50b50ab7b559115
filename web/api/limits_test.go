package api_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// counting is a body that counts the bytes that were read.
type counting struct {
	io.Reader
	read int
}

func (c *counting) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.read += n
	return n, err
}

// TestTooLarge (case 65) checks that a body over the limit is not read, with and without a declared length.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	const request, batch = 512 << 10, 16 << 20
	for _, c := range []struct {
		path  string
		limit int
	}{
		{"/v1/callbacks", request}, {"/v1/callbacks/batch", batch}, {"/v1/callbacks/cancel", request},
		{"/v1/callbacks/" + oneID + "/cancel", request}, {"/v1/callbacks/" + oneID + "/retry", request},
		{"/v1/index/rebuild", request},
		{"/v1/polls", request}, {"/v1/polls/" + oneID + "/resolve", request}, {"/v1/schedules", request},
		{"/v1/schedules/" + "sc_" + bareSchedule + "/run", request},
		{"/v1/relay/pay", batch}, {"/v1/relay/pay/retry", request},
		{"/v1/alerts", request}, {"/v1/alerts/" + "al_" + bareAlert + "/test", request},
	} {
		f := newTestAPI(t, fullEngine())
		send := func(size int, chunked bool) (*httptest.ResponseRecorder, int) {
			body, length := &counting{Reader: bytes.NewReader(bytes.Repeat([]byte(" "), size))}, int64(size)
			if chunked {
				length = -1
			}
			return f.post(c.path, body, length), body.read
		}
		rec, read := send(c.limit+1, false)
		wantProblem(t, rec, 413, "too_large")
		if read != 0 {
			t.Errorf("%s: %d bytes were read although the declared length is over the limit", c.path, read)
		}
		if rec.Header().Get("Connection") != "close" {
			t.Errorf("%s: the connection stays open after a body that was not read", c.path)
		}
		rec, read = send(4*c.limit, true)
		wantProblem(t, rec, 413, "too_large")
		if read > c.limit+c.limit/2 {
			t.Errorf("%s: %d bytes were read of a chunked request", c.path, read)
		}
		rec, _ = send(c.limit+1, true)
		wantProblem(t, rec, 413, "too_large")
		for _, chunked := range []bool{false, true} {
			rec, _ = send(c.limit, chunked)
			if rec.Code == 413 {
				t.Errorf("%s: a request at the limit is rejected (chunked %v)", c.path, chunked)
			}
		}
	}
}

// TestCutBodies checks that a body whose connection breaks gets a 400, with and without a declared length.
func TestCutBodies(t *testing.T) {
	t.Parallel()
	f := newTestAPI(t, fullEngine())
	for _, length := range []int64{100, -1} {
		cut := io.MultiReader(strings.NewReader(`{"url":"u"}`),
			iotest.ErrReader(errors.New("connection reset")))
		wantProblem(t, f.post("/v1/callbacks", cut, length), 400, "incomplete_body")
	}
}

// post sends a body with a declared length. -1: no declared length.
func (f testAPI) post(path string, body io.Reader, length int64) *httptest.ResponseRecorder {
	req := httptest.NewRequest("POST", path, body)
	req.ContentLength = length
	return f.serve(req, "")
}

// TestTimeoutsAreLiftedAfterTheBody checks that a route that may take minutes exceeds the server's timeouts,
// but that its body must arrive within them.
func TestTimeoutsAreLiftedAfterTheBody(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	e := fullEngine()
	e.takes = 2 * timeout
	server := httptest.NewUnstartedServer(newTestAPI(t, e))
	server.Config.ReadTimeout, server.Config.WriteTimeout = timeout, timeout
	server.Start()
	t.Cleanup(server.Close)
	const body = `{"from":"2026-11-20T00:00:00Z","refs":[]}`
	for _, length := range []int64{int64(len(body)), -1} {
		t.Run(fmt.Sprint("body of ", length), func(t *testing.T) {
			t.Parallel()
			sent := io.NopCloser(strings.NewReader(body))
			req := httptest.NewRequest("POST", server.URL+"/v1/reconcile/compare", sent)
			req.RequestURI, req.ContentLength = "", length
			req.Header.Set("Authorization", "Bearer "+adminKey)
			resp, err := server.Client().Do(req)
			if err != nil || resp.StatusCode != 200 {
				t.Fatal(resp, err)
			}
			if err := resp.Body.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	for _, head := range []string{"Content-Length: 100", "Transfer-Encoding: chunked"} {
		t.Run("silent, "+head, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, "POST /v1/reconcile/compare HTTP/1.1\r\nHost: h\r\n"+
				"Authorization: Bearer "+adminKey+"\r\n"+head+"\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(conn); err != nil {
				t.Errorf("the server still waits for the request: %v", err)
			}
		})
	}
}

// TestClosedConnection checks that a client that closes its connection while it waits causes no error.
func TestClosedConnection(t *testing.T) {
	t.Parallel()
	e := fullEngine()
	e.err = context.Canceled
	f := newTestAPI(t, e)
	wantProblem(t, f.do("GET", "/v1/outcomes?wait=1s", ""), 503, "unavailable") // the connection is open
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	req := httptest.NewRequest("GET", "/v1/outcomes?wait=1s", nil).WithContext(ctx)
	if rec := f.serve(req, ""); rec.Code != 200 {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}

// from requests a list with a key, from an address.
func (f testAPI) from(address, key string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "/v1/callbacks", nil)
	r.RemoteAddr = address
	r.Header.Set("Authorization", "Bearer "+key)
	return f.serve(r, "")
}

// wantTooManyGuesses checks that a response has the code too_many_guesses and a Retry-After.
func wantTooManyGuesses(t *testing.T, rec *httptest.ResponseRecorder) {
	t.Helper()
	wantProblem(t, rec, 429, "too_many_guesses")
	after := rec.Header().Get("Retry-After")
	if seconds, err := strconv.Atoi(after); err != nil || seconds < 1 || seconds > 60 {
		t.Errorf("Retry-After is %q", after)
	}
}

// TestWrongKeysAreSlowedDown sends 1,500 invalid keys from one address, or with one beginning from many
// addresses. Not all get a 401. Valid keys pass meanwhile, used before or not.
func TestWrongKeysAreSlowedDown(t *testing.T) {
	t.Parallel()
	const guesses = 1500
	reader, sender := "dk_b_read", "dk_b_admin"
	for name, c := range map[string]struct {
		address func(i int) string
		key     func(i int) string
	}{
		"one address": {
			func(int) string { return "198.51.100.7:1234" },
			func(i int) string { return fmt.Sprintf("dk_%d_guess", i) },
		},
		"one beginning": {
			func(i int) string { return fmt.Sprintf("203.0.%d.%d:1234", i/250, i%250) },
			func(i int) string { return sender[:8] + strconv.Itoa(i) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newTestAPI(t, fullEngine())
			if rec := f.from("198.51.100.7:1", reader); rec.Code != 200 {
				t.Fatalf("a valid key: %d", rec.Code)
			}
			answered := 0
			for i := range guesses {
				rec := f.from(c.address(i), c.key(i))
				if rec.Code == 401 {
					answered++
					continue
				}
				wantTooManyGuesses(t, rec)
			}
			if answered < 10 || answered > 100 {
				t.Errorf("%d of %d invalid keys got a 401", answered, guesses)
			}
			for _, right := range []string{reader, sender, adminKey} {
				if rec := f.from("198.51.100.7:99", right); rec.Code != 200 {
					t.Errorf("a valid key after the guesses: %d %s", rec.Code, rec.Body)
				}
			}
			wantProblem(t, f.from("192.0.2.99:1", "another-wrong-key"), 401, "unauthorized")
		})
	}
}

// TestParallelWrongKeysAreSlowedDown checks that guesses are counted before the key is looked up, so that not
// all parallel guesses get a 401.
func TestParallelWrongKeysAreSlowedDown(t *testing.T) {
	t.Parallel()
	f := newTestAPI(t, fullEngine())
	codes := make([]int, 200)
	var wg sync.WaitGroup
	for i := range codes {
		wg.Go(func() { codes[i] = f.from("198.51.100.7:1234", fmt.Sprintf("dk_%d_guess", i)).Code })
	}
	wg.Wait()
	answered := 0
	for _, code := range codes {
		if code == 401 {
			answered++
		} else if code != 429 {
			t.Errorf("status %d", code)
		}
	}
	if answered > 100 {
		t.Errorf("%d of %d parallel guesses got a 401", answered, len(codes))
	}
}

// TestRequestsOfAKeyAreBounded (case 78) checks that requests over the rate of a key get a 429 on every
// route, and that other keys are not affected.
func TestRequestsOfAKeyAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := optionsOf(fullEngine())
		o.RequestsPerSecond = 3
		f := newTestAPIWith(t, o)
		for range 2 {
			for _, key := range []string{"dk_b_send", adminKey} {
				bearer := "Bearer " + key
				four := `{"callbacks":[{"url":"u"},{"url":"u"},{"url":"u"},{"url":"u"}]}`
				f.do("POST", "/v1/callbacks/batch", four, "Authorization", bearer)
				for range 2 {
					if rec := f.do("POST", "/v1/callbacks", "{", "Authorization", bearer); rec.Code != 400 {
						t.Errorf("a request within the rate: %d %s", rec.Code, rec.Body)
					}
				}
				for _, path := range []string{"/v1/callbacks", "/v1/callbacks/batch"} {
					rec := f.do("POST", path, `{"url":"u"}`, "Authorization", bearer)
					wantProblem(t, rec, 429, "rate_limited")
					if rec.Header().Get("Retry-After") != "1" {
						t.Errorf("Retry-After is %q", rec.Header().Get("Retry-After"))
					}
				}
				if rec := f.do("GET", "/openapi.yaml", "", "Authorization", bearer); rec.Code != 200 {
					t.Errorf("the document: %d", rec.Code)
				}
			}
			time.Sleep(time.Second)
		}
	})
}
