package web_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web"
	"github.com/seed-ff5a32d8/dispatcher/web/api"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
	"github.com/seed-ff5a32d8/dispatcher/web/ui"
)

const adminKey = "dk_0123456789abcdef"

// backend replaces the engine. Methods that no test needs panic.
type backend struct {
	api.Engine

	accept func(ctx context.Context, subs []accept.Submission) ([]store.Accepted, error)
	health dispatch.Health
}

func (b *backend) Accept(ctx context.Context, _ string, subs []accept.Submission) ([]store.Accepted, error) {
	return b.accept(ctx, subs)
}

// rows replaces the store, and is empty.
type rows struct{ query.Store }

func (rows) List(context.Context, string, store.Filter) (store.Page, error) { return store.Page{}, nil }

func (b *backend) Verify(context.Context) (index.Drift, error) { return index.Drift{}, nil }

func (b *backend) Now() int64 { return time.Now().UnixMilli() }

func (b *backend) Health(context.Context) dispatch.Health { return b.health }

// newServer returns a server on free ports and its log.
func newServer(t *testing.T, b *backend, o web.Options) (*web.Server, *testserver.Log) {
	t.Helper()
	if b.accept == nil {
		b.accept = func(_ context.Context, subs []accept.Submission) ([]store.Accepted, error) {
			return make([]store.Accepted, len(subs)), nil
		}
	}
	log := new(testserver.Log)
	o.Logger = slog.New(slog.NewJSONHandler(log, nil))
	a, err := newAPI(b, o.Logger)
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	o.API, o.Health, o.Registerer, o.Gatherer = a, b, reg, reg
	o.Listen = "127.0.0.1:0"
	if o.OpsListen == "" {
		o.OpsListen = "127.0.0.1:0"
	}
	s, err := web.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s, log
}

func (b *backend) Authenticate(context.Context, string) (store.Key, error) {
	return store.Key{}, store.ErrNotFound
}

func (b *backend) CursorKey(context.Context) ([]byte, error) { return make([]byte, 32), nil }

// newAPI returns an API that calls the backend.
func newAPI(b *backend, log *slog.Logger) (*api.API, error) {
	reports, err := ui.ReportTexts()
	if err != nil {
		return nil, err
	}
	return api.New(api.Options{
		Engine: b, Store: rows{}, AdminKey: adminKey, ReportTexts: reports, Logger: log,
	})
}

// send passes a request with the admin key to a handler.
func send(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	r.Header.Set("Authorization", "Bearer "+adminKey)
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec
}
