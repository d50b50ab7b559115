package main

import (
	"bytes"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
)

// A receiver responds to every request of the systems and records its time. It runs in this process, whose
// CPU time counts for no system.
type receiver struct {
	url     string
	current atomic.Pointer[arrivals]
}

// arrivals are the arrivals of one measurement.
type arrivals struct {
	at         []atomic.Int64 // Unix time in ns by callback; 0: not arrived
	left       atomic.Int64   // callbacks that have not arrived
	all        chan struct{}  // closed when left becomes 0
	duplicates atomic.Int64
	strangers  atomic.Int64 // requests from outside this measurement, including those of warm-ups
	// status returns the status for callback n; nil: 200.
	status func(n int) int
}

// note records one request and returns its status.
func (a *arrivals) note(body []byte) (status int) {
	n, ok := numberOf(body)
	if !ok || n >= len(a.at) {
		a.strangers.Add(1)
		return fasthttp.StatusOK
	}
	if !a.at[n].CompareAndSwap(0, time.Now().UnixNano()) {
		a.duplicates.Add(1)
	} else if a.left.Add(-1) == 0 {
		close(a.all)
	}
	if a.status != nil {
		return a.status(n)
	}
	return fasthttp.StatusOK
}

func startReceiver(tb testing.TB) *receiver {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(tb, err)
	r := &receiver{url: "http://" + listener.Addr().String() + "/"}
	r.expect(0)
	server := &fasthttp.Server{NoDefaultServerHeader: true, Handler: func(ctx *fasthttp.RequestCtx) {
		ctx.SetStatusCode(r.current.Load().note(ctx.PostBody()))
	}}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	tb.Cleanup(func() {
		listener.Close() // connections end with their clients
		if err := <-served; err != nil {
			tb.Errorf("receiver: %v", err)
		}
	})
	return r
}

// expect starts a measurement of n callbacks, with the numbers from 0 on.
func (r *receiver) expect(n int) *arrivals {
	a := &arrivals{at: make([]atomic.Int64, n), all: make(chan struct{})}
	a.left.Store(int64(n))
	r.current.Store(a)
	return a
}

// await waits until all callbacks have arrived and returns the times.
func (a *arrivals) await(tb testing.TB, limit time.Duration) []time.Time {
	select {
	case <-a.all:
	case <-time.After(limit):
		tb.Fatalf("%d of %d callbacks have not arrived after %s", a.left.Load(), len(a.at), limit)
	}
	at := make([]time.Time, len(a.at))
	for i := range at {
		at[i] = time.Unix(0, a.at[i].Load())
	}
	return at
}

// checkOnce fails if a callback arrived twice or a request was not of the measurement. Call it when nothing
// can arrive any more.
func (a *arrivals) checkOnce(tb testing.TB) {
	if d, s := a.duplicates.Load(), a.strangers.Load(); d+s > 0 {
		tb.Fatalf("%d callbacks arrived twice, %d requests belong to no callback", d, s)
	}
}

// Every body has payloadSize bytes, with the number of its callback at a fixed position.
const (
	payloadSize  = 512
	payloadStart = `{"n":"`
	numberDigits = 8
)

// newPayload returns the body of callback 0.
func newPayload() []byte {
	b := []byte(payloadStart + "00000000" +
		`","order":"20261121-0001","paid":10000,"currency":"CNY","filler":"`)
	const end = `"}`
	b = append(b, bytes.Repeat([]byte("x"), payloadSize-len(b)-len(end))...)
	return append(b, end...)
}

// setNumber writes the number of a callback into its body. n must be below 10 to the power of numberDigits.
func setNumber(payload []byte, n int) {
	digits := payload[len(payloadStart) : len(payloadStart)+numberDigits]
	for i := len(digits) - 1; i >= 0; i-- {
		digits[i] = byte('0' + n%10)
		n /= 10
	}
}

// numberOf returns the number in a body, and whether it has one.
func numberOf(payload []byte) (int, bool) {
	if len(payload) != payloadSize || !bytes.HasPrefix(payload, []byte(payloadStart)) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(payload[len(payloadStart):len(payloadStart)+numberDigits]), 10, 32)
	return int(n), err == nil
}

// A submission builds request bodies for the API.
type submission struct {
	url     string
	payload []byte
	// members appends more members of callback n, each after a comma; nil: none.
	members func(b []byte, n int) []byte
}

// appendTo appends callback n. With a zero time it is due at once.
func (s *submission) appendTo(b []byte, n int, due time.Time) []byte {
	setNumber(s.payload, n)
	b = append(b, `{"url":"`...)
	b = append(b, s.url...)
	b = append(b, '"')
	if !due.IsZero() {
		b = append(b, `,"due_at":"`...)
		b = due.UTC().AppendFormat(b, "2006-01-02T15:04:05.000Z")
		b = append(b, '"')
	}
	if s.members != nil {
		b = s.members(b, n)
	}
	b = append(b, `,"payload":`...)
	b = append(b, s.payload...)
	return append(b, '}')
}

// appendBatch appends a batch with the callbacks from first up to end, which is excluded.
func (s *submission) appendBatch(b []byte, first, end int, due func(int) time.Time) []byte {
	b = append(b, `{"callbacks":[`...)
	for n := first; n < end; n++ {
		if n > first {
			b = append(b, ',')
		}
		b = s.appendTo(b, n, due(n))
	}
	return append(b, "]}"...)
}
