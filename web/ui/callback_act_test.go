package ui

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// actingOnCallbacks opens the pages over callbacks, and returns what is done to them and the page of the first one.
func actingOnCallbacks(t *testing.T, all ...store.Callback) (b *browser, done *[]string, page string) {
	t.Helper()
	o := parts()
	done = new([]string)
	o.callbackRows, o.callbackEngine = callbackRows{all: all}, callbackEngine{diary: diary{done}}
	o.projectRows = projectRows{ids: []string{"other"}}
	return signedIn(t, o), done, "/ui/callbacks/cb_" + all[0].ID
}

func TestRetryIsOneButton(t *testing.T) {
	t.Parallel()
	b, done, id := actingOnCallbacks(t, sample(1))
	b.post(id+"/retry", "ladder", "once", "back", id).leads(id)
	if want := "retry " + testID(1) + " once  admin key "; len(*done) != 1 || (*done)[0] != want {
		t.Fatalf("done: %q", *done)
	}
	b.get(id).ok().has(".flash.good", "attempted at once")
	b.get(id).ok().lacks(".flash")
}

// A colleague may have retried the callback since the form was made: then the form has no ladder to choose,
// and says why.
func TestRetryOfWhatIsNoLongerDead(t *testing.T) {
	t.Parallel()
	o := parts()
	open := sample(1)
	o.callbackRows = callbackRows{all: []store.Callback{open}}
	o.callbackEngine = callbackEngine{err: store.ErrAttempting}
	b := signedIn(t, o)
	id := "/ui/callbacks/cb_" + open.ID
	res := b.post(id+"/retry", "ladder", "restart", "was", "dead")
	if res.status != http.StatusConflict {
		t.Errorf("a form of before: %d", res.status)
	}
	res.has(".banner.bad", "being attempted at this moment")
	res.lacks("[name=ladder]")
	b.get(id + "/retry?ladder=restart").ok().lacks("[name=ladder]")
}

// What was received while the form was open is not sent again, and what was received is sent again only by who was told so.
func TestWhatWasReceivedIsNotSentAgainUnawares(t *testing.T) {
	t.Parallel()
	received := sample(1)
	received.State, received.DueAt, received.FinishedAt = store.Succeeded, 0, testNow-1000
	b, done, id := actingOnCallbacks(t, received)
	b.get(id).ok().lacks("#retry")
	if res := b.post(id+"/retry", "ladder", "once", "was", "scheduled"); res.status != http.StatusConflict {
		t.Errorf("a form of before: %d", res.status)
	}
	if len(*done) > 0 {
		t.Errorf("it was sent again: %q", *done)
	}
	ask := b.get(id + "/retry").ok()
	ask.has(".banner.warn", "a second time")
	b.post(id+"/retry", "ladder", "once", "was", attr(find(ask.doc, "[name=was]")[0], "value")).leads(id)
	if len(*done) != 1 {
		t.Errorf("done: %q", *done)
	}
}

func TestConditionsThatSayNothing(t *testing.T) {
	t.Parallel()
	o := parts()
	o.callbackRows = callbackRows{all: []store.Callback{sample(1)}}
	b := signedIn(t, o)
	b.get("/ui/callbacks?overdue=false&min_attempts=0").ok().lacks(".bulk")
	for _, query := range []string{"overdue=yes", "topic=a&topic=b"} {
		b.get("/ui/callbacks?"+query).ok().has(".banner.bad", "cannot be meant")
	}
}

// A command to copy sends what is shown, and nothing of who copies it.
func TestCurlReadsNoFile(t *testing.T) {
	t.Parallel()
	o := parts()
	head := sample(2)
	head.Method, head.PayloadID = "HEAD", ""
	o.callbackRows = callbackRows{all: []store.Callback{head, sample(1)}, payload: store.Payload{Body: []byte("@/etc/passwd")}}
	b := signedIn(t, o)
	page := b.get("/ui/callbacks/cb_" + testID(1)).ok()
	page.has("#curl", "--data-raw '@/etc/passwd'")
	page.has("#curl", "--globoff")
	b.get("/ui/callbacks/cb_"+testID(2)).ok().has("#curl", "-I 'https://shop.example")
}

func TestTimesThatThereAreNot(t *testing.T) {
	t.Parallel()
	zone, ok := zoneOf("America/New_York")
	if !ok {
		t.Fatal("no zone")
	}
	r := request{zone: zone}
	if _, ok := r.parseInput("2027-03-14T02:30:00"); ok {
		t.Error("a time that the clocks leave out is taken for another one")
	}
	if _, ok := r.parseInput("2027-03-14T03:30"); !ok {
		t.Error("a time is refused")
	}
}

func TestActsSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	b, done, id := actingOnCallbacks(t, sample(1))
	for _, c := range []struct {
		path  string
		pairs []string
		says  string
	}{
		{"/reschedule", []string{"delay", "soon"}, "is not a duration"},
		{"/reschedule", nil, "say when"},
		{"/reschedule", []string{"delay", "1m", "due_at", "2026-11-21T10:00"}, "not both"},
		{"/mend", nil, "nothing was filled in"},
		{"/mend", []string{"headers", "no colon"}, "no colon"},
		{"/mend", []string{"expires_in", "x"}, "is not a duration"},
	} {
		res := b.refuses(id+c.path, ".field .error", c.says, append(c.pairs, "reason", "typed "+hostile)...)
		if got := attr(find(res.doc, "#f-reason")[0], "value"); got != "typed "+hostile {
			t.Errorf("what was typed is lost: %q", got)
		}
	}
	if len(*done) > 0 {
		t.Errorf("something was done: %q", *done)
	}
	b.post(id+"/reschedule", "delay", "90m", "back", id).leads(id)
	b.post(id+"/mend", "url", "https://new.example/", "headers", "X-A: 1\r\nX-B: 2").leads(id)
	if want := []string{
		"reschedule " + testID(1) + " in 1h30m0s", "mend " + testID(1) + " url https://new.example/",
		"mend " + testID(1) + " headers [{X-A 1} {X-B 2}]",
	}; !slices.Equal(*done, want) {
		t.Errorf("done %q, want %q", *done, want)
	}
}

func TestConflictsAreSaidAtTheForm(t *testing.T) {
	t.Parallel()
	o := parts()
	o.callbackRows, o.callbackEngine = callbackRows{all: []store.Callback{sample(1)}}, callbackEngine{err: store.ErrAttempting}
	b := signedIn(t, o)
	res := b.post("/ui/callbacks/cb_"+testID(1)+"/retry", "ladder", "once")
	if res.status != http.StatusConflict {
		t.Fatalf("status %d", res.status)
	}
	res.has(".banner.bad", "being attempted at this moment")
}

func TestFilterIsKeptInTheAddress(t *testing.T) {
	t.Parallel()
	var asked store.Filter
	o := parts()
	o.callbackRows = callbackRows{asked: &asked}
	o.endpointRows = endpointRows{all: []store.Endpoint{{ID: testID(7), ExternalID: "shop"}}}
	b := signedIn(t, o)
	b.cookies[zoneCookie] = "Asia%2FShanghai"
	b.get("/ui/callbacks?state=scheduled&topic=payment.succeeded&endpoint=shop&class=http_5xx&from=2026-11-21T10:00&label.channel=alipay&order=due&min_attempts=1&overdue=true").ok()
	want := time.Date(2026, 11, 21, 2, 0, 0, 0, time.UTC).UnixMilli()
	if asked.EndpointID != testID(7) || asked.Class != store.ClassHTTP5xx || asked.From != want || asked.Labels["channel"] != "alipay" ||
		!asked.ByDue || asked.MinAttempts != 1 || !asked.Overdue || asked.Topic != "payment.succeeded" {
		t.Errorf("asked for %+v", asked)
	}
}

func TestSearchGoesToWhatItIs(t *testing.T) {
	t.Parallel()
	o := parts()
	o.callbackRows = callbackRows{all: []store.Callback{sample(1)}}
	b := signedIn(t, o)
	for q, to := range map[string]string{
		"cb_" + testID(1): "/ui/callbacks/cb_" + testID(1), testID(1): "/ui/callbacks/cb_" + testID(1), strings.ToLower(testID(1)): "/ui/callbacks/cb_" + testID(1),
		"ep_" + testID(3): "/ui/endpoints/ep_" + testID(3), "order-0001": "/ui/orders?ref=order-0001", "": "/ui/callbacks",
		"lock-1": "/ui/callbacks?lock_key=lock-1",
	} {
		b.get("/ui/search?q=" + queryEscape(q)).leads(to)
	}
	// What was not found so far is not said to be nowhere: the list looks on.
	o.callbackRows = callbackRows{left: &store.Cursor{ID: testID(1)}}
	signedIn(t, o).get("/ui/search?q=channel%3Dalipay").leads("/ui/callbacks?label.channel=alipay")
}

// A ladder has no step after the callback's own end, and one for a single retry after its own.
func TestLadderEndsWithTheCallback(t *testing.T) {
	t.Parallel()
	soon := sample(1)
	soon.ExpiresAt = soon.DueAt + 1
	again := sample(2)
	again.Policy.Tiers = nil
	again.AttemptCount, again.ResumeState, again.ResumeReason, again.Trigger = 1, store.Dead, store.Exhausted, store.Manual
	b, _, id := actingOnCallbacks(t, soon, again)
	page := b.get(id).ok()
	if never, next := page.count(".pic-step.pic-never"), page.count(".pic-step.pic-next"); never != 7 || next != 1 {
		t.Errorf("%d steps never come, %d come next, in\n%s", never, next, page.text())
	}
	if next := b.get("/ui/callbacks/cb_" + testID(2)).ok().count(".pic-step.pic-next"); next != 1 {
		t.Errorf("a single retry is drawn as %d steps", next)
	}
}

// Case 56. A link or a picture on another page makes a browser ask with GET: that changes nothing.
func TestGETChangesNothing(t *testing.T) {
	t.Parallel()
	b, done, id := actingOnCallbacks(t, sample(1))
	asked := 0
	for _, r := range b.ui.Routes() {
		if path, ok := strings.CutPrefix(r.Path, "/ui/callbacks/:id"); ok && r.Method == http.MethodPost {
			b.get(id + path + "?reason=x&delay=1m&url=https://evil.example")
			asked++
		}
	}
	if asked < 4 || len(*done) > 0 {
		t.Errorf("%d acts were asked for with GET, and done: %q", asked, *done)
	}
}

// Case 58. What senders and receivers wrote is saved as a text, and never shown as a page of ours.
func TestRawTextsAreSaved(t *testing.T) {
	t.Parallel()
	o := parts()
	o.callbackRows = callbackRows{all: []store.Callback{sample(1)}, payload: store.Payload{Body: []byte(hostile)}}
	res := signedIn(t, o).get("/ui/callbacks/cb_" + sample(1).ID + "/payload").ok()
	for name, want := range map[string]string{
		"Content-Type": "text/plain", "Content-Disposition": "attachment",
		"Content-Security-Policy": "default-src 'none'",
	} {
		if got := res.header.Get(name); !strings.HasPrefix(got, want) {
			t.Errorf("%s is %q, want %s", name, got, want)
		}
	}
	if res.body != hostile || !strings.Contains(res.header.Get("Content-Security-Policy"), "sandbox") {
		t.Errorf("%q, %v", res.body, res.header)
	}
}
