package dispatch_test

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// TestCase81CardNumbersAreRefused in whatever field, by its name and without the number; the other settings
// take them.
func TestCase81CardNumbersAreRefused(t *testing.T) {
	const card = "4111 1111 1111 1111"
	subs := map[string]accept.Submission{
		"payload": {Body: []byte(`{"card":"` + card + `"}`), BodyField: "payload"},
		"body":    {Body: []byte("\x00" + card), BodyField: "body"},
		"url":     {URL: "https://shop.example/?card=4111%201111%201111%201111"},
		"topic":   {Topic: "4111111111111111"}, "ref": {Ref: card},
		"lock_key": {LockKey: card}, "lane": {Lane: card},
		"headers.X-Card": {Headers: []store.Header{{Name: "X-Card", Value: card}}},
		"headers":        {Headers: []store.Header{{Name: "4111111111111111", Value: "x"}}},
		"labels.card":    {Labels: map[string]string{"card": card}},
		"labels":         {Labels: map[string]string{"4111111111111111": "x"}},
	}
	for guard, refuses := range map[store.PanGuard]bool{
		store.PanReject: true, store.PanMask: false, store.PanOff: false, "": false,
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newFixture(t, always(200, ""), func(o *dispatch.Options) { o.PanGuard = guard })
			hour := time.Hour
			for field, s := range subs {
				if s.URL == "" {
					s.URL = "https://shop.example/"
				}
				s.Delay = &hour
				if s.Body == nil {
					s.Body = []byte("1")
				}
				receipts, err := b.engine.Accept(t.Context(), store.DefaultProject, []accept.Submission{s})
				b.ok(err)
				var wrong *store.InvalidError
				errors.As(receipts[0].Err, &wrong)
				switch {
				case !refuses && receipts[0].Err != nil && field != "topic":
					t.Errorf("%s: %s: %v", guard, field, receipts[0].Err)
				case refuses &&
					(wrong == nil || !slices.ContainsFunc(wrong.Fields, func(f store.FieldError) bool {
						return f.Field == field && strings.Contains(f.Message, "card number")
					})):
					t.Errorf("%s: %v", field, receipts[0].Err)
				case refuses &&
					(strings.Contains(receipts[0].Err.Error(), "4111") || strings.Contains(field, "4111")):
					t.Errorf("%s: the number is repeated: %v", field, receipts[0].Err)
				}
			}
		})
	}
}

// TestEvidenceShowsNoCardNumber: neither the reference nor what the receiver answered.
func TestEvidenceShowsNoCardNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, always(200, ""), func(o *dispatch.Options) { o.PanGuard = store.PanMask })
		c := b.accept(accept.Submission{
			URL: "https://shop.example/", Body: []byte("1"), Ref: "4111111111111111",
		})
		b.succeeds(c.ID)
		text, err := b.engine.Evidence(t.Context(), store.DefaultProject, c.ID)
		b.ok(err)
		if !strings.Contains(text, "411111******1111") || store.HasPAN([]byte(text)) {
			t.Errorf("evidence: %s", text)
		}
	})
}

// TestCardNumbersAreRefusedLater: what is given with a retry, a change, a redrive or a resolve is refused as
// what is given with an accept.
func TestCardNumbersAreRefusedLater(t *testing.T) {
	const address = "https://shop.example/?card=4111111111111111"
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, always(200, ""), func(o *dispatch.Options) { o.PanGuard = store.PanReject })
		c := b.accept(accept.Submission{URL: "https://shop.example/", Body: []byte("1")})
		p := b.poll(paidPoll("order-1", time.Hour))
		for field, act := range map[string]func() error{
			"url": func() error {
				_, err := b.engine.Retry(t.Context(), store.DefaultProject, c.ID,
					control.RetryRequest{URL: address}, operator)
				return err
			},
			" url": func() error {
				_, err := b.engine.Redrive(t.Context(), store.DefaultProject, control.RedriveRequest{
					Action: "set_url", Shown: `{"topic":"a"}`, Filter: store.Filter{Topic: "a"}, URL: address,
				}, operator)
				return err
			},
			"  url": func() error {
				_, err := b.engine.Mend(t.Context(), store.DefaultProject, c.ID,
					control.MendRequest{URL: new(address)}, operator)
				return err
			},
			"headers.X-Card": func() error {
				headers := []store.Header{{Name: "X-Card", Value: "4111 1111 1111 1111"}}
				_, err := b.engine.Mend(t.Context(), store.DefaultProject, c.ID,
					control.MendRequest{Headers: &headers}, operator)
				return err
			},
			"data": func() error {
				_, err := b.engine.ResolvePoll(t.Context(), store.DefaultProject, p.ID,
					control.ResolveRequest{Data: []byte(`{"card":4111111111111111}`)}, operator)
				return err
			},
		} {
			err := act()
			var wrong *store.InvalidError
			if errors.As(err, &wrong); wrong == nil || wrong.Fields[0].Field != strings.TrimSpace(field) {
				t.Errorf("%s: %v", field, err)
			} else if strings.Contains(err.Error(), "4111") {
				t.Errorf("%s: the number is repeated: %v", field, err)
			}
		}
	})
}

// TestCardNumbersAreRefusedInEvents, whether or not an endpoint subscribes to them.
func TestCardNumbersAreRefusedInEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, always(200, ""), func(o *dispatch.Options) { o.PanGuard = store.PanReject })
		b.endpoint(control.EndpointChange{URL: new("https://shop.example/"), Topics: &[]string{"payment"}})
		for _, topic := range []string{"payment", "refund"} {
			_, err := b.engine.AcceptEvent(t.Context(), store.DefaultProject, accept.Submission{
				Topic: topic, Body: []byte(`{"card":"4111111111111111"}`), BodyField: "payload",
			})
			if err == nil || !strings.Contains(err.Error(), "card number") {
				t.Errorf("%s: %v", topic, err)
			}
		}
	})
}

// TestCardNumbersOfAnEventAreLookedForOnce, and not for each endpoint: what the looking allocates does not
// grow with them.
func TestCardNumbersOfAnEventAreLookedForOnce(t *testing.T) {
	body := []byte(`"` + strings.Repeat("1 ", 50<<10) + `"`)
	allocated := func(guard store.PanGuard, endpoints int) (n int64) {
		synctest.Test(t, func(t *testing.T) {
			b := newFixture(t, always(200, ""), func(o *dispatch.Options) { o.PanGuard = guard })
			for range endpoints {
				b.endpoint(control.EndpointChange{
					URL: new("https://shop.example/"), Topics: &[]string{"payment"},
				})
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			b.must(b.engine.AcceptEvent(t.Context(), store.DefaultProject,
				accept.Submission{Topic: "payment", Body: body, BodyField: "payload"}))
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

// TestCardNumbersKeepNoEventBack: an endpoint whose external_id looks like a card number is a setting, and no
// accept, so its operational events are sent.
func TestCardNumbersKeepNoEventBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, failing("shop"), func(o *dispatch.Options) { o.PanGuard = store.PanReject })
		b.endpoint(control.EndpointChange{
			URL: new("https://ops.example/"), Topics: &[]string{"dispatcher.*"},
		})
		shop := b.endpoint(control.EndpointChange{
			ExternalID: new("4111111111111111"), URL: new("https://shop.example/"),
		})
		at := b.engine.Now()
		b.ok(b.db.ReportHealth(t.Context(), []store.EndpointHealth{
			{ID: shop.ID, FailedAt: at, FailedFirst: at - (48 * time.Hour).Milliseconds()},
		}, at))
		time.Sleep(time.Hour)
		if got := b.alerts(); len(got) == 0 {
			t.Error("no operational event was sent")
		}
	})
}
