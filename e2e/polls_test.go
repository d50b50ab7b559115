package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"golang.org/x/sync/errgroup"

	"github.com/seed-ff5a32d8/dispatcher/e2e/judge"
)

// What upstreams say of an order, and what is asked of it.
const (
	processing = `{"trade_state":"PROCESSING"}`
	succeeded  = `{"trade_state":"SUCCESS","paid":10000}`
)

// finals is the rule of an order's poll.
func finals() submission {
	return submission{
		"success": []submission{{"pointer": "/trade_state", "in": []string{"SUCCESS"}}},
		"failure": []submission{{"pointer": "/trade_state", "in": []string{"CLOSED"}}},
	}
}

// askAfter is the policy of a poll with these tiers.
func askAfter(tiers ...string) submission {
	if tiers == nil {
		tiers = []string{}
	}
	return submission{"tiers": tiers, "timeout": "1s"}
}

// A pollShown is what the API shows of a poll.
type pollShown struct {
	callback
	Poll struct {
		Errors   int             `json:"errors"`
		Outcome  string          `json:"outcome"`
		ResultID string          `json:"result_callback_id"`
		Data     json.RawMessage `json:"data"`
		OnResult *struct{}       `json:"on_result"`
	} `json:"poll"`
}

// A pollTold is the body of a result callback.
type pollTold struct {
	PollID  string          `json:"poll_id"`
	Ref     string          `json:"ref"`
	Context json.RawMessage `json:"context"`
	Outcome string          `json:"outcome"`
	Reason  string          `json:"reason"`
	Last    *struct {
		StatusCode int    `json:"status_code"`
		Body       string `json:"body"`
		Truncated  bool   `json:"truncated"`
	} `json:"last"`
	Polls      int             `json:"polls"`
	ObservedAt time.Time       `json:"observed_at"`
	Data       json.RawMessage `json:"data"`
}

// acceptPoll posts one poll, which must be new.
func (c *client) acceptPoll(ctx context.Context, s submission) (callback, error) {
	var cb callback
	err := c.call(ctx, http.MethodPost, "/v1/polls", s, http.StatusAccepted, &cb)
	return cb, err
}

// poll reads one poll.
func (c *client) poll(ctx context.Context, id string) (pollShown, error) {
	var p pollShown
	err := c.call(ctx, http.MethodGet, "/v1/polls/"+id, nil, http.StatusOK, &p)
	return p, err
}

// toldBy decodes what a result callback says.
func toldBy(body []byte) (pollTold, error) {
	var told pollTold
	if err := json.Unmarshal(body, &told); err != nil {
		return told, fmt.Errorf("%q is no result: %w", body, err)
	}
	return told, nil
}

// payloadOf reads the body of a callback as the API shows it.
func (c *client) payloadOf(ctx context.Context, id string) ([]byte, error) {
	got, err := c.raw(ctx, http.MethodGet, "/v1/callbacks/"+id+"/payload", nil, nil)
	if err == nil && got.status != http.StatusOK {
		err = fmt.Errorf("the payload of %s was answered %d", id, got.status)
	}
	return got.body, err
}

// An order is one that an upstream is asked about and a merchant is told of: a lab whose witness is both, at /ask/REF and at /told/REF.
func (l *lab) order(ref string, tiers ...string) submission {
	return submission{
		"ref": ref, "topic": "order.ask", "request": submission{"url": l.w.url + "/ask/" + ref, "payload": payload(ref)},
		"policy": askAfter(tiers...), "until": finals(), "context": submission{"shop": 7}, "lane": "ask-" + ref,
		"on_result": submission{"url": l.w.url + "/told/" + ref, "topic": "order.told", "policy": askAfter("200ms", "1s", "1s"), "lane": "told-" + ref},
	}
}

// An upstream says PROCESSING of an order four times, and then SUCCESS. It is the script of a lab's witness.
type upstream struct {
	mu sync.Mutex
	// said is when it first said SUCCESS of an order.
	said map[string]time.Time
}

func newUpstream() *upstream { return &upstream{said: map[string]time.Time{}} }

func (u *upstream) answer(h *hit) reply {
	ref, asked := strings.CutPrefix(h.path, "/ask/")
	if asked && h.nth < 5 {
		return reply{status: 200, body: processing}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if asked && u.said[ref].IsZero() {
		u.said[ref] = time.Now()
	}
	return reply{status: 200, body: succeeded}
}

// saidSuccess is when it first said SUCCESS of an order; zero: it has not yet.
func (u *upstream) saidSuccess(ref string) time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.said[ref]
}

// fiveTiers lead to five requests and no more.
var fiveTiers = []string{"100ms", "150ms", "200ms", "100ms"}

// Without a fault an order's upstream is asked as often as it takes, each time at its tier and never early, and its merchant is told once.
func TestAPollIsAskedAtItsTiersAndTellsOnce(t *testing.T) {
	blackBox(t)
	on(t, bothEnds, func(t *testing.T, b backend) {
		const n = 40
		l := newLab(t, "polls without a fault", false)
		l.use(b)
		up := newUpstream()
		l.w.behave(up.answer)
		p := l.serve()
		ids := make([]string, n)
		var group errgroup.Group
		group.SetLimit(8)
		for i := range n {
			group.Go(func() error {
				cb, err := p.acceptPoll(l.Context(), l.order(fmt.Sprint("order-", i), fiveTiers...))
				l.note(cb.ID, fmt.Sprint("order-", i))
				ids[i] = cb.ID
				return err
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		l.settle(time.Minute)
		l.verdict(judge.Bounds{SharedRefs: true})
		for i, id := range ids {
			l.judgePoll(p.client, up, fmt.Sprint("order-", i), id, nil)
		}
		if all := l.w.count(); all != 6*n {
			t.Errorf("%d requests of %d polls, want 6 of each: five questions and the result", all, n)
		}
	})
}

// judgePoll holds a poll of an order that was asked about five times against what arrived and what the API shows. What faults found in
// flight may have been asked or told as often again.
func (l *lab) judgePoll(c *client, up *upstream, ref, id string, hit map[string]int) {
	l.Helper()
	ctx := l.Context()
	p, err := c.poll(ctx, id)
	if err != nil {
		l.Fatal(err)
	}
	asked := l.w.times(id)
	lost := asked - p.AttemptCount // asked in vain: a crash was not charged
	if p.State != "succeeded" || p.Reason != "success" || p.Poll.Outcome != "success" || p.Poll.ResultID == "" {
		l.Errorf("%s is %s, %s, with the outcome %q told by %q", ref, p.State, p.Reason, p.Poll.Outcome, p.Poll.ResultID)
	}
	if asked < 5 || asked > 5+hit[id] || lost < 0 || lost > hit[id] || p.AttemptCount > 5 {
		l.Errorf("%s was asked about %d times, of which %d are charged; want five, and no more lost than the %d that faults found in flight",
			ref, asked, p.AttemptCount, hit[id])
	}
	results, err := c.list(ctx, url.Values{"ref": {ref}, "kind": {"notify"}})
	if err != nil {
		l.Fatal(err)
	}
	if len(results) != 1 || results[0].ID != p.Poll.ResultID {
		l.Errorf("%s has %d result callbacks, want one, %s: %+v", ref, len(results), p.Poll.ResultID, results)
		return
	}
	result := results[0]
	if sent := l.w.times(result.ID); result.State != "succeeded" || sent < 1 || sent > 1+hit[result.ID] {
		l.Errorf("the result of %s is %s and was sent %d times; a fault found it in flight %d times", ref, result.State, sent, hit[result.ID])
	}
	// Milliseconds are cut off.
	if said := up.saidSuccess(ref); said.IsZero() || result.CreatedAt.Before(said.Add(-2*time.Millisecond)) {
		l.Errorf("the result of %s was made at %s, and its upstream said SUCCESS at %s", ref, result.CreatedAt, said)
	}
	body, err := c.payloadOf(ctx, result.ID)
	if err != nil {
		l.Fatal(err)
	}
	told, err := toldBy(body)
	if err != nil || told.PollID != id || told.Ref != ref || told.Outcome != "success" || told.Reason != "success" || told.Polls != p.AttemptCount ||
		told.Last == nil || told.Last.StatusCode != 200 || told.Last.Body != succeeded || string(told.Context) != `{"shop":7}` {
		l.Errorf("the result of %s says %s, %v", ref, body, err)
	}
}

// A poll that gets an error is asked again after the tier that came before, and only an answer moves it on; too many errors in a row end it,
// and so does the end of its tiers: nobody knows then, and the merchant hears that.
func TestAPollGoesOnAsItsAnswersSay(t *testing.T) {
	blackBox(t)
	on(t, bothEnds, func(t *testing.T, b backend) {
		said := map[string][]int{ // 1 is PROCESSING, 2 SUCCESS, others are statuses
			"/ask/error-between": {1, 500, 1, 2}, "/ask/budget": {503, 1, 503, 503, 503}, "/ask/out-of-tiers": {1, 1, 1}, "/ask/deadline": {1},
		}
		up := listen(t, func(a *arrival) reply {
			answers := said[a.path]
			switch s := answers[min(a.nth, len(answers))-1]; s {
			case 1:
				return reply{status: 200, body: processing}
			case 2:
				return reply{status: 200, body: succeeded}
			default:
				return reply{status: s}
			}
		})
		merchant := listen(t, always(200, ""))
		p := serve(t, launch{on: b})
		for _, c := range []struct {
			ref    string
			policy submission
			set    submission
			// waits are those between the requests. Polls is how many count.
			waits           []time.Duration
			outcome, reason string
		}{
			{"error-between", askAfter("200ms", "500ms"), nil, []time.Duration{200 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond}, "success", "success"},
			{"budget", askAfter("100ms", "300ms", "1h"), submission{"error_budget": 2},
				[]time.Duration{100 * time.Millisecond, 100 * time.Millisecond, 100 * time.Millisecond, 100 * time.Millisecond}, "unresolved", "unresolved"},
			{"out-of-tiers", askAfter("100ms", "200ms"), nil, []time.Duration{100 * time.Millisecond, 200 * time.Millisecond}, "unresolved", "unresolved"},
			{"deadline", submission{"tiers": []string{"200ms", "30s"}, "deadline": "1s", "timeout": "1s"}, nil, []time.Duration{200 * time.Millisecond}, "unresolved", "unresolved"},
		} {
			t.Run(c.ref, func(t *testing.T) {
				t.Parallel()
				s := submission{"ref": c.ref, "request": submission{"url": up.url + "/ask/" + c.ref}, "policy": c.policy, "until": finals(), "on_result": submission{"url": merchant.url}}
				for k, v := range c.set {
					s[k] = v
				}
				cb, err := p.acceptPoll(t.Context(), s)
				if err != nil {
					t.Fatal(err)
				}
				told, _ := hears(t, merchant, c.ref)
				if told.Outcome != c.outcome || told.Reason != c.reason || told.Polls != len(c.waits)+1 {
					t.Errorf("the merchant heard %+v; want %s, %s after %d", told, c.outcome, c.reason, len(c.waits)+1)
				}
				got := up.of(cb.ID)
				if len(got) != len(c.waits)+1 {
					t.Fatalf("%d requests, want %d", len(got), len(c.waits)+1)
				}
				for i, wait := range c.waits {
					// Late is a matter of the machine, but not by the tier after.
					if gap := got[i+1].at.Sub(got[i].end); gap < wait {
						t.Errorf("request %d came %s after the answer before it, want %s", i+2, gap, wait)
					}
				}
			})
		}
	})
}

// hears waits until a merchant has heard of a reference, and returns what and how.
func hears(t *testing.T, merchant *receiver, ref string) (pollTold, arrival) {
	t.Helper()
	var told pollTold
	var by arrival
	eventually(t, 30*time.Second, "the merchant hears of "+ref, func() error {
		for _, a := range merchant.all() {
			one, err := toldBy(a.body)
			if err != nil {
				return err
			}
			if one.Ref == ref {
				told, by = one, a
				return nil
			}
		}
		return errors.New("nothing came")
	})
	return told, by
}

// Of one reference and address there is one open poll, whoever asks for it and at whichever dispatcher; a sweep over all orders makes none
// twice. With its end another one may be opened.
func TestOfAReferenceAndAnAddressThereIsOneOpenPoll(t *testing.T) {
	blackBox(t)
	on(t, bothEnds, func(t *testing.T, b backend) {
		up := listen(t, always(200, processing))
		processes := []*process{serve(t, launch{on: b})}
		if b.redis != "" {
			processes = append(processes, serve(t, launch{on: b}))
		}
		s := submission{"ref": "order-1", "request": submission{"url": up.url + "/ask"}, "policy": askAfter("1h"), "until": finals()}
		body, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		const askers = 24
		answers := make([]answer, askers)
		var group errgroup.Group
		for i := range askers {
			group.Go(func() (err error) {
				answers[i], err = processes[i%len(processes)].raw(t.Context(), http.MethodPost, "/v1/polls", body, nil)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		ids, fresh := map[string]bool{}, 0
		for _, got := range answers {
			var cb callback
			if err := got.decode(&cb); err != nil {
				t.Fatal(err)
			}
			ids[cb.ID] = true
			if got.status == http.StatusAccepted && !cb.Replayed {
				fresh++
			} else if got.status != http.StatusOK || !cb.Replayed {
				t.Errorf("answered %d: %s", got.status, got.body)
			}
		}
		if len(ids) != 1 || fresh != 1 {
			t.Fatalf("%d polls were made, %d answers say of a new one", len(ids), fresh)
		}
		for id := range ids {
			if err := processes[0].call(t.Context(), http.MethodPost, "/v1/callbacks/"+id+"/cancel", nil, http.StatusOK, nil); err != nil {
				t.Fatal(err)
			}
			// It may be asked at this moment; then it ends with that.
			eventually(t, 20*time.Second, "the poll ends", func() error {
				cb, err := processes[0].get(t.Context(), id)
				if err == nil && cb.FinishedAt == nil {
					err = errors.New(cb.State)
				}
				return err
			})
		}
		again, err := processes[0].acceptPoll(t.Context(), s)
		if err != nil || ids[again.ID] {
			t.Errorf("after its end: %s, %v", again.ID, err)
		}
	})
}

// Each request of a poll is signed afresh: the time and the signature are those of this request, the id is the poll's, and the number counts.
// The result is signed as any callback is.
func TestEachRequestOfAPollIsSignedAfresh(t *testing.T) {
	blackBox(t)
	t.Parallel() // it mostly waits
	up := listen(t, func(a *arrival) reply {
		if a.nth < 3 {
			return reply{status: 200, body: processing}
		}
		return reply{status: 200, body: succeeded}
	})
	merchant := listen(t, always(200, ""))
	p := serve(t, launch{on: servers{}.backend(t, embedded)})
	// The time of a signature is in seconds.
	cb, err := p.acceptPoll(t.Context(), submission{
		"ref": "order-1", "request": submission{"url": up.url + "/ask", "method": "POST", "payload": submission{"no": 1}}, "lane": "upstream",
		"policy": askAfter("1100ms", "1100ms"), "until": finals(), "on_result": submission{"url": merchant.url + "/told", "lane": "merchant"},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, result := hears(t, merchant, "order-1")
	verify := func(lane string, a arrival) {
		t.Helper()
		var secret struct {
			Secret string `json:"secret"`
		}
		if err := p.call(t.Context(), http.MethodGet, "/v1/secret?lane="+lane, nil, http.StatusOK, &secret); err != nil {
			t.Fatal(err)
		}
		verifier, err := standardwebhooks.NewWebhook(secret.Secret)
		if err != nil {
			t.Fatal(err)
		}
		if err := verifier.Verify(a.body, a.header); err != nil {
			t.Errorf("%s of lane %s does not verify: %v", a.id, lane, err)
		}
	}
	asked := up.all()
	if len(asked) != 3 {
		t.Fatalf("asked %d times", len(asked))
	}
	var signatures []string
	var last int64
	for i, a := range asked {
		verify("upstream", a)
		at, err := strconv.ParseInt(a.header.Get("webhook-timestamp"), 10, 64)
		if err != nil || at <= last || a.at.Sub(time.Unix(at, 0)).Abs() > 5*time.Second {
			t.Errorf("request %d is signed at %d, %v, and arrived at %s", i+1, at, err, a.at)
		}
		last = at
		if a.id != cb.ID || a.number != i+1 || string(a.body) != `{"no":1}` {
			t.Errorf("request %d has webhook-id %s and webhook-attempt %d, %s", i+1, a.id, a.number, a.body)
		}
		signatures = append(signatures, a.header.Get("webhook-signature"))
	}
	slices.Sort(signatures)
	if len(slices.Compact(signatures)) != 3 {
		t.Errorf("signatures %v", signatures)
	}
	verify("merchant", result)
	if result.id == cb.ID || !strings.HasPrefix(result.id, "cb_") || result.number != 1 || result.header.Get("Content-Type") != "application/json" {
		t.Errorf("the result came as %s, number %d, %v", result.id, result.number, result.header)
	}
}
