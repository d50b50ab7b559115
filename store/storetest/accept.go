package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func testAcceptRow(f *fixture) {
	version := int64(7)
	given := f.draft(with(func(c *store.Callback) {
		c.EndpointID = "01K00000000000000000000000"
		c.Headers = []store.Header{{Name: "X-Shop", Value: "7"}, {Name: "X-Shop", Value: "<8> & “9”"}}
		c.Labels = map[string]string{"channel": "alipay", "金额": "一\"百\\"}
		c.LockKey, c.ExpiresAt, c.LadderBase, c.Version = "order-1", f.now+hour, -3, &version
		p := &c.Policy
		p.StopOn, p.Jitter, p.RepeatLast, p.Deadline, p.Name = []int{410}, 0.25, true, 72*time.Hour, "payment"
	}))
	a := f.acceptAll(given)[0]
	f.require(a.Err == nil && !a.Replayed, "accepted %+v", a)
	want := given.Callback
	want.LaneID, want.PayloadID = a.Callback.LaneID, a.Callback.PayloadID
	f.check(want.LaneID > 0 && want.PayloadID != "", "lane %d and payload %q were not given", want.LaneID,
		want.PayloadID)
	both(f, "the callback", want, a.Callback, f.get(want.ID))
	same(f, "stamped policy", want.Policy, f.claim(want.ID).Policy)
}

func testAcceptBytes(f *fixture) {
	for name, body := range map[string][]byte{
		"none":         nil,
		"empty":        {},
		"NUL":          []byte("a\x00b"),
		"invalid UTF8": {0xff, 0xfe, 0x80, 0x00, 0x27, 0x5c},
		"large":        bytes.Repeat([]byte{0x00, 0xff, '"', '\\'}, 64<<10),
	} {
		c := f.accept(withBody(body))
		p := f.payload(c.ID)
		f.check(bytes.Equal(p.Body, body) && (p.Body == nil) == (body == nil),
			"%s: payload of %d bytes came back as %d bytes", name, len(body), len(p.Body))
		f.check(body == nil || p.ContentType == "application/json", "%s: content type %q", name, p.ContentType)
		s := f.claim(c.ID)
		f.check(bytes.Equal(s.Body, body), "%s: stamp fetched %d bytes of %d", name, len(s.Body), len(body))
	}
}

func testAcceptAnswersInPlace(f *fixture) {
	const n = 1000
	drafts := make([]store.Draft, n)
	for i := range drafts {
		drafts[n-1-i] = f.draft(inLane(fmt.Sprint("lane-", i%10)))
	}
	lanes := make(map[string]int64)
	for i, a := range f.acceptAll(drafts...) {
		f.require(a.Err == nil && a.Callback.ID == drafts[i].Callback.ID, "draft %d was answered with %+v", i, a)
		id, ok := lanes[a.Callback.Lane]
		f.require(!ok || id == a.Callback.LaneID, "lane %s is %d and %d", a.Callback.Lane, id, a.Callback.LaneID)
		lanes[a.Callback.Lane] = a.Callback.LaneID
	}
	same(f, "lanes for 10 keys", 10, len(lanes))
	other := f.accept(inLane("lane-1"), inProject("other"))
	f.check(other.LaneID != lanes["lane-1"], "two projects share a lane")
}

// testAcceptBadRow gives a draft whose id is taken among good ones: it alone is refused.
func testAcceptBadRow(f *fixture) {
	taken := f.accept()
	drafts := f.drafts(9)
	drafts[5].Callback.ID, drafts[5].Callback.Ref = taken.ID, "another"
	for i, a := range f.acceptAll(drafts...) {
		f.check((a.Err != nil) == (i == 5), "draft %d: error %v", i, a.Err)
	}
	same(f, "reference of the first callback", taken.Ref, f.get(taken.ID).Ref)
	f.wantOpen(9)
}

// replayOf checks that a draft became a callback that was there.
func (f *fixture) replayOf(c store.Callback, a store.Accepted) {
	f.check(a.Err == nil && a.Replayed && a.Callback.ID == c.ID,
		"accepted %s, replayed %t, %v; want %s", a.Callback.ID, a.Replayed, a.Err, c.ID)
}

// fresh checks that a draft became a callback of its own, and returns it.
func (f *fixture) fresh(a store.Accepted) store.Callback {
	f.check(a.Err == nil && !a.Replayed, "accepted %+v", a)
	return a.Callback
}

func testIdempotency(f *fixture) {
	first := f.accept(keyed("k1", "one"))
	again := f.offer(keyed("k1", "one"))
	f.replayOf(first, again)
	same(f, "replayed callback", f.get(first.ID), again.Callback)
	f.fails(store.ErrIdempotencyMismatch, "another request with the key", f.offer(keyed("k1", "two")).Err)
	batch := f.acceptAll(
		f.draft(keyed("k2", "one")), f.draft(keyed("k2", "one")), f.draft(keyed("k2", "two")), f.draft(),
		f.draft(keyed("k2", "two"), inProject("other")),
		f.draft(keyed("k2", "two"), func(d *store.Draft) { d.Idempotency.Route = "batch" }),
	)
	f.replayOf(f.fresh(batch[0]), batch[1])
	f.fails(store.ErrIdempotencyMismatch, "another request with the key, in a batch", batch[2].Err)
	for _, a := range batch[3:] {
		f.fresh(a)
	}
	f.wantOpen(4)
	f.check(len(f.payload(batch[1].Callback.ID).Body) > 0, "the first of its key has no payload")
}

// testAcceptConcurrently lets many callers accept at once, some of them with the same key, some giving up.
func testAcceptConcurrently(f *fixture) {
	for _, accepted := range crowd(f, 40, func(i int) []store.Accepted {
		drafts := f.drafts(5)
		keyed("shared", "same")(&drafts[0])
		ctx, cancel := context.WithCancel(f.ctx())
		defer cancel()
		if i%4 == 3 {
			go cancel()
		}
		accepted, err := f.Accept(ctx, drafts)
		f.check(err == nil || errors.Is(err, context.Canceled), "accept: %v", err)
		return accepted
	}) {
		for _, a := range accepted {
			f.ok(a.Err)
			f.get(a.Callback.ID)
		}
	}
	f.wantOpen(int64(len(f.list(store.Filter{}))))
}

// testExpiredKey accepts with a key whose callback is gone: twice in one call, and in many calls at once that
// each fill a group.
func testExpiredKey(f *fixture) {
	for round := range 3 {
		key := keyed(fmt.Sprint("key-", round), "one")
		f.succeed(f.accept(key).ID)
		f.now += store.IdempotencyAge.Milliseconds() + 1
		f.purge(f.now, f.now)
		const callers, each = 6, 300
		calls := make([][]store.Draft, callers)
		for i := range calls {
			calls[i] = f.drafts(each)
			key(&calls[i][i])
			key(&calls[i][each-1])
		}
		made := map[string]int{}
		for i, answer := range crowd(f, callers, func(i int) []store.Accepted { return f.acceptAll(calls[i]...) }) {
			for n, a := range answer {
				f.ok(a.Err)
				if n != i && n != each-1 {
					continue
				}
				if made[a.Callback.ID] += 0; !a.Replayed {
					made[a.Callback.ID]++
				}
			}
		}
		for id, n := range made {
			f.check(len(made) == 1 && n == 1,
				"an expired key is that of callback %s, made %d times, one of %d", id, n, len(made))
		}
	}
}

// testSharedPayload accepts callbacks with one body, and purges one after the other.
func testSharedPayload(f *fixture) {
	shared := f.id()
	fan := with(func(c *store.Callback) { c.PayloadID = shared })
	all := f.acceptEach(2, fan)
	all = append(all, f.accept(fan, withBody(nil)))
	for _, c := range all {
		same(f, "body", paid, string(f.claim(c.ID).Body))
	}
	f.now += claimLasts
	for _, i := range []int{0, 2, 1} {
		f.check(len(f.payload(all[i].ID).Body) > 0, "the payload went before its last user, %d", i)
		f.succeed(all[i].ID)
		f.now += 1000
		f.purge(f.now, 0)
		f.fails(store.ErrPayloadPurged, "payload after the purge", errOf(f.Payload(f.ctx(), project, all[i].ID)))
	}
}

// testReplays: what a draft repeats is found as Accept would answer it, without accepting anything.
func testReplays(f *fixture) {
	a, poll, ended := f.accept(keyed("a", "1")), f.accept(polling("p")), f.accept(polling("q"))
	f.solve(ended.ID)
	missing, replay := store.Accepted{Err: store.ErrNotFound}, store.Accepted{Callback: a, Replayed: true}
	cases := []struct {
		draft store.Draft
		want  store.Accepted
	}{
		{f.draft(), missing},
		{f.draft(keyed("a", "1")), replay},
		{f.draft(keyed("a", "1")), replay},
		{f.draft(keyed("a", "2")), store.Accepted{Err: store.ErrIdempotencyMismatch}},
		{f.draft(keyed("b", "1")), missing},
		{f.draft(keyed("a", "1"), func(d *store.Draft) { d.Idempotency.Route = "s" }), missing},
		{f.draft(keyed("a", "1"), inProject("other")), missing},
		{f.draft(polling("p")), store.Accepted{Callback: poll, Replayed: true}},
		{f.draft(polling("q")), missing},
	}
	var drafts []store.Draft
	for _, c := range cases {
		drafts = append(drafts, c.draft)
	}
	replays := must(f.Replays(f.ctx(), drafts))
	for i, c := range cases {
		got, want := replays[i], c.want
		f.check(got.Callback.ID == want.Callback.ID && got.Replayed == want.Replayed &&
			errors.Is(got.Err, want.Err),
			"draft %d: %+v, want %+v", i, got, want)
	}
	again := f.acceptAll(drafts[1], drafts[7])
	f.replayOf(a, again[0])
	f.replayOf(poll, again[1])
	f.missing("what no draft repeats", errOf(f.Get(f.ctx(), project, drafts[4].Callback.ID)))
}
