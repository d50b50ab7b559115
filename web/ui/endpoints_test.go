package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// endpointEngine remembers what was done to endpoints.
type endpointEngine struct {
	diary
	err    error
	secret secret.ShownSecret
	// change is the last one that was asked for.
	change *control.EndpointChange
}

func (e endpointEngine) CreateEndpoint(_ context.Context, _ string, ch control.EndpointChange, by store.Actor) (control.EndpointReceipt, error) {
	e.note("create %s", by.Reason)
	*e.change = ch
	if e.err == nil && len(ch.Invalid) > 0 {
		e.err = &store.InvalidError{Fields: ch.Invalid}
	}
	return control.EndpointReceipt{Endpoint: store.Endpoint{ID: testID(9)}, Created: true, Secret: e.secret}, e.err
}

func (e endpointEngine) PatchEndpoint(_ context.Context, _, id string, ch control.EndpointChange, by store.Actor) (store.Endpoint, error) {
	if ch.Enabled != nil {
		e.note("enabled %s %v %s", id, *ch.Enabled, by.Reason)
	} else {
		e.note("patch %s %s", id, by.Reason)
	}
	if e.change != nil {
		*e.change = ch
	}
	if e.err == nil && len(ch.Invalid) > 0 {
		e.err = &store.InvalidError{Fields: ch.Invalid}
	}
	return store.Endpoint{}, e.err
}

func (e endpointEngine) DeleteEndpoint(_ context.Context, _, id string, by store.Actor) error {
	e.note("delete %s %s", id, by.Reason)
	return e.err
}

func (e endpointEngine) PauseEndpoint(_ context.Context, _, id string, until int64, by store.Actor) (store.Endpoint, error) {
	e.note("pause %s until %d %s", id, until, by.Reason)
	return store.Endpoint{}, e.err
}

func (e endpointEngine) TestEndpoint(_ context.Context, _, id string, _ store.Actor) (store.Callback, error) {
	e.note("test %s", id)
	return store.Callback{ID: testID(8)}, e.err
}

func (e endpointEngine) RotateSecret(_ context.Context, _ string, q control.SecretQuery, r control.Rotation, by store.Actor) (secret.ShownSecret, int64, error) {
	overlap := "default"
	if r.Overlap != nil {
		overlap = r.Overlap.String()
	}
	e.note("rotate %s overlap %s secret %q label %q %s", q.Endpoint, overlap, r.Secret, r.Label, by.Reason)
	return e.secret, testNow + 3_600_000, e.err
}

func (e endpointEngine) RevealSecret(_ context.Context, _ string, q control.SecretQuery, by store.Actor) (secret.ShownSecret, error) {
	e.note("reveal %s %s", q.Endpoint, by.Reason)
	return e.secret, e.err
}

// sampleEndpoint is an endpoint that is well.
func sampleEndpoint(n int) store.Endpoint {
	return store.Endpoint{
		ID: testID(n), Name: fmt.Sprintf("Merchant %04d", n), ExternalID: fmt.Sprintf("m-%04d", n), URL: "https://bob:pw@shop.example/notify?token=hunter2",
		URLOverride: store.OverrideSameHost, Topics: []string{"payment.*", "refund.succeeded"}, Policy: store.PolicyChoice{Name: "payment"},
		Success: store.Success{Name: "body-success"}, Signer: "standard-v1", Headers: []store.Header{{Name: "X-Shop", Value: "7"}, {Name: "Authorization", Value: "Bearer hunter2"}},
		Rate: store.Rate{Count: 50, Per: time.Second}, Concurrency: 16, Enabled: true, LaneID: int64(n),
		LastSuccessAt: testNow - 5000, LastFailureAt: testNow - 9_000_000, CreatedAt: testNow - 99_000_000, UpdatedAt: testNow - 98_000_000,
	}
}

// endpointLane is the lane of an endpoint.
func endpointLane(ep store.Endpoint) control.LaneView {
	v := sampleLane(int(ep.LaneID))
	v.Key, v.EndpointID = ep.LaneKey(), ep.ID
	return v
}

// activityOf is two days of a lane, in which some failed in the last hours.
func activityOf(lane int64) []store.Activity {
	var all []store.Activity
	for hour := range int64(48) {
		a := store.Activity{LaneID: lane, Span: store.Hour, At: hoursAgo(testNow, 48) + hour*store.Hour.Milliseconds(), Succeeded: 40 + hour*7%23, Unknown: hour % 17 / 16}
		if hour > 40 {
			a.Failed = 3 * (hour - 40)
		}
		for i := range a.Succeeded {
			a.Took.Observe(float64(30 + i*4 + hour))
		}
		all = append(all, a)
	}
	return all
}

var testSecret = secret.ShownSecret{ID: testID(4), Use: "hmac", Label: "serial 7", Secret: "whsec_c2VjcmV0", Public: "a public key"}

func endpointCases() []pageCase {
	type given struct {
		endpoints endpointRows
		lanes     laneRows
		callbacks callbackRows
		audit     auditRows
	}
	give := func(g given) func(o *fakes) {
		return func(o *fakes) {
			o.endpointRows, o.laneRows, o.callbackRows, o.auditRows = g.endpoints, g.lanes, g.callbacks, g.audit
		}
	}
	ep := sampleEndpoint(1)
	lane := endpointLane(ep)
	entries := []store.AuditEntry{{ID: testID(90), At: testNow - 50_000, Actor: "kim (dk_1)", Action: "endpoint.update", Reason: "new shop", Detail: `{"changed":["url","rate"]}`}}
	one := given{endpointRows{all: []store.Endpoint{ep}, activity: activityOf(1)}, laneRows{all: []control.LaneView{lane}}, callbackRows{all: []store.Callback{sample(2), sample(1)}}, auditRows{page: store.AuditPage{Entries: entries}}}
	stuckEp := ep
	stuckEp.Enabled, stuckEp.DisabledReason, stuckEp.PausedUntil, stuckEp.PauseReason, stuckEp.FailingSince = false, "gone", store.Forever, "the merchant asked for it", testNow-7_200_000
	stuckLane := lane
	stuckLane.Disabled, stuckLane.OwnPause, stuckLane.EndpointPause = true, testNow+60_000, store.Forever
	stuck := one
	stuck.endpoints.all, stuck.lanes.all = []store.Endpoint{stuckEp}, []control.LaneView{stuckLane}
	openLane := brokenLane(1)
	openLane.Key = lane.Key
	openLane.State.Health = schedule.TimingOut
	opened := one
	opened.lanes.all = []control.LaneView{openLane}
	var many given
	for n := 120; n > 0; n-- {
		some := sampleEndpoint(n)
		v := endpointLane(some)
		switch n % 6 {
		case 0:
			some.FailingSince = testNow - 3_600_000
		case 1:
			some.PausedUntil, some.PauseReason = testNow+600_000, "maintenance until noon"
			v.EndpointPause, v.PausedUntil = some.PausedUntil, some.PausedUntil
		case 2:
			some.Enabled, some.DisabledReason = false, "requested"
		case 3:
			v.State.Health = schedule.TimingOut
		}
		many.endpoints.all, many.lanes.all = append(many.endpoints.all, some), append(many.lanes.all, v)
		if n > 70 {
			many.endpoints.activity = append(many.endpoints.activity, activityOf(int64(n))...)
		}
		many.callbacks.all = append(many.callbacks.all, sample(n))
		many.audit.page.Entries = append(many.audit.page.Entries, store.AuditEntry{ID: testID(n), At: testNow - int64(n)*1000, Actor: "kim", Action: "callback.retry", Reason: "again"})
	}
	fresh := store.Endpoint{ID: testID(1), URL: "https://shop.example/", Enabled: true, CreatedAt: testNow}
	bare := given{endpoints: endpointRows{all: []store.Endpoint{fresh}}}
	evilEp := store.Endpoint{
		ID: testID(1), LaneID: 1, Name: hostile, ExternalID: hostile, URL: "https://shop.example/" + hostile, Topics: []string{hostile}, Policy: store.PolicyChoice{Name: hostile},
		Success: store.Success{Rule: store.JSONText(hostile)}, Signer: hostile, Headers: []store.Header{{Name: hostile, Value: hostile}}, DisabledReason: hostile,
		PausedUntil: store.Forever, PauseReason: hostile,
	}
	evil := given{endpointRows{all: []store.Endpoint{evilEp}}, laneRows{all: []control.LaneView{lane}}, callbackRows{all: []store.Callback{spoil(sample(1))}},
		auditRows{page: store.AuditPage{Entries: []store.AuditEntry{{At: testNow, Actor: hostile, Action: hostile, Reason: hostile, Detail: `{"changed":[` + quoted(hostile) + `]}`}}}}}
	broken := given{endpoints: endpointRows{err: errBroken}}
	id := "/ui/endpoints/ep_" + testID(1)
	cases := []pageCase{
		{name: "endpoints/empty", set: give(given{}), want: wants{{".empty", "No endpoints yet"}, {".head a", "New endpoint"}}, unwanted: []string{"table"}},
		{name: "endpoints/one", set: give(one), want: wants{
			{"td a", "Merchant 0001"}, {"td", "https://shop.example/notify?token=***"}, {".badge.good", "ok"}, {"td", "3 / 8"}, {"td", "failed"}, {"td", "%"},
		}},
		{name: "endpoints/fresh", set: give(bare), want: wants{{".badge", "nothing sent yet"}}},
		{name: "endpoints/many", path: "/ui/endpoints?q=Merchant", set: give(many), want: wants{
			{".badge.bad", "failing"}, {".badge.warn", "paused"}, {"q", "until noon"}, {".badge.bad", "disabled"}, {".badge.warn", "slow"}, {".pager a", "Next page"},
		}},
		{name: "endpoints/nomatch", path: "/ui/endpoints?topic=none&failing=true", set: give(given{}), want: wants{{".empty", "Nothing matches"}}},
		{name: "endpoints/hostile", path: "/ui/endpoints?q=" + queryEscape(hostile) + "&topic=" + queryEscape(hostile), set: give(evil)},
		{name: "endpoints/error", set: give(broken), want: wants{{"main", "Something went wrong"}}},
		{name: "endpoints/error-lanes", set: give(given{endpoints: one.endpoints, lanes: laneRows{err: errBroken}})},
		{name: "endpoint/one", path: id, set: give(one), want: wants{
			{"h1", "Merchant 0001"}, {".why.good .badge", "ok"}, {"td", "***"}, {"dd", "payment"}, {"dd", "another path of the same host"}, {"button#test", "Send a test"},
			{".kpi", "attempts"}, {".timeline", "new shop"}, {".timeline code", "rate"}, {"td a", "order-0002"}, {".buttons a", "Pause…"}, {".buttons a", "Disable…"},
		}},
		{name: "endpoint/fresh", path: id, set: give(bare), want: wants{{".badge", "nothing sent yet"}, {".pic-none", "No attempts in 48 h"}, {".empty", "No callbacks to it yet"}, {"dd", "the project’s default"}}},
		{name: "endpoint/many", path: id, set: give(many), want: wants{{".why.warn q", "until noon"}, {".why a", "Resume…"}}},
		{name: "endpoint/stuck", path: id, set: give(stuck), want: wants{
			{".why.bad", "The receiver answered 410"}, {".why.bad a", "Enable…"}, {".why.warn q", "the merchant asked for it"}, {".why.warn a", "Resume…"}, {".why.bad", "Attempts reach nobody"},
			{".why.warn .badge", "lane paused"},
		}},
		{name: "endpoint/breaker", path: id, set: give(opened), want: wants{{".why.bad .badge", "breaker open"}, {".why.bad", "Mend the receiver"}, {".why.warn .badge", "slow"}, {".kpi.warn", "20 attempts in a row"}}},
		{name: "endpoint/hostile", path: id, set: give(evil)},
		{name: "endpoint/error", path: id, set: give(broken)},
		{name: "endpoint/none", path: "/ui/endpoints/ep_" + testID(2), set: give(one), status: http.StatusNotFound},
		{name: "form-endpoint-new/one", path: "/ui/endpoints/new", set: give(given{}), want: wants{{"h1", "New endpoint"}, {"label", "Signing secret"}, {"option", "any"}}},
		{name: "form-endpoint-new/hostile", path: "/ui/endpoints/new?back=" + queryEscape("/ui/endpoints?q="+hostile), set: give(given{})},
		{name: "form-endpoint-new/error", path: "/ui/endpoints/new", set: func(o *fakes) { o.projectRows = projectRows{err: errBroken} }},
	}
	for name, says := range map[string]string{
		"edit": "Only what you change", "pause": "Nothing more is sent to it", "resume": "It has 7 open callbacks", "enable": "ramping up", "disable": "until somebody enables it",
		"delete": "Open callbacks that will be canceled: 7", "secret": "kept in the audit", "rotate_secret": "shown once",
	} {
		cases = append(cases,
			pageCase{name: "form-endpoint-" + name + "/one", path: id + "/" + name, set: give(one), want: wants{{".act", says}}, unwanted: []string{".secret"}},
			pageCase{name: "form-endpoint-" + name + "/fresh", path: id + "/" + name, set: give(bare)},
			pageCase{name: "form-endpoint-" + name + "/hostile", path: id + "/" + name, set: give(evil)},
			pageCase{name: "form-endpoint-" + name + "/error", path: id + "/" + name, set: give(broken)})
	}
	return cases
}

func quoted(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// actingOn opens the pages over one endpoint, and returns what is done to it.
func actingOn(t *testing.T, err error) (b *browser, done *[]string, change *control.EndpointChange) {
	t.Helper()
	done, change = new([]string), new(control.EndpointChange)
	ep := sampleEndpoint(1)
	o := parts()
	o.endpointRows, o.laneRows = endpointRows{all: []store.Endpoint{ep}}, laneRows{all: []control.LaneView{endpointLane(ep)}}
	o.endpointEngine = endpointEngine{err: err, secret: testSecret, diary: diary{done}, change: change}
	o.keyRing = holders()
	return open(t, o), done, change
}

func TestEndpointActs(t *testing.T) {
	t.Parallel()
	b, done, _ := actingOn(t, nil)
	b.signIn(testKey)
	id := "/ui/endpoints/ep_" + testID(1)
	b.post(id+"/pause", "for", "90m", "reason", "moved").leads(id)
	b.get(id).ok().has(".flash.good", "Paused.")
	b.post(id+"/pause", "back", "/ui/endpoints?q=x").leads("/ui/endpoints?q=x")
	b.post(id + "/resume").leads(id)
	b.post(id + "/enable").leads(id)
	b.post(id+"/disable", "reason", "broken").leads(id)
	b.post(id+"/delete", "reason", "closed", "back", id).leads("/ui/endpoints")
	b.post(id + "/test").leads("/ui/callbacks/cb_" + testID(8))
	bare := testID(1)
	want := []string{
		fmt.Sprintf("pause %s until %d moved", bare, testNow+5_400_000), fmt.Sprintf("pause %s until %d ", bare, store.Forever), "pause " + bare + " until 0 ",
		"enabled " + bare + " true ", "enabled " + bare + " false broken", "delete " + bare + " closed", "test " + bare,
	}
	if !slices.Equal(*done, want) {
		t.Errorf("done\n%s\nwant\n%s", strings.Join(*done, "\n"), strings.Join(want, "\n"))
	}
	if res := b.post("/ui/endpoints/ep_" + testID(2) + "/test"); res.status != http.StatusNotFound {
		t.Errorf("a test of an endpoint that is not there: %d", res.status)
	}
}

// TestSecretsStandOnOnePage: in the answer to the form, and in nothing that is kept or followed.
func TestSecretsStandOnOnePage(t *testing.T) {
	t.Parallel()
	b, done, _ := actingOn(t, nil)
	b.signIn(testKey)
	id := "/ui/endpoints/ep_" + testID(1)
	for path, form := range map[string][]string{
		id + "/rotate_secret": {"overlap", "0s", "secret", "-----BEGIN\r\nX", "label", "7", "reason", "leaked"}, id + "/secret": {"reason", "asked"},
		"/ui/endpoints/new": {"url", "https://new.example/"},
	} {
		if res := b.get(path).ok(); strings.Contains(res.body, testSecret.Secret) {
			t.Errorf("%s shows the secret before it is asked for", path)
		}
		res := b.post(path, form...).ok()
		res.has(".secret", testSecret.Secret)
		res.has("pre", "a public key")
		checkPage(t, res)
		if strings.Contains(fmt.Sprint(res.header, b.cookies), testSecret.Secret) {
			t.Errorf("%s: the secret is in the headers or cookies", path)
		}
		res.lacks("body[data-live]")
		if res := b.get(id).ok(); strings.Contains(res.body, testSecret.Secret) {
			t.Errorf("%s: the next page shows the secret again", path)
		}
	}
	slices.Sort(*done)
	bare := testID(1)
	want := []string{"create ", "reveal " + bare + " asked", "rotate " + bare + ` overlap 0s secret "-----BEGIN\nX" label "7" leaked`}
	if !slices.Equal(*done, want) {
		t.Errorf("done %q, want %q", *done, want)
	}
	b.refuses(id+"/rotate_secret", ".field .error", "is not a duration", "overlap", "soon")
	b.fakes.endpointEngine = endpointEngine{diary: diary{done}, change: new(control.EndpointChange)} // it makes no secret
	b.post("/ui/endpoints/new", "url", "https://x.example/", "signer", "none").leads("/ui/endpoints/ep_" + testID(9))
}

func TestEndpointHistoryIsOfItAndItsLane(t *testing.T) {
	t.Parallel()
	o := parts()
	o.endpointRows = endpointRows{all: []store.Endpoint{sampleEndpoint(1)}}
	o.Options.Store = historyRows{&o.rows}
	res := signedIn(t, o).get("/ui/endpoints/ep_" + testID(1)).ok()
	if got := strings.Join(strings.Fields(textOf(find(res.doc, ".timeline")[0])), " "); !strings.Contains(got, "lane") || strings.Index(got, "lane") > strings.Index(got, "endpoint") {
		t.Errorf("the history is %q", got)
	}
}

// historyRows has an entry for an endpoint, and a newer one for its lane.
type historyRows struct{ Store }

func (historyRows) Audit(_ context.Context, _ string, f store.AuditFilter) (store.AuditPage, error) {
	e := store.AuditEntry{ID: testID(20), At: testNow - 9000, Action: "callback.retry", Actor: "endpoint"}
	if f.Object == "ep_"+testID(1) {
		e.ID, e.Actor = testID(21), "lane"
	} else if f.Object != testID(1) {
		return store.AuditPage{}, fmt.Errorf("asked for %q", f.Object)
	}
	return store.AuditPage{Entries: []store.AuditEntry{e}}, nil
}

// TestEveryCodeHasWords: whatever keeps a callback is named, with what can be done about it, in every
// language.
func TestEveryCodeHasWords(t *testing.T) {
	t.Parallel()
	u, err := newPages()
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	for _, l := range u.languages {
		b := &base{ui: u, lang: l, now: testNow}
		for _, code := range control.BlockCodes {
			if !b.Has("why.title."+code) || !b.Has("why.cure."+code) {
				t.Errorf("%s has no words for %s", l.code, code)
			}
		}
	}
}

func TestStandingNamesWhatHolds(t *testing.T) {
	t.Parallel()
	u, err := newPages()
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	for _, l := range u.languages {
		b := &base{ui: u, lang: l, now: testNow}
		for _, why := range []string{
			control.BlockProjectPaused, control.BlockEndpointOff, control.BlockEndpointPaused, control.BlockLanePaused, control.BlockBreakerOpen,
			control.BlockRetryAfter, control.BlockRate, control.BlockConcurrency, control.BlockSQLDown,
			control.BlockNoWorker, control.BlockSendingHeld, control.BlockIndexUnanswered,
			control.BlockIndexRebuilding,
		} {
			v := brokenLane(1)
			hold := control.Block{Code: why, Since: testNow - 1}
			s := b.laneStanding(&v, hold)
			if s.Text == "lanes.held."+why || s.Kind == "" || s.Cure == "" || s.Since == 0 {
				t.Errorf("%s: %s is %+v", l.code, why, s)
			}
		}
	}
}
