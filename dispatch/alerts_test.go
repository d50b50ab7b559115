package dispatch_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// What dies after somebody has subscribed to that is told, once each; what dies while it is told is not.
func TestDeadOnesAreTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		b := newBench(t, func(_ context.Context, h hit, _ int) (*http.Response, error) {
			if strings.Contains(h.url, "ops.example") && !down.Load() {
				return answer(200, ""), nil
			}
			return answer(500, ""), nil
		})
		b.bury(3) // before anybody wanted to know
		b.endpoint(dispatch.EndpointChange{URL: ptr("https://ops.example/"), Topics: &[]string{"dispatcher.*"}, Choice: dispatch.Choice{PolicyName: "none"}})
		time.Sleep(10 * time.Second)
		ids := b.bury(250)
		time.Sleep(time.Minute)
		told := func() map[string]int {
			found := make(map[string]int)
			for _, h := range b.receiver.seen() {
				if !strings.Contains(h.url, "ops.example") {
					continue
				}
				var event struct {
					Type string
					Data struct{ ID, Reason, Topic string }
				}
				if err := json.Unmarshal([]byte(h.body), &event); err != nil || event.Type != dispatch.TopicDead || event.Data.Reason != "exhausted" || event.Data.Topic != "payment" {
					t.Errorf("told %s, %v", h.body, err)
				}
				found[event.Data.ID]++
			}
			return found
		}
		found := told()
		for _, id := range ids {
			if found[store.CallbackPrefix+id] != 1 {
				t.Errorf("%s was told %d times", id, found[store.CallbackPrefix+id])
			}
		}
		if len(found) != len(ids) {
			t.Errorf("%d were told, %d had died", len(found), len(ids))
		}
		down.Store(true)
		b.bury(1)
		time.Sleep(time.Hour)
		if n := len(told()); n != len(ids)+1 {
			t.Errorf("%d were told after one more had died, whose event died, too", n)
		}
	})
}

// An endpoint that fails for a day is told of; then that it recovered. It is never disabled for that.
func TestFailingEndpointsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var healthy atomic.Bool
		b := newBench(t, func(_ context.Context, h hit, _ int) (*http.Response, error) {
			if healthy.Load() || strings.Contains(h.url, "ops.example") {
				return answer(200, ""), nil
			}
			return answer(500, ""), nil
		})
		told := func() (types []string) {
			for _, h := range b.receiver.seen() {
				if !strings.Contains(h.url, "ops.example") {
					continue
				}
				var event struct{ Type string }
				if err := json.Unmarshal([]byte(h.body), &event); err != nil {
					t.Error(err)
				}
				types = append(types, event.Type)
			}
			return types
		}
		b.endpoint(dispatch.EndpointChange{URL: ptr("https://ops.example/"), Topics: &[]string{"dispatcher.endpoint.*"}})
		ep := b.endpoint(dispatch.EndpointChange{URL: ptr("https://merchant.example/")})
		since := b.engine.Now() - (23*time.Hour + 30*time.Minute).Milliseconds()
		reports := []store.EndpointHealth{{ID: ep.ID, FailedAt: since, FailedFirst: since}}
		b.must(b.db.ReportHealth(t.Context(), reports, since))
		s := tiers(20*time.Minute, 20*time.Minute, 20*time.Minute, 20*time.Minute)
		s.Endpoint = store.EndpointPrefix + ep.ID
		c := b.accept(s)
		time.Sleep(25 * time.Minute)
		if told := told(); len(told) != 0 {
			t.Errorf("told %v within a day", told)
		}
		time.Sleep(30 * time.Minute)
		healthy.Store(true)
		if done := b.await(c.ID, 24*time.Hour); done.State != store.Succeeded {
			t.Fatalf("it is %s", done.State)
		}
		time.Sleep(time.Minute)
		if got := strings.Join(told(), " "); got != "dispatcher.endpoint.failing dispatcher.endpoint.recovered" {
			t.Errorf("told %s", got)
		}
		if now, err := b.db.Endpoint(t.Context(), store.DefaultProject, ep.ID); err != nil || !now.Enabled {
			t.Errorf("enabled %v, %v", now.Enabled, err)
		}
	})
}
