package api_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/attempt"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore"
	"github.com/seed-ff5a32d8/dispatcher/web/api"
)

// receiver is a Sender without a network. It responds to every attempt with 200 at once, or with 500 while
// fails is set.
type receiver struct{ fails atomic.Bool }

func (rc *receiver) Send(_ context.Context, r outbound.Request) outbound.Response {
	now := time.Now()
	if rc.fails.Load() {
		return outbound.Response{
			Class: store.ClassHTTP5xx, Outcome: store.AttemptFailed, Charged: true, Answered: true,
			Status: 500, StartedAt: now, EndedAt: now,
		}
	}
	return outbound.Response{
		Class: store.ClassOK, Outcome: store.AttemptSucceeded, Charged: true, Answered: true, Status: 200,
		StartedAt: now, EndedAt: now,
		RequestHeaders: []store.Header{{Name: "webhook-id", Value: r.ID}}, ResponseBody: "success",
		Rule: &store.Rule{Name: r.Success.Name, Expected: "2xx", Saw: "200"},
	}
}

// newDBAt creates a database by copying one that was migrated once.
func newDBAt(t *testing.T, path string) *sqlstore.DB {
	t.Helper()
	schema, err := migrated()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, schema, 0o600); err != nil {
		t.Fatal(err)
	}
	return openDBAt(t, path)
}

// openDBAt opens an existing database.
func openDBAt(t *testing.T, path string) *sqlstore.DB {
	t.Helper()
	db, err := sqlstore.Open(context.Background(), sqlstore.Options{URL: "sqlite:" + path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// migrated returns the file of an empty database.
var migrated = testserver.SQLiteTemplate(func(url string) error {
	db, err := sqlstore.Open(context.Background(), sqlstore.Options{URL: url})
	if err != nil {
		return err
	}
	return errors.Join(sqlstore.Migrate(context.Background(), db), db.Close())
})

// newEngineAPI returns the API over a real engine with SQLite and the index in memory.
func newEngineAPI(t *testing.T, to attempt.Sender) testAPI {
	t.Helper()
	return newEngineAPIWith(t, newDBAt(t, filepath.Join(t.TempDir(), "d.db")), to, 0)
}

// newEngineAPIWith is newEngineAPI with a database and master keys. Each master key repeats one byte.
func newEngineAPIWith(t *testing.T, db *sqlstore.DB, sender attempt.Sender, masters ...byte) testAPI {
	t.Helper()
	return newTestAPIWith(t, api.Options{Engine: newRunningEngine(t, db, sender, masters...), Store: db})
}

// newRunningEngine returns an engine with the index in memory. It ends with the test.
func newRunningEngine(
	t *testing.T, db *sqlstore.DB, sender attempt.Sender, masters ...byte,
) *dispatch.Engine {
	t.Helper()
	keys := make([]string, len(masters))
	for i, b := range masters {
		keys[i] = base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, secret.MasterKeyBytes))
	}
	keyring, err := secret.NewKeyring(keys)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := dispatch.New(dispatch.Options{
		Store: db, Schedule: memq.New(memq.Options{}), Sender: sender, Keyring: keyring, Embedded: true,
		ReadTemplate: api.ReadTemplate,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- engine.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	// A new index is filled in the background, and some tests read it.
	testserver.Until(t, "the index is filled", func() bool { return len(engine.Health(ctx).Degraded) == 0 })
	return engine
}

// newProject creates a project, and returns the header of a new key of it with every scope.
func (f testAPI) newProject(t *testing.T, id string) []string {
	t.Helper()
	f.call(t, 201, "POST", "/v1/projects", `{"id":"`+id+`"}`)
	const admin = `{"name":"its own","scopes":["admin"]}`
	key := f.call(t, 201, "POST", "/v1/keys", admin, "Dispatcher-Project", id)
	return []string{"Authorization", "Bearer " + key["key"].(string)}
}

// A site is a server that records the headers of its requests by webhook-id.
type site struct {
	*httptest.Server
	mu  sync.Mutex
	got map[string]http.Header
}

func newSite(t *testing.T) *site {
	s := &site{got: make(map[string]http.Header)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.got[r.Header.Get("webhook-id")] = r.Header
	}))
	t.Cleanup(s.Close)
	return s
}

// host returns the site's host and port.
func (s *site) host() string { return strings.TrimPrefix(s.URL, "http://") }

func (s *site) of(id string) http.Header {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got[id]
}

// A sendingAPI is the API over an engine that sends over the network, and two receivers.
type sendingAPI struct {
	testAPI
	file         string
	mine, victim *site
}

// newSendingAPI returns a sendingAPI whose egress guard allows 127.0.0.1, where its receivers listen.
func newSendingAPI(t *testing.T) *sendingAPI {
	t.Helper()
	guard, err := outbound.NewGuard([]string{"127.0.0.1/32"})
	if err != nil {
		t.Fatal(err)
	}
	sender, err := outbound.New(outbound.Options{Guard: guard, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sender.CloseIdle)
	file := filepath.Join(t.TempDir(), "d.db")
	return &sendingAPI{newEngineAPIWith(t, newDBAt(t, file), sender, 0), file, newSite(t), newSite(t)}
}

// arrived returns the headers with which a callback arrived at a site. It waits until the callback has
// succeeded.
func (f testAPI) arrived(t *testing.T, at *site, id string) http.Header {
	t.Helper()
	testserver.Until(t, id+" is succeeded", func() bool {
		return f.call(t, 200, "GET", "/v1/callbacks/"+id, "")["state"] == "succeeded"
	})
	return at.of(id)
}

// arrived writes the headers with which a callback arrived at a site, except those that are always the same
// or vary.
func (x *player) arrived(what string) {
	x.t.Helper()
	at, id, _ := strings.Cut(x.real(what), " ")
	h := x.testAPI.arrived(x.t, x.sites[at], id)
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(h)) {
		switch {
		case name == "Webhook-Signature":
			texts = append(texts, fmt.Sprintf("%d signatures", len(strings.Fields(h.Get(name)))))
		case strings.HasPrefix(h.Get(name), "WECHATPAY2"):
			texts = append(texts, name+": WECHATPAY2…")
		case !slices.Contains([]string{
			"Accept-Encoding", "Content-Length", "Content-Type", "Traceparent", "User-Agent",
			"Webhook-Attempt", "Webhook-Id", "Webhook-Timestamp",
		}, name):
			texts = append(texts, name+": "+strings.Join(h[name], ", "))
		}
	}
	x.line("~ " + strings.Join(texts, "; "))
}

// sealed checks that no file of the database contains one of the texts.
func (x *player) sealed(texts []string) {
	x.t.Helper()
	for _, suffix := range []string{"", "-wal"} {
		content, err := os.ReadFile(x.file + suffix)
		if err != nil && suffix == "" {
			x.t.Fatal(err)
		}
		for _, clear := range texts {
			if strings.HasPrefix(clear, "whsec_") {
				key, err := sign.ParseSecret(clear)
				if err != nil || bytes.Contains(content, key) {
					x.t.Errorf("d.db%s has the key of %.12q, %v", suffix, clear, err)
				}
			}
			if bytes.Contains(content, []byte(clear)) {
				x.t.Errorf("d.db%s has %.12q in clear", suffix, clear)
			}
		}
	}
}

// TestEveryMutationIsAudited checks that every route that changes something is in audit.txt with the entries
// that it appends, and that no entry contains a credential.
func TestEveryMutationIsAudited(t *testing.T) {
	t.Parallel()
	unaudited := []string{
		// Accepts are rows in SQL and have no entries.
		"POST /v1/callbacks", "POST /v1/callbacks/batch", "POST /v1/events", "POST /v1/polls",
		"POST /v1/relay/:source",
		// These change nothing.
		"POST /v1/reconcile/compare", "POST /v1/index/verify",
		// It needs two keys and a setting: store/storetest Redrive/Approval has its entry.
		"POST /v1/redrives/:id/approve",
		// The entry is in the audit log of the new project, at the end of the file.
		"POST /v1/projects",
	}
	text := play(t, "testdata/audit.txt").out.String()
	for _, r := range routes(t) {
		path := strings.ReplaceAll(regexp.QuoteMeta(r.Path), `\*`, ":")
		path = regexp.MustCompile(`:[a-z_]+`).ReplaceAllString(path, "[^/\n]+")
		audited := regexp.MustCompile(`(?m)^` + r.Method + " " + path +
			"\n(>.*\n)?< 2.*\n(~ .* by admin key from 192.0.2.1.*\n)")
		if r.Method != "GET" && !slices.Contains(unaudited, name(r)) && !audited.MatchString(text) {
			t.Errorf("%s has no entry in audit.txt", name(r))
		}
	}
	for line := range strings.Lines(text) {
		for _, secret := range []string{
			"S3cr3tOfAHeader", "V4lueOfAQuery", "B0dyOfACallback", "P4sswordOfAURL", "T3mplateSecret",
			"S3cretPath",
		} {
			if strings.HasPrefix(line, "~") && strings.Contains(line, secret) {
				t.Errorf("%q is in the audit log: %s", secret, line)
			}
		}
	}
}

// newAuditedAPI returns the API over an engine with two master keys. Its database has a row that the second
// one encrypts, so that a re-encryption changes something.
func newAuditedAPI(t *testing.T) testAPI {
	t.Helper()
	path := filepath.Join(t.TempDir(), "d.db")
	t.Run("by another master key", func(t *testing.T) {
		f := newEngineAPIWith(t, newDBAt(t, path), new(receiver), 1)
		f.call(t, 201, "POST", "/v1/endpoints",
			`{"url":"https://a.example/","headers":{"Authorization":"Bearer S3cr3tOfAHeader"}}`)
	})
	return newEngineAPIWith(t, openDBAt(t, path), new(receiver), 2, 1)
}

// audit writes the entries that a request has appended to the audit log, except those of secrets that the
// engine creates on demand.
func (x *player) audit() {
	x.t.Helper()
	type entry struct {
		Actor, Action, Address, Object, Reason string
		Before, After                          json.RawMessage
	}
	var page struct{ Data []entry }
	if err := json.Unmarshal(x.do("GET", "/v1/audit?limit=500", "").Body.Bytes(), &page); err != nil {
		x.t.Fatal(err)
	}
	added := page.Data[:len(page.Data)-x.audited]
	x.audited = len(page.Data)
	for _, e := range slices.Backward(added) {
		if e.Actor == "dispatcher" {
			continue
		}
		text := "~ " + e.Action + " " + e.Object + " by " + e.Actor + " from " + e.Address
		if e.Reason != "" {
			text += " because " + e.Reason
		}
		x.line(text + ": " + string(e.Before) + " -> " + string(e.After))
	}
}
