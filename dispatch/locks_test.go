package dispatch_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Locks on business keys, and strict order.

// One lock key: never two at once, no attempt charged for waiting, and no gap while others wait.
func TestOneLockKey(t *testing.T) {
	const n, each = 40, 20 * time.Millisecond
	var wire gauge
	with(wire.around(takes(each))).run(t, func(b *fixture) {
		ids := make([]string, n)
		start, diverts := time.Now(), 0
		for i := range ids {
			ids[i] = b.accept(locked("order-1")).ID
		}
		b.ends("succeeded 1", time.Minute, ids...)
		for _, id := range ids {
			diverts += b.get(id).DivertCount
		}
		b.is("at once", wire.peak(), 1)
		b.sent(n, "in all")
		b.check(diverts > 0, "no diverts were counted")
		between(b, "all of them took", b.hits("")[n-1].at.Sub(start), (n-1)*each, n*each+200*time.Millisecond)
	})
}

// An index that is emptied between a callback's lock and its stamp forgets the lock: the attempt must not
// start on it.
func TestALockThatWasForgottenBeforeTheStamp(t *testing.T) {
	var wire gauge
	with(wire.around(takes(3*time.Second))).run(t, func(b *fixture) {
		time.Sleep(time.Second)
		// The first one's lane is the older one, so that a new index serves it first.
		first := b.accept(accept.Submission{URL: "https://a.example/", LockKey: "k",
			Delay: new(500 * time.Millisecond)}).ID
		second := b.accept(accept.Submission{URL: "https://b.example/", LockKey: "k",
			Delay: new(400 * time.Millisecond)}).ID
		late := false
		b.set(func(_ context.Context, c *call) error {
			if claims := c.args[0].(store.Stamp).Claims; !late && len(claims) > 0 && claims[0].ID == second {
				late = true
				time.Sleep(3 * time.Second)
			}
			return c.do()
		}, "Stamp")
		time.Sleep(600 * time.Millisecond) // The second one has the lock and waits for its stamp; the first one is refused.
		b.ok(b.index.Reset(b.Context(), 0, 0))
		b.ends("succeeded 1", time.Minute, first, second)
		b.check(late, "the stamp of the second one was not late")
		b.is("attempts of one lock key at once", wire.peak(), 1)
		b.sent(2, "in all")
	})
}

// A rebuild that finds the claim of an attempt that has just ended takes its lock again. It is released with
// the result, and not only when the claim runs out.
func TestALockThatARebuildTookAgain(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		time.Sleep(time.Second)
		b.set(slow(3*time.Second), "Commit")
		first := b.accept(locked("k")).ID
		time.Sleep(time.Second) // It has ended; its result is on the way.
		b.ok(b.index.Reset(b.Context(), 0, 0))
		time.Sleep(500 * time.Millisecond)
		b.set(nil, "Commit")
		second := b.accept(locked("k"))
		b.await(first, 10*time.Second)
		c := b.await(second.ID, time.Minute)
		between(b, "ms that the next one waited for a free lock", c.FinishedAt-second.DueAt, 0, 8000)
	})
}

// What SQL refuses does not keep what was claimed with it waiting: its locks are released together.
func TestRefusedLocksDelayNoOther(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		time.Sleep(time.Second)
		b.set(fail(errBroken), "IndexCancel") // so that the index still has what SQL has canceled
		for i := range 60 {
			b.cancel(b.accept(accept.Submission{
				LockKey: fmt.Sprint("order-", i), Delay: new(time.Minute),
				URL: fmt.Sprintf("https://s%d.example/", i),
			}).ID)
		}
		healthy := b.accept(in(time.Minute)).ID
		time.Sleep(50 * time.Second)
		b.set(slow(8*time.Millisecond), "Release")
		b.ends("succeeded", time.Minute, healthy)
		between(b, "lateness in ms", b.attempts(healthy)[0].Lateness, 0, 100)
		b.check(b.count("Release") > 0, "no lock was released: nothing was refused")
	})
}

// In strict order the next one begins only when the one before it is terminal, however long that takes and
// however it ends.
func TestStrictOrder(t *testing.T) {
	with(after(100*time.Millisecond, answering("first", inTurn(500, 500, 200)))).run(t, func(b *fixture) {
		send := func(host string) string {
			s := tiers(time.Minute, time.Minute)
			s.URL, s.LockKey, s.Order = "https://"+host+".example/", "order-1", "strict"
			return b.accept(s).ID
		}
		first, second, third, fourth := send("first"), send("second"), send("third"), send("fourth")
		time.Sleep(10 * time.Second)
		x := b.explain(second).Blocking
		b.check(len(x) > 0 && x[0].Code == control.BlockOrder && strings.Contains(x[0].Detail, first),
			"explained as %+v", x)
		b.cancel(third)
		b.ends("succeeded", time.Hour, first, second, fourth)
		var order []string
		hits := b.hits("")
		for i, h := range hits {
			order = append(order, h.url[len("https://"):strings.Index(h.url, ".")])
			if i >= 3 { // its turn is not to wait for its timer
				between(b, h.url+" came after the one before it", h.at.Sub(hits[i-1].at), 0, time.Second)
			}
		}
		b.is("order", order, []string{"first", "first", "first", "second", "fourth"})
	})
}

// Whose turn it is is claimed at once also where the one before it expired, was superseded or ended with its
// endpoint.
func TestStrictOrderGoesOnAfterEveryEnd(t *testing.T) {
	with(failing("first")).run(t, func(b *fixture) {
		ep := b.subscriber("https://first.example/")
		newer := func(host string, version int64) accept.Submission {
			return accept.Submission{URL: "https://" + host + ".example/", Supersede: true, Ref: "r",
				Topic: "t", Version: &version}
		}
		for name, c := range map[string]struct {
			first accept.Submission
			end   func()
		}{
			"expired": {accept.Submission{URL: "https://first.example/", ExpiresIn: new(time.Minute)},
				func() {}},
			"superseded": {newer("first", 1), func() { b.accept(newer("newer", 2)) }},
			"endpoint deleted": {
				accept.Submission{Endpoint: store.EndpointPrefix + ep.ID}, func() { b.deleteEndpoint(ep) },
			},
		} {
			c.first.Choice = tiers(time.Hour, time.Hour).Choice
			c.first.LockKey, c.first.Order = name, "strict"
			before := b.accept(c.first).ID
			next := b.accept(accept.Submission{URL: "https://next.example/", LockKey: name,
				Order: "strict"}).ID
			time.Sleep(30 * time.Second)
			c.end()
			done, sent := b.await(before, 10*time.Minute), b.await(next, 10*time.Minute)
			b.stands(sent, "succeeded")
			between(b, name+": ms from the end of the one before to that of the next",
				sent.FinishedAt-done.FinishedAt, 0, 1500)
		}
	})
}
