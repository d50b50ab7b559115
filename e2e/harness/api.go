package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"testing"
	"time"
)

// An outcome is what the feed shows of one, as far as tests compare it.
type Outcome struct {
	ID           string     `json:"id"`
	Topic        string     `json:"topic"`
	Ref          string     `json:"ref"`
	State        string     `json:"state"`
	Reason       string     `json:"reason"`
	At           *time.Time `json:"at"`
	AttemptCount int        `json:"attempt_count"`
}

func (o Outcome) String() string {
	return fmt.Sprintf("%s (%s) %s %s at %v after %d", o.ID, o.Ref, o.State, o.Reason, o.At, o.AttemptCount)
}

// Same says whether two readings are of one outcome.
func (o Outcome) Same(other Outcome) bool {
	return o.ID == other.ID && o.State == other.State && o.Reason == other.Reason &&
		o.AttemptCount == other.AttemptCount && o.At.Equal(*other.At)
}

// Outcomes reads one page of the feed.
func (c *Client) Outcomes(ctx context.Context, cursor string, limit int, wait time.Duration) ([]Outcome,
	string, error) {
	var page struct {
		Data       []Outcome `json:"data"`
		NextCursor string    `json:"next_cursor"`
	}
	query := url.Values{"limit": {strconv.Itoa(limit)}, "wait": {wait.String()}}
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	err := c.Call(ctx, http.MethodGet, "/v1/outcomes?"+query.Encode(), nil, http.StatusOK, &page)
	if err == nil && page.NextCursor == "" {
		err = errors.New("a page of the feed says nothing of where to go on")
	}
	return page.Data, page.NextCursor, err
}

// WholeFeed reads the feed from its beginning in pages as long as they may be.
func (c *Client) WholeFeed(ctx context.Context) (all []Outcome, err error) {
	for cursor := ""; ; {
		page, next, err := c.Outcomes(ctx, cursor, 500, 0)
		if err != nil || len(page) == 0 {
			return all, err
		}
		all, cursor = append(all, page...), next
	}
}

// An endpointBody is an endpoint as the API is given and shows it; fields that no test reads are left out.
type EndpointBody map[string]any

func (p *Process) Endpoint(t *testing.T, e EndpointBody) string {
	t.Helper()
	var made struct {
		ID string `json:"id"`
	}
	if err := p.Call(t.Context(), http.MethodPost, "/v1/endpoints", e, http.StatusCreated, &made); err != nil {
		t.Fatal(err)
	}
	return made.ID
}

// A laneBody is a lane as the API shows it.
type LaneBody struct {
	Lane     string `json:"lane"`
	Open     int    `json:"open"`
	InFlight int    `json:"in_flight"`
	Breaker  struct {
		State      string `json:"state"`
		Unanswered int    `json:"unanswered"`
	} `json:"breaker"`
}

// Flood accepts n callbacks to the endpoint, in batches.
func (p *Process) Flood(t *testing.T, endpoint string, n int) {
	t.Helper()
	for done := 0; done < n; {
		batch := make([]Submission, min(500, n-done))
		for i := range batch {
			batch[i] = Submission{"endpoint": endpoint, "payload": i}
		}
		if _, err := p.AcceptBatch(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		done += len(batch)
	}
}

// Finals is the rule of an order's poll.
func Finals() Submission {
	return Submission{
		"success": []Submission{{"pointer": "/trade_state", "in": []string{"SUCCESS"}}},
		"failure": []Submission{{"pointer": "/trade_state", "in": []string{"CLOSED"}}},
	}
}

// AskAfter is the policy of a poll with these tiers.
func AskAfter(tiers ...string) Submission {
	if tiers == nil {
		tiers = []string{}
	}
	return Submission{"tiers": tiers, "timeout": "1s"}
}

// A pollShown is what the API shows of a poll.
type PollShown struct {
	Callback
	Poll struct {
		Errors   int             `json:"errors"`
		Outcome  string          `json:"outcome"`
		ResultID string          `json:"result_callback_id"`
		Data     json.RawMessage `json:"data"`
		OnResult *struct{}       `json:"on_result"`
	} `json:"poll"`
}

// AcceptPoll posts one poll, which must be new.
func (c *Client) AcceptPoll(ctx context.Context, s Submission) (Callback, error) {
	var cb Callback
	err := c.Call(ctx, http.MethodPost, "/v1/polls", s, http.StatusAccepted, &cb)
	return cb, err
}

// Poll reads one poll.
func (c *Client) Poll(ctx context.Context, id string) (PollShown, error) {
	var p PollShown
	err := c.Call(ctx, http.MethodGet, "/v1/polls/"+id, nil, http.StatusOK, &p)
	return p, err
}

// PayloadOf reads the body of a callback as the API shows it.
func (c *Client) PayloadOf(ctx context.Context, id string) ([]byte, error) {
	got, err := c.Raw(ctx, http.MethodGet, "/v1/callbacks/"+id+"/payload", nil, nil)
	if err == nil && got.Status != http.StatusOK {
		err = fmt.Errorf("the payload of %s was answered %d", id, got.Status)
	}
	return got.Body, err
}

// A redriveBody is a redrive as the API shows it; fields that no test reads are left out.
type RedriveBody struct {
	ID         string     `json:"id"`
	State      string     `json:"state"`
	Matched    int        `json:"matched"`
	Done       int        `json:"done"`
	Failed     int        `json:"failed"`
	FinishedAt *time.Time `json:"finished_at"`
}

func (c *Client) Redrive(ctx context.Context, id string) (r RedriveBody, err error) {
	err = c.Call(ctx, http.MethodGet, "/v1/redrives/"+id, nil, http.StatusOK, &r)
	return r, err
}

// RedrivenBy is how often each callback stands in the audit as changed by the redrive.
func (c *Client) RedrivenBy(ctx context.Context, id string) (map[string]int, error) {
	times := map[string]int{}
	query := url.Values{"limit": {"500"}}
	for {
		var page struct {
			Data []struct {
				Action string          `json:"action"`
				Object string          `json:"object"`
				Reason string          `json:"reason"`
				Detail json.RawMessage `json:"detail"`
			} `json:"data"`
			NextCursor *string `json:"next_cursor"`
		}
		if err := c.Call(ctx, http.MethodGet, "/v1/audit?"+query.Encode(), nil, http.StatusOK, &page); err != nil {
			return nil, err
		}
		for _, e := range page.Data {
			if e.Action != "callback.retry" {
				continue
			}
			var detail struct {
				Redrive string `json:"redrive"`
			}
			if err := json.Unmarshal(e.Detail, &detail); err != nil || detail.Redrive != id || e.Reason == "" {
				return nil, errors.Join(err, fmt.Errorf("%s is in the audit with %s, %q", e.Object, e.Detail, e.Reason))
			}
			times["cb_"+e.Object]++
		}
		if page.NextCursor == nil {
			return times, nil
		}
		query.Set("cursor", *page.NextCursor)
	}
}

// A scheduleBody is a schedule as the API shows it; fields that no test reads are left out.
type scheduleBody struct {
	ID     string     `json:"id"`
	NextAt *time.Time `json:"next_at"`
}

// A scheduleRun is one callback that a schedule has made.
type ScheduleRun struct {
	CallbackID string    `json:"callback_id"`
	DueAt      time.Time `json:"due_at"`
	Trigger    string    `json:"trigger"`
}

// schedules reads all schedules; tests have few.
func (c *Client) schedules(ctx context.Context) ([]scheduleBody, error) {
	var page struct {
		Data []scheduleBody `json:"data"`
	}
	err := c.Call(ctx, http.MethodGet, "/v1/schedules?limit=500", nil, http.StatusOK, &page)
	return page.Data, err
}

// Runs reads what a schedule has made, the oldest first.
func (c *Client) Runs(ctx context.Context, id string) ([]ScheduleRun, error) {
	var page struct {
		Data []ScheduleRun `json:"data"`
	}
	err := c.Call(ctx, http.MethodGet, "/v1/schedules/"+id+"/runs", nil, http.StatusOK, &page)
	slices.Reverse(page.Data)
	return page.Data, err
}

// EverySecond makes a schedule of every second.
func (c *Client) EverySecond(ctx context.Context, name, url string, set Submission) (scheduleBody, error) {
	s := Submission{
		"name": name, "cron": "@every 1s",
		"callback": Submission{"url": url, "topic": "tick." + name, "payload": Submission{"of": name},
			"policy": AskAfter("200ms", "1s", "1s")},
	}
	for k, v := range set {
		s[k] = v
	}
	var made scheduleBody
	err := c.Call(ctx, http.MethodPost, "/v1/schedules", s, http.StatusCreated, &made)
	return made, err
}

// Stop disables a schedule; what it had made before stays.
func (c *Client) Stop(ctx context.Context, id string) error {
	return c.Call(ctx, http.MethodPatch, "/v1/schedules/"+id, Submission{"enabled": false}, http.StatusOK, nil)
}
