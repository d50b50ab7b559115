package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// quick accepts without keeping anything.
type quick struct{ engine }

func (q *quick) Accept(_ context.Context, _ string, subs []dispatch.Submission) ([]dispatch.Receipt, error) {
	receipts := make([]dispatch.Receipt, len(subs))
	for i := range subs {
		receipts[i].Callback = q.callback
	}
	return receipts, nil
}

// discard is a ResponseWriter that keeps nothing.
type discard struct{ h http.Header }

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}

func BenchmarkAccept(b *testing.B) {
	const body = `{"url":"https://shop.example/notify","headers":{"X-Shop":"7"},"topic":"payment.succeeded","ref":"order-20261121-0001",` +
		`"payload":{"order":"order-20261121-0001","paid":10000,"currency":"CNY","paid_at":"2026-11-21T08:00:00+08:00","channel":"alipay"},` +
		`"policy":"payment","success":"body-success","lock_key":"order-20261121-0001","idempotency_key":"k-1","labels":{"channel":"alipay"}}`
	q := &quick{engine{callback: sample()}}
	q.callback.Policy.Tiers = schedule.Payment()
	f := newFaceOf(b, optionsOf(q))
	req, err := http.NewRequest("POST", "/v1/callbacks", nil)
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminKey)
	w := &discard{http.Header{}}
	r := strings.NewReader(body)
	b.ReportAllocs()
	for b.Loop() {
		r.Reset(body)
		req.Body, req.ContentLength = readCloser{r}, int64(len(body))
		f.ServeHTTP(w, req)
	}
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }
