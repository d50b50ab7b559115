package api_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
)

func TestAuthentication(t *testing.T) {
	t.Parallel()
	f := newFace(t, &engine{})
	for _, h := range []string{
		"", "Bearer", "Bearer ", adminKey, "Basic " + adminKey, "Bearer " + adminKey + "x", "Bearer " + adminKey[1:], "Bearer  " + adminKey,
		"Bearer " + strings.Repeat("x", 8000), "Bearer \x00",
	} {
		rec := f.do("POST", "/v1/callbacks", "not JSON", "Authorization", h)
		wantProblem(t, rec, 401, "unauthorized")
		if rec.Header().Get("WWW-Authenticate") != "Bearer" {
			t.Error("401 without WWW-Authenticate")
		}
	}
	if rec := f.do("GET", "/v1/callbacks/"+oneID, "", "Authorization", "bearer "+adminKey); rec.Code != 200 {
		t.Errorf("the scheme has no case: %d", rec.Code)
	}
	if rec := f.do("GET", "/openapi.yaml", "", "Authorization", ""); rec.Code != 200 {
		t.Errorf("the document needs no key: %d", rec.Code)
	}
}

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
		{"/v1/polls", request}, {"/v1/polls/" + oneID + "/resolve", request}, {"/v1/schedules", request}, {"/v1/schedules/" + oneSchedule + "/run", request},
	} {
		e := &engine{}
		f := newFace(t, e)
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

func TestPayloadTooLarge(t *testing.T) {
	t.Parallel()
	fit := strings.Repeat("x", accept.MaxBody-2)
	for body, status := range map[string]int{
		`{"url":"u","payload":"` + fit + `"}`:                                        202,
		`{"url":"u","payload":"` + fit + `x"}`:                                       413,
		`{"url":"u","body":"` + fit + `xx"}`:                                         202,
		`{"url":"u","body":"` + fit + `xxx"}`:                                        413,
		`{"url":"u","body_base64":"` + strings.Repeat("AAAA", 87381) + `AA==` + `"}`: 202,
		`{"url":"u","body_base64":"` + strings.Repeat("AAAA", 87382) + `"}`:          413,
	} {
		e := &engine{}
		rec := newFace(t, e).do("POST", "/v1/callbacks", body)
		if rec.Code != status {
			t.Errorf("%.40s… of %d bytes: %d, want %d", body, len(body), rec.Code, status)
		}
		if status == 413 {
			wantProblem(t, rec, 413, "payload_too_large")
			if len(e.subs) > 0 {
				t.Error("it reached the engine")
			}
		}
	}
}

// TestEncodedRequestsAreRefused, case 67: nothing is unpacked.
func TestEncodedRequestsAreRefused(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(make([]byte, 64<<20)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f := newFace(t, &engine{})
	wantProblem(t, f.do("POST", "/v1/callbacks", b.String(), "Content-Encoding", "gzip"), 415, "unsupported_encoding")
	wantProblem(t, f.do("POST", "/v1/callbacks/batch", `{}`, "Content-Encoding", "br"), 415, "unsupported_encoding")
}

func TestCutBodies(t *testing.T) {
	t.Parallel()
	f := newFace(t, &engine{})
	for _, length := range []int64{100, -1} {
		cut := io.MultiReader(strings.NewReader(`{"url":"u"}`), iotest.ErrReader(errors.New("connection reset")))
		wantProblem(t, f.post("/v1/callbacks", cut, length), 400, "incomplete_body")
	}
}

// post sends a body that is said to be of that length; -1: it is not said.
func (f face) post(path string, body io.Reader, length int64) *httptest.ResponseRecorder {
	req := httptest.NewRequest("POST", path, body)
	req.ContentLength = length
	req.Header.Set("Authorization", "Bearer "+adminKey)
	rec := httptest.NewRecorder()
	f.ServeHTTP(rec, req)
	return rec
}
