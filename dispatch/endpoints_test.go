package dispatch_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// An attempt goes to its endpoint's address of the moment, with its headers, signed by its secret; a callback with an address of its
// own keeps that.
func TestEndpointAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, inTurn(500, 200))
		ep := b.endpoint(control.EndpointChange{
			ExternalID: ptr("m-1"), URLOverride: ptr("same_host"), Headers: &[]store.Header{{Name: "X-Shop", Value: "endpoint"}, {Name: "X-Own", Value: "endpoint"}},
		})
		s := tiers(time.Minute)
		s.Endpoint, s.Headers = "m-1", []store.Header{{Name: "x-own", Value: "callback"}}
		receipts, err := b.engine.Accept(t.Context(), store.DefaultProject, []accept.Submission{func() accept.Submission { s := s; s.Body = []byte("{}"); return s }(), func() accept.Submission {
			s := s
			s.Body, s.URL = []byte("{}"), "https://shop.example/order/7"
			return s
		}()})
		if err != nil || receipts[0].Err != nil || receipts[1].Err != nil {
			t.Fatal(err, receipts)
		}
		follows, own := receipts[0].Callback, receipts[1].Callback
		if follows.Lane != ep.LaneKey() || own.Lane != ep.LaneKey() || follows.EndpointID != ep.ID {
			t.Errorf("lanes %s and %s", follows.Lane, own.Lane)
		}
		synctest.Wait()
		b.must(b.engine.PatchEndpoint(t.Context(), store.DefaultProject, ep.ID, control.EndpointChange{URL: ptr("https://new.example/hooks")}, operator))
		if got := b.get(follows.ID).URL; got != "https://new.example/hooks" {
			t.Errorf("the open callback's address is shown as %s", got)
		}
		b.await(follows.ID, time.Hour)
		b.await(own.ID, time.Hour)
		var urls []string
		for _, h := range b.receiver.seen() {
			if h.id == store.CallbackPrefix+follows.ID {
				urls = append(urls, h.url)
			}
		}
		if want := []string{"https://shop.example/hooks", "https://new.example/hooks"}; !slices.Equal(urls, want) {
			t.Errorf("it went to %v, want %v", urls, want)
		}
		for _, a := range b.attempts(follows.ID) {
			headers := make(map[string]string)
			for _, h := range a.RequestHeaders {
				headers[strings.ToLower(h.Name)] = h.Value
			}
			if headers["x-shop"] != "endpoint" || headers["x-own"] != "callback" || a.KeyID == "" {
				t.Errorf("attempt %d: headers %v, signed by %q", a.Number, headers, a.KeyID)
			}
		}
		if got := b.get(own.ID).URL; got != "https://shop.example/order/7" {
			t.Errorf("the callback with an address of its own went to %s", got)
		}
	})
}

func TestEndpointOverrides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, always(200, ""))
		for _, c := range []struct {
			override, url string
			wrong         []string
		}{
			{"deny", "", nil},
			{"deny", "https://shop.example/hooks", []string{"url"}},
			{"same_host", "https://shop.example/other?x=1", nil},
			{"same_host", "https://other.example/", []string{"url"}},
			{"any", "https://other.example/", nil},
		} {
			ep := b.endpoint(control.EndpointChange{URLOverride: &c.override})
			if got := b.refused(accept.Submission{Endpoint: store.EndpointPrefix + ep.ID, URL: c.url}); !slices.Equal(got, c.wrong) {
				t.Errorf("%s, %q: %v, want %v", c.override, c.url, got, c.wrong)
			}
		}
		if got := b.refused(accept.Submission{Endpoint: "nobody"}); !slices.Equal(got, []string{"endpoint"}) {
			t.Errorf("an unknown endpoint: %v", got)
		}
		ep := b.endpoint(control.EndpointChange{})
		if got := b.refused(accept.Submission{Endpoint: store.EndpointPrefix + ep.ID, Lane: "mine"}); !slices.Equal(got, []string{"lane"}) {
			t.Errorf("a lane beside an endpoint: %v", got)
		}
	})
}

// A pause holds what is open and what is accepted; nothing is lost, nothing is charged, and a resume sends it all.
func TestEndpointPauseHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, always(200, ""))
		ep := b.endpoint(control.EndpointChange{})
		b.must(b.engine.PauseEndpoint(t.Context(), store.DefaultProject, ep.ID, store.Forever, operator))
		var ids []string
		for range 50 {
			ids = append(ids, b.accept(accept.Submission{Endpoint: store.EndpointPrefix + ep.ID}).ID)
		}
		time.Sleep(time.Hour)
		if n := len(b.receiver.seen()); n != 0 {
			t.Fatalf("%d were sent to a paused endpoint", n)
		}
		x, err := b.engine.Explain(t.Context(), store.DefaultProject, ids[0])
		if err != nil || len(x.Blocking) == 0 || x.Blocking[0].Code != control.BlockEndpointPaused || !strings.Contains(x.Blocking[0].Detail, "a test") {
			t.Errorf("explained as %+v, %v", x, err)
		}
		b.must(b.engine.PauseEndpoint(t.Context(), store.DefaultProject, ep.ID, 0, operator))
		for _, id := range ids {
			if c := b.await(id, time.Minute); c.State != store.Succeeded || c.AttemptCount != 1 {
				t.Errorf("%s is %s after %d attempts", id, c.State, c.AttemptCount)
			}
		}
	})
}

// A project's pause holds plain addresses and endpoints, also lanes that did not exist before it: those of what is accepted meanwhile,
// is retried at another address, or mended to one.
func TestProjectPauseHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, always(200, ""))
		b.await(b.accept(accept.Submission{URL: "https://known.example/"}).ID, time.Minute)
		far := tiers(time.Minute)
		far.Delay = ptr(30 * time.Minute)
		retried, mended := b.accept(far), b.accept(far)
		b.must(b.engine.PauseProject(t.Context(), store.DefaultProject, b.engine.Now()+time.Hour.Milliseconds(), operator))
		start := time.Now()
		known, unheard := b.accept(accept.Submission{URL: "https://known.example/"}), b.accept(accept.Submission{URL: "https://unheard-of.example/"})
		b.must(b.engine.Retry(t.Context(), store.DefaultProject, retried.ID, control.RetryRequest{URL: "https://other.example/x"}, operator))
		b.must(b.engine.Mend(t.Context(), store.DefaultProject, mended.ID, control.MendRequest{URL: ptr("https://third.example/x")}, operator))
		time.Sleep(59 * time.Minute) // await would look 20 times a second
		for _, c := range []store.Callback{known, unheard, retried, mended} {
			if done := b.await(c.ID, 2*time.Hour); done.State != store.Succeeded {
				t.Errorf("%s is %s", c.URL, done.State)
			}
		}
		for _, h := range b.receiver.seen()[1:] {
			if h.at.Sub(start) < time.Hour {
				t.Errorf("%s was sent to %s after its project was paused for an hour", h.url, h.at.Sub(start))
			}
		}
	})
}

// A receiver that says it is gone disables its endpoint, if the policy stops on that; the rest is held, not lost.
func TestGoneDisables(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, always(410, ""))
		ep := b.endpoint(control.EndpointChange{Choice: accept.Choice{PolicyName: "short"}})
		name := store.EndpointPrefix + ep.ID
		first := b.accept(accept.Submission{Endpoint: name})
		if done := b.await(first.ID, time.Minute); done.State != store.Dead || done.Reason != store.Gone {
			t.Fatalf("the first is %s, %s", done.State, done.Reason)
		}
		time.Sleep(time.Second)
		now, err := b.db.Endpoint(t.Context(), store.DefaultProject, ep.ID)
		if err != nil || now.Enabled || now.DisabledReason != "gone" {
			t.Fatalf("enabled %v, %q, %v", now.Enabled, now.DisabledReason, err)
		}
		second := b.accept(accept.Submission{Endpoint: name})
		time.Sleep(time.Minute)
		if n := len(b.receiver.seen()); n != 1 {
			t.Errorf("%d were sent to a disabled endpoint", n)
		}
		b.receiver.turn(always(200, ""))
		b.must(b.engine.PatchEndpoint(t.Context(), store.DefaultProject, ep.ID, control.EndpointChange{Enabled: ptr(true)}, operator))
		if done := b.await(second.ID, time.Minute); done.State != store.Succeeded {
			t.Errorf("the second is %s", done.State)
		}
	})
}

// In strict order the next one begins only when the one before it is terminal, however long that takes and however it ends.
func TestStrictOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, func(_ context.Context, h hit, before int) (*http.Response, error) {
			time.Sleep(100 * time.Millisecond)
			if strings.Contains(h.url, "first") && before < 2 {
				return answer(500, ""), nil
			}
			return answer(200, ""), nil
		})
		send := func(url string) store.Callback {
			s := tiers(time.Minute, time.Minute)
			s.URL, s.LockKey, s.Order = url, "order-1", "strict"
			return b.accept(s)
		}
		first, second, third, fourth := send("https://first.example/"), send("https://second.example/"), send("https://third.example/"), send("https://fourth.example/")
		time.Sleep(10 * time.Second)
		x, err := b.engine.Explain(t.Context(), store.DefaultProject, second.ID)
		if err != nil || len(x.Blocking) == 0 || x.Blocking[0].Code != control.BlockOrder || !strings.Contains(x.Blocking[0].Detail, first.ID) {
			t.Errorf("explained as %+v, %v", x, err)
		}
		if r, err := b.engine.Cancel(t.Context(), store.DefaultProject, third.ID, operator); err != nil || r.Result != store.CancelDone {
			t.Fatalf("%v, %v", r.Result, err)
		}
		for _, c := range []store.Callback{first, second, fourth} {
			if done := b.await(c.ID, time.Hour); done.State != store.Succeeded {
				t.Errorf("%s is %s", c.URL, done.State)
			}
		}
		var order []string
		for _, h := range b.receiver.seen() {
			order = append(order, strings.TrimSuffix(strings.TrimPrefix(h.url, "https://"), ".example/"))
		}
		if want := []string{"first", "first", "first", "second", "fourth"}; !slices.Equal(order, want) {
			t.Errorf("they came as %v, want %v", order, want)
		}
		hits := b.receiver.seen()
		for i := 3; i < len(hits); i++ {
			if gap := hits[i].at.Sub(hits[i-1].at); gap > time.Second {
				t.Errorf("%s came %s after the one before it began: whose turn it is is not to wait for its timer", hits[i].url, gap)
			}
		}
	})
}

// Whose turn it is is claimed at once also where the one before it expired, was superseded or ended with its endpoint.
func TestStrictOrderGoesOnAfterEveryEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, failing("first"))
		ep := b.endpoint(control.EndpointChange{URL: ptr("https://first.example/")})
		one, two := int64(1), int64(2)
		for name, first := range map[string]struct {
			s   accept.Submission
			end func()
		}{
			"expired": {s: accept.Submission{URL: "https://first.example/", ExpiresIn: ptr(time.Minute)}},
			"superseded": {s: accept.Submission{URL: "https://first.example/", Supersede: true, Ref: "r", Topic: "t", Version: &one}, end: func() {
				b.accept(accept.Submission{URL: "https://newer.example/", Supersede: true, Ref: "r", Topic: "t", Version: &two})
			}},
			"endpoint deleted": {s: accept.Submission{Endpoint: store.EndpointPrefix + ep.ID}, end: func() {
				if err := b.engine.DeleteEndpoint(t.Context(), store.DefaultProject, ep.ID, operator); err != nil {
					t.Error(err)
				}
			}},
		} {
			long := tiers(time.Hour, time.Hour)
			s := first.s
			s.Policy, s.LockKey, s.Order = long.Policy, name, "strict"
			before := b.accept(s)
			next := b.accept(accept.Submission{URL: "https://next.example/", LockKey: name, Order: "strict"})
			time.Sleep(30 * time.Second)
			if first.end != nil {
				first.end()
			}
			done, sent := b.await(before.ID, 10*time.Minute), b.await(next.ID, 10*time.Minute)
			if gap := sent.FinishedAt - done.FinishedAt; sent.State != store.Succeeded || gap < 0 || gap > 1500 {
				t.Errorf("%s: the next is %s, %d ms after the end of the one before, which is %s, %s", name, sent.State, gap, done.State, done.Reason)
			}
		}
	})
}

// Mending changes where and how it goes on, and not what is sent.
func TestMend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, failing("shop"))
		c := b.accept(tiers(time.Hour))
		synctest.Wait()
		time.Sleep(time.Minute)
		if _, err := b.engine.Mend(t.Context(), store.DefaultProject, c.ID, control.MendRequest{URL: ptr("ftp://new.example/")}, operator); err == nil {
			t.Error("an address that cannot be sent to was taken")
		}
		mended, err := b.engine.Mend(t.Context(), store.DefaultProject, c.ID, control.MendRequest{
			URL: ptr("https://new.example/"), Headers: &[]store.Header{{Name: "X-A", Value: "1"}}, Choice: accept.Choice{PolicyName: "payment"},
		}, operator)
		if err != nil || mended.URL != "https://new.example/" || mended.Lane != "https://new.example:443" || mended.Policy.Name != "payment" || mended.DueAt == 0 {
			t.Fatalf("%+v, %v", mended, err)
		}
		if done := b.await(c.ID, 2*time.Hour); done.State != store.Succeeded || done.AttemptCount != 2 {
			t.Errorf("it is %s after %d attempts", done.State, done.AttemptCount)
		}
		if _, err := b.engine.Mend(t.Context(), store.DefaultProject, c.ID, control.MendRequest{URL: ptr("https://new.example/")}, operator); !errors.Is(err, store.ErrTerminal) {
			t.Errorf("mending what has succeeded: %v", err)
		}
	})
}

// A lowered limit is kept to by what was claimed ahead of it, too, and a pause ends what waits for its turn.
func TestLimitAndPauseOfALane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most int
		b := newFixture(t, nil)
		b.receiver.answer = func(context.Context, hit, int) (*http.Response, error) {
			b.receiver.mu.Lock()
			now++
			most = max(most, now)
			b.receiver.mu.Unlock()
			time.Sleep(20 * time.Millisecond)
			b.receiver.mu.Lock()
			now--
			b.receiver.mu.Unlock()
			return answer(200, ""), nil
		}
		const n = 2000
		subs := make([]accept.Submission, n/2)
		for i := range subs {
			subs[i] = accept.Submission{URL: "https://shop.example/", Body: []byte("{}"), Lane: "m-1"}
		}
		for range 2 {
			b.must(b.engine.Accept(t.Context(), store.DefaultProject, subs))
		}
		time.Sleep(300 * time.Millisecond)
		b.must(b.engine.SetLane(t.Context(), store.DefaultProject, "m-1", ptr(3), nil, operator))
		time.Sleep(50 * time.Millisecond)
		b.receiver.mu.Lock()
		most = 0
		b.receiver.mu.Unlock()
		time.Sleep(time.Second)
		b.receiver.mu.Lock()
		if most != 3 {
			t.Errorf("%d were in flight at once after the limit was lowered to 3", most)
		}
		b.receiver.mu.Unlock()
		b.must(b.engine.PauseLane(t.Context(), store.DefaultProject, "m-1", store.Forever, operator))
		time.Sleep(50 * time.Millisecond)
		before := len(b.receiver.seen())
		time.Sleep(time.Minute)
		if after := len(b.receiver.seen()); after != before {
			t.Errorf("%d were sent while the lane was paused", after-before)
		}
		b.must(b.engine.SetLane(t.Context(), store.DefaultProject, "m-1", ptr(0), nil, operator))
		b.must(b.engine.PauseLane(t.Context(), store.DefaultProject, "m-1", 0, operator))
		for deadline := time.Now().Add(time.Hour); len(b.receiver.seen()) < n; time.Sleep(time.Second) {
			if time.Now().After(deadline) {
				t.Fatalf("%d of %d were sent", len(b.receiver.seen()), n)
			}
		}
		time.Sleep(time.Minute)
		if got := len(b.receiver.seen()); got != n {
			t.Errorf("%d of %d were sent", got, n)
		}
	})
}
