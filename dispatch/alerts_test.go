package dispatch_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
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
		b.endpoint(dispatch.EndpointChange{URL: ptr("https://ops.example/"), Topics: &[]string{"dispatcher.*"}, Choice: dispatch.Choice{PolicyName: "none"}})
		time.Sleep(10 * time.Second)
		ids := b.bury(250)
		time.Sleep(time.Minute)
		found := map[string]int{}
		for _, a := range b.alerts() {
			if a.Type != dispatch.TopicDead || a.Data.Reason != "exhausted" || a.Data.Topic != "payment" {
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
		b.endpoint(dispatch.EndpointChange{URL: ptr("https://ops.example/"), Topics: &[]string{"dispatcher.endpoint.*"}})
		ep := b.endpoint(dispatch.EndpointChange{URL: ptr("https://merchant.example/")})
		since := b.engine.Now() - (23*time.Hour + 30*time.Minute).Milliseconds()
		reports := []store.EndpointHealth{{ID: ep.ID, FailedAt: since, FailedFirst: since}}
		b.must(b.db.ReportHealth(t.Context(), reports, since))
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
