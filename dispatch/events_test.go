package dispatch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/report"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Events that callers send, and those that the dispatcher makes of what happens.

func (b *fixture) event(s accept.Submission) (accept.EventReceipt, error) {
	if s.Body == nil {
		s.Body = []byte(`{"paid": 1}`)
	}
	return b.engine.AcceptEvent(b.Context(), project, s)
}

// urls are where requests went to, sorted.
func (b *fixture) urls() (urls []string) {
	for _, h := range b.hits("") {
		urls = append(urls, h.url)
	}
	slices.Sort(urls)
	return urls
}

// An event reaches every endpoint that subscribes, once.
func TestEventFansOut(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		for host, topic := range map[string]string{"one": "payment.succeeded", "some": "payment.*",
			"all": "*", "none": "refund.*"} {
			b.subscriber("https://"+host+".example/", topic)
		}
		first := must(b.event(accept.Submission{Topic: "payment.succeeded", Ref: "order-1"}))
		b.check(len(first.Callbacks) == 3 && !first.Replayed, "%+v", first)
		b.ends("succeeded", time.Minute, first.Callbacks...)
		for _, id := range first.Callbacks {
			c := b.get(id)
			b.check(c.EndpointID != "" && c.Topic == "payment.succeeded", "%+v", c)
		}
		b.is("went to", b.urls(), []string{"https://all.example/", "https://one.example/",
			"https://some.example/"})
		for _, h := range b.hits("") {
			b.is(h.url+" got", h.body, `{"paid": 1}`)
		}
		b.is("endpoints for another topic", len(must(b.event(accept.Submission{Topic: "unknown"})).Callbacks),
			1) // "*" takes it
		_, err := b.event(accept.Submission{URL: "https://a.example/"})
		b.check(err != nil, "an event without a topic, with an address, was accepted")
	})
}

// What an event was to become is made up for by a repetition, if the database went away before its callbacks
// were there: what the first was to become, but for endpoints that have been deleted.
func TestEventIsCompletedByItsRepetition(t *testing.T) {
	with(nil, struck(fail(errDown), "Accept")).run(t, func(b *fixture) {
		subscriber := func(host string) store.Endpoint {
			return b.subscriber("https://"+host+".example/",
				"payment.*")
		}
		subscriber("stays")
		leaves, goes := subscriber("leaves"), subscriber("goes")
		event := accept.Submission{Topic: "payment.succeeded", IdempotencyKey: "k", Route: "events",
			Fingerprint: []byte("f")}
		other := event
		other.Fingerprint = []byte("g")
		_, err := b.event(event)
		b.fails("while SQL is away", err, store.ErrUnavailable)
		b.set(nil, "Accept")
		subscriber("late")
		b.patchEndpoint(leaves, control.EndpointChange{Topics: &[]string{}})
		b.deleteEndpoint(goes)
		_, err = b.event(other)
		b.fails("another event with the key of one that was not accepted", err, store.ErrIdempotencyMismatch)
		second := must(b.event(event))
		b.check(len(second.Callbacks) == 2 && !second.Replayed, "repeated: %+v", second)
		b.ends("succeeded", time.Minute, second.Callbacks...)
		third := second
		third.Replayed = true
		b.is("repeated once more", must(b.event(event)), third)
		_, err = b.event(other)
		b.fails("another event with the key of one that was accepted", err, store.ErrIdempotencyMismatch)
		b.is("went to", b.urls(), []string{"https://leaves.example/", "https://stays.example/"})
	})
}

// An alert is an event of the dispatcher's own.
type alert struct {
	Type string
	Data struct{ ID, Reason, Topic string }
}

// alerts are what arrived at ops.example.
func (b *fixture) alerts() (list []alert) {
	b.Helper()
	for _, h := range b.hits("ops.example") {
		var a alert
		b.ok(json.Unmarshal([]byte(h.body), &a))
		list = append(list, a)
	}
	return list
}

// kinds are the alerts of endpoints in order, without what all their topics have in common.
func (b *fixture) kinds() (kinds []string) {
	for _, a := range b.alerts() {
		kinds = append(kinds, strings.TrimPrefix(a.Type, "dispatcher.endpoint."))
	}
	return kinds
}

// ops makes an endpoint that hears all events of the dispatcher's own.
func (b *fixture) ops() {
	b.Helper()
	b.endpoint(control.EndpointChange{
		URL: new("https://ops.example/"), Topics: &[]string{"dispatcher.*"},
		Choice: accept.Choice{PolicyName: "none"},
	})
}

// failedFor notes that an endpoint has failed for so long.
func (b *fixture) failedFor(ep store.Endpoint, d time.Duration) {
	b.Helper()
	since := b.engine.Now() - d.Milliseconds()
	b.ok(b.db.ReportHealth(b.Context(), []store.EndpointHealth{{ID: ep.ID, FailedAt: since,
		FailedFirst: since}}, since))
}

// What dies after an endpoint has subscribed to that is told, once each; what dies while it is told is not.
// However slow SQL is, it is told.
func TestDeadOnesAreTold(t *testing.T) {
	for name, tweaks := range map[string][]tweak{"": nil,
		"on a slow database": {struck(slow(100*time.Millisecond), "PlanEvent")}} {
		t.Run(name, func(t *testing.T) {
			with(failing("shop"), tweaks...).run(t, func(b *fixture) {
				b.bury(3) // before anyone wanted to know
				b.ops()
				time.Sleep(10 * time.Second)
				ids := b.bury(250)
				time.Sleep(10 * time.Minute)
				found := map[string]int{}
				for _, a := range b.alerts() {
					b.is("told", []string{a.Type, a.Data.Reason, a.Data.Topic},
						[]string{report.TopicDead, "exhausted", "payment"})
					found[bare(a.Data.ID)]++
				}
				for _, id := range ids {
					b.is("times that a death was told", found[id], 1)
				}
				b.is("told in all", len(found), len(ids))
				b.turn(always(500, ""))
				b.bury(1)
				time.Sleep(time.Hour)
				b.is("told after one more had died, whose event died, too", len(b.alerts()), len(ids)+1)
			})
		})
	}
}

// An endpoint that fails for a day is told of; then that it recovered. It is never disabled for that.
func TestFailingEndpointsAreTold(t *testing.T) {
	with(failing("merchant")).run(t, func(b *fixture) {
		b.subscriber("https://ops.example/", "dispatcher.endpoint.*")
		ep := b.subscriber("https://merchant.example/")
		b.failedFor(ep, 23*time.Hour+30*time.Minute)
		id := b.acceptTo(ep, tiers(20*time.Minute, 20*time.Minute, 20*time.Minute, 20*time.Minute)).ID
		time.Sleep(25 * time.Minute)
		b.is("told within a day", len(b.alerts()), 0)
		time.Sleep(30 * time.Minute)
		b.turn(always(200, ""))
		b.ends("succeeded", 24*time.Hour, id)
		time.Sleep(time.Minute)
		b.is("told", b.kinds(), []string{"failing", "recovered"})
		b.check(b.endpointNow(ep.ID).Enabled, "it was disabled")
	})
}

// The events "disabled", "failing" and "recovered" of an endpoint are each sent once, also if the database
// fails after the event was committed and the sending is tried again.
func TestNoEndpointEventIsLost(t *testing.T) {
	with(failing("merchant")).run(t, func(b *fixture) {
		b.subscriber("https://ops.example/", "dispatcher.endpoint.*")
		gone, weak := b.subscriber("https://gone.example/"), b.subscriber("https://merchant.example/")
		sends := func(ep store.Endpoint, status int) {
			t.Helper()
			b.turn(answering(ep.URL, always(status, "")))
			b.await(b.acceptTo(ep, accept.Submission{Choice: accept.Choice{PolicyName: "none"}}).ID,
				time.Minute)
			time.Sleep(10 * time.Second)
		}
		// Each time what follows fails: first the plan of the event, then its callback, then that it is done.
		b.times(2, fail(errDown), "PlanEvent")
		sends(gone, 410)
		b.check(!b.endpointNow(gone.ID).Enabled, "after 410 it is enabled")
		b.failedFor(weak, 25*time.Hour)
		b.times(2, fail(errDown), "PlanEvent")
		time.Sleep(11 * time.Minute)
		b.times(2, loseReply, "RemoveEndpointEvents")
		sends(weak, 200)
		time.Sleep(time.Minute)
		b.is("told", b.kinds(), []string{"disabled", "failing", "recovered"})
	})
}

// However slow SQL is, and whatever is refused before them, endpoint events are published.
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
				b.is("told", len(b.alerts()), len(changes)-refused)
			})
		})
	}
}

// A project of which much has died does not hold up the others.
func TestDeadOnesOfManyProjectsOnASlowDatabase(t *testing.T) {
	with(failing("shop"), struck(slow(100*time.Millisecond), "PlanEvent")).run(t, func(b *fixture) {
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
		b.is("told in the other project", len(b.hits("ops.example/"+other)), few)
	})
}

// What one project's endpoints are like is no reason to tell another's nothing.
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
		b.check(len(b.hits("https://zzz.example/h")) > 0, "project zzz was not told")
	})
}

// A round of alerts reads what the subscribing projects need, however many others there are.
func TestAlertsReadNothingOfOtherProjects(t *testing.T) {
	with(failing("shop")).run(t, func(b *fixture) {
		for i := range 2000 {
			must(b.db.CreateProject(b.Context(),
				store.Project{ID: fmt.Sprint("project-", i), CreatedAt: b.engine.Now()}, operator))
		}
		b.ops()
		b.bury(1)
		time.Sleep(10 * time.Second) // the first round sets the cursor
		reads := func() int { return b.count("FeedReaders") + b.count("Subscribers") + b.count("Outcomes") }
		before := reads()
		b.bury(1)
		time.Sleep(10 * time.Second)
		// Each round of 5 s reads the readers, the feed of one project to its end, and its subscribers to
		// tell them.
		between(b, "reads", reads()-before, 1, 20)
		b.is("told", len(b.alerts()), 1)
	})
}
