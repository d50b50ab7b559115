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

// receiver answers every attempt with 200 at once, without a wire; or with 500 while it is shut.
type receiver struct{ shut atomic.Bool }

func (rc *receiver) Send(_ context.Context, r outbound.Request) outbound.Response {
	now := time.Now()
	if rc.shut.Load() {
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

// newDBAt returns a database of its own, a copy of one that was migrated once.
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

// openDBAt opens a database that is there.
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

// newEngineFace returns the API over the engine itself, running on SQLite and the index in memory.
func newEngineFace(t *testing.T, to attempt.Sender) face {
	t.Helper()
	return newEngineFaceWith(t, newDBAt(t, filepath.Join(t.TempDir(), "d.db")), to, 0)
}

// newEngineFaceWith is newEngineFace on a database, with master keys that consist of the bytes.
func newEngineFaceWith(t *testing.T, db *sqlstore.DB, sender attempt.Sender, masters ...byte) face {
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
	// A new index is filled while callbacks are accepted already; what looks at it waits for that.
	testserver.Until(t, "the index is filled", func() bool { return len(engine.Health(ctx).Degraded) == 0 })
	return newFaceOf(t, api.Options{Engine: engine, Store: db})
}

// newProject makes a project, and returns the header of a key of its own with every scope.
func (f face) newProject(t *testing.T, id string) []string {
	t.Helper()
	f.ask(t, 201, "POST", "/v1/projects", `{"id":"`+id+`"}`)
	key := f.ask(t, 201, "POST", "/v1/keys", `{"name":"its own","scopes":["admin"]}`, "Dispatcher-Project",
		id)
	return []string{"Authorization", "Bearer " + key["key"].(string)}
}

// A site notes the requests that it gets, by webhook-id.
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

// host is the site's host and port.
func (s *site) host() string { return strings.TrimPrefix(s.URL, "http://") }

func (s *site) of(id string) http.Header {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got[id]
}

// A hostile is the API over an engine that really sends, and two servers that note what arrives.
type hostile struct {
	face
	file         string
	mine, victim *site
}

func newHostile(t *testing.T) *hostile {
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
	return &hostile{newEngineFaceWith(t, newDBAt(t, file), sender, 0), file, newSite(t), newSite(t)}
}

// arrived returns what a site got of a callback, which must have succeeded.
func (f face) arrived(t *testing.T, at *site, id string) http.Header {
	t.Helper()
	testserver.Until(t, id+" is succeeded", func() bool {
		return f.ask(t, 200, "GET", "/v1/callbacks/"+id, "")["state"] == "succeeded"
	})
	return at.of(id)
}

// arrived writes what a site got of a callback, but for what is the same of every one or varies.
func (x *player) arrived(what string) {
	x.t.Helper()
	at, id, _ := strings.Cut(x.real(what), " ")
	h := x.face.arrived(x.t, x.sites[at], id)
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(h)) {
		switch {
		case name == "Webhook-Signature":
			texts = append(texts, fmt.Sprintf("%d signatures", len(strings.Fields(h.Get(name)))))
		case strings.HasPrefix(h.Get(name), "WECHATPAY2"):
			texts = append(texts, name+": WECHATPAY2…")
		case !slices.Contains([]string{
			"Accept-Encoding", "Content-Length", "Content-Type", "Traceparent", "User-Agent",
			"Webhook-Attempt",
			"Webhook-Id", "Webhook-Timestamp",
		}, name):
			texts = append(texts, name+": "+strings.Join(h[name], ", "))
		}
	}
	x.line("~ " + strings.Join(texts, "; "))
}

// sealed checks that no file of the database has one of the texts.
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

// TestEveryMutationIsAudited: every route that changes something is in audit.txt, which has the entries that
// it appends. No credential stands in any of them.
func TestEveryMutationIsAudited(t *testing.T) {
	t.Parallel()
	unaudited := []string{
		// rows of their own
		"POST /v1/callbacks", "POST /v1/callbacks/batch", "POST /v1/events", "POST /v1/polls",
		"POST /v1/reconcile/compare", "POST /v1/index/verify", // look only
		"POST /v1/projects", // in the audit of the new one, which ends the file
	}
	text := play(t, "testdata/audit.txt").out.String()
	for _, r := range routes(t) {
		path := strings.ReplaceAll(regexp.QuoteMeta(r.Path), `\*`, ":")
		path = regexp.MustCompile(`:[a-z_]+`).ReplaceAllString(path, "[^/\n]+")
		walked := regexp.MustCompile(`(?m)^` + r.Method + " " + path +
			"\n(>.*\n)?< 2.*\n(~ .* by admin key from 192.0.2.1.*\n)")
		if r.Method != "GET" && !slices.Contains(unaudited, name(r)) && !walked.MatchString(text) {
			t.Errorf("%s has no entry in audit.txt", name(r))
		}
	}
	for line := range strings.Lines(text) {
		for _, secret := range []string{
			"S3cr3tOfAHeader", "V4lueOfAQuery", "B0dyOfACallback", "P4sswordOfAURL", "T3mplateSecret",
		} {
			if strings.HasPrefix(line, "~") && strings.Contains(line, secret) {
				t.Errorf("%q stands in the audit: %s", secret, line)
			}
		}
	}
}

// newAuditedFace returns the API over an engine whose database has something by another master key than its
// first.
func newAuditedFace(t *testing.T) face {
	t.Helper()
	path := filepath.Join(t.TempDir(), "d.db")
	t.Run("by another master key", func(t *testing.T) {
		f := newEngineFaceWith(t, newDBAt(t, path), new(receiver), 1)
		f.ask(t, 201, "POST", "/v1/endpoints",
			`{"url":"https://a.example/","headers":{"Authorization":"Bearer S3cr3tOfAHeader"}}`)
	})
	return newEngineFaceWith(t, openDBAt(t, path), new(receiver), 2, 1)
}

// audit writes what a request has added to the audit, but for secrets that the engine makes when they are
// needed.
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
