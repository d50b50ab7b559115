package dispatch_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A pause that could not be told to the index at once is told later, also where nobody else changes anything.
func TestAPauseThatWasNotToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sql := new(faults)
		b := newFixture(t, always(200, ""), faultySQL(sql))
		s := tiers(time.Minute)
		s.Delay = ptr(time.Hour)
		b.accept(s)
		time.Sleep(time.Second)
		sql.times(1, fail(errDown), "Lanes")
		b.must(b.engine.PauseProject(t.Context(), store.DefaultProject, store.Forever, operator))
		time.Sleep(2 * time.Hour)
		if n := len(b.receiver.seen()); n != 0 {
			t.Errorf("%d were sent while their project was paused", n)
		}
	})
}

// However long a secret takes to be read, no claim grows so old by it that somebody else sends the same.
func TestSlowSecretsSendNothingTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, takes := range []time.Duration{100 * time.Millisecond, 20 * time.Second} {
			sql := new(faults)
			b := newFixture(t, always(200, ""), faultySQL(sql))
			changes := make([]control.EndpointChange, 200)
			for i := range changes {
				changes[i] = control.EndpointChange{ExternalID: ptr(fmt.Sprint("m", i)), URL: ptr("https://shop.example/h")}
			}
			b.must(b.engine.PutEndpoints(t.Context(), store.DefaultProject, changes, operator))
			sql.set(slow(takes), "OwnedSecrets")
			for i := range changes {
				b.accept(accept.Submission{Endpoint: fmt.Sprint("m", i)})
			}
			time.Sleep(5 * time.Minute)
			sql.set(nil, "OwnedSecrets")
			time.Sleep(5 * time.Minute)
			sent := make(map[string]int)
			for _, h := range b.receiver.seen() {
				if sent[h.id]++; sent[h.id] == 2 {
					t.Errorf("%s was sent twice, with secrets that take %s", h.id, takes)
				}
			}
			if len(sent) != len(changes) {
				t.Errorf("%d of %d were sent, with secrets that take %s", len(sent), len(changes), takes)
			}
			b.stop()
		}
	})
}

// What one project's endpoints are like is no reason to tell another's nothing.
func TestAlertsOfOneProjectDoNotStopOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, always(500, ""))
		for _, project := range []string{"aaa", "zzz"} {
			b.must(b.engine.CreateProject(t.Context(), control.ProjectChange{ID: project}, operator))
			ch := control.EndpointChange{URL: ptr("https://" + project + ".example/h"), Topics: &[]string{"*"}}
			if project == "aaa" {
				b.ok(b.engine.PutPolicy(t.Context(), project, "mine", tiers(time.Hour).Policy, operator))
				ch.PolicyName = "mine"
			}
			b.must(b.engine.CreateEndpoint(t.Context(), project, ch, operator))
		}
		time.Sleep(30 * time.Second)
		b.ok(b.engine.DeletePreset(t.Context(), "aaa", store.PresetPolicy, "mine", operator))
		for _, project := range []string{"aaa", "zzz"} {
			receipts, err := b.engine.Accept(t.Context(), project, []accept.Submission{
				{URL: "https://dead.example/", Body: []byte("{}"), Choice: accept.Choice{PolicyName: "none"}},
			})
			if err != nil || receipts[0].Err != nil {
				t.Fatal(err, receipts)
			}
		}
		time.Sleep(time.Minute)
		told := 0
		for _, h := range b.receiver.seen() {
			if h.url == "https://zzz.example/h" {
				told++
			}
		}
		if told == 0 {
			t.Error("project zzz was not told")
		}
	})
}

// An endpoint that was deleted is none, whatever was read of it since.
func TestADeletedEndpointIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, func(context.Context, hit, int) (*http.Response, error) {
			time.Sleep(5 * time.Second)
			return answer(500, ""), nil
		})
		ep := b.endpoint(control.EndpointChange{})
		s := tiers(time.Minute)
		s.Endpoint = store.EndpointPrefix + ep.ID
		c := b.accept(s)
		time.Sleep(time.Second)
		b.ok(b.engine.DeleteEndpoint(t.Context(), store.DefaultProject, ep.ID, operator))
		b.must(b.engine.Explain(t.Context(), store.DefaultProject, c.ID)) // which reads it
		time.Sleep(30 * time.Minute)
		if got := b.refused(s); len(got) != 1 || got[0] != "endpoint" {
			t.Errorf("refused for %v", got)
		}
		if done := b.get(c.ID); done.State != store.Canceled || done.Reason != store.EndpointDeleted {
			t.Errorf("the one in flight is %s, %s", done.State, done.Reason)
		}
	})
}
