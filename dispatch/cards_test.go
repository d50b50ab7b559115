package dispatch_test

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

func guarded(by store.PanGuard) tweak { return func(o *options) { o.PanGuard = by } }

// refusesCard demands that an error is of that field, and does not repeat the number.
func (b *fixture) refusesCard(field string, err error) {
	b.Helper()
	b.check(slices.Contains(b.wrongFields(err), field) && strings.Contains(err.Error(), "card number") &&
		!strings.Contains(err.Error(), "4111"), "%s: %v", field, err)
}

// TestCase81CardNumbersAreRefused in whatever field, by its name and without the number; the other settings
// take them.
func TestCase81CardNumbersAreRefused(t *testing.T) {
	const card, digits = "4111 1111 1111 1111", "4111111111111111"
	for guard, refuses := range map[store.PanGuard]bool{
		store.PanReject: true, store.PanMask: false, store.PanOff: false, "": false,
	} {
		t.Run(string(guard), func(t *testing.T) {
			with(nil, guarded(guard)).run(t, func(b *fixture) {
				for field, s := range map[string]accept.Submission{
					"payload": {Body: []byte(`{"card":"` + card + `"}`), BodyField: "payload"},
					"body":    {Body: []byte("\x00" + card), BodyField: "body"},
					"url":     {URL: "https://shop.example/?card=4111%201111%201111%201111"},
					"topic":   {Topic: digits}, "ref": {Ref: card},
					"lock_key": {LockKey: card}, "lane": {Lane: card},
					"headers.X-Card": {Headers: []store.Header{{Name: "X-Card", Value: card}}},
					"headers":        {Headers: []store.Header{{Name: digits, Value: "x"}}},
					"labels.card":    {Labels: map[string]string{"card": card}},
					"labels":         {Labels: map[string]string{digits: "x"}},
				} {
					s.Delay = new(time.Hour)
					err := b.offer(project, s)[0].Err
					if refuses {
						b.refusesCard(field, err)
					} else {
						b.check(err == nil || field == "topic", "%s: %v", field, err)
					}
				}
			})
		})
	}
}

// TestEvidenceShowsNoCardNumber: neither the reference nor what the receiver answered.
func TestEvidenceShowsNoCardNumber(t *testing.T) {
	with(nil, guarded(store.PanMask)).run(t, func(b *fixture) {
		id := b.accept(accept.Submission{Ref: "4111111111111111"}).ID
		b.ends("succeeded", time.Minute, id)
		text := must(b.engine.Evidence(b.Context(), project, id))
		b.check(strings.Contains(text, "411111******1111") && !store.HasPAN([]byte(text)), "evidence: %s",
			text)
	})
}

// TestCardNumbersAreRefusedLater: what is given with a retry, an edit, a redrive, a resolve or an event is
// refused as what is given with an accept; an event whether or not an endpoint subscribes to it.
func TestCardNumbersAreRefusedLater(t *testing.T) {
	const address = "https://shop.example/?card=4111111111111111"
	with(nil, guarded(store.PanReject)).run(t, func(b *fixture) {
		id, poll := b.accept(accept.Submission{}).ID, b.poll(paidPoll("order-1", time.Hour)).ID
		b.subscriber("https://shop.example/", "payment")
		_, err := b.engine.Retry(b.Context(), project, id, control.RetryRequest{URL: address}, operator)
		b.refusesCard("url", err)
		_, err = b.engine.Redrive(b.Context(), project, control.RedriveRequest{
			Action: "set_url", Shown: `{"topic":"a"}`, Filter: store.Filter{Topic: "a"}, URL: address,
		}, operator)
		b.refusesCard("url", err)
		_, err = b.mend(id, control.MendRequest{URL: new(address)})
		b.refusesCard("url", err)
		_, err = b.mend(id, control.MendRequest{Headers: &[]store.Header{{Name: "X-Card",
			Value: "4111 1111 1111 1111"}}})
		b.refusesCard("headers.X-Card", err)
		_, err = b.engine.ResolvePoll(b.Context(), project, poll,
			control.ResolveRequest{Data: []byte(`{"card":4111111111111111}`)}, operator)
		b.refusesCard("data", err)
		for _, topic := range []string{"payment", "refund"} {
			_, err := b.event(accept.Submission{Topic: topic, Body: []byte(`{"card":"4111111111111111"}`),
				BodyField: "payload"})
			b.refusesCard("payload", err)
		}
	})
}

// TestCardNumbersOfAnEventAreLookedForOnce, and not for each endpoint: what the looking allocates does not
// grow with them.
func TestCardNumbersOfAnEventAreLookedForOnce(t *testing.T) {
	body := []byte(`"` + strings.Repeat("1 ", 50<<10) + `"`)
	allocated := func(guard store.PanGuard, endpoints int) (n int64) {
		with(nil, guarded(guard)).runAlone(t, func(b *fixture) {
			for range endpoints {
				b.subscriber("https://shop.example/", "payment")
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			must(b.event(accept.Submission{Topic: "payment", Body: body, BodyField: "payload"}))
			runtime.ReadMemStats(&after)
			n = int64(after.Mallocs - before.Mallocs)
		})
		return n
	}
	one := allocated(store.PanReject, 1) - allocated(store.PanOff, 1)
	many := allocated(store.PanReject, 20) - allocated(store.PanOff, 20)
	if many > 3*one {
		t.Errorf("%d allocations for 20 endpoints, %d for one", many, one)
	}
}
