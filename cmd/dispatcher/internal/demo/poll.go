package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// The demo's poll: a bank, which is the receiver's other face, is asked what has become of a refund until
// that is final, and the shop is told of its end, once.

const (
	// refundResult is the topic of the callback that tells the shop.
	refundResult = "refund.result"
	// pollTier is the one wait between two questions, which repeats.
	pollTier = time.Second
	// pollLimit is the poll's deadline, far beyond what it takes.
	pollLimit = time.Minute
	// refundDone is what the bank says when it is.
	refundDone = "SUCCESS"
)

// askedScenario is what the bank answers: that it works on it, twice, and then that it is done.
func askedScenario() scenario {
	pending := reply{status: http.StatusOK, body: `{"status": "PROCESSING"}`}
	return scenario{
		name: askedOften, replies: []reply{pending, pending,
			{status: http.StatusOK, body: `{"status": "` + refundDone + `"}`}},
		state: "succeeded", reason: "success", attempts: 3,
		tiers: slices.Repeat([]time.Duration{pollTier}, 2), asked: true,
	}
}

// demoRefund returns the poll and its result as the rest of the demo knows payments.
func demoRefund(day time.Time) []payment {
	refund := orderNumber("refund", day, 1)
	var list []payment
	for _, s := range scenarios() {
		switch {
		case s.asked:
			list = append(list, payment{order: refund, topic: "refund", scenario: s, path: "/bank/" + refund})
		case s.told:
			list = append(list, payment{order: refund, topic: refundResult, scenario: s,
				path: "/notify/" + refund})
		}
	}
	return list
}

// refundContext is what the shop wants to see again in the result.
func refundContext(p *payment) json.RawMessage {
	return json.RawMessage(`{"order":"` + p.order + `","channel":"alipay"}`)
}

// ask hands the poll over. Its result goes to the shop, in the lane of the payments, so that the same secret
// signs.
func (d *demo) ask(ctx context.Context, p *payment) (client.Callback, error) {
	told := d.told()
	in := map[string]any{
		"ref": p.order, "lane": "demo-bank", "labels": map[string]string{"scenario": p.scenario.name},
		"request": map[string]any{"url": d.address(p), "signer": "none"},
		"policy": map[string]any{"tiers": tierTexts([]time.Duration{pollTier}), "repeat_last": true,
			"deadline": pollLimit.String(), "timeout": "5s"},
		"until": map[string]any{"success": []any{
			map[string]any{"pointer": "/status", "in": []string{refundDone}}}},
		"context": refundContext(p),
		"on_result": map[string]any{
			"url": d.address(told), "topic": told.topic, "lane": demoLane, "success": "body-success",
			"policy": map[string]any{"tiers": tierTexts(demoTiers), "timeout": "5s"},
			"labels": map[string]string{"scenario": told.scenario.name},
		},
	}
	var cb client.Callback
	_, err := d.cl.Call(ctx, http.MethodPost, "/v1/polls", in, &cb)
	return cb, err
}

// learnResult asks which callback tells the result, once the poll has ended.
func (d *demo) learnResult(ctx context.Context, byID map[string]client.Callback) error {
	id := d.asked().id
	if d.told().id != "" || byID[id].FinishedAt.IsZero() {
		return nil
	}
	var p struct {
		Poll struct {
			ResultCallbackID string `json:"result_callback_id"`
		} `json:"poll"`
	}
	if _, err := d.cl.Call(ctx, http.MethodGet, "/v1/polls/"+url.PathEscape(id), nil, &p); err != nil {
		return fmt.Errorf("look at the poll: %w", err)
	}
	d.told().id = p.Poll.ResultCallbackID
	return nil
}

// resultProblems says what is wrong with what the shop was told of the poll's end.
func (d *demo) resultProblems() []string {
	asked, told := d.asked(), d.told()
	var list []string
	wrong := func(format string, args ...any) {
		list = append(list, told.name()+": "+fmt.Sprintf(format, args...))
	}
	var r store.PollResult
	if err := json.Unmarshal(told.got, &r); err != nil {
		wrong("the shop was told %q, which is no result of a poll", told.got)
		return list
	}
	if r.PollID != asked.id || r.Ref != asked.order {
		wrong("tells of %s and %s, not of %s and %s", r.PollID, r.Ref, asked.id, asked.order)
	}
	if r.Outcome != store.PollSuccess || r.Polls != asked.scenario.attempts {
		wrong("tells of %q after %d questions, not of %q after %d", r.Outcome, r.Polls, store.PollSuccess,
			asked.scenario.attempts)
	}
	if context := refundContext(asked); !bytes.Equal(r.Context, context) {
		wrong("has the context %s, not %s", r.Context, context)
	}
	if last := asked.scenario.replies[asked.scenario.attempts-1]; r.Last == nil || r.Last.Body != last.body {
		wrong("does not have the bank's last answer, %s", last.body)
	}
	return list
}
