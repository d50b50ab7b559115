package query

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
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

func (o *oneCallback) Payload(context.Context, string, string) (store.Payload, error) {
	return store.Payload{Body: []byte("paid")}, nil
}

// reporting is an engine that reports on the callback and counts the retries.
type reporting struct {
	atOneSecond
	o       *oneCallback
	most    int
	retries int
}

func (e *reporting) Report(_ context.Context, _, _ string, most int) (*control.Report, error) {
	e.most = most
	return &control.Report{Callback: e.o.c, Attempts: e.o.attempts, PayloadSize: 4, PayloadSum: "sum"}, nil
}

func (e *reporting) Retry(
	context.Context, string, string, control.RetryRequest, store.Actor,
) (store.Callback, error) {
	e.retries++
	return e.o.c, nil
}

// TestCallbacksOfOtherHosts checks by the hosts of a callback and of its attempts whether the merchant may
// send it and read its payload. Its endpoint is at shop.example now.
func TestCallbacksOfOtherHosts(t *testing.T) {
	t.Parallel()
	const own, other = "https://shop.example/x", "https://debug.internal/"
	for name, c := range map[string]struct {
		url         string
		follows     bool
		attempts    []string
		send, reads bool
	}{
		"its own":                       {own, false, []string{own}, true, true},
		"its own, not attempted":        {own, false, nil, true, true},
		"its own, attempted elsewhere":  {own, false, []string{other}, true, true},
		"moved":                         {other, false, []string{"", own}, false, true},
		"elsewhere":                     {other, false, []string{"", other}, false, false},
		"elsewhere, not attempted":      {other, false, nil, false, false},
		"another port":                  {"https://shop.example:8443/", false, []string{""}, false, false},
		"nonsense":                      {"nonsense", false, []string{""}, false, false},
		"follows the endpoint, as ever": {own, true, []string{""}, true, true},
		"follows it to this host":       {other, true, []string{""}, true, true},
	} {
		o := &oneCallback{c: store.Callback{ID: "c", EndpointID: "e", Kind: store.Notify, AttemptSeq: 7,
			State: store.Succeeded, URL: c.url, Follows: c.follows, PayloadID: "p"}}
		for _, url := range c.attempts {
			o.attempts = append(o.attempts, store.Attempt{CallbackID: "c", URL: url})
		}
		e := &reporting{o: o}
		m := &Merchant{Engine: e, Store: o, Limits: NewMerchantLimits(),
			Endpoint: store.Endpoint{ID: "e", URL: "https://SHOP.example/y?k=v"}}
		shown, err := m.Get(t.Context(), "c")
		if err != nil || m.MayResend(&shown, 1000) != c.send || m.MayResend(&o.c, 1000) != c.send {
			t.Errorf("%s: may be sent: %t, %v", name, m.MayResend(&shown, 1000), err)
		}
		if _, _, err := m.Resend(t.Context(), "c", store.Actor{}); (err == nil) != c.send ||
			!c.send && !errors.Is(err, store.ErrOtherHost) || (e.retries == 1) != c.send {
			t.Errorf("%s: sent %d times, %v", name, e.retries, err)
		}
		payload, err := m.Payload(t.Context(), "c")
		if (err == nil) != c.reads || !c.reads && !errors.Is(err, store.ErrOtherHost) ||
			(len(payload.Body) == 4) != c.reads {
			t.Errorf("%s: the payload is %q, %v", name, payload.Body, err)
		}
		r, err := m.Report(t.Context(), "c")
		if err != nil {
			t.Fatal(err)
		}
		if r.PayloadHidden == c.reads || (r.PayloadSum == "sum") != c.reads ||
			(r.PayloadSize == 4) != c.reads {
			t.Errorf("%s: the report has %d bytes, sum %q", name, r.PayloadSize, r.PayloadSum)
		}
		if e.most != merchantAttempts {
			t.Errorf("the report has up to %d attempts", e.most)
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
