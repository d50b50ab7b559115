package api_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// counting is a body that knows how much of it was read.
type counting struct {
	io.Reader
	read int
}

func (c *counting) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.read += n
	return n, err
}

// TestTooLarge, case 65: what is over the limit is not read, whether it says its length or not.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	const request, batch = 512 << 10, 16 << 20
	for _, c := range []struct {
		path  string
		limit int
	}{
		{"/v1/callbacks", request}, {"/v1/callbacks/batch", batch}, {"/v1/callbacks/cancel", request},
		{"/v1/callbacks/" + oneID + "/cancel", request}, {"/v1/callbacks/" + oneID + "/retry", request}, {"/v1/index/rebuild", request},
		{"/v1/polls", request}, {"/v1/polls/" + oneID + "/resolve", request}, {"/v1/schedules", request}, {"/v1/schedules/" + "sc_" + bareSchedule + "/run", request},
	} {
		f := newFace(t, fullEngine())
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
			t.Errorf("%s: %d bytes were read of a request that said it is too large", c.path, read)
		}
		if rec.Header().Get("Connection") != "close" {
			t.Errorf("%s: the connection stays open behind a body that was not read", c.path)
		}
		rec, read = send(4*c.limit, true)
		wantProblem(t, rec, 413, "too_large")
		if read > c.limit+c.limit/2 {
			t.Errorf("%s: %d bytes were read of a chunked request", c.path, read)
		}
		rec, _ = send(c.limit+1, true)
		wantProblem(t, rec, 413, "too_large")
		for _, chunked := range []bool{false, true} {
			if rec, _ = send(c.limit, chunked); rec.Code == 413 {
				t.Errorf("%s: a request at the limit is refused (chunked %v)", c.path, chunked)
			}
		}
	}
}

func TestCutBodies(t *testing.T) {
	t.Parallel()
	f := newFace(t, fullEngine())
	for _, length := range []int64{100, -1} {
		cut := io.MultiReader(strings.NewReader(`{"url":"u"}`), iotest.ErrReader(errors.New("connection reset")))
		wantProblem(t, f.post("/v1/callbacks", cut, length), 400, "incomplete_body")
	}
}

// post sends a body that is said to be of that length; -1: it is not said.
func (f face) post(path string, body io.Reader, length int64) *httptest.ResponseRecorder {
	req := httptest.NewRequest("POST", path, body)
	req.ContentLength = length
	return f.serve(req, "")
}

// slowBooks take so long to compare, unless the request ends before.
type slowBooks struct {
	rows
	takes time.Duration
}

func (b slowBooks) Compare(
	ctx context.Context, _ string, _, _ int64, _ []string, _ int,
) (store.Comparison, error) {
	select {
	case <-ctx.Done():
		return store.Comparison{}, ctx.Err()
	case <-time.After(b.takes):
		return store.Comparison{}, nil
	}
}

// TestTimeoutsAreLiftedAfterTheBody: a route that may take minutes outlasts the server's time-outs, but its
// request must come within them.
func TestTimeoutsAreLiftedAfterTheBody(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	o := optionsOf(fullEngine())
	o.Store = slowBooks{rows{fullEngine()}, 2 * timeout}
	server := httptest.NewUnstartedServer(newFaceOf(t, o))
	server.Config.ReadTimeout, server.Config.WriteTimeout = timeout, timeout
	server.Start()
	t.Cleanup(server.Close)
	const body = `{"from":"2026-11-20T00:00:00Z","refs":[]}`
	for _, length := range []int64{int64(len(body)), -1} {
		t.Run(fmt.Sprint("body of ", length), func(t *testing.T) {
			t.Parallel()
			req := httptest.NewRequest("POST", server.URL+"/v1/reconcile/compare", io.NopCloser(strings.NewReader(body)))
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
				t.Errorf("the request is still waited for: %v", err)
			}
		})
	}
}

// TestAReaderThatGoesAwayIsNoFailure of the server.
func TestAReaderThatGoesAwayIsNoFailure(t *testing.T) {
	t.Parallel()
	e := fullEngine()
	e.err = context.Canceled
	f := newFace(t, e)
	wantProblem(t, f.do("GET", "/v1/outcomes?wait=1s", ""), 503, "unavailable") // this one was there
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if rec := f.serve(httptest.NewRequest("GET", "/v1/outcomes?wait=1s", nil).WithContext(ctx), ""); rec.Code != 200 {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}
