package ui

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// indexEngine answers for the index.
type indexEngine struct {
	stats     schedule.Stats
	status    index.Status
	processes []store.Dispatcher
	drift     index.Drift
	report    index.RebuildReport
	// err is SQL's, statsErr the index's. late: what takes long ends when its context does.
	err, statsErr error
	late          bool
	diary
}

func (e indexEngine) Stats(context.Context) (schedule.Stats, error) { return e.stats, e.statsErr }
func (e indexEngine) IndexStatus(context.Context) (index.Status, error) {
	return e.status, e.err
}
func (e indexEngine) Dispatchers(context.Context) ([]store.Dispatcher, error) {
	return e.processes, e.err
}

func (e indexEngine) Verify(ctx context.Context) (index.Drift, error) {
	if e.late {
		<-ctx.Done()
		return index.Drift{}, ctx.Err()
	}
	return e.drift, e.err
}

func (e indexEngine) Rebuild(ctx context.Context, dry bool, by store.Actor) (index.RebuildReport, error) {
	if e.late {
		<-ctx.Done()
		return index.RebuildReport{}, ctx.Err()
	}
	e.note("rebuild %t %s %s", dry, by.Name, by.Reason)
	return e.report, e.err
}

// systemEngine has keys, and remembers what was done.
type systemEngine struct {
	diary
	all []store.Key
	err error
}

func (e systemEngine) PauseProject(_ context.Context, project string, until int64, by store.Actor) (store.Project, error) {
	e.note("pause %s %d %s", project, until, by.Reason)
	return store.Project{}, e.err
}
func (e systemEngine) Keys(context.Context, string) ([]store.Key, error) { return e.all, e.err }

func (e systemEngine) CreateKey(_ context.Context, _ string, r control.KeyRequest, by store.Actor) (store.Key, string, error) {
	if len(r.Invalid) > 0 {
		return store.Key{}, "", &store.InvalidError{Fields: r.Invalid}
	}
	ends := int64(0)
	if r.ExpiresIn != nil {
		ends = testNow + r.ExpiresIn.Milliseconds()
	}
	e.note("create %s %v %d %s", r.Name, r.Scopes, ends, by.Reason)
	return store.Key{ID: testID(1), Name: r.Name, Scopes: []store.Scope{store.ScopeRead}, Hint: "wxyz", ExpiresAt: ends}, "dk_the-secret-wxyz", e.err
}

func (e systemEngine) RevokeKey(_ context.Context, _, id string, by store.Actor) error {
	e.note("revoke %s %s", id, by.Reason)
	return e.err
}

// schemaRows has the steps of the schema.
type schemaRows struct {
	all []Migration
	err error
}

func (s schemaRows) Migrations(context.Context) ([]Migration, error) { return s.all, s.err }

func process(n int, seen int64) store.Dispatcher {
	return store.Dispatcher{
		Name: fmt.Sprintf("pay-%d-%s", n, testID(n)), Host: fmt.Sprintf("pay-%d", n), Version: "1.4.2", Roles: "api,ui,worker", Workers: 512, InFlight: 17 * n,
		ClockOffset: int64(n), StartedAt: testNow - 3*86_400_000, SeenAt: seen,
	}
}

// wellIndex is an index in order, with three processes.
func wellIndex() indexEngine {
	return indexEngine{
		processes: []store.Dispatcher{process(1, testNow-2000), process(2, testNow-4000)},
		status:    index.Status{Prefix: "dispatcher", Shards: 8, Generation: 3, Present: 3, BuiltAt: testNow - 9*86_400_000, Horizon: 24 * time.Hour},
		stats: schedule.Stats{
			Delayed: 1_234_567, Ready: 42, Leased: 51, RunnableLanes: 12, BlockedLanes: 3, OpenBreakers: 1, Locks: 9, Waiters: 2, HeadDue: testNow + 400,
			Counters: map[string]int64{"claimed": 9_876_543, "acked": 9_000_000, "rescheduled": 800_000, "buried": 12},
		},
	}
}

func aKey(n int, scopes ...store.Scope) store.Key {
	return store.Key{
		ID: testID(n), Project: store.DefaultProject, Name: fmt.Sprintf("checkout %d", n), Scopes: scopes, Hint: "4a7Q", CreatedAt: testNow - 86_400_000, LastUsedAt: testNow - 60_000,
	}
}

func systemCases() []pageCase {
	give := func(e indexEngine) func(o *fakes) { return func(o *fakes) { o.indexEngine = e } }
	keys := func(e systemEngine) func(o *fakes) { return func(o *fakes) { o.systemEngine = e } }
	schema := func(s schemaRows) func(o *fakes) { return func(o *fakes) { o.schemaRows = s } }
	broken := func(o *fakes) { o.projectRows = projectRows{err: errBroken} }
	plain := func(*fakes) {}
	trouble := wellIndex()
	gone, held, draining := process(3, testNow-90_000), process(4, testNow-1000), process(5, testNow-1000)
	held.Held, draining.Draining, held.ClockOffset = true, true, -2500
	trouble.processes = []store.Dispatcher{gone, held, draining}
	trouble.stats.Quarantined, trouble.stats.HeadDue = 4, testNow-60_000
	trouble.status.Present = 2
	away := indexEngine{status: index.Status{Prefix: "dispatcher", Shards: 1, Generation: 3, Down: true}, statsErr: errBroken}
	slow := wellIndex()
	slow.statsErr = errBroken
	own := wellIndex()
	own.processes, own.status = own.processes[:1], index.Status{Shards: 1, Embedded: true, Generation: 1, Present: 1, Rebuilding: true}
	evil := wellIndex()
	evil.status.Prefix = hostile
	for n := range 12 {
		d := process(n, testNow)
		d.Name, d.Host, d.Version, d.Roles = hostile, hostile, hostile, hostile
		evil.processes = append(evil.processes, d)
	}
	soon, ended, unused := aKey(3, store.ScopeSend), aKey(2, store.ScopeAdmin), aKey(1, store.ScopeRead)
	soon.ExpiresAt, ended.RevokedAt, unused.LastUsedAt, unused.ExpiresAt = testNow+86_400_000, testNow-1000, 0, testNow+900*86_400_000
	expired := aKey(0, store.ScopeRead)
	expired.ExpiresAt = testNow - 5
	some := systemEngine{all: []store.Key{soon, ended, unused, expired}}
	spoiled := aKey(1, store.ScopeRead, hostile)
	spoiled.Name, spoiled.Hint = hostile, hostile
	var many systemEngine
	for n := 120; n > 0; n-- {
		many.all = append(many.all, aKey(n, store.ScopeSend, store.ScopeRead))
	}
	key := "/ui/system/keys/key_" + testID(1) + "/revoke"
	return append([]pageCase{
		{name: "system/empty", set: give(indexEngine{}), want: wants{{".empty", "No process has reported itself"}, {".why.bad", "nobody attempts anything"}}},
		{name: "system/one", set: give(own), want: wants{{"dd", "inside of this process"}, {".badge.warn", "is being rebuilt"}}},
		{name: "system/many", set: give(wellIndex()), want: wants{
			{".kpi .value", "1,234,567"}, {"td .badge.good", "running"}, {"main", "51 / 1,024"}, {".counters dd", "9,876,543"}, {"a", "Rebuild…"}, {".buttons a.bad", "Pause everything…"},
		}},
		{name: "system/trouble", set: func(o *fakes) {
			give(trouble)(o)
			o.projectRows = projectRows{paused: store.Forever, because: "the bank is away"}
			o.stillClock = stillClock{dispatch.Health{Why: "SQL cannot commit"}}
		}, want: wants{
			{".badge.bad", "gone"}, {".badge.warn", "held"}, {".badge.warn", "draining"}, {".badge.warn", "-2.5s"}, {".kpi.bad .value", "4"}, {".badge.bad", "overdue"},
			{".badge.bad", "cannot commit"}, {".badge.warn", "another generation"}, {".buttons a.primary", "Resume…"},
		}},
		{name: "system/draining", set: func(o *fakes) {
			give(away)(o)
			o.stillClock = stillClock{dispatch.Health{Why: "draining", Degraded: []string{"redis"}}}
		}, want: wants{{".badge.bad", "draining"}, {".badge.bad", "does not answer"}, {".banner.warn", "does not say its sizes"}}, unwanted: []string{".kpis"}},
		{name: "system/slow", set: give(slow), want: wants{{".badge.warn", "no sizes"}}},
		{name: "system/hostile", set: func(o *fakes) {
			give(evil)(o)
			o.projectRows = projectRows{paused: testNow + 1000, because: hostile}
		}},
		{name: "system/error", set: give(indexEngine{err: errBroken})},
		{name: "migrations/empty", path: "/ui/system/migrations", set: schema(schemaRows{}), want: wants{{".empty", "knows no migrations"}}},
		{name: "migrations/one", path: "/ui/system/migrations", set: schema(schemaRows{all: []Migration{
			{1, "0001_core.sqlite.sql", time.UnixMilli(testNow - 86_400_000)}, {2, "0002_endpoints.sqlite.sql", time.Time{}},
		}}), want: wants{{"td", "0001_core.sqlite.sql"}, {"td .badge.warn", "not applied"}, {".banner.warn", "1 of them is not applied"}}},
		{name: "migrations/hostile", path: "/ui/system/migrations", set: schema(schemaRows{all: []Migration{{1, hostile, time.UnixMilli(testNow)}}}), want: wants{{".badge.good", "all applied"}}},
		{name: "migrations/error", path: "/ui/system/migrations", set: schema(schemaRows{err: errBroken})},
		{name: "keys/empty", path: "/ui/system/keys", set: keys(systemEngine{}), want: wants{{".empty", "has no valid key"}, {"a", "Create a key"}}},
		{name: "keys/one", path: "/ui/system/keys", set: keys(some), want: wants{
			{"td strong", "checkout 3"}, {"td .badge.warn", "soon"}, {"td", "never used"}, {"td .badge", "send"}, {".chips a", "Ended 2"}, {"td a", "Revoke…"},
		}},
		{name: "keys/ended", path: "/ui/system/keys?ended=true", set: keys(some), want: wants{{"td .badge.bad", "revoked"}, {"td .badge", "expired"}}, unwanted: []string{"td.act"}},
		{name: "keys/none-ended", path: "/ui/system/keys?ended=true", set: keys(many), want: wants{{".empty", "No key of this project has ended"}}},
		{name: "keys/many", path: "/ui/system/keys?cursor=" + testID(100), set: keys(many), want: wants{{"td strong", "checkout 99"}, {"td strong", "checkout 60"}, {".pager a", "Next page"}}},
		{name: "keys/hostile", path: "/ui/system/keys", set: keys(systemEngine{all: []store.Key{spoiled}})},
		{name: "keys/error", path: "/ui/system/keys", set: keys(systemEngine{err: errBroken})},
		{name: "form-revoke/one", path: key, set: keys(some), want: wants{{".act.danger", "refused with 401"}, {".act", "never used"}, {"dd", "checkout 1"}}},
		{name: "form-revoke/hostile", path: key, set: keys(systemEngine{all: []store.Key{spoiled}})},
		{name: "form-revoke/error", path: key, set: keys(systemEngine{err: errBroken})},
		{name: "form-revoke/none", path: "/ui/system/keys/key_" + testID(9) + "/revoke", set: keys(some), status: http.StatusNotFound},
		{name: "form-revoke/nonsense", path: "/ui/system/keys/x/revoke", set: keys(some), status: http.StatusNotFound},
	}, systemForms(plain, broken)...)
}

// systemForms are the cases of the forms that ask before something is done to the whole.
func systemForms(plain, broken func(*fakes)) (all []pageCase) {
	paused := func(o *fakes) { o.projectRows = projectRows{paused: testNow + 60_000, because: hostile} }
	for path, says := range map[string]string{
		"keys/new": "shown once", "pause": "Nothing of this project is sent any more", "resume": "not paused", "verify": "changes nothing", "rebuild": "emptied and filled again",
	} {
		name := "form-" + strings.ReplaceAll(path, "/", "-")
		all = append(all,
			pageCase{name: name + "/one", path: "/ui/system/" + path, set: plain, want: wants{{".act .say", says}}},
			pageCase{name: name + "/hostile", path: "/ui/system/" + path + "?back=" + queryEscape("//evil.example/"+hostile), set: paused},
			pageCase{name: name + "/error", path: "/ui/system/" + path, set: broken})
	}
	slices.SortFunc(all, func(a, b pageCase) int { return strings.Compare(a.name, b.name) })
	return all
}

func TestTheKillSwitch(t *testing.T) {
	t.Parallel()
	var done []string
	o := parts()
	o.systemEngine, o.indexEngine = systemEngine{diary: diary{&done}}, wellIndex()
	b := signedIn(t, o)
	for _, c := range []struct {
		pairs []string
		says  string
	}{
		{nil, "say why"}, {[]string{"reason", "x", "for", "soon"}, "is not a duration"}, {[]string{"reason", "x", "for", "0s"}, "in the future"},
		{[]string{"reason", "x", "for", "1h", "until", "2099-01-01T00:00"}, "not both"}, {[]string{"reason", "x", "until", "2020-01-01T00:00"}, "in the future"},
		{[]string{"reason", "x", "until", "x"}, "is not a time"}, {[]string{"reason", strings.Repeat("x", 1025)}, "more than 1,024 bytes"},
	} {
		b.refuses("/ui/system/pause", ".field .error", c.says, c.pairs...)
	}
	if len(done) > 0 {
		t.Fatalf("something was done: %q", done)
	}
	b.post("/ui/system/pause", "reason", "the bank is away").leads("/ui/system")
	b.get("/ui/system").ok().has(".flash.good", "is paused")
	b.post("/ui/system/pause", "reason", "r", "for", "30m").leads("/ui/system")
	b.post("/ui/system/pause", "reason", "r", "until", "2099-01-01T00:00:00").leads("/ui/system")
	b.post("/ui/system/resume", "reason", "it is back", "back", "/ui/callbacks").leads("/ui/callbacks")
	want := []string{
		fmt.Sprintf("pause default %d the bank is away", store.Forever), fmt.Sprintf("pause default %d r", testNow+30*60_000),
		fmt.Sprintf("pause default %d r", time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()), "pause default 0 it is back",
	}
	if !slices.Equal(done, want) {
		t.Errorf("done %q, want %q", done, want)
	}
	b.fakes.systemEngine = systemEngine{err: invalid("reason", "is longer than 256 characters")}
	b.post("/ui/system/pause", "reason", "long").has(".field .error", "longer than 256")
	b.fakes.projectRows = projectRows{paused: testNow + 60_000, because: "the bank " + hostile}
	res := b.get("/ui/system/resume").ok()
	res.has(".facts dd", "the bank")
	res.has(".say", "begins slowly")
	b.get("/ui/system/pause").ok().has(".say", "takes the place of")
}

func TestAKeyIsShownOnce(t *testing.T) {
	t.Parallel()
	var done []string
	o := parts()
	o.systemEngine = systemEngine{diary: diary{&done}, all: []store.Key{aKey(1, store.ScopeRead)}}
	b := signedIn(t, o)
	b.post("/ui/system/keys/new", "name", "checkout", "scopes", "send", "expires_in", "soon").has(".field .error", "is not a duration")
	res := b.post("/ui/system/keys/new", "name", "checkout "+hostile, "scopes", "send", "scopes", "read", "expires_in", "90d", "reason", "new shop").ok()
	checkPage(t, res)
	res.has("#key-text", "dk_the-secret-wxyz")
	if want := fmt.Sprintf("create checkout %s [send read] %d new shop", hostile, testNow+90*86_400_000); len(done) != 1 || done[0] != want {
		t.Errorf("done %q, want %q", done, want)
	}
	for _, path := range []string{"/ui/system/keys/new", "/ui/system/keys"} {
		if res := b.get(path).ok(); strings.Contains(res.body, "the-secret") {
			t.Errorf("%s shows it again", path)
		}
	}
	b.fakes.systemEngine = systemEngine{err: &store.InvalidError{Fields: []store.FieldError{{Field: "scopes", Message: "at least one of send"}, {Field: "scopes[0]", Message: "is none"}}}}
	res = b.post("/ui/system/keys/new", "name", "checkout", "scopes", "admin")
	res.has(".field .error", "at least one")
	res.has(".field .error", "is none")
	if find(res.doc, "input[name=scopes][value=admin][checked]") == nil {
		t.Error("what was chosen is lost")
	}
}

func TestRevokeAKey(t *testing.T) {
	t.Parallel()
	var done []string
	ended := aKey(2, store.ScopeRead)
	ended.RevokedAt = testNow - 1
	o := parts()
	o.systemEngine = systemEngine{diary: diary{&done}, all: []store.Key{aKey(1, store.ScopeAdmin), ended}}
	o.keyRing = &keyRing{keys: map[string]store.Key{"admin": aKey(1, store.ScopeAdmin)}}
	b := open(t, o)
	b.signIn("admin")
	b.get("/ui/system/keys").ok().has("td .badge", "yours")
	path := "/ui/system/keys/key_" + testID(1) + "/revoke"
	b.get(path).ok().has(".say", "with this very key")
	b.post(path, "reason", "it leaked").leads("/ui/system/keys")
	if want := []string{"revoke " + testID(1) + " it leaked"}; !slices.Equal(done, want) {
		t.Errorf("done %q, want %q", done, want)
	}
	if res := b.post("/ui/system/keys/key_" + testID(2) + "/revoke"); res.status != http.StatusConflict {
		t.Errorf("one that has ended is revoked: %d", res.status)
	}
	if res := b.post("/ui/system/keys/key_" + testID(9) + "/revoke"); res.status != http.StatusNotFound {
		t.Errorf("one that does not exist is revoked: %d", res.status)
	}
}

func TestVerifyAndRebuild(t *testing.T) {
	t.Parallel()
	var done []string
	o := parts()
	e := wellIndex()
	e.done, e.drift = &done, index.Drift{Rows: 120, Items: 119, Generation: 3, IndexGeneration: 3}
	e.report = index.RebuildReport{Open: 1200, Claimed: 7, Generation: 4, Took: 1500 * time.Millisecond}
	o.indexEngine = e
	b := signedIn(t, o)
	res := b.post("/ui/system/verify").ok()
	checkPage(t, res)
	res.has(".why.good h2", "They agree")
	for n := range 100 {
		e.drift.UnknownIDs, e.drift.MissingIDs = append(e.drift.UnknownIDs, "cb_"+testID(n)), append(e.drift.MissingIDs, "cb_"+testID(n+1000))
		e.drift.LateIDs, e.drift.EndedIDs = append(e.drift.LateIDs, "cb_"+testID(n+2000)), append(e.drift.EndedIDs, "cb_"+testID(n+3000))
	}
	e.drift.Unknown, e.drift.Missing, e.drift.Late, e.drift.Ended, e.drift.Extra, e.drift.IndexGeneration = 150, 100, 100, 100, 250, 2
	b.fakes.indexEngine = e
	res = b.post("/ui/system/verify").ok()
	checkPage(t, res)
	res.has(".why.bad h2", "They differ")
	res.has("section", "another database’s index")
	res.has("details", "and 50 more")
	res.has("li a[href=/ui/callbacks/cb_"+testID(1000)+"]", "cb_")
	res.lacks("li a[href=/ui/callbacks/cb_" + testID(5) + "]")

	res = b.post("/ui/system/rebuild", "preview", "true", "reason", "to see").ok()
	checkPage(t, res)
	res.has(".preview", "would put 1,200 open callbacks into the index, 7 of them in flight")
	b.post("/ui/system/rebuild", "reason", "it lags").leads("/ui/system")
	b.get("/ui/system").ok().has(".flash.good", "generation 4: 1,200 open callbacks")
	if want := []string{"rebuild true admin key to see", "rebuild false admin key it lags"}; !slices.Equal(done, want) {
		t.Errorf("done %q, want %q", done, want)
	}
	e.err = errors.Join(errors.New("another process rebuilds it"), schedule.ErrRebuilding)
	b.fakes.indexEngine = e
	for _, path := range []string{"/ui/system/verify", "/ui/system/rebuild"} {
		if res := b.post(path); res.status != http.StatusServiceUnavailable {
			t.Errorf("%s: status %d", path, res.status)
		}
	}
}

// A live rendering of the system page is the same as long as nothing changes.
func TestTheSystemPageStandsStill(t *testing.T) {
	t.Parallel()
	o := parts()
	o.indexEngine = wellIndex()
	b := signedIn(t, o)
	first, second := regions(b.get("/ui/system").ok().body), regions(b.get("/ui/system").ok().body)
	if len(first) < 4 {
		t.Errorf("there are %d regions", len(first))
	}
	for name := range first {
		if first[name] != second[name] {
			t.Errorf("the region %s is never the same", name)
		}
	}
}
