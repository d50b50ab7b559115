package dispatch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/report"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// An alert is an event of the dispatcher's own.
type alert struct {
	Type string
	Data struct{ ID, Reason, Topic string }
}

// alerts are what arrived at ops.example.
func (b *fixture) alerts() (list []alert) {
	b.t.Helper()
	for _, h := range b.receiver.seen() {
		if !strings.Contains(h.url, "ops.example") {
			continue
		}
		var a alert
		if err := json.Unmarshal([]byte(h.body), &a); err != nil {
			b.t.Errorf("told %s: %v", h.body, err)
		}
		list = append(list, a)
	}
	return list
}

// What dies after somebody has subscribed to that is told, once each; what dies while it is told is not.
func TestDeadOnesAreTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, failing("shop"))
		b.bury(3) // before anybody wanted to know
		b.endpoint(control.EndpointChange{URL: ptr("https://ops.example/"), Topics: &[]string{"dispatcher.*"}, Choice: accept.Choice{PolicyName: "none"}})
		time.Sleep(10 * time.Second)
		ids := b.bury(250)
		time.Sleep(time.Minute)
		found := map[string]int{}
		for _, a := range b.alerts() {
			if a.Type != report.TopicDead || a.Data.Reason != "exhausted" || a.Data.Topic != "payment" {
				t.Errorf("told %+v", a)
			}
			found[a.Data.ID]++
		}
		for _, id := range ids {
			if found[store.CallbackPrefix+id] != 1 {
				t.Errorf("%s was told %d times", id, found[store.CallbackPrefix+id])
			}
		}
		if len(found) != len(ids) {
			t.Errorf("%d were told, %d had died", len(found), len(ids))
		}
		b.receiver.turn(always(500, ""))
		b.bury(1)
		time.Sleep(time.Hour)
		if n := len(b.alerts()); n != len(ids)+1 {
			t.Errorf("%d were told after one more had died, whose event died, too", n)
		}
	})
}

// An endpoint that fails for a day is told of; then that it recovered. It is never disabled for that.
func TestFailingEndpointsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, failing("merchant"))
		b.endpoint(control.EndpointChange{URL: ptr("https://ops.example/"), Topics: &[]string{"dispatcher.endpoint.*"}})
		ep := b.endpoint(control.EndpointChange{URL: ptr("https://merchant.example/")})
		since := b.engine.Now() - (23*time.Hour + 30*time.Minute).Milliseconds()
		reports := []store.EndpointHealth{{ID: ep.ID, FailedAt: since, FailedFirst: since}}
		b.ok(b.db.ReportHealth(t.Context(), reports, since))
		s := tiers(20*time.Minute, 20*time.Minute, 20*time.Minute, 20*time.Minute)
		s.Endpoint = store.EndpointPrefix + ep.ID
		c := b.accept(s)
		time.Sleep(25 * time.Minute)
		if told := b.alerts(); len(told) != 0 {
			t.Errorf("told %v within a day", told)
		}
		time.Sleep(30 * time.Minute)
		b.receiver.turn(always(200, ""))
		if done := b.await(c.ID, 24*time.Hour); done.State != store.Succeeded {
			t.Fatalf("it is %s", done.State)
		}
		time.Sleep(time.Minute)
		told := b.alerts()
		if len(told) != 2 || told[0].Type != "dispatcher.endpoint.failing" ||
			told[1].Type != "dispatcher.endpoint.recovered" {
			t.Errorf("told %+v", told)
		}
		if now, err := b.db.Endpoint(t.Context(), store.DefaultProject, ep.ID); err != nil || !now.Enabled {
			t.Errorf("enabled %v, %v", now.Enabled, err)
		}
	})
}

// The events "disabled", "failing" and "recovered" of an endpoint are each sent once, also if the database
// fails after the event was committed and the sending is tried again.
func TestNoEndpointEventIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sql := new(faults)
		b := newFixture(t, failing("merchant"), faultySQL(sql))
		b.endpoint(control.EndpointChange{
			URL: ptr("https://ops.example/"), Topics: &[]string{"dispatcher.endpoint.*"},
		})
		gone := b.endpoint(control.EndpointChange{URL: ptr("https://gone.example/")})
		weak := b.endpoint(control.EndpointChange{URL: ptr("https://merchant.example/")})
		sends := func(ep store.Endpoint, status int) {
			t.Helper()
			b.receiver.turn(func(_ context.Context, h hit, _ int) (*http.Response, error) {
				if strings.Contains(h.url, "ops.example") {
					return answer(200, ""), nil
				}
				return answer(status, ""), nil
			})
			b.await(b.accept(accept.Submission{
				Endpoint: store.EndpointPrefix + ep.ID, Choice: accept.Choice{PolicyName: "none"},
			}).ID, time.Minute)
			time.Sleep(10 * time.Second)
		}
		// Each time what follows fails: first the plan of the event, then its callback, then that it is done.
		sql.times(2, fail(errDown), "PlanEvent")
		sends(gone, 410)
		if ep, err := b.db.Endpoint(t.Context(), store.DefaultProject, gone.ID); err != nil || ep.Enabled {
			t.Fatalf("after 410: enabled %t, %v", ep.Enabled, err)
		}
		since := b.engine.Now() - (25 * time.Hour).Milliseconds()
		b.ok(b.db.ReportHealth(t.Context(),
			[]store.EndpointHealth{{ID: weak.ID, FailedAt: since, FailedFirst: since}}, since))
		sql.times(2, fail(errDown), "PlanEvent")
		time.Sleep(11 * time.Minute)
		sql.times(2, loseReply, "RemoveEndpointEvents")
		sends(weak, 200)
		time.Sleep(time.Minute)
		var kinds []string
		for _, a := range b.alerts() {
			kinds = append(kinds, strings.TrimPrefix(a.Type, "dispatcher.endpoint."))
		}
		if fmt.Sprint(kinds) != "[disabled failing recovered]" {
			t.Errorf("told %v", kinds)
		}
	})
}

// alertReads counts what alerts read of projects.
type alertReads struct {
	dispatch.Store
	n atomic.Int64
}

func (s *alertReads) FeedReaders(
	ctx context.Context, prefix string, topics []string, after string, limit int,
) ([]store.FeedReader, error) {
	s.n.Add(1)
	return s.Store.FeedReaders(ctx, prefix, topics, after, limit)
}

func (s *alertReads) Subscribers(
	ctx context.Context, project, after string, limit int,
) ([]store.Endpoint, error) {
	s.n.Add(1)
	return s.Store.Subscribers(ctx, project, after, limit)
}

func (s *alertReads) Outcomes(
	ctx context.Context, project string, after store.OutcomeCursor, limit int,
) ([]store.TerminalEvent, store.OutcomeCursor, error) {
	s.n.Add(1)
	return s.Store.Outcomes(ctx, project, after, limit)
}

// A round of alerts reads what the subscribing projects need, however many others there are.
func TestAlertsReadNothingOfOtherProjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reads := new(alertReads)
		b := newFixture(t, failing("shop"), func(o *dispatch.Options) {
			reads.Store, o.Store = o.Store, reads
		})
		for i := range 2000 {
			p := store.Project{ID: fmt.Sprint("project-", i), CreatedAt: b.engine.Now()}
			b.must(b.db.CreateProject(t.Context(), p, operator))
		}
		topics := []string{"dispatcher.*"}
		b.endpoint(control.EndpointChange{URL: ptr("https://ops.example/"), Topics: &topics})
		b.bury(1)
		time.Sleep(10 * time.Second) // the first round sets the cursor
		before := reads.n.Load()
		b.bury(1)
		time.Sleep(10 * time.Second)
		// Each round of 5 s reads the readers, the feed of one project to its end, and its subscribers to
		// tell them.
		if n := reads.n.Load() - before; n == 0 || n > 20 || len(b.alerts()) != 1 {
			t.Errorf("read %d times, told %+v", n, b.alerts())
		}
	})
}
