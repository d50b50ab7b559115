package faults

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// What upstreams say of an order, and what is asked of it.
const (
	processing = `{"trade_state":"PROCESSING"}`
	succeeded  = `{"trade_state":"SUCCESS","paid":10000}`
)

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

// toldBy decodes what a result callback says.
func toldBy(body []byte) (pollTold, error) {
	var told pollTold
	if err := json.Unmarshal(body, &told); err != nil {
		return told, fmt.Errorf("%q is no result: %w", body, err)
	}
	return told, nil
}

// An order is one that an upstream is asked about and a merchant is told of: a trial whose recorder is both,
// at /ask/REF and at /told/REF.
func (tr *trial) order(ref string, tiers ...string) harness.Submission {
	return harness.Submission{
		"ref": ref, "topic": "order.ask", "request": harness.Submission{"url": tr.Recorder.URL + "/ask/" + ref,
			"payload": harness.Payload(ref)},
		"policy": harness.AskAfter(tiers...), "until": harness.Finals(), "context": harness.Submission{"shop": 7},
		"lane": "ask-" + ref,
		"on_result": harness.Submission{"url": tr.Recorder.URL + "/told/" + ref, "topic": "order.told",
			"policy": harness.AskAfter("200ms", "1s", "1s"), "lane": "told-" + ref},
	}
}

// An upstream says PROCESSING of an order four times, and then SUCCESS. It is the script of a trial's
// recorder.
type upstream struct {
	mu sync.Mutex
	// said is when it first said SUCCESS of an order.
	said map[string]time.Time
}

func newUpstream() *upstream { return &upstream{said: map[string]time.Time{}} }

func (u *upstream) answer(h *harness.Request) harness.Reply {
	ref, asked := strings.CutPrefix(h.Path, "/ask/")
	if asked && h.Nth < 5 {
		return harness.Reply{Status: 200, Body: processing}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if asked && u.said[ref].IsZero() {
		u.said[ref] = time.Now()
	}
	return harness.Reply{Status: 200, Body: succeeded}
}

// saidSuccess is when it first said SUCCESS of an order; zero: it has not yet.
func (u *upstream) saidSuccess(ref string) time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.said[ref]
}

// fiveTiers lead to five requests and no more.
var fiveTiers = []string{"100ms", "150ms", "200ms", "100ms"}

// judgePoll holds a poll of an order that was asked about five times against what arrived and what the API
// shows. What faults found in flight may have been asked or told as often again.
func (tr *trial) judgePoll(c *harness.Client, up *upstream, ref, id string, hit map[string]int) {
	tr.Helper()
	ctx := tr.Context()
	p, err := c.Poll(ctx, id)
	if err != nil {
		tr.Fatal(err)
	}
	asked := tr.Recorder.Times(id)
	lost := asked - p.AttemptCount // asked in vain: a crash was not charged
	if p.State != "succeeded" || p.Reason != "success" || p.Poll.Outcome != "success" || p.Poll.ResultID == "" {
		tr.Errorf("%s is %s, %s, with the outcome %q told by %q", ref, p.State, p.Reason, p.Poll.Outcome,
			p.Poll.ResultID)
	}
	if asked < 5 || asked > 5+hit[id] || lost < 0 || lost > hit[id] || p.AttemptCount > 5 {
		tr.Errorf("%s was asked about %d times, of which %d are charged; want five, and no more lost than the "+
			"%d that faults found in flight",
			ref, asked, p.AttemptCount, hit[id])
	}
	results, err := c.List(ctx, url.Values{"ref": {ref}, "kind": {"notify"}})
	if err != nil {
		tr.Fatal(err)
	}
	if len(results) != 1 || results[0].ID != p.Poll.ResultID {
		tr.Errorf("%s has %d result callbacks, want one, %s: %+v", ref, len(results), p.Poll.ResultID, results)
		return
	}
	result := results[0]
	if sent := tr.Recorder.Times(result.ID); result.State != "succeeded" || sent < 1 || sent > 1+hit[result.ID] {
		tr.Errorf("the result of %s is %s and was sent %d times; a fault found it in flight %d times", ref,
			result.State, sent, hit[result.ID])
	}
	// Milliseconds are cut off.
	if said := up.saidSuccess(ref); said.IsZero() || result.CreatedAt.Before(said.Add(-2*time.Millisecond)) {
		tr.Errorf("the result of %s was made at %s, and its upstream said SUCCESS at %s", ref, result.CreatedAt,
			said)
	}
	body, err := c.PayloadOf(ctx, result.ID)
	if err != nil {
		tr.Fatal(err)
	}
	told, err := toldBy(body)
	if err != nil || told.PollID != id || told.Ref != ref || told.Outcome != "success" ||
		told.Reason != "success" || told.Polls != p.AttemptCount ||
		told.Last == nil || told.Last.StatusCode != 200 || told.Last.Body != succeeded ||
		string(told.Context) != `{"shop":7}` {
		tr.Errorf("the result of %s says %s, %v", ref, body, err)
	}
}
