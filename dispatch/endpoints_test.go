package dispatch_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// An attempt goes to its endpoint's address of the moment, with its headers, signed by its secret; a callback
// with an address of its own keeps that.
func TestEndpointAddress(t *testing.T) {
	with(inTurn(500, 200)).run(t, func(b *fixture) {
		ep := b.endpoint(control.EndpointChange{
			ExternalID: new("m-1"), URLOverride: new("same_host"),
			Headers: &[]store.Header{{Name: "X-Shop", Value: "endpoint"}, {Name: "X-Own", Value: "endpoint"}},
		})
		send := func(url string) store.Callback {
			s := tiers(time.Minute)
			s.Endpoint, s.URL, s.Headers = "m-1", url, []store.Header{{Name: "x-own", Value: "callback"}}
			c := b.accept(s)
			b.is("lane and endpoint", []string{c.Lane, c.EndpointID}, []string{ep.LaneKey(), ep.ID})
			return c
		}
		follows, own := send("").ID, send("https://shop.example/order/7").ID
		synctest.Wait()
		b.patchEndpoint(ep, control.EndpointChange{URL: new("https://new.example/hooks")})
		b.is("the open callback's address is shown as", b.get(follows).URL, "https://new.example/hooks")
		b.ends("succeeded", time.Hour, follows, own)
		urls := map[string][]string{}
		for _, h := range b.hits("") {
			urls[h.id] = append(urls[h.id], h.url)
		}
		b.is("went to", urls, map[string][]string{
			follows: {"https://shop.example/hooks", "https://new.example/hooks"},
			own:     slices.Repeat([]string{"https://shop.example/order/7"}, 2),
		})
		for _, a := range b.attempts(follows) {
			headers := make(map[string]string)
			for _, h := range a.RequestHeaders {
				headers[strings.ToLower(h.Name)] = h.Value
			}
			b.check(headers["x-shop"] == "endpoint" && headers["x-own"] == "callback" && a.KeyID != "",
				"attempt %d: headers %v, signed by %q", a.Number, headers, a.KeyID)
		}
	})
}

func TestEndpointOverrides(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		for _, c := range []struct{ override, url, lane, wrong string }{
			{"deny", "", "", ""},
			{"deny", "https://shop.example/hooks", "", "url"},
			{"same_host", "https://shop.example/other?x=1", "", ""},
			{"same_host", "https://other.example/", "", "url"},
			{"any", "https://other.example/", "", ""},
			{"any", "", "mine", "lane"},
		} {
			ep := b.endpoint(control.EndpointChange{URLOverride: &c.override})
			wrong := b.refused(accept.Submission{Endpoint: store.EndpointPrefix + ep.ID, URL: c.url,
				Lane: c.lane})
			b.is(c.override+", "+c.url, strings.Join(wrong, " "), c.wrong)
		}
		b.is("an unknown endpoint", b.refused(accept.Submission{Endpoint: "unknown"}), []string{"endpoint"})
	})
}

// A receiver that says it is gone disables its endpoint, if the policy stops on that; the rest is held, not
// lost.
func TestGoneDisables(t *testing.T) {
	with(always(410, "")).run(t, func(b *fixture) {
		ep := b.endpoint(control.EndpointChange{Choice: accept.Choice{PolicyName: "short"}})
		b.ends("dead gone", time.Minute, b.acceptTo(ep, accept.Submission{}).ID)
		time.Sleep(time.Second)
		now := b.endpointNow(ep.ID)
		b.check(!now.Enabled && now.DisabledReason == "gone", "enabled %t, %q", now.Enabled,
			now.DisabledReason)
		second := b.acceptTo(ep, accept.Submission{}).ID
		time.Sleep(time.Minute)
		b.sent(1, "to a disabled endpoint")
		b.turn(always(200, ""))
		b.patchEndpoint(ep, control.EndpointChange{Enabled: new(true)})
		b.ends("succeeded", time.Minute, second)
	})
}

// An edit changes where and how a callback goes on, and not what is sent.
func TestMend(t *testing.T) {
	with(failing("shop")).run(t, func(b *fixture) {
		id := b.accept(tiers(time.Hour)).ID
		time.Sleep(time.Minute)
		_, err := b.mend(id, control.MendRequest{URL: new("ftp://new.example/")})
		b.is("an address that cannot be sent to", b.wrongFields(err), []string{"url"})
		edited := must(b.mend(id, control.MendRequest{
			URL: new("https://new.example/"), Headers: &[]store.Header{{Name: "X-A", Value: "1"}},
			Choice: accept.Choice{PolicyName: "payment"},
		}))
		b.is("edited", []string{edited.URL, edited.Lane, edited.Policy.Name},
			[]string{"https://new.example/", "https://new.example:443", "payment"})
		b.check(edited.DueAt != 0, "it is not due any more")
		b.ends("succeeded 2", 2*time.Hour, id)
		_, err = b.mend(id, control.MendRequest{URL: new("https://new.example/")})
		b.fails("an edit of what has succeeded", err, store.ErrTerminal)
	})
}

// An endpoint that was deleted is none, whatever was read of it since.
func TestADeletedEndpointIsNone(t *testing.T) {
	with(after(5*time.Second, always(500, ""))).run(t, func(b *fixture) {
		ep := b.endpoint(control.EndpointChange{})
		s := tiers(time.Minute)
		c := b.acceptTo(ep, s)
		time.Sleep(time.Second)
		b.deleteEndpoint(ep)
		b.explain(c.ID) // which reads it
		time.Sleep(30 * time.Minute)
		s.Endpoint = store.EndpointPrefix + ep.ID
		b.is("refused for", b.refused(s), []string{"endpoint"})
		b.stands(b.get(c.ID), "canceled endpoint_deleted")
	})
}
