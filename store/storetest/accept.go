package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func testAcceptRow(f *fixture) {
	version := int64(7)
	given := f.draft(func(d *store.Draft) {
		c := &d.Callback
		c.EndpointID = "01K00000000000000000000000"
		c.Headers = []store.Header{{Name: "X-Shop", Value: "7"}, {Name: "X-Shop", Value: "<8> & “9”"}}
		c.Labels = map[string]string{"channel": "alipay", "金额": "一\"百\\"}
		c.LockKey = "order-1"
		c.ExpiresAt = f.now + 3_600_000
		c.LadderBase = -3
		c.Version = &version
		c.Policy.StopOn = []int{410}
		c.Policy.Jitter = 0.25
		c.Policy.RepeatLast = true
		c.Policy.Deadline = 72 * time.Hour
		c.Policy.Name = "payment"
	})
	a := f.acceptAll(given)[0]
	if a.Err != nil || a.Replayed {
		f.Fatalf("accepted %+v", a)
	}
	want := given.Callback
	want.LaneID, want.PayloadID = a.Callback.LaneID, a.Callback.PayloadID
	if want.LaneID <= 0 || want.PayloadID == "" {
		f.Errorf("lane %d and payload %q were not given", want.LaneID, want.PayloadID)
	}
	same(f, "accepted callback differs", want, a.Callback)
	same(f, "stored callback differs", want, f.get(want.ID))
	same(f, "stamped policy differs", want.Policy, f.claim(want.ID).Policy)
}

func testAcceptBytes(f *fixture) {
	for name, body := range map[string][]byte{
		"none":         nil,
		"empty":        {},
		"NUL":          []byte("a\x00b"),
		"invalid UTF8": {0xff, 0xfe, 0x80, 0x00, 0x27, 0x5c},
		"large":        bytes.Repeat([]byte{0x00, 0xff, '"', '\\'}, 64<<10),
	} {
		c := f.accept(func(d *store.Draft) { d.Body = body })
		p := must(f.Payload(f.ctx(), project, c.ID))
		if !bytes.Equal(p.Body, body) || (p.Body == nil) != (body == nil) {
			f.Errorf("%s: payload of %d bytes came back as %d bytes", name, len(body), len(p.Body))
		}
		if body != nil && p.ContentType != "application/json" {
			f.Errorf("%s: content type came back as %q", name, p.ContentType)
		}
		if s := f.claim(c.ID); !bytes.Equal(s.Body, body) {
			f.Errorf("%s: stamp fetched %d bytes of %d", name, len(s.Body), len(body))
		}
	}
}

func testAcceptAnswersInPlace(f *fixture) {
	const n = 1000
	drafts := make([]store.Draft, n)
	for i := range drafts {
		drafts[n-1-i] = f.draft(func(d *store.Draft) { d.Callback.Lane = fmt.Sprint("lane-", i%10) })
	}
	lanes := make(map[string]int64)
	for i, a := range f.acceptAll(drafts...) {
		if a.Err != nil || a.Callback.ID != drafts[i].Callback.ID {
			f.Fatalf("draft %d was answered with %+v", i, a)
		}
		if id, ok := lanes[a.Callback.Lane]; ok && id != a.Callback.LaneID {
			f.Fatalf("lane %s is %d and %d", a.Callback.Lane, id, a.Callback.LaneID)
		}
		lanes[a.Callback.Lane] = a.Callback.LaneID
	}
	if len(lanes) != 10 {
		f.Errorf("%d lanes for 10 keys", len(lanes))
	}
	other := f.accept(func(d *store.Draft) { d.Callback.Lane, d.Callback.Project = "lane-1", "other" })
	if other.LaneID == lanes["lane-1"] {
		f.Error("two projects share a lane")
	}
}

// testAcceptBadRow gives a draft whose id is taken among good ones: it alone is refused.
func testAcceptBadRow(f *fixture) {
	taken := f.accept(nil)
	drafts := make([]store.Draft, 9)
	for i := range drafts {
		drafts[i] = f.draft(nil)
	}
	drafts[5].Callback.ID = taken.ID
	drafts[5].Callback.Ref = "another"
	for i, a := range f.acceptAll(drafts...) {
		if bad := i == 5; (a.Err != nil) != bad {
			f.Errorf("draft %d: error %v", i, a.Err)
		}
	}
	if c := f.get(taken.ID); c.Ref != taken.Ref {
		f.Errorf("the first callback was changed: ref is %q", c.Ref)
	}
	same(f, "counted", 9, f.counts().States[store.Scheduled])
}

func keyed(key, fingerprint string) func(*store.Draft) {
	return func(d *store.Draft) {
		d.Idempotency = &store.Idempotency{Route: "POST /v1/callbacks", Key: key, Fingerprint: []byte(fingerprint)}
	}
}

func testIdempotency(f *fixture) {
	first := f.accept(keyed("k1", "one"))
	again := f.acceptAll(f.draft(keyed("k1", "one")))[0]
	if again.Err != nil || !again.Replayed || again.Callback.ID != first.ID {
		f.Errorf("the same request again: %+v", again)
	}
	same(f, "replayed callback differs", f.get(first.ID), again.Callback)
	if other := f.acceptAll(f.draft(keyed("k1", "two")))[0]; !errors.Is(other.Err, store.ErrIdempotencyMismatch) {
		f.Errorf("another request with the same key: %+v", other)
	}
	batch := f.acceptAll(
		f.draft(keyed("k2", "one")), f.draft(keyed("k2", "one")), f.draft(keyed("k2", "two")), f.draft(nil),
		f.draft(func(d *store.Draft) { keyed("k2", "two")(d); d.Callback.Project = "other" }),
		f.draft(func(d *store.Draft) { keyed("k2", "two")(d); d.Idempotency.Route = "batch" }),
	)
	if batch[0].Err != nil || batch[0].Replayed {
		f.Errorf("first of its key in a batch: %+v", batch[0])
	}
	if !batch[1].Replayed || batch[1].Callback.ID != batch[0].Callback.ID {
		f.Errorf("second of its key in a batch: %+v", batch[1])
	}
	if !errors.Is(batch[2].Err, store.ErrIdempotencyMismatch) {
		f.Errorf("another request with the key, in a batch: %+v", batch[2])
	}
	for i, a := range batch[3:] {
		if a.Err != nil || a.Replayed {
			f.Errorf("draft %d of the batch: %+v", i+3, a)
		}
	}
	same(f, "counted in the project", 4, f.counts().States[store.Scheduled])
	if p, err := f.Payload(f.ctx(), project, batch[1].Callback.ID); err != nil || len(p.Body) == 0 {
		f.Errorf("payload of the first of its key: %v, %d bytes", err, len(p.Body))
	}
}

// testAcceptConcurrently lets many callers accept at once, some of them with the same key, some giving up.
func testAcceptConcurrently(f *fixture) {
	const callers, each = 40, 5
	var wg sync.WaitGroup
	ids := make(chan string, callers*each)
	for i := range callers {
		wg.Go(func() {
			drafts := make([]store.Draft, each)
			for n := range drafts {
				drafts[n] = f.draft(nil)
			}
			keyed("shared", "same")(&drafts[0])
			ctx, cancel := context.WithCancel(f.ctx())
			defer cancel()
			if i%4 == 3 {
				go cancel()
			}
			accepted, err := f.Accept(ctx, drafts)
			if errors.Is(err, context.Canceled) {
				return
			}
			if err != nil {
				f.Errorf("accept: %v", err)
				return
			}
			for _, a := range accepted {
				if a.Err != nil {
					f.Errorf("accept: %v", a.Err)
				}
				ids <- a.Callback.ID
			}
		})
	}
	wg.Wait()
	close(ids)
	for id := range ids {
		f.get(id)
	}
	page := must(f.List(f.ctx(), project, store.Filter{Limit: 500, Now: f.now}))
	same(f, "counted", int64(len(page.Callbacks)), f.counts().States[store.Scheduled])
}

// testExpiredKey accepts with a key whose callback is gone: twice in one call, and in many calls at once that
// each fill a group.
func testExpiredKey(f *fixture) {
	for round := range 3 {
		key := fmt.Sprint("key-", round)
		f.win(f.succeeded(f.claim(f.accept(keyed(key, "one")).ID)))
		f.now += store.IdempotencyAge.Milliseconds() + 1
		f.purge(f.now, f.now)
		const callers, each = 6, 300
		calls := make([][]store.Draft, callers)
		for i := range calls {
			for range each {
				calls[i] = append(calls[i], f.draft(nil))
			}
			keyed(key, "one")(&calls[i][i])
			keyed(key, "one")(&calls[i][each-1])
		}
		answers := make([][]store.Accepted, callers)
		var wg sync.WaitGroup
		for i, drafts := range calls {
			wg.Go(func() {
				var err error
				if answers[i], err = f.Accept(f.ctx(), drafts); err != nil {
					f.Errorf("accept: %v", err)
				}
			})
		}
		wg.Wait()
		made := map[string]int{}
		for i, answer := range answers {
			for n, a := range answer {
				if a.Err != nil {
					f.Fatalf("accept: %v", a.Err)
				}
				if n != i && n != each-1 {
					continue
				}
				if made[a.Callback.ID] += 0; !a.Replayed {
					made[a.Callback.ID]++
				}
			}
		}
		for id, n := range made {
			if len(made) != 1 || n != 1 {
				f.Errorf("an expired key is that of callback %s, made %d times, one of %d", id, n, len(made))
			}
		}
	}
}

// testSharedPayload accepts two callbacks with one body, and purges one after the other.
func testSharedPayload(f *fixture) {
	shared := f.id()
	fan := func(d *store.Draft) { d.Callback.PayloadID = shared }
	a := f.acceptAll(f.draft(fan), f.draft(fan))
	later := f.accept(func(d *store.Draft) { fan(d); d.Body = nil })
	for _, id := range []string{a[0].Callback.ID, a[1].Callback.ID, later.ID} {
		if s := f.claim(id); string(s.Body) != `{"paid":10000}` {
			f.Errorf("body of %s is %q", id, s.Body)
		}
	}
	f.now += claimLasts
	end := func(id string) {
		f.win(f.succeeded(f.claim(id)))
		f.now += 1000
		f.purge(f.now, 0)
		f.fails(store.ErrPayloadPurged, "payload after the purge", errOf(f.Payload(f.ctx(), project, id)))
	}
	end(a[0].Callback.ID)
	end(later.ID)
	if p, err := f.Payload(f.ctx(), project, a[1].Callback.ID); err != nil || len(p.Body) == 0 {
		f.Errorf("the last user's payload: %v", err)
	}
	end(a[1].Callback.ID)
}

// What a draft repeats is found without accepting anything: as Accept answers it.
func testReplays(f *fixture) {
	keyed := func(key string, fingerprint byte) func(*store.Draft) {
		return func(d *store.Draft) {
			d.Idempotency = &store.Idempotency{Route: "r", Key: key, Fingerprint: []byte{fingerprint}}
		}
	}
	a, poll := f.accept(keyed("a", 1)), f.accept(polling("p"))
	ended := f.accept(polling("q"))
	f.win(f.solved(f.claim(ended.ID)))
	otherRoute := func(d *store.Draft) { keyed("a", 1)(d); d.Idempotency.Route = "s" }
	elsewhere := func(d *store.Draft) { keyed("a", 1)(d); d.Callback.Project = "other" }
	drafts := []store.Draft{
		f.draft(nil),
		f.draft(keyed("a", 1)), f.draft(keyed("a", 1)), f.draft(keyed("a", 2)), f.draft(keyed("b", 1)),
		f.draft(otherRoute), f.draft(elsewhere), f.draft(polling("p")), f.draft(polling("q")),
	}
	none, replay := store.Accepted{Err: store.ErrNotFound}, store.Accepted{Callback: a, Replayed: true}
	want := []store.Accepted{
		none, replay, replay, {Err: store.ErrIdempotencyMismatch}, none,
		none, none, {Callback: poll, Replayed: true}, none,
	}
	got := must(f.Replays(f.ctx(), drafts))
	for i := range want {
		g, w := got[i], want[i]
		if g.Callback.ID != w.Callback.ID || g.Replayed != w.Replayed || !errors.Is(g.Err, w.Err) {
			f.Errorf("draft %d: %+v, want %+v", i, g, w)
		}
	}
	for i, b := range f.acceptAll(drafts[1], drafts[7]) {
		if b.Callback.ID != []string{a.ID, poll.ID}[i] || !b.Replayed {
			f.Errorf("accepted after that: %+v", b)
		}
	}
	f.fails(store.ErrNotFound, "what no draft repeats", errOf(f.Get(f.ctx(), project, drafts[4].Callback.ID)))
}
