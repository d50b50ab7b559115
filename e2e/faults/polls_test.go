package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"golang.org/x/sync/errgroup"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// Without a fault an order's upstream is asked as often as it takes, each time at its tier and never early, and its merchant is told once.
func TestAPollIsAskedAtItsTiersAndTellsOnce(t *testing.T) {
	harness.BlackBox(t)
	harness.OnEach(t, harness.BothEnds, func(t *testing.T, b harness.Backend) {
		const n = 40
		tr := newTrial(t, "polls without a fault", false)
		tr.UseBackend(b)
		up := newUpstream()
		tr.Recorder.SetScript(up.answer)
		p := tr.Serve()
		ids := make([]string, n)
		var group errgroup.Group
		group.SetLimit(8)
		for i := range n {
			group.Go(func() error {
				cb, err := p.AcceptPoll(tr.Context(), tr.order(fmt.Sprint("order-", i), fiveTiers...))
				tr.NoteAccepted(cb.ID, fmt.Sprint("order-", i))
				ids[i] = cb.ID
				return err
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		tr.Settle(time.Minute)
		tr.Verdict(judge.Bounds{SharedRefs: true})
		for i, id := range ids {
			tr.judgePoll(p.Client, up, fmt.Sprint("order-", i), id, nil)
		}
		if all := tr.Recorder.Count(); all != 6*n {
			t.Errorf("%d requests of %d polls, want 6 of each: five questions and the result", all, n)
		}
	})
}

// A poll that gets an error is asked again after the tier that came before, and only an answer moves it on; too many errors in a row end it,
// and so does the end of its tiers: nobody knows then, and the merchant hears that.
func TestAPollGoesOnAsItsAnswersSay(t *testing.T) {
	harness.BlackBox(t)
	harness.OnEach(t, harness.BothEnds, func(t *testing.T, b harness.Backend) {
		said := map[string][]int{ // 1 is PROCESSING, 2 SUCCESS, others are statuses
			"/ask/error-between": {1, 500, 1, 2}, "/ask/budget": {503, 1, 503, 503, 503}, "/ask/out-of-tiers": {1, 1, 1}, "/ask/deadline": {1},
		}
		up := harness.NewReceiver(t, func(a *harness.Arrival) harness.Reply {
			answers := said[a.Path]
			switch s := answers[min(a.Nth, len(answers))-1]; s {
			case 1:
				return harness.Reply{Status: 200, Body: processing}
			case 2:
				return harness.Reply{Status: 200, Body: succeeded}
			default:
				return harness.Reply{Status: s}
			}
		})
		merchant := harness.NewReceiver(t, harness.Always(200, ""))
		p := harness.Serve(t, harness.Launch{On: b})
		for _, c := range []struct {
			ref    string
			policy harness.Submission
			set    harness.Submission
			// waits are those between the requests. Polls is how many count.
			waits           []time.Duration
			outcome, reason string
		}{
			{"error-between", harness.AskAfter("200ms", "500ms"), nil, []time.Duration{200 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond}, "success", "success"},
			{"budget", harness.AskAfter("100ms", "300ms", "1h"), harness.Submission{"error_budget": 2},
				[]time.Duration{100 * time.Millisecond, 100 * time.Millisecond, 100 * time.Millisecond, 100 * time.Millisecond}, "unresolved", "unresolved"},
			{"out-of-tiers", harness.AskAfter("100ms", "200ms"), nil, []time.Duration{100 * time.Millisecond, 200 * time.Millisecond}, "unresolved", "unresolved"},
			{"deadline", harness.Submission{"tiers": []string{"200ms", "30s"}, "deadline": "1s", "timeout": "1s"}, nil, []time.Duration{200 * time.Millisecond}, "unresolved", "unresolved"},
		} {
			t.Run(c.ref, func(t *testing.T) {
				t.Parallel()
				s := harness.Submission{"ref": c.ref, "request": harness.Submission{"url": up.URL + "/ask/" + c.ref}, "policy": c.policy, "until": harness.Finals(), "on_result": harness.Submission{"url": merchant.URL}}
				for k, v := range c.set {
					s[k] = v
				}
				cb, err := p.AcceptPoll(t.Context(), s)
				if err != nil {
					t.Fatal(err)
				}
				told, _ := hears(t, merchant, c.ref)
				if told.Outcome != c.outcome || told.Reason != c.reason || told.Polls != len(c.waits)+1 {
					t.Errorf("the merchant heard %+v; want %s, %s after %d", told, c.outcome, c.reason, len(c.waits)+1)
				}
				got := up.Of(cb.ID)
				if len(got) != len(c.waits)+1 {
					t.Fatalf("%d requests, want %d", len(got), len(c.waits)+1)
				}
				for i, wait := range c.waits {
					// Late is a matter of the machine, but not by the tier after.
					if gap := got[i+1].At.Sub(got[i].End); gap < wait {
						t.Errorf("request %d came %s after the answer before it, want %s", i+2, gap, wait)
					}
				}
			})
		}
	})
}

// Of one reference and address there is one open poll, whoever asks for it and at whichever dispatcher; a sweep over all orders makes none
// twice. With its end another one may be opened.
func TestOfAReferenceAndAnAddressThereIsOneOpenPoll(t *testing.T) {
	harness.BlackBox(t)
	harness.OnEach(t, harness.BothEnds, func(t *testing.T, b harness.Backend) {
		up := harness.NewReceiver(t, harness.Always(200, processing))
		processes := []*harness.Process{harness.Serve(t, harness.Launch{On: b})}
		if b.Redis != "" {
			processes = append(processes, harness.Serve(t, harness.Launch{On: b}))
		}
		s := harness.Submission{"ref": "order-1", "request": harness.Submission{"url": up.URL + "/ask"}, "policy": harness.AskAfter("1h"), "until": harness.Finals()}
		body, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		const askers = 24
		answers := make([]harness.Answer, askers)
		var group errgroup.Group
		for i := range askers {
			group.Go(func() (err error) {
				answers[i], err = processes[i%len(processes)].Raw(t.Context(), http.MethodPost, "/v1/polls", body, nil)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		ids, fresh := map[string]bool{}, 0
		for _, got := range answers {
			var cb harness.Callback
			if err := got.Decode(&cb); err != nil {
				t.Fatal(err)
			}
			ids[cb.ID] = true
			if got.Status == http.StatusAccepted && !cb.Replayed {
				fresh++
			} else if got.Status != http.StatusOK || !cb.Replayed {
				t.Errorf("answered %d: %s", got.Status, got.Body)
			}
		}
		if len(ids) != 1 || fresh != 1 {
			t.Fatalf("%d polls were made, %d answers say of a new one", len(ids), fresh)
		}
		for id := range ids {
			if err := processes[0].Call(t.Context(), http.MethodPost, "/v1/callbacks/"+id+"/cancel", nil, http.StatusOK, nil); err != nil {
				t.Fatal(err)
			}
			// It may be asked at this moment; then it ends with that.
			harness.Eventually(t, 20*time.Second, "the poll ends", func() error {
				cb, err := processes[0].Get(t.Context(), id)
				if err == nil && cb.FinishedAt == nil {
					err = errors.New(cb.State)
				}
				return err
			})
		}
		again, err := processes[0].AcceptPoll(t.Context(), s)
		if err != nil || ids[again.ID] {
			t.Errorf("after its end: %s, %v", again.ID, err)
		}
	})
}

// Each request of a poll is signed afresh: the time and the signature are those of this request, the id is the poll's, and the number counts.
// The result is signed as any callback is.
func TestEachRequestOfAPollIsSignedAfresh(t *testing.T) {
	harness.BlackBox(t)
	t.Parallel() // it mostly waits
	up := harness.NewReceiver(t, func(a *harness.Arrival) harness.Reply {
		if a.Nth < 3 {
			return harness.Reply{Status: 200, Body: processing}
		}
		return harness.Reply{Status: 200, Body: succeeded}
	})
	merchant := harness.NewReceiver(t, harness.Always(200, ""))
	p := harness.Serve(t, harness.Launch{On: harness.NewBackend(t, harness.SQLiteEmbedded)})
	// The time of a signature is in seconds.
	cb, err := p.AcceptPoll(t.Context(), harness.Submission{
		"ref": "order-1", "request": harness.Submission{"url": up.URL + "/ask", "method": "POST", "payload": harness.Submission{"no": 1}}, "lane": "upstream",
		"policy": harness.AskAfter("1100ms", "1100ms"), "until": harness.Finals(), "on_result": harness.Submission{"url": merchant.URL + "/told", "lane": "merchant"},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, result := hears(t, merchant, "order-1")
	verify := func(lane string, a harness.Arrival) {
		t.Helper()
		var secret struct {
			Secret string `json:"secret"`
		}
		if err := p.Call(t.Context(), http.MethodGet, "/v1/secret?lane="+lane, nil, http.StatusOK, &secret); err != nil {
			t.Fatal(err)
		}
		verifier, err := standardwebhooks.NewWebhook(secret.Secret)
		if err != nil {
			t.Fatal(err)
		}
		if err := verifier.Verify(a.Body, a.Header); err != nil {
			t.Errorf("%s of lane %s does not verify: %v", a.ID, lane, err)
		}
	}
	asked := up.All()
	if len(asked) != 3 {
		t.Fatalf("asked %d times", len(asked))
	}
	var signatures []string
	var last int64
	for i, a := range asked {
		verify("upstream", a)
		at, err := strconv.ParseInt(a.Header.Get("webhook-timestamp"), 10, 64)
		if err != nil || at <= last || a.At.Sub(time.Unix(at, 0)).Abs() > 5*time.Second {
			t.Errorf("request %d is signed at %d, %v, and arrived at %s", i+1, at, err, a.At)
		}
		last = at
		if a.ID != cb.ID || a.Number != i+1 || string(a.Body) != `{"no":1}` {
			t.Errorf("request %d has webhook-id %s and webhook-attempt %d, %s", i+1, a.ID, a.Number, a.Body)
		}
		signatures = append(signatures, a.Header.Get("webhook-signature"))
	}
	slices.Sort(signatures)
	if len(slices.Compact(signatures)) != 3 {
		t.Errorf("signatures %v", signatures)
	}
	verify("merchant", result)
	if result.ID == cb.ID || !strings.HasPrefix(result.ID, "cb_") || result.Number != 1 || result.Header.Get("Content-Type") != "application/json" {
		t.Errorf("the result came as %s, number %d, %v", result.ID, result.Number, result.Header)
	}
}
