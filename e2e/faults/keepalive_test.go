package faults

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// A keeper is a receiver over TLS that answers all alike, and counts what was opened to it.
type keeper struct {
	url string
	// conns are connections that were accepted; handshakes, those that came to the end of one, and resumed,
	// those that did so in short.
	conns, handshakes, resumed atomic.Int64
	requests, inside, most     atomic.Int64
	foreign                    atomic.Int64 // requests that came by anything but HTTP/1.1
}

// A keeping is what a keeper does.
type keeping struct {
	name   string
	answer http.HandlerFunc
	// afar is how long each handshake takes, as if the receiver were far away; takes is how long an answer does.
	afar, takes time.Duration
	http2       bool
	state       string // of the callbacks at the end
}

// listenTLS starts the keeper with a certificate that the authority of the files has signed.
func listenTLS(t *testing.T, files certificateFiles, how keeping) *keeper {
	t.Helper()
	certificate, err := tls.LoadX509KeyPair(files.certificate, files.key)
	if err != nil {
		t.Fatal(err)
	}
	k := &keeper{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter,
		req *http.Request) {
		k.serve(w, req, how)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			k.conns.Add(1)
		}
	}
	server.EnableHTTP2 = how.http2
	server.TLS = &tls.Config{
		Certificates: []tls.Certificate{certificate},
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			wait(hello.Context(), how.afar)
			return nil, nil
		},
		VerifyConnection: func(state tls.ConnectionState) error {
			k.handshakes.Add(1)
			if state.DidResume {
				k.resumed.Add(1)
			}
			return nil
		},
	}
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	k.url = server.URL
	return k
}

func (k *keeper) serve(w http.ResponseWriter, req *http.Request, how keeping) {
	now := k.inside.Add(1)
	defer k.inside.Add(-1)
	for most := k.most.Load(); now > most && !k.most.CompareAndSwap(most, now); most = k.most.Load() {
	}
	if _, err := io.Copy(io.Discard, req.Body); err != nil {
		return // it did not arrive
	}
	k.requests.Add(1)
	if req.Proto != "HTTP/1.1" {
		k.foreign.Add(1)
	}
	wait(req.Context(), how.takes)
	how.answer(w, req)
}

// wait lets d pass, or less if ctx ends.
func wait(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// answers writes the status and a body of so many bytes, with its length in a header or in chunks.
func answers(status, bytes int, chunked bool) http.HandlerFunc {
	body := strings.Repeat("0123456789abcdef", bytes/16)
	return func(w http.ResponseWriter, _ *http.Request) {
		if !chunked {
			w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		}
		w.WriteHeader(status)
		if f, ok := w.(http.Flusher); ok && chunked {
			f.Flush()
		}
		io.WriteString(w, body)
	}
}

// A thousand attempts to one HTTPS host open at most twice as many connections as its lanes may have in
// flight, whatever the receiver answers and however long its handshakes take: each one more costs as much as
// ten attempts. Lanes that share a host, as a platform's merchants do, share its connections.
func TestAThousandAttemptsKeepTheirConnections(t *testing.T) {
	mostlyWaits(t)
	files := makeCertificates(t)
	afar := 50 * time.Millisecond
	for _, share := range []struct {
		lanes, concurrency int
		hows               []keeping
	}{
		{1, 32, []keeping{
			{name: "200 at once", answer: answers(200, 16, false), state: "succeeded"},
			{name: "500 with 8 KiB in chunks", answer: answers(500, 8<<10, true), state: "dead"},
			{name: "200 from one that offers HTTP 2", answer: answers(200, 16, false), http2: true,
				state: "succeeded"},
			{name: "200 after 10 ms, and handshakes of 50 ms", answer: answers(200, 16, false), afar: afar,
				takes: 10 * time.Millisecond, state: "succeeded"},
		}},
		{8, 8, []keeping{{name: "200 at once to eight lanes", answer: answers(200, 16, false),
			state: "succeeded"}}},
	} {
		p := serveTrusting(t, files, share.concurrency)
		for _, how := range share.hows {
			t.Run(how.name, func(t *testing.T) { keeps(t, p, files, how, share.lanes, share.concurrency) })
		}
	}
}

// serveTrusting starts a dispatcher that trusts the authority of the files. Which stores it has is all the
// same here.
func serveTrusting(t *testing.T, files certificateFiles, concurrency int) *harness.Process {
	t.Helper()
	return harness.Serve(t, harness.Launch{
		On:   harness.NewBackend(t, harness.SQLiteEmbedded),
		Args: []string{"--lane-concurrency", fmt.Sprint(concurrency)}, Under: []string{"env", files.env()},
	})
}

// keeps has a thousand attempts made, and counts what was opened for them.
func keeps(t *testing.T, p *harness.Process, files certificateFiles, how keeping, lanes, concurrency int) {
	const attempts = 1000
	k := listenTLS(t, files, how)
	batch := make([]harness.Submission, attempts)
	for i := range batch {
		batch[i] = harness.Submission{"url": k.url, "payload": harness.Payload(fmt.Sprint(i)),
			"policy": harness.Submission{"tiers": []string{}}}
		if lanes > 1 {
			batch[i]["lane"] = fmt.Sprint("merchant-", i%lanes, "-of-", k.url)
		}
	}
	accepted, err := p.AcceptBatch(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	harness.Await(t, p.Client, time.Minute)
	last, err := p.Get(t.Context(), accepted[attempts-1].ID)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d requests, at most %d at once, over %d connections; %d handshakes, %d of them resumed",
		k.requests.Load(), k.most.Load(), k.conns.Load(), k.handshakes.Load(), k.resumed.Load())
	if n := k.requests.Load(); n != attempts || last.State != how.state {
		t.Errorf("%d requests for %d callbacks, of which the last is %s, want %s", n, attempts, last.State,
			how.state)
	}
	if n := k.foreign.Load(); n != 0 {
		t.Errorf("%d requests came by another protocol than HTTP/1.1", n)
	}
	most := int64(2 * lanes * concurrency)
	if k.conns.Load() > most || k.handshakes.Load() > most {
		t.Errorf("%d connections with %d handshakes, at most %d for %d lanes of %d", k.conns.Load(),
			k.handshakes.Load(), most, lanes, concurrency)
	}
}
