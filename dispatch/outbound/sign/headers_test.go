package sign

import (
	"bufio"
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

func TestCheckHeaders(t *testing.T) {
	t.Parallel()
	transcript.Run(t, "testdata/headers.txt", func(line string) string {
		name, value, _ := strings.Cut(line, " | ")
		return problems(t, CheckHeaders([]store.Header{{Name: "X-First", Value: "1"},
			{Name: name, Value: value}}))
	})
}

// FuzzHeaders checks that a valid header arrives unchanged and alone.
func FuzzHeaders(f *testing.F) {
	for _, line := range transcript.Inputs(f, "testdata/headers.txt") {
		name, value, _ := strings.Cut(line, " | ")
		f.Add(name, value)
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		if CheckHeaders([]store.Header{{Name: name, Value: value}}) != nil {
			return
		}
		var wire bytes.Buffer
		req, err := http.NewRequest("POST", "http://shop.example/", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header[http.CanonicalHeaderKey(name)] = []string{value}
		if err := req.Write(&wire); err != nil {
			t.Fatalf("%q: %q cannot be sent: %v", name, value, err)
		}
		got, err := http.ReadRequest(bufio.NewReader(&wire))
		if err != nil {
			t.Fatalf("%q: %q makes a request that cannot be read: %v", name, value, err)
		}
		got.Header.Del("User-Agent")
		got.Header.Del("Content-Length")
		arrived := got.Header.Get(name)
		isAlone := len(got.Header) == 1 && got.ContentLength == 4
		if arrived != strings.Trim(value, " \t") || !isAlone {
			t.Errorf("%q: %q arrives as %q, all as %q", name, value, arrived, got.Header)
		}
	})
}
