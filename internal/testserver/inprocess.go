package testserver

import (
	"io"
	"net/http"
	"net/http/httptest"
)

// InProcess is a transport that calls a handler without a network, so that a test can run in virtual time. A
// handler that panics with http.ErrAbortHandler breaks the connection.
type InProcess struct{ http.Handler }

// RoundTrip implements http.RoundTripper.
func (h InProcess) RoundTrip(r *http.Request) (answer *http.Response, err error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			err = io.ErrUnexpectedEOF
		default:
			panic(p)
		}
	}()
	if r.Body == nil {
		r.Body = http.NoBody // as a server does
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec.Result(), nil
}
