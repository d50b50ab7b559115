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

// This file is the demo's poll. It asks a bank, which is a path of the receiver, for a refund until the
// status is final. Then the shop gets the result once.

const (
	// refundResult is the topic of the result callback.
	refundResult = "refund.result"
	// pollTier is the wait between two polls; it repeats.
	pollTier = time.Second
	// pollLimit is the poll's deadline. The poll takes much less.
	pollLimit = time.Minute
	// refundDone is the final status at the bank.
	refundDone = "SUCCESS"
)

// pollScenario has the responses of the bank: twice pending, then done.
func pollScenario() scenario {
	pending := reply{status: http.StatusOK, body: `{"status": "PROCESSING"}`}
	return scenario{
		name: polledOften, replies: []reply{pending, pending,
			{status: http.StatusOK, body: `{"status": "` + refundDone + `"}`}},
		state: "succeeded", reason: "success", attempts: 3,
		tiers: slices.Repeat([]time.Duration{pollTier}, 2), poll: true,
	}
}

// demoRefund returns the poll and its result as payments of the demo.
func demoRefund(day time.Time) []payment {
	refund := orderNumber("refund", day, 1)
	var list []payment
	for _, s := range scenarios() {
		switch {
		case s.poll:
			list = append(list, payment{order: refund, topic: "refund", scenario: s, path: "/bank/" + refund})
		case s.result:
			list = append(list, payment{order: refund, topic: refundResult, scenario: s,
				path: "/notify/" + refund})
		}
	}
	return list
}

// refundContext is the poll's context, which the result must contain.
func refundContext(p *payment) json.RawMessage {
	return json.RawMessage(`{"order":"` + p.order + `","channel":"alipay"}`)
}

// startPoll submits the poll. Its result goes to the shop in the lane of the payments, so that the same
// secret signs it.
func (d *demo) startPoll(ctx context.Context, p *payment) (client.Callback, error) {
	result := d.result()
	in := map[string]any{
		"ref": p.order, "lane": "demo-bank", "labels": map[string]string{"scenario": p.scenario.name},
		"request": map[string]any{"url": d.address(p), "signer": "none"},
		"policy": map[string]any{"tiers": tierTexts([]time.Duration{pollTier}), "repeat_last": true,
			"deadline": pollLimit.String(), "timeout": "5s"},
		"until": map[string]any{"success": []any{
			map[string]any{"pointer": "/status", "in": []string{refundDone}}}},
		"context": refundContext(p),
		"on_result": map[string]any{
			"url": d.address(result), "topic": result.topic, "lane": demoLane, "success": "body-success",
			"policy": map[string]any{"tiers": tierTexts(demoTiers), "timeout": "5s"},
			"labels": map[string]string{"scenario": result.scenario.name},
		},
	}
	var cb client.Callback
	_, err := d.cl.Call(ctx, http.MethodPost, "/v1/polls", in, &cb)
	return cb, err
}

// findResult finds the id of the result callback once the poll has ended.
func (d *demo) findResult(ctx context.Context, byID map[string]client.Callback) error {
	id := d.poll().id
	if d.result().id != "" || byID[id].FinishedAt.IsZero() {
		return nil
	}
	var p struct {
		Poll struct {
			ResultCallbackID string `json:"result_callback_id"`
		} `json:"poll"`
	}
	if _, err := d.cl.Call(ctx, http.MethodGet, "/v1/polls/"+url.PathEscape(id), nil, &p); err != nil {
		return fmt.Errorf("get the poll: %w", err)
	}
	d.result().id = p.Poll.ResultCallbackID
	return nil
}

// resultProblems returns what is wrong in the result that the shop got.
func (d *demo) resultProblems() []string {
	poll, result := d.poll(), d.result()
	var list []string
	wrong := func(format string, args ...any) {
		list = append(list, result.name()+": "+fmt.Sprintf(format, args...))
	}
	var r store.PollResult
	if err := json.Unmarshal(result.got, &r); err != nil {
		wrong("the shop got %q, which is not a poll result", result.got)
		return list
	}
	if r.PollID != poll.id || r.Ref != poll.order {
		wrong("is for %s and %s, not for %s and %s", r.PollID, r.Ref, poll.id, poll.order)
	}
	if r.Outcome != store.PollSuccess || r.Polls != poll.scenario.attempts {
		wrong("has the outcome %q after %d polls, not %q after %d",
			r.Outcome, r.Polls, store.PollSuccess, poll.scenario.attempts)
	}
	if context := refundContext(poll); !bytes.Equal(r.Context, context) {
		wrong("has the context %s, not %s", r.Context, context)
	}
	if last := poll.scenario.replies[poll.scenario.attempts-1]; r.Last == nil || r.Last.Body != last.body {
		wrong("does not have the bank's last response, %s", last.body)
	}
	return list
}
