package outbound

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/rule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// gzipped returns the compressed data.
func gzipped(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// An endlessBody returns one text and then another one for ever. It counts the bytes read.
type endlessBody struct {
	next  io.Reader
	again string
	read  int
}

func (b *endlessBody) Read(p []byte) (int, error) {
	n, err := b.next.Read(p)
	if err == io.EOF {
		b.next = strings.NewReader(b.again)
		n, err = b.next.Read(p)
	}
	b.read += n
	return n, err
}

func (*endlessBody) Close() error { return nil }

// TestGzipIsOneBoundedMember checks that reading ends even if the gzip data decodes to nothing. A body that
// was not read completely passes no test.
func TestGzipIsOneBoundedMember(t *testing.T) {
	t.Parallel()
	const (
		head   = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
		hollow = "\x00\x00\x00\xff\xff" // a stored block of zero bytes that is not the last block
		large  = "the compressed body is larger than 128 KiB"
		more   = "the body has more than one gzip member"
	)
	empty, right := string(gzipped(t, nil)), string(gzipped(t, []byte("success")))
	short := head + strings.Repeat(hollow, 20_000) + right[len(head):] // decodes to "success"
	long := head + strings.Repeat(hollow, 27_000) + right[len(head):]
	for _, x := range []struct {
		name, once, again string
		saw               string
	}{
		{"empty members", "", empty, more},
		{"members behind the first", right, right, more},
		{"zeros behind the first", right, "\x00", more},
		{"empty blocks without end", head, hollow, large},
		{"empty blocks, less than the limit", short, "", ""},
		{"empty blocks, more than the limit", long, "", large},
		{"a name without end", "\x1f\x8b\x08\x08\x00\x00\x00\x00\x00\xff", "a", "the body is not valid gzip"},
	} {
		body := &endlessBody{next: strings.NewReader(x.once), again: x.again}
		answer := func(*http.Request) (*http.Response, error) {
			header := http.Header{"Content-Encoding": {"gzip"}}
			return &http.Response{StatusCode: 200, Header: header, Body: body, ContentLength: -1}, nil
		}
		req := newRequest("https://shop.example/")
		req.Success.Name = rule.BodySuccess
		r := newTestClient(t, Options{Transport: roundTrip(answer)}).Send(t.Context(), req)
		switch {
		case x.saw == "":
			expect(t, r, okay)
		case r.Class != store.ClassDecode || r.Rule == nil || r.Rule.Saw != x.saw:
			t.Errorf("%s: %s, %+v, want %s", x.name, r.Class, r.Rule, x.saw)
		}
		if body.read > 128<<10+1 {
			t.Errorf("%s: %d bytes were read", x.name, body.read)
		}
	}
}

// TestLimits is cases 68 and 69 of the security list: an endless or compressed answer costs little memory and
// time.
func TestLimits(t *testing.T) {
	// Not parallel: it measures allocations.
	bomb := gzipped(t, make([]byte, 200<<20))
	gzipBomb := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Write(bomb)
	}))
	defer gzipBomb.Close()
	forever := func(head, again string) string {
		return serveRaw(t, func(c *net.TCPConn, _ int) {
			_, err := readRequest(c)
			for text := head; err == nil; text = again {
				_, err = io.WriteString(c, text)
			}
		}).URL
	}
	endless := forever("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
		"1000\r\n"+strings.Repeat("a", 4096)+"\r\n")
	hollow := forever("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n",
		strings.Repeat(string(gzipped(t, nil)), 200))
	c := newTestClient(t, Options{})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, url := range []string{gzipBomb.URL, endless} {
		r := newRequest(url)
		got := c.Send(t.Context(), r)
		expect(t, got, "ok succeeded, truncated, status 200")
		if len(got.ResponseBody) > MaxStoredBytes {
			t.Errorf("%d bytes kept", len(got.ResponseBody))
		}
		r.Success.Name = rule.BodySuccess
		got = c.Send(t.Context(), r)
		expect(t, got, "rule_mismatch failed, truncated, status 200")
		if got.Rule == nil || !strings.HasPrefix(got.Rule.Saw, "too_large") {
			t.Errorf("rule %+v", got.Rule)
		}
	}
	r := newRequest(hollow)
	r.Success.Name = rule.BodySuccess
	expect(t, c.Send(t.Context(), r), "decode failed, status 200")
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 32<<20 {
		t.Errorf("%d MiB were allocated", grown>>20)
	}
}

// FuzzGzip compares the reading of a compressed answer with compress/gzip. One whole member is read up to the
// limit; everything else is a fault.
func FuzzGzip(f *testing.F) {
	packed := func(text string) []byte { return gzipped(f, []byte(text)) }
	for _, body := range [][]byte{
		packed("ok"), packed(""), append(packed("a"), packed("b")...), packed("ok")[:12],
		packed(strings.Repeat("a", MaxResponseBytes)), packed(strings.Repeat("a", MaxResponseBytes+1)),
		packed(strings.Repeat("a", 1<<20)), []byte("ok"), append(packed("ok"), "x"...),
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		a := answer{}
		a.read(&http.Response{
			StatusCode: 200, Header: http.Header{"Content-Encoding": {"gzip"}}, ContentLength: -1,
			Body: io.NopCloser(bytes.NewReader(body)),
		}, nil)
		defer a.release()
		if len(a.body) > MaxResponseBytes {
			t.Fatalf("the body has %d bytes", len(a.body))
		}
		want, whole := oneMember(body)
		switch fault := a.fault(); {
		case whole && len(want) <= MaxResponseBytes && (fault != "" || !bytes.Equal(a.body, want)):
			t.Errorf("%x is read as %q, %s; want %q", body, a.body, fault, want)
		case !whole && fault == "":
			t.Errorf("%x is not one member, but is read as %q", body, a.body)
		case whole && len(want) > MaxResponseBytes && fault == "":
			t.Errorf("%d bytes are accepted as a whole answer", len(want))
		}
	})
}

// oneMember decodes a gzip member. whole reports whether it is valid and nothing follows it.
func oneMember(body []byte) (plain []byte, whole bool) {
	packed := bufio.NewReader(bytes.NewReader(body))
	z, err := gzip.NewReader(packed)
	if err != nil {
		return nil, false
	}
	z.Multistream(false)
	plain, err = io.ReadAll(z)
	if err != nil {
		return plain, false
	}
	_, err = packed.ReadByte()
	return plain, err == io.EOF
}
