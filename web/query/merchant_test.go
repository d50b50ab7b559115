package query

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// oneCallback is a store with one callback.
type oneCallback struct {
	Store
	c        store.Callback
	attempts []store.Attempt
}

// atOneSecond is an engine at that time.
type atOneSecond struct{ Engine }

func (atOneSecond) Now() int64 { return 1000 }

func (o *oneCallback) Get(context.Context, string, string) (store.Callback, error) { return o.c, nil }

func (o *oneCallback) Attempts(context.Context, string, string, int, int) ([]store.Attempt, error) {
	return o.attempts, nil
}

// TestMerchantsSeeTheirOwnHost checks what a merchant sees of attempts, by the hosts of the callback and of
// the attempt. Its endpoint is at shop.example now.
func TestMerchantsSeeTheirOwnHost(t *testing.T) {
	t.Parallel()
	const own, other = "https://shop.example/x?k=***", "https://inner.example/"
	whole := store.Attempt{
		CallbackID: "c", Project: "p", Number: 7, Trigger: store.Manual, Outcome: store.AttemptFailed,
		Charged: true, Class: store.ClassRedirect, Status: 302, Error: "to inner", StartedAt: 1, EndedAt: 2,
		DueAt: 3, Timings: store.Timings{DNS: 4}, RequestHeaders: []store.Header{{Name: "A", Value: "b"}},
		ResponseHeaders: []store.Header{{Name: "C", Value: "d"}}, ResponseBody: "body",
		ResponseTruncated: true, Rule: &store.Rule{Expected: "e", Saw: "s"}, NextDueAt: 5, Stale: true,
		KeyID: "key",
	}
	little := store.Attempt{
		CallbackID: "c", Project: "p", Number: 7, Trigger: store.Manual, Outcome: store.AttemptFailed,
		Charged: true, Class: store.ClassRedirect, Status: 302, StartedAt: 1, EndedAt: 2, DueAt: 3,
		NextDueAt: 5, Stale: true, URL: Mask,
	}
	for _, c := range []struct {
		callback, attempt string
		follows, home     bool
	}{
		{own, "", false, true}, {own, own, false, true}, {other, own, false, true}, {own, own, true, true},
		{other, "", false, false}, {own, other, false, false}, {other, "", true, false},
		{own, other, true, false}, {"http://shop.example/", "", false, false},
		{"https://shop.example:8443/", "", false, false}, {"nonsense", "", false, false},
	} {
		o := &oneCallback{c: store.Callback{EndpointID: "e", Kind: store.Notify, AttemptSeq: 7,
			URL: c.callback, Follows: c.follows}}
		a, want := whole, little
		a.URL = c.attempt
		if c.home {
			want = whole
			want.URL = own
		}
		o.attempts = []store.Attempt{a}
		m := &Merchant{Engine: atOneSecond{}, Store: o, Endpoint: store.Endpoint{ID: "e", URL: "https://SHOP.example/y"}}
		got, err := m.Attempts(t.Context(), "c", 0, 10)
		if err != nil || len(got) != 1 {
			t.Fatalf("%+v: %v, %d attempts", c, err, len(got))
		}
		if diff := cmp.Diff(want, got[0]); diff != "" {
			t.Errorf("%+v:\n%s", c, diff)
		}
	}
}

// TestMerchantsSeeNoPlans checks that a callback does not exist for the merchant until it has begun.
func TestMerchantsSeeNoPlans(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		state       store.State
		attempts    int
		first, due  int64
		wantVisible bool
	}{
		{store.Scheduled, 0, 1001, 1001, false}, {store.Scheduled, 0, 1000, 1000, true},
		{store.Scheduled, 0, 900, 2000, true}, {store.Scheduled, 1, 900, 2000, true},
		{store.Scheduled, 1, 2000, 2000, true}, {store.Canceled, 0, 1001, 0, false},
		{store.Canceled, 0, 900, 0, true}, {store.Dead, 3, 2000, 0, true},
	} {
		o := &oneCallback{c: store.Callback{EndpointID: "e", Kind: store.Notify, State: c.state,
			AttemptSeq: c.attempts, FirstDueAt: c.first, DueAt: c.due}}
		m := &Merchant{Engine: atOneSecond{}, Store: o, Endpoint: store.Endpoint{ID: "e"}}
		_, err := m.Get(t.Context(), "c")
		if visible := err == nil; visible != c.wantVisible {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestResendsThatWaitCountNothing checks that a refused resend takes nothing from the other limit.
func TestResendsThatWaitCountNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := NewMerchantLimits()
		take := func(callback string, want time.Duration) {
			t.Helper()
			if wait := l.takeResend("e", callback); wait != want {
				t.Errorf("%s waits %s, want %s", callback, wait, want)
			}
		}
		take("a", 0)
		for range 100 {
			take("a", resendPause)
		}
		for i := range endpointResends - 1 {
			take(string(rune('b'+i)), 0)
		}
		take("new", endpointPause)
		time.Sleep(endpointPause)
		take("new", 0)
		take("new", resendPause)
	})
}
