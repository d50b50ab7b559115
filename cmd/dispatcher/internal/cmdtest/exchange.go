package cmdtest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
)

// Handling is the address of a server that ends with the test.
func Handling(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(handler)
	t.Cleanup(srv.Close)
	return srv.URL
}

func Respond(t *testing.T, w io.Writer, answer string) {
	t.Helper()
	if _, err := io.WriteString(w, answer); err != nil {
		t.Error(err)
	}
}

// Answering is the address of a server that gives everything the same answer.
func Answering(t *testing.T, status int, answer string) string {
	t.Helper()
	return Handling(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		Respond(t, w, answer)
	})
}

// InProcess answers a client without a wire, so that a test may run in virtual time. A handler that panics with
// http.ErrAbortHandler breaks the connection.
type InProcess struct{ http.Handler }

func (h InProcess) RoundTrip(r *http.Request) (answer *http.Response, err error) {
	defer func() {
		if recover() == http.ErrAbortHandler {
			err = io.ErrUnexpectedEOF
		}
	}()
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec.Result(), nil
}

// At is a terminal whose commands talk to a server, with the key k.
func (p Program) At(address string, env ...string) *Terminal {
	return p.Terminal(append(env, "DISPATCHER_SERVER="+address, "DISPATCHER_KEY=k")...)
}

// OneID is that of a callback.
const OneID = "cb_01JD7Q2Z3K4M5N6P7R8S9TABCD"

// ReceiversForm is how a receiver is given a key: the public one of a pair, else the secret.
func ReceiversForm(t *testing.T, use string, key []byte) string {
	t.Helper()
	public, err := sign.PublicOf(use, key)
	if err != nil {
		t.Fatal(err)
	}
	if public != "" {
		return public
	}
	return sign.FormatSecretFor(use, key)
}
