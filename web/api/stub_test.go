package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/api"
	"github.com/seed-ff5a32d8/dispatcher/web/httperr"
)

const (
	adminKey = "dk_0123456789abcdef"
	bareID   = "01JD6QZ0000000000000000001"
	olderID  = "01JD6QZ0000000000000000000"
	oneID    = "cb_" + bareID
	// nowMS is 2026-11-21T08:00:00.000Z.
	nowMS = 1795248000000
)

// engine stands for the engine and the store. It accepts everything that came decodable, as the real one does with
// what a submission's Invalid says.
type engine struct {
	mu   sync.Mutex
	subs []accept.Submission
	// given is what the last call was given, actor by whom; the rest is what the calls answer.
	given       given
	actor       store.Actor
	auditCheck  control.AuditCheck
	projects    []string // that were asked for, by any call
	explanation control.Explanation
	evidence    string
	event       accept.EventReceipt
	endpoint    store.Endpoint
	created     bool
	lanes       []control.LaneView
	presets     control.Presets
	outcomes    []store.TerminalEvent
	poll        control.PollView
	schedule    store.Schedule

	err      error
	replayed bool
	callback store.Callback
	attempts []store.Attempt
	body     []byte
	page     store.Page
	audit    []store.AuditEntry
	drift    index.Drift
	driftAll index.Drift
	statsErr error
	keyErr   error // of the key that signs cursors
}

func (e *engine) Accept(_ context.Context, project string, subs []accept.Submission) ([]accept.Receipt, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.subs, e.projects = append(e.subs, subs...), append(e.projects, project)
	if e.err != nil {
		return nil, e.err
	}
	receipts := make([]accept.Receipt, len(subs))
	for i, s := range subs {
		if len(s.Invalid) > 0 {
			receipts[i].Err = &store.InvalidError{Fields: s.Invalid}
			continue
		}
		cb := e.callback
		cb.Project, cb.URL, cb.Ref = project, s.URL, s.Ref
		receipts[i] = accept.Receipt{Callback: cb, Replayed: e.replayed}
	}
	return receipts, nil
}

func (e *engine) Cancel(
	_ context.Context, project, id string, by store.Actor,
) (store.CanceledCallback, error) {
	cb := e.callback
	cb.ID, cb.State, cb.Reason = id, store.Canceled, store.Requested
	done := store.CanceledCallback{Result: store.CancelDone, Callback: cb}
	return done, e.noted("Cancel", project, id, by, nil)
}

func (e *engine) CancelRef(
	_ context.Context, project string, which control.CancelRefRequest, by store.Actor,
) ([]store.CanceledCallback, error) {
	both := []store.CanceledCallback{
		{Result: store.CancelTooLate, Callback: e.callback}, {Result: store.CancelDone, Callback: e.callback},
	}
	return both, e.noted("CancelRef", project, "", by, which)
}

func (e *engine) Retry(
	_ context.Context, project, id string, r control.RetryRequest, by store.Actor,
) (store.Callback, error) {
	return e.callback, e.noted("Retry", project, id, by, r)
}

// moment is what Reschedule was given.
type moment struct {
	due   *int64
	delay *time.Duration
}

func (e *engine) Reschedule(
	_ context.Context, project, id string, due *int64, delay *time.Duration, by store.Actor,
) (store.Callback, error) {
	return e.callback, e.noted("Reschedule", project, id, by, moment{due, delay})
}

func (e *engine) Now() int64 { return nowMS }

func (e *engine) Verify(context.Context) (index.Drift, error) { return e.drift, e.err }

func (e *engine) VerifyAll(context.Context) (index.Drift, error) { return e.driftAll, e.err }

func (e *engine) Rebuild(_ context.Context, dryRun bool, by store.Actor) (index.RebuildReport, error) {
	r := index.RebuildReport{
		DryRun: dryRun, Open: 7, Claimed: 2, Generation: 3, Took: 1500 * time.Millisecond,
	}
	return r, e.noted("Rebuild", "", "", by, dryRun)
}

func (e *engine) VerifyAudit(_ context.Context, from, expect store.AuditLink) (control.AuditCheck, error) {
	return e.auditCheck, e.noted("VerifyAudit", "", "", store.Actor{}, [2]store.AuditLink{from, expect})
}

func (e *engine) Stats(context.Context) (schedule.Stats, error) {
	return schedule.Stats{Delayed: 5, Ready: 2, Leased: 1}, e.statsErr
}

func (e *engine) Get(_ context.Context, project, id string) (store.Callback, error) {
	if id != bareID {
		return store.Callback{}, store.ErrNotFound
	}
	return e.callback, e.of(project)
}

func (e *engine) List(_ context.Context, project string, f store.Filter) (store.Page, error) {
	return e.page, e.noted("List", project, "", store.Actor{}, f)
}

func (e *engine) Attempts(_ context.Context, project, _ string, _, _ int) ([]store.Attempt, error) {
	return e.attempts, e.of(project)
}

func (e *engine) Payload(_ context.Context, project, _ string) (store.Payload, error) {
	return store.Payload{Body: e.body}, e.of(project)
}

func (e *engine) Counts(_ context.Context, project string) (store.Counts, error) {
	return store.Counts{
		States: map[store.State]int64{store.Scheduled: 8, store.Succeeded: 90, store.Dead: 1},
		Tiers:  map[int]int64{2: 3, 0: 5},
		Lanes:  []store.LaneCount{{Lane: "https://shop.example:443", Open: 8}},
	}, e.of(project)
}

func (e *engine) AuditEntries(
	_ context.Context, project, after string, limit int,
) ([]store.AuditEntry, error) {
	return behind(e.audit, after, limit, func(a store.AuditEntry) string { return a.ID }), e.of(project)
}

// behind is the page of a list behind the one of that name.
func behind[T any](all []T, after string, limit int, name func(T) string) []T {
	all = all[1+slices.IndexFunc(all, func(one T) bool { return name(one) == after }):]
	return all[:min(limit, len(all))]
}

// face is the API behind a bare router, and what it logged.
type face struct {
	http.Handler
	log *bytes.Buffer
}

func newFace(t testing.TB, e *engine) face {
	t.Helper()
	if e.callback.ID == "" {
		e.callback = sample()
	}
	return newFaceOf(t, optionsOf(e))
}

// CursorKey is a key that signs cursors.
func (e *engine) CursorKey(context.Context) ([]byte, error) {
	return bytes.Repeat([]byte("k"), 32), e.keyErr
}

// optionsOf has one stub be all parts.
func optionsOf(e *engine) api.Options {
	return api.Options{Engine: e, Store: rows{e}, AdminKey: adminKey}
}

func newFaceOf(t testing.TB, o api.Options) face {
	t.Helper()
	var log bytes.Buffer
	o.AdminKey, o.Logger = adminKey, slog.New(slog.NewJSONHandler(&log, nil))
	a, err := api.New(o)
	if err != nil {
		t.Fatal(err)
	}
	router := gin.New()
	a.Register(router)
	return face{router, &log}
}

// do makes a request with the admin key, unless the headers have another one.
func (f face) do(method, path, body string, header ...string) *httptest.ResponseRecorder {
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req := httptest.NewRequest(method, path, r)
	req.Header.Set("Authorization", "Bearer "+adminKey)
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Authorization" {
			req.Header.Del("Authorization")
		}
		req.Header.Add(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	f.ServeHTTP(rec, req)
	return rec
}

// ask makes a request and decodes the answer, which must have the status.
func (f face) ask(t *testing.T, status int, method, path, body string) map[string]any {
	t.Helper()
	return f.askAs(t, status, method, path, body)
}

// askAs is ask with headers.
func (f face) askAs(t *testing.T, status int, method, path, body string, header ...string) map[string]any {
	t.Helper()
	rec := f.do(method, path, body, header...)
	var got map[string]any
	if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil || rec.Code != status {
		t.Fatalf("%s %s %.80s: %d %s, want %d", method, path, body, rec.Code, rec.Body, status)
	}
	return got
}

// arrives makes a request and compares what the stub was given.
func (f face) arrives(t *testing.T, e *engine, status int, method, path, body string, want any) {
	t.Helper()
	f.ask(t, status, method, path, body)
	if diff := cmp.Diff(want, e.given.what, unexported); diff != "" {
		t.Errorf("%s %s %.80s (-want +got):\n%s", method, path, body, diff)
	}
}

// unexported lets cmp look into what the stub notes.
var unexported = cmp.AllowUnexported(
	profileChoice{}, rotation{}, comparison{}, bounds{}, asked{}, given{}, moment{},
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares the answer to a request, indented, with a file.
func golden(t *testing.T, f face, name, method, target, body string) {
	t.Helper()
	rec := f.do(method, target, body)
	if rec.Code >= 300 {
		t.Fatalf("%s %s: %d %s", method, target, rec.Code, rec.Body)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, rec.Body.Bytes(), "", "  "); err != nil {
		t.Fatalf("not JSON: %v: %s", err, rec.Body)
	}
	b.WriteByte('\n')
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// wantProblem checks an answer to be the problem with this status and code, and returns the names of its fields.
func wantProblem(t *testing.T, rec *httptest.ResponseRecorder, status int, code string) []string {
	t.Helper()
	var p httperr.Problem
	if err := json.Unmarshal(rec.Body.Bytes(), &p); err != nil {
		t.Fatalf("want problem %d %s, got %d %s", status, code, rec.Code, rec.Body)
	}
	if rec.Code != status || p.Status != status || p.Code != code {
		t.Fatalf("want problem %d %s, got %d %s", status, code, rec.Code, rec.Body)
	}
	if ct := rec.Header().Get("Content-Type"); ct != client.ProblemType {
		t.Fatalf("a problem came as %q", ct)
	}
	names := make([]string, len(p.Errors))
	for i, e := range p.Errors {
		if e.Message == "" {
			t.Errorf("field %s has no sentence", e.Field)
		}
		names[i] = e.Field
	}
	return names
}

// refused returns the fields that a request is refused for.
func (f face) refused(t *testing.T, method, path, body string, header ...string) []string {
	t.Helper()
	return wantProblem(t, f.do(method, path, body, header...), 422, "invalid")
}

// refuses sends each body to the route, or each query if the path ends with a question mark: it must be refused for the
// field, and the engine must not be asked.
func refuses(t *testing.T, method, path string, bodies map[string]string) {
	t.Helper()
	for body, field := range bodies {
		e := fullEngine()
		target, sent := path, body
		if strings.HasSuffix(path, "?") {
			target, sent = path+body, ""
		}
		if fields := wantProblem(t, newFace(t, e).do(method, target, sent), 422, "invalid"); !slices.Contains(fields, field) || len(fields) > 2 {
			t.Errorf("%s %s %.80q: refused for %q, want %q", method, path, body, fields, field)
		}
		if e.given.call != "" && e.given.call != "PutEndpoints" || len(e.subs) > 0 {
			t.Errorf("%s %s %.80q: the engine was asked for %q", method, path, body, e.given.call)
		}
	}
}

// fullEngine has one of everything.
func fullEngine() *engine {
	return &engine{
		attempts: []store.Attempt{{Number: 1}}, endpoint: someEndpoint(), presets: somePresets(),
		lanes: someLanes(), outcomes: someOutcomes(), schedule: someSchedule(), poll: somePoll(),
		audit: []store.AuditEntry{{ID: bareID[:25] + "3"}, {ID: bareID[:25] + "2"}, {ID: bareID}},
	}
}

func sample() store.Callback {
	return store.Callback{
		ID: bareID, Project: store.DefaultProject, Kind: store.Notify, URL: "https://shop.example/notify?token=a&b=<c>",
		Method: "POST", Topic: "payment.succeeded", Ref: "order-20261121-0001", LockKey: "order-20261121-0001",
		Lane: "https://shop.example:443", LaneID: 1, Labels: map[string]string{"shop": "7", "channel": "alipay"},
		Policy:  store.Policy{Name: "payment", Tiers: []time.Duration{15 * time.Second, 3 * time.Minute, 26 * time.Hour}},
		Success: store.Success{Name: "body-success"}, Signer: "standard-v1",
		State: store.Scheduled, DueAt: nowMS + 1500, FirstDueAt: nowMS, AttemptCount: 1, DivertCount: 2,
		LastStatus: 500, LastClass: store.ClassHTTP5xx, CreatedAt: nowMS - 1, UpdatedAt: nowMS,
	}
}

// releaseMode is what the server sets too; here it is set before any test runs in parallel.
func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	m.Run()
}
