package dispatch_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// An event reaches every endpoint that subscribes, once.
func TestEventFansOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, always(200, ""))
		topics := func(patterns ...string) store.Endpoint {
			return b.endpoint(control.EndpointChange{Topics: &patterns, URL: ptr("https://" + strings.ReplaceAll(patterns[0], "*", "any") + ".example/")})
		}
		topics("payment.succeeded")
		topics("payment.*")
		topics("*")
		topics("refund.*")
		event := accept.Submission{Topic: "payment.succeeded", Body: []byte(`{"paid": 1}`), Ref: "order-1"}
		first, err := b.engine.AcceptEvent(t.Context(), store.DefaultProject, event)
		if err != nil || len(first.Callbacks) != 3 || first.Replayed {
			t.Fatalf("%+v, %v", first, err)
		}
		for _, id := range first.Callbacks {
			if c := b.await(id, time.Minute); c.State != store.Succeeded || c.EndpointID == "" || c.Topic != "payment.succeeded" {
				t.Errorf("%s is %s", id, c.State)
			}
		}
		if n := len(b.receiver.seen()); n != 3 {
			t.Errorf("%d arrived", n)
		}
		for _, h := range b.receiver.seen() {
			if h.body != `{"paid": 1}` {
				t.Errorf("%s got %q", h.url, h.body)
			}
		}
		none, err := b.engine.AcceptEvent(t.Context(), store.DefaultProject, accept.Submission{Topic: "nobody", Body: []byte("{}")})
		if err != nil || len(none.Callbacks) != 1 { // "*" takes it
			t.Errorf("%+v, %v", none, err)
		}
		if _, err := b.engine.AcceptEvent(t.Context(), store.DefaultProject, accept.Submission{Topic: "", URL: "https://a.example/", Body: []byte("{}")}); err == nil {
			t.Error("an event without a topic, with an address, was accepted")
		}
	})
}

// What an event was to become is made up for by a repetition, if the database went away before its callbacks were there: what the first was
// to become, but for endpoints that have been deleted.
func TestEventIsCompletedByItsRepetition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sql := new(faults)
		sql.set(fail(errDown), "Accept")
		b := newFixture(t, always(200, ""), faultySQL(sql))
		subscriber := func(host string) store.Endpoint {
			return b.endpoint(control.EndpointChange{Topics: &[]string{"payment.*"}, URL: ptr("https://" + host + ".example/")})
		}
		subscriber("stays")
		leaves, goes := subscriber("leaves"), subscriber("goes")
		event := accept.Submission{
			Topic: "payment.succeeded", Body: []byte(`{"paid": 1}`), IdempotencyKey: "k", Route: "events", Fingerprint: []byte("f"),
		}
		if r, err := b.engine.AcceptEvent(t.Context(), store.DefaultProject, event); !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("%+v, %v", r, err)
		}
		sql.set(nil, "Accept")
		subscriber("late")
		b.must(b.engine.PatchEndpoint(t.Context(), store.DefaultProject, leaves.ID, control.EndpointChange{Topics: &[]string{}}, operator))
		b.ok(b.engine.DeleteEndpoint(t.Context(), store.DefaultProject, goes.ID, operator))
		other := event
		other.Fingerprint = []byte("g")
		_, err := b.engine.AcceptEvent(t.Context(), store.DefaultProject, other)
		if !errors.Is(err, store.ErrIdempotencyMismatch) {
			t.Errorf("another event with the key of one that was not accepted: %v", err)
		}
		second, err := b.engine.AcceptEvent(t.Context(), store.DefaultProject, event)
		if err != nil || len(second.Callbacks) != 2 || second.Replayed {
			t.Fatalf("repeated: %+v, %v", second, err)
		}
		for _, id := range second.Callbacks {
			b.await(id, time.Minute)
		}
		third, err := b.engine.AcceptEvent(t.Context(), store.DefaultProject, event)
		if err != nil || third.ID != second.ID || !slices.Equal(third.Callbacks, second.Callbacks) || !third.Replayed {
			t.Errorf("repeated once more: %+v, %v; want %+v", third, err, second)
		}
		_, err = b.engine.AcceptEvent(t.Context(), store.DefaultProject, other)
		if !errors.Is(err, store.ErrIdempotencyMismatch) {
			t.Errorf("another event with the key of one that was accepted: %v", err)
		}
		var hosts []string
		for _, h := range b.receiver.seen() {
			hosts = append(hosts, strings.TrimPrefix(h.url, "https://"))
		}
		slices.Sort(hosts)
		if !slices.Equal(hosts, []string{"leaves.example/", "stays.example/"}) {
			t.Errorf("it went to %v", hosts)
		}
	})
}
