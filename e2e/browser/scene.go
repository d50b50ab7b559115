package browser

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// A scene is a dispatcher with something to look at.
type scene struct {
	*harness.Process
	t *testing.T
	r *harness.Receiver
	// endpoint, hung, dead, done, poll, schedule, redrive and key are ids of one of each: hung waits for its second attempt.
	endpoint, hung, dead, done, poll, schedule, redrive, key string
}

// The answers of a scene's receiver, by path.
func sceneAnswers(a *harness.Arrival) harness.Reply {
	switch {
	case strings.HasPrefix(a.Path, "/fails"):
		return harness.Reply{Status: 503, Body: `{"error":"the shop is closed for maintenance"}`}
	case strings.HasPrefix(a.Path, "/refuses"):
		return harness.Reply{Status: 422, Body: "unknown order"}
	case strings.HasPrefix(a.Path, "/asks"):
		return harness.Reply{Status: 200, Body: `{"trade_state":"USERPAYING"}`}
	case strings.HasPrefix(a.Path, "/wrong"):
		return harness.Reply{Status: 200, Body: `{"code":"FAIL","message":"signature"}`}
	default:
		return harness.Reply{Status: 200, Body: "success"}
	}
}

// newScene serves with nothing in it.
func newScene(t *testing.T, c harness.Combination) *scene {
	t.Helper()
	return &scene{Process: harness.Serve(t, harness.Launch{On: harness.NewBackend(t, c)}), t: t, r: harness.NewReceiver(t, sceneAnswers)}
}

// settled waits until each of the callbacks is in its state.
func (s *scene) settled(states map[string]client.State) {
	s.t.Helper()
	harness.Eventually(s.t, time.Minute, "the callbacks of the scene are settled", func() error {
		for id, want := range states {
			cb, err := s.Callback(s.t.Context(), id)
			if err != nil {
				return err
			}
			if cb.State != want || want == "scheduled" && cb.AttemptCount == 0 {
				return fmt.Errorf("%s (%s) is %s after %d attempts", id, cb.Ref, cb.State, cb.AttemptCount)
			}
		}
		return nil
	})
}

// one makes one of each: an endpoint, callbacks of three states under one reference, a poll, a schedule, a redrive, a key, a lane that is paused.
func (s *scene) one() *scene {
	s.t.Helper()
	s.endpoint = s.Make("/v1/endpoints", harness.Submission{
		"external_id": "merchant-7", "name": "Tea shop", "url": s.r.URL + "/fails/merchant-7", "topics": []string{"payment.*"}, "headers": harness.Submission{"X-Shop": "7"}, "rate": "50/s",
	}, http.StatusCreated)
	labels := harness.Submission{"channel": "alipay", "region": "south"}
	s.hung = s.Make("/v1/callbacks", harness.Submission{
		"endpoint": "merchant-7", "topic": "payment.succeeded", "ref": "order-20261121-0001", "payload": harness.Submission{"paid": 10000, "goods": "tea"},
		"policy": harness.AskAfter("1h", "2h"), "labels": labels, "lock_key": "order-20261121-0001",
	}, http.StatusAccepted)
	s.dead = s.Make("/v1/callbacks", harness.Submission{
		"url": s.r.URL + "/fails/ledger?token=secret", "topic": "payment.booked", "ref": "order-20261121-0001", "payload": harness.Submission{"paid": 10000},
		"policy": harness.AskAfter("50ms", "50ms"), "labels": labels,
	}, http.StatusAccepted)
	s.done = s.Make("/v1/callbacks", harness.Submission{
		"url": s.r.URL + "/takes", "topic": "payment.mailed", "ref": "order-20261121-0001", "body": "trade_no=1&status=PAID", "content_type": "application/x-www-form-urlencoded",
	}, http.StatusAccepted)
	s.poll = s.Make("/v1/polls", harness.Submission{
		"ref": "refund-1", "request": harness.Submission{"url": s.r.URL + "/asks/refund-1"}, "policy": harness.AskAfter("1h"), "until": harness.Finals(),
		"context": harness.Submission{"channel": "wechat"}, "on_result": harness.Submission{"endpoint": "merchant-7", "topic": "refund.result"},
	}, http.StatusAccepted)
	s.schedule = s.Make("/v1/schedules", harness.Submission{
		"name": "daily-books", "cron": "30 1 * * *", "timezone": "Asia/Shanghai", "callback": harness.Submission{"url": s.r.URL + "/takes/books", "payload": harness.Submission{"kind": "daily"}},
	}, http.StatusCreated)
	s.key = s.Make("/v1/keys", harness.Submission{"name": "checkout service", "scopes": []string{"send", "read"}, "expires_in": "365d"}, http.StatusCreated)
	s.settled(map[string]client.State{s.hung: "scheduled", s.dead: "dead", s.done: "succeeded"})
	s.Make("/v1/callbacks/"+s.dead+"/retry", harness.Submission{"reason": "the shop said that it is back"}, http.StatusOK)
	s.settled(map[string]client.State{s.dead: "dead"})
	s.redrive = s.Make("/v1/redrives", harness.Submission{
		"action": "retry", "filter": harness.Submission{"state": "dead", "topic": "payment.booked"}, "rate": "100/s", "reason": "the shop is back",
	}, http.StatusAccepted)
	s.redriven(s.redrive)
	s.Make("/v1/lanes/merchant-9/pause", harness.Submission{"reason": "the merchant moves house"}, http.StatusOK)
	return s
}

// redriven waits until a redrive is done and what it did has ended.
func (s *scene) redriven(id string) {
	s.t.Helper()
	harness.Eventually(s.t, time.Minute, "the redrive is done", func() error {
		r, err := s.Client.Redrive(s.t.Context(), id)
		if err == nil && r.State != "done" {
			err = errors.New(r.State)
		}
		return err
	})
	s.settled(map[string]client.State{s.dead: "dead"})
}

// sceneMany is how many of each there are where there are many: more than one page of a list.
const sceneMany = 60

// many makes more than one page of each.
func (s *scene) many() *scene {
	s.t.Helper()
	s.one()
	var endpoints []harness.Submission
	for i := range sceneMany {
		endpoints = append(endpoints, harness.Submission{
			"external_id": fmt.Sprintf("shop-%03d", i), "name": fmt.Sprintf("Shop of the %d. street, with a name that is long", i),
			"url": fmt.Sprintf("%s/%s/shop-%03d", s.r.URL, []string{"takes", "fails", "refuses", "wrong"}[i%4], i), "topics": []string{"payment.*", "refund.*"},
			"success": "body-success",
		})
	}
	var shops struct {
		Results []struct {
			Status   int             `json:"status"`
			Problem  json.RawMessage `json:"problem"`
			Endpoint struct {
				ID string `json:"id"`
			} `json:"endpoint"`
		} `json:"results"`
	}
	s.Post("/v1/endpoints/batch", harness.Submission{"endpoints": endpoints}, &shops, http.StatusMultiStatus)
	for _, r := range shops.Results {
		if r.Status != http.StatusCreated {
			s.t.Fatalf("an endpoint was answered with %d: %s", r.Status, r.Problem)
		}
	}
	var batch []harness.Submission
	for i := range 4 * sceneMany {
		c := harness.Submission{
			"endpoint": fmt.Sprintf("shop-%03d", i%sceneMany), "topic": []string{"payment.succeeded", "payment.closed", "refund.succeeded"}[i%3],
			"ref": fmt.Sprintf("order-2026112%d-%04d", i%9, i/2), "payload": harness.Submission{"paid": i, "goods": strings.Repeat("tea ", i%20)}, "labels": harness.Submission{"channel": []string{"alipay", "wechat"}[i%2]},
			"policy": [...]harness.Submission{harness.AskAfter("50ms"), harness.AskAfter("10m", "1h", "6h"), harness.AskAfter("50ms", "2h", "3h", "4h", "5h", "6h", "7h", "8h", "9h")}[i%3],
		}
		if i%10 == 9 {
			c["delay"] = fmt.Sprint(i, "m")
		}
		batch = append(batch, c)
	}
	made, err := s.AcceptBatch(s.t.Context(), batch)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := range sceneMany {
		s.Make("/v1/polls", harness.Submission{
			"ref": fmt.Sprint("refund-m-", i), "request": harness.Submission{"url": fmt.Sprint(s.r.URL, "/asks/m-", i)}, "policy": harness.AskAfter("1h", "2h"), "until": harness.Finals(),
		}, http.StatusAccepted)
		s.Make("/v1/schedules", harness.Submission{
			"name": fmt.Sprintf("report-%02d", i), "cron": fmt.Sprintf("%d %d * * *", i%60, i%24), "timezone": []string{"Asia/Shanghai", "UTC", "America/New_York"}[i%3], "enabled": i%5 != 0,
			"callback": harness.Submission{"endpoint": fmt.Sprintf("shop-%03d", i), "payload": harness.Submission{"report": i}},
		}, http.StatusCreated)
	}
	harness.Eventually(s.t, time.Minute, "what is due is attempted", func() error {
		all, err := s.ListAll(client.Filter{})
		if err != nil {
			return err
		}
		open := slices.DeleteFunc(all, func(cb client.Callback) bool {
			return cb.AttemptCount > 0 || cb.State != "scheduled" && cb.State != "attempting" || time.Until(cb.DueAt) > time.Minute
		})
		if len(open) > 0 {
			return fmt.Errorf("%d are not, such as %s", len(open), open[0].ID)
		}
		return nil
	})
	for i := range 8 {
		s.Make("/v1/keys", harness.Submission{"name": fmt.Sprint("service ", i), "scopes": []string{"send"}}, http.StatusCreated)
		s.Make("/v1/redrives", harness.Submission{
			"action": "retry", "filter": harness.Submission{"state": "dead", "endpoint": fmt.Sprintf("shop-%03d", i)}, "rate": "1000/s", "reason": fmt.Sprint("street ", i, " is open again"),
		}, http.StatusAccepted)
		s.Make("/v1/endpoints/"+shops.Results[i].Endpoint.ID+"/pause", harness.Submission{"reason": "it moves house"}, http.StatusOK)
	}
	s.Make("/v1/callbacks/"+made[9].ID+"/cancel", harness.Submission{"reason": "the order was a mistake"}, http.StatusOK)
	return s
}

// menu are the pages that the menu leads to.
var menu = []string{
	"/ui/", "/ui/callbacks", "/ui/dead", "/ui/endpoints", "/ui/lanes", "/ui/polls", "/ui/schedules", "/ui/redrives", "/ui/books", "/ui/audit", "/ui/system",
}

// shapeOf names a page by the shape of its address: ids and numbers are left out, and of what is asked for all that does not make it another
// page.
func shapeOf(address string) string {
	path, query, _ := strings.Cut(address, "?")
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if len(s) > 20 && strings.Contains(s, "_") || strings.Trim(s, "0123456789") == "" && s != "" {
			segments[i] = "id"
		}
	}
	shape, filtered := strings.Join(segments, "/"), false
	for pair := range strings.SplitSeq(query, "&") {
		if strings.HasPrefix(pair, "action=") && strings.HasSuffix(path, "/new") {
			return shape + "?" + pair
		}
		filtered = filtered || pair != ""
	}
	if filtered {
		shape += "?"
	}
	return shape
}

// hostOf is the host and port of an address.
func hostOf(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// A keyMade is a key as it is shown once.
type keyMade struct {
	ID  string `json:"id"`
	Key string `json:"key"`
}

// madeKey makes a key with these scopes.
func madeKey(t *testing.T, p *harness.Process, scopes ...string) (k keyMade) {
	t.Helper()
	p.Post("/v1/keys", harness.Submission{"name": fmt.Sprint("a key to ", scopes), "scopes": scopes}, &k,
		http.StatusCreated)
	if k.Key == "" {
		t.Fatal(errors.New("a key without a text"))
	}
	return k
}
