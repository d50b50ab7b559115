package ui

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// redriveRows has redrives, newest first.
type redriveRows struct {
	all []store.Redrive
	err error
}

func (s redriveRows) Redrive(_ context.Context, _, id string) (store.Redrive, error) {
	return rowOf(s.all, s.err, func(r store.Redrive) bool { return r.ID == id })
}

func (s redriveRows) Redrives(_ context.Context, _, after string, limit int) ([]store.Redrive, error) {
	all := slices.Clone(s.all)
	if after != "" {
		all = slices.DeleteFunc(all, func(r store.Redrive) bool { return r.ID >= after })
	}
	return all[:min(len(all), limit)], s.err
}

// redriveEngine counts what it is told to, and remembers what was asked for.
type redriveEngine struct {
	n    int64
	more bool
	// countErr is what counting answers, err what the rest does.
	countErr, err error
	asked         *[]control.RedriveRequest
	diary
}

func (e redriveEngine) Redrive(_ context.Context, _ string, q control.RedriveRequest, by store.Actor) (store.Redrive, error) {
	if e.asked != nil {
		*e.asked = append(*e.asked, q)
		e.note("%s", by.Reason)
	}
	return store.Redrive{ID: testID(3)}, e.err
}

func (e redriveEngine) CountRedrive(_ context.Context, _ string, q control.RedriveRequest) (int64, bool, error) {
	if q.Action == "set_url" && q.URL == "" { // as the engine does
		return 0, false, invalid("url", "is not an address")
	}
	return e.n, e.more, e.countErr
}

func (e redriveEngine) SetRedrive(_ context.Context, _, id string, to store.RedriveState, by store.Actor) (store.Redrive, error) {
	e.note("%s %s %s", id, to, by.Reason)
	return store.Redrive{}, e.err
}

// sampleRedrive is a retry that goes on.
func sampleRedrive(n int) store.Redrive {
	return store.Redrive{
		ID: testID(n), Project: store.DefaultProject, Action: store.RedriveRetry, Ladder: store.Restart, Shown: `{"class":"http_5xx","state":["dead"],"status_code":503,"label":{"channel":"alipay"}}`,
		Filter: store.Filter{States: []store.State{store.Dead}}, Rate: store.Rate{Count: 100, Per: 1_000_000_000}, Actor: "admin key", Reason: "the receiver is back",
		State: store.RedriveRunning, Matched: 12_345, Done: 4_000, Failed: 12, CreatedAt: testNow - 60_000, UpdatedAt: testNow - 100,
	}
}

func redriveCases() []pageCase {
	give := func(rows redriveRows) func(o *fakes) {
		return func(o *fakes) {
			o.redriveRows, o.auditRows = rows, auditRows{page: store.AuditPage{Entries: []store.AuditEntry{{At: testNow - 60_000, Actor: "admin key", Action: "redrive.create", Reason: hostile}}}}
		}
	}
	count := func(e redriveEngine) func(o *fakes) { return func(o *fakes) { o.redriveEngine = e } }
	one := redriveRows{all: []store.Redrive{sampleRedrive(1)}}
	with := func(change func(r *store.Redrive)) redriveRows {
		r := sampleRedrive(1)
		change(&r)
		return redriveRows{all: []store.Redrive{r}}
	}
	var many redriveRows
	for n := 120; n > 0; n-- {
		r := sampleRedrive(n)
		r.State = []store.RedriveState{store.RedriveRunning, store.RedrivePaused, store.RedriveDone, store.RedriveCanceled, store.RedriveGathering}[n%5]
		r.Action = []store.RedriveAction{store.RedriveRetry, store.RedriveCancel, store.RedriveReschedule, store.RedriveSetURL}[n%4]
		many.all = append(many.all, r)
	}
	evil := with(func(r *store.Redrive) {
		r.Actor, r.Reason, r.URL, r.Action = hostile, hostile, "https://x.example/"+hostile, store.RedriveSetURL
		f := query.Filter{Values: url.Values{"topic": {hostile}, "ref": {hostile}, "endpoint": {hostile}, "label." + hostile: {hostile}, "reason": {hostile}}}
		r.Shown = f.JSON()
	})
	broken := redriveRows{all: one.all, err: errBroken}
	const form = "/ui/redrives/new?action="
	id := "/ui/redrives/rd_" + testID(1)
	cases := []pageCase{
		{name: "redrives/empty", set: give(redriveRows{}), want: wants{{".empty", "No redrives yet"}, {".empty a", "Dead letters"}}},
		{name: "redrives/one", set: give(one), want: wants{
			{"td .badge.busy", "running"}, {"td a", "Retry"}, {"td", "4,000 of 12,345 done · 12 failed"}, {"td", "100 a second"}, {"td q", "the receiver is back"}, {"td", "Label: channel = alipay"}, {"td", "1 more condition"},
		}},
		{name: "redrives/many", set: give(many), want: wants{{".pager a", "Next page"}}},
		{name: "redrives/last", path: "/ui/redrives?cursor=" + query.Place(store.Cursor{ID: testID(20)}), set: give(many), want: wants{{"main p a", "To the newest"}}, unwanted: []string{".pager"}},
		{name: "redrives/hostile", set: give(evil)},
		{name: "redrives/unreadable-filter", set: give(with(func(r *store.Redrive) { r.Shown = "[" }))},
		{name: "redrives/error", set: give(broken)},
		{name: "redrive/one", path: id, set: give(one), want: wants{
			{"h1", "Retry all that match"}, {"h2 .badge", "running"}, {"dd", "12,345"}, {"dd", "8,333"}, {"dd", "about 1m23s"}, {"button#pause", "Pause"}, {"a[data-ask]", "Cancel…"}, {"dd", "a new ladder"}, {".timeline", "Begun"},
			{"a[href=/ui/callbacks?class=http_5xx&label.channel=alipay&state=dead&status_code=503]", "picks now"},
		}, unwanted: []string{"#resume"}},
		{name: "redrive/paused", path: id, set: give(with(func(r *store.Redrive) { r.State, r.Paused = store.RedrivePaused, true })), want: wants{{"button#resume", "Resume"}}, unwanted: []string{"#pause"}},
		{name: "redrive/gathering-paused", path: id, set: give(with(func(r *store.Redrive) { r.State, r.Paused = store.RedriveGathering, true })), want: wants{{".badge", "gathering, then paused"}}},
		{name: "redrive/done", path: id, set: give(with(func(r *store.Redrive) {
			r.State, r.Done, r.FinishedAt, r.Action, r.DueAt = store.RedriveDone, 12_333, testNow-5, store.RedriveReschedule, testNow
		})), want: wants{{"h2", "All of it was done"}, {"dt", "Moved to"}}, unwanted: []string{"#pause", "a[data-ask]"}},
		{name: "redrive/canceled", path: id, set: give(with(func(r *store.Redrive) {
			r.State, r.FinishedAt, r.Action, r.Delay = store.RedriveCanceled, testNow-5, store.RedriveReschedule, 60_000
		})), want: wants{{"dt", "Not done"}, {"dd", "1m"}}},
		{name: "redrive/states-of-the-action", path: id, set: give(with(func(r *store.Redrive) { r.Shown, r.Action = `{"topic":"a"}`, store.RedriveCancel })), want: wants{{".facts dd", "dead"}}},
		{name: "redrive/hostile", path: id, set: give(evil)},
		{name: "redrive/unreadable-filter", path: id, set: give(with(func(r *store.Redrive) { r.Shown = `{"status_code":"` + `<b>"}` })), want: wants{{"pre", "status_code"}}},
		{name: "redrive/error", path: id, set: give(broken)},
		{name: "redrive/none", path: "/ui/redrives/rd_" + testID(9), set: give(one), status: http.StatusNotFound},
		{name: "form-redrive/one", path: form + "retry&state=dead&reason=exhausted&class=http_5xx", set: count(redriveEngine{n: 1}), want: wants{
			{".say", "1 callback will be attempted again, on a new ladder from tier 1, at most 100 a second."}, {".facts dd", "all attempts used up"}, {".facts a", "See them"}, {"button[name=preview]", "Count again"},
		}},
		{name: "form-redrive/many", path: form + "retry&topic=payment.succeeded&state=dead&state=succeeded", set: count(redriveEngine{n: 10_000, more: true}), want: wants{
			{".say", "More than 10,000 callbacks will be"}, {".say", "those alone take about 1m40s"}, {".banner.warn", "told again"},
		}},
		{name: "form-redrive/nothing", path: form + "retry&topic=x", set: count(redriveEngine{}), want: wants{{".say", "Nothing matches"}}},
		{name: "form-redrive/uncounted", path: form + "retry&label.x=y", set: count(redriveEngine{countErr: fmt.Errorf("list: %w", context.DeadlineExceeded)}), want: wants{{".say", "All callbacks that match will be attempted"}, {".banner.warn", "could not be counted in time"}}},
		{name: "form-redrive/cancel", path: form + "cancel&topic=payment.succeeded&state=dead", set: count(redriveEngine{n: 12}), want: wants{{".act.danger", "12 callbacks will be canceled"}, {".banner.warn", "counted as failed"}}},
		{name: "form-redrive/reschedule", path: form + "reschedule&topic=payment.succeeded", set: count(redriveEngine{n: 12}), want: wants{{"#f-delay-help", "10m"}, {".facts dd", "scheduled"}}},
		{name: "form-redrive/set-url", path: form + "set_url&class=dns_not_found&state=dead", set: count(redriveEngine{n: 12}), want: wants{{".banner.warn", "whoever they were meant for"}, {"label", "Address"}}},
		{name: "form-redrive/no-filter", path: form + "retry", set: count(redriveEngine{n: 12}), status: http.StatusUnprocessableEntity, want: wants{{"main li", "at least one condition"}}},
		{name: "form-redrive/wrong-filter", path: form + "retry&class=none", set: count(redriveEngine{n: 12}), status: http.StatusUnprocessableEntity, want: wants{{"main li", "“none” cannot be meant"}}},
		{name: "form-redrive/no-action", path: form + "explode&topic=x", set: count(redriveEngine{n: 12}), status: http.StatusUnprocessableEntity},
		{name: "form-redrive/hostile", path: form + "retry&topic=" + queryEscape(hostile) + "&reason=" + queryEscape(hostile) + "&label." + queryEscape(hostile) + "=" + queryEscape(hostile), set: count(redriveEngine{n: 2})},
		{name: "form-redrive/error", path: form + "retry&topic=x", set: count(redriveEngine{countErr: errBroken})},
	}
	for _, name := range []string{"pause", "resume", "cancel"} {
		cases = append(cases, threeStates("form-redrive-"+name, id+"/"+name, give(one), give(evil), give(broken), [2]string{".facts dd", "8,333"})...)
	}
	return cases
}

func TestRedriveDoesWhatItsFormSays(t *testing.T) {
	t.Parallel()
	o := parts()
	var asked []control.RedriveRequest
	var done []string
	o.redriveEngine = redriveEngine{n: 12, asked: &asked, diary: diary{&done}}
	b := signedIn(t, o)
	res := b.get("/ui/redrives/new?action=retry&reason=exhausted&class=http_5xx&label.channel=alipay&back=%2Fui%2Fdead").ok()
	pairs := []string{"ladder", "once", "rate", "300/m", "reason", "the receiver is back"}
	for _, hidden := range find(res.doc, "input[type=hidden]") {
		pairs = append(pairs, attr(hidden, "name"), attr(hidden, "value"))
	}
	again := b.post("/ui/redrives/new", append(pairs, "preview", "true")...).ok()
	again.has(".preview", "12 callbacks will be attempted once more, at most 300 a minute")
	if got := attr(find(again.doc, "#f-reason")[0], "value"); got != "the receiver is back" {
		t.Errorf("what was typed is lost: %q", got)
	}
	again.has(".facts dd", "all attempts used up")
	if len(asked) > 0 {
		t.Fatal("a preview has begun it")
	}
	b.post("/ui/redrives/new", pairs...).leads("/ui/redrives/rd_" + testID(3))
	if len(asked) != 1 || done[0] != "the receiver is back" {
		t.Fatalf("asked for %+v because %q", asked, done)
	}
	q := asked[0]
	if q.Action != "retry" || q.Ladder != "once" || q.Rate != "300/m" || q.Filter.Reason != store.Exhausted || q.Filter.Class != store.ClassHTTP5xx || q.Filter.Labels["channel"] != "alipay" ||
		!slices.Equal(q.Filter.States, []store.State{store.Dead}) || q.URL != "" || q.DueAt != nil || q.Delay != nil {
		t.Errorf("asked for %+v", q)
	}
	if want := `{"class":"http_5xx","label":{"channel":"alipay"},"reason":"exhausted","state":["dead"]}`; string(q.Shown) != want {
		t.Errorf("shown as %s, want %s", q.Shown, want)
	}
}

func TestRedriveSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	o := parts()
	var asked []control.RedriveRequest
	var done []string
	o.redriveEngine = redriveEngine{n: 12, err: invalid("rate", "is not a rate"), asked: &asked, diary: diary{&done}}
	b := signedIn(t, o)
	for _, c := range []struct {
		pairs      []string
		where, say string
	}{
		{[]string{"action", "retry", "filter", "topic=x", "rate", "many"}, ".field .error", "is not a rate"},
		{[]string{"action", "reschedule", "filter", "topic=x"}, ".field .error", "say when"},
		{[]string{"action", "reschedule", "filter", "topic=x", "delay", "soon", "preview", "true"}, ".field .error", "is not a duration"},
		{[]string{"action", "set_url", "filter", "topic=x", "preview", "true"}, ".field .error", "is not an address"},
		{[]string{"action", "retry", "filter", ""}, "main li", "at least one condition"},
		{[]string{"action", "retry", "filter", "%zz"}, "main li", "cannot be read"},
		{[]string{"action", "retry", "filter", "reason=&state=", "reason", "typed"}, "main li", "at least one condition"},
	} {
		b.refuses("/ui/redrives/new", c.where, c.say, c.pairs...)
	}
}

func TestRedriveIsPausedAndCanceled(t *testing.T) {
	t.Parallel()
	o := parts()
	var done []string
	o.redriveRows, o.redriveEngine = redriveRows{all: []store.Redrive{sampleRedrive(1)}}, redriveEngine{diary: diary{&done}}
	b := signedIn(t, o)
	id := "/ui/redrives/rd_" + testID(1)
	b.post(id + "/pause").leads(id)
	b.post(id + "/resume").leads(id)
	b.post(id+"/cancel", "reason", "wrong filter", "back", "/ui/redrives").leads("/ui/redrives")
	b.get(id).ok().has(".flash.good", "the rest is not done")
	if want := []string{testID(1) + " paused ", testID(1) + " running ", testID(1) + " canceled wrong filter"}; !slices.Equal(done, want) {
		t.Errorf("done %q, want %q", done, want)
	}
	o.redriveEngine = redriveEngine{err: store.ErrTerminal}
	b = signedIn(t, o)
	res := b.post(id + "/pause")
	if res.status != http.StatusConflict {
		t.Fatalf("status %d", res.status)
	}
	res.has(".banner.bad", "It has ended")
}

// TestAuditIsAskedForByBareIDs: entries name things by their ids without a prefix.
func TestAuditIsAskedForByBareIDs(t *testing.T) {
	t.Parallel()
	o := parts()
	var asked store.AuditFilter
	o.auditRows = auditRows{asked: &asked}
	o.callbackRows = callbackRows{all: []store.Callback{sample(1)}}
	o.redriveRows, o.scheduleRows = redriveRows{all: []store.Redrive{sampleRedrive(1)}}, scheduleRows{all: []store.Schedule{sampleSchedule(1)}}
	b := signedIn(t, o)
	for _, path := range []string{"/ui/callbacks/cb_", "/ui/redrives/rd_", "/ui/schedules/sc_"} {
		asked = store.AuditFilter{}
		if b.get(path + testID(1)).ok(); asked.Object != testID(1) {
			t.Errorf("%s asks for %q", path, asked.Object)
		}
	}
}
