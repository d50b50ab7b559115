package dispatch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Tests of events of callers and of operational events.

func (b *fixture) event(s accept.Submission) (accept.EventReceipt, error) {
	if s.Body == nil {
		s.Body = []byte(`{"paid": 1}`)
	}
	return b.engine.AcceptEvent(b.Context(), project, s)
}

// An alert is an operational event.
type alert struct {
	Type string
	Data struct{ ID, Reason, Topic string }
}

// alerts returns the operational events that arrived at ops.example.
func (b *fixture) alerts() (list []alert) {
	b.Helper()
	for _, h := range b.hits("ops.example") {
		var a alert
		b.ok(json.Unmarshal([]byte(h.body), &a))
		list = append(list, a)
	}
	return list
}

// ops creates an endpoint that subscribes to all operational events.
func (b *fixture) ops() {
	b.Helper()
	b.endpoint(control.EndpointChange{
		URL: new("https://ops.example/"), Topics: &[]string{"dispatcher.*"},
		Choice: accept.Choice{PolicyName: "none"},
	})
}

// Endpoint events are published even if SQL is slow, and even if earlier events cannot be accepted.
func TestManyEndpointEventsOnASlowDatabase(t *testing.T) {
	for name, refused := range map[string]int{"slow": 0, "the first are refused": 40} {
		t.Run(name, func(t *testing.T) {
			with(nil).run(t, func(b *fixture) {
				b.ops()
				var changes []control.EndpointChange
				for i := range 250 {
					changes = append(changes, control.EndpointChange{ExternalID: new(fmt.Sprintf("m-%03d",
						i)), URL: new("https://shop.example/")})
				}
				list := must(b.engine.PutEndpoints(b.Context(), project, changes, operator))
				var refuses sync.Map
				b.set(func(ctx context.Context, c *call) error {
					select {
					case <-time.After(100 * time.Millisecond):
					case <-ctx.Done():
						return ctx.Err()
					}
					if _, refused := refuses.Load(c.args[0].(store.EventPlan).Idempotency.Key); refused {
						return errDown
					}
					return c.do()
				}, "PlanEvent")
				for i := range list {
					must(b.db.DisableEndpoint(b.Context(), project, list[i].Endpoint.ID, string(store.Gone),
						b.engine.Now(), operator))
				}
				events := must(b.db.EndpointEvents(b.Context(), "", 1000))
				b.is("events", len(events), len(changes))
				for _, e := range events[:refused] {
					refuses.Store(e.ID, true)
				}
				time.Sleep(10 * time.Minute)
				b.is("events that are left", len(must(b.db.EndpointEvents(b.Context(), "", 1000))), refused)
				b.is("alerts", len(b.alerts()), len(changes)-refused)
			})
		})
	}
}

// Many dead callbacks of one project do not delay the events of another.
func TestDeathsInSeveralProjectsOnASlowDatabase(t *testing.T) {
	with(failing("shop"), withEffect(slow(100*time.Millisecond), "PlanEvent")).run(t, func(b *fixture) {
		const other, few = "other", 50
		b.createProject(control.ProjectChange{ID: other})
		for _, p := range []string{project, other} {
			must(b.engine.CreateEndpoint(b.Context(), p, control.EndpointChange{
				URL: new("https://ops.example/" + p), Topics: &[]string{"dispatcher.*"},
			}, operator))
		}
		time.Sleep(10 * time.Second)
		b.backlog(20*few, tiers())
		b.offer(other, slices.Repeat([]accept.Submission{tiers()}, few)...)
		time.Sleep(2 * time.Minute)
		b.is("alerts in the other project", len(b.hits("ops.example/"+other)), few)
	})
}

// Alerts of one project that cannot be accepted do not stop those of another.
func TestAlertsOfOneProjectDoNotStopOthers(t *testing.T) {
	with(always(500, "")).run(t, func(b *fixture) {
		projects := []string{"aaa", "zzz"}
		for _, p := range projects {
			b.createProject(control.ProjectChange{ID: p})
			ch := control.EndpointChange{URL: new("https://" + p + ".example/h"), Topics: &[]string{"*"}}
			if p == "aaa" {
				b.ok(b.engine.PutPolicy(b.Context(), p, "mine", tiers(time.Hour).Policy, operator))
				ch.PolicyName = "mine"
			}
			must(b.engine.CreateEndpoint(b.Context(), p, ch, operator))
		}
		time.Sleep(30 * time.Second)
		b.ok(b.engine.DeletePreset(b.Context(), "aaa", store.PresetPolicy, "mine", operator))
		for _, p := range projects {
			b.ok(b.offer(p, tiers())[0].Err)
		}
		time.Sleep(time.Minute)
		b.check(len(b.hits("https://zzz.example/h")) > 0, "project zzz got no alert")
	})
}

// A run of alerts reads only the data of projects with subscribers, however many other projects exist.
func TestAlertsReadOnlySubscribingProjects(t *testing.T) {
	with(failing("shop")).run(t, func(b *fixture) {
		for i := range 2000 {
			must(b.db.CreateProject(b.Context(),
				store.Project{ID: fmt.Sprint("project-", i), CreatedAt: b.engine.Now()}, operator))
		}
		b.ops()
		b.bury(1)
		time.Sleep(10 * time.Second) // the first run sets the cursor
		reads := func() int { return b.count("FeedReaders") + b.count("Subscribers") + b.count("Outcomes") }
		before := reads()
		b.bury(1)
		time.Sleep(10 * time.Second)
		// Each run reads the list of readers, the feed of one project to its end, and its subscribers.
		between(b, "reads", reads()-before, 1, 20)
		b.is("alerts", len(b.alerts()), 1)
	})
}
