package outbound

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// benchBody is as long as a payment notification.
func benchBody() []byte {
	return append(bytes.Repeat([]byte("0123456789abcdef"), 31), "0123456789\"end\"}"...)
}

// serveFast answers as cheaply as can be, so that what is measured is the sender.
func serveFast(b *testing.B) string {
	end := []byte(`"end"}`)
	return serveRaw(b, func(c *net.TCPConn, _ int) {
		buf := make([]byte, 16<<10)
		for n := 0; ; {
			got, err := c.Read(buf[n:])
			if err != nil {
				return
			}
			if n += got; bytes.HasSuffix(buf[:n], end) {
				n = 0
				io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nDate: Sat, 21 Nov 2026 12:00:00 GMT\r\nContent-Length: 7\r\n\r\nsuccess")
			}
		}
	}).URL
}

// BenchmarkSend is one attempt over a kept-alive connection, everything included.
func BenchmarkSend(b *testing.B) {
	c := newTestClient(b, Options{})
	r := newRequest(serveFast(b) + "notify")
	r.Body = benchBody()
	r.Success = store.Success{Name: RuleBodySuccess}
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		if resp := c.Send(context.Background(), r); resp.Class != store.ClassOK {
			b.Fatal(resp.Class, resp.Error)
		}
	}
}

// bare is what HTTP costs by itself: go-retryablehttp over net/http's transport, a signature in three headers, the body read and
// thrown away.
func bare(b *testing.B) func() {
	url, body, secret := serveFast(b)+"notify", benchBody(), testSecret()
	client := retryablehttp.NewClient()
	client.RetryMax, client.Logger = 0, nil
	client.HTTPClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	return func() {
		req, err := retryablehttp.NewRequest("POST", url, body)
		if err != nil {
			b.Error(err)
			return
		}
		seconds := strconv.FormatInt(time.Now().Unix(), 10)
		mac := hmac.New(sha256.New, secret)
		io.WriteString(mac, "cb_01JD0000000000000000000001."+seconds+".")
		mac.Write(body)
		req.Header.Set("webhook-id", "cb_01JD0000000000000000000001")
		req.Header.Set("webhook-timestamp", seconds)
		req.Header.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			b.Error(err)
			return
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}

// BenchmarkBare is that, one request at a time.
func BenchmarkBare(b *testing.B) {
	send := bare(b)
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		send()
	}
}

// BenchmarkBareParallel is that with many in flight.
func BenchmarkBareParallel(b *testing.B) {
	send := bare(b)
	b.SetParallelism(32)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			send()
		}
	})
}

// BenchmarkSendParallel has 32 attempts in flight for each processor.
func BenchmarkSendParallel(b *testing.B) {
	c := newTestClient(b, Options{MaxIdlePerHost: 256})
	r := newRequest(serveFast(b) + "notify")
	r.Body = benchBody()
	b.SetParallelism(32)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if resp := c.Send(context.Background(), r); resp.Class != store.ClassOK {
				b.Error(resp.Class, resp.Error)
			}
		}
	})
}
