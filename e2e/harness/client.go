package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// A client speaks the HTTP API as any caller would. Its methods return errors, so that goroutines may use
// them.
type Client struct {
	Base, Key string
	HTTP      *http.Client
	// accounts count what it is told was accepted; nil: nothing is counted.
	accounts *accounts
}

func NewClient(base string) *Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 256
	return &Client{Base: base, Key: AdminKey, HTTP: &http.Client{Transport: transport,
		Timeout: 60 * time.Second}}
}

// A callback is what the API shows of one; fields that no test reads are left out.
type Callback struct {
	ID           string     `json:"id"`
	Kind         string     `json:"kind"`
	State        string     `json:"state"`
	Reason       string     `json:"reason"`
	Topic        string     `json:"topic"`
	Ref          string     `json:"ref"`
	Lane         string     `json:"lane"`
	DueAt        *time.Time `json:"due_at"`
	AttemptCount int        `json:"attempt_count"`
	DivertCount  int        `json:"divert_count"`
	MaxAttempts  int        `json:"max_attempts"`
	CreatedAt    time.Time  `json:"created_at"`
	FinishedAt   *time.Time `json:"finished_at"`
	Replayed     bool       `json:"replayed"`
}

// An attempt is what the API shows of one.
type Attempt struct {
	Number     int    `json:"number"`
	Trigger    string `json:"trigger"`
	Outcome    string `json:"outcome"`
	Charged    bool   `json:"charged"`
	Class      string `json:"class"`
	StatusCode int    `json:"status_code"`
	Error      string `json:"error"`
	Rule       struct {
		Name     string `json:"name"`
		Expected string `json:"expected"`
		Saw      string `json:"saw"`
	} `json:"rule"`
	StartedAt  time.Time  `json:"started_at"`
	EndedAt    time.Time  `json:"ended_at"`
	DueAt      *time.Time `json:"due_at"`
	LatenessMS float64    `json:"lateness_ms"`
	NextDueAt  *time.Time `json:"next_due_at"`
}

// A problem is an RFC 9457 answer.
type Problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Code   string `json:"code"`
	Errors []struct {
		Field   string `json:"field"`
		Message string `json:"message"`
	} `json:"errors"`
}

// A submission is the body of POST /v1/callbacks.
type Submission map[string]any

// An answer is the whole of an HTTP answer.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

func (a Answer) Decode(into any) error {
	if err := json.Unmarshal(a.Body, into); err != nil {
		return fmt.Errorf("answer %d is not the JSON expected: %w: %.300s", a.Status, err, a.Body)
	}
	return nil
}

// Raw sends bytes as they are.
func (c *Client) Raw(ctx context.Context, method, path string, body []byte, header http.Header) (Answer,
	error) {
	req, err := http.NewRequestWithContext(ctx, method, c.Base+path, bytes.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	req.Header.Set("Authorization", "Bearer "+c.Key)
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	maps.Copy(req.Header, header)
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		return Answer{}, fmt.Errorf("%s %s: read the answer: %w", method, path, err)
	}
	whole := Answer{Status: resp.StatusCode, Header: resp.Header, Body: got}
	c.accounts.answered(method, path, whole)
	return whole, nil
}

// Call sends JSON and decodes the answer, which must have the wanted status.
func (c *Client) Call(ctx context.Context, method, path string, in any, want int, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	got, err := c.Raw(ctx, method, path, body, nil)
	if err != nil {
		return err
	}
	if got.Status != want {
		return fmt.Errorf("%s %s answered %d, want %d: %.500s", method, path, got.Status, want, got.Body)
	}
	if out == nil {
		return nil
	}
	return got.Decode(out)
}

// Accept posts one callback.
func (c *Client) Accept(ctx context.Context, s Submission) (Callback, error) {
	var cb Callback
	err := c.Call(ctx, http.MethodPost, "/v1/callbacks", s, http.StatusAccepted, &cb)
	return cb, err
}

// AcceptBatch posts up to 1,000 callbacks; every one of them must be accepted, or have been by an earlier try
// whose answer was 503. It gives up after half a minute of those.
func (c *Client) AcceptBatch(ctx context.Context, batch []Submission) ([]Callback, error) {
	got, err := c.acceptOnce(ctx, batch, http.StatusAccepted)
	keyed := batch[0]["idempotency_key"] != nil
	for try := 0; try < 150 && keyed && err != nil && ctx.Err() == nil &&
		strings.Contains(err.Error(), "answered 503"); try++ {
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
		got, err = c.acceptOnce(ctx, batch, http.StatusAccepted, http.StatusOK)
	}
	return got, err
}

// acceptOnce posts callbacks, each of which must be answered with one of the statuses.
func (c *Client) acceptOnce(ctx context.Context, batch []Submission, statuses ...int) ([]Callback, error) {
	var reply struct {
		Results []struct {
			Status   int             `json:"status"`
			Callback Callback        `json:"callback"`
			Problem  json.RawMessage `json:"problem"`
		} `json:"results"`
	}
	err := c.Call(ctx, http.MethodPost, "/v1/callbacks/batch", map[string]any{"callbacks": batch},
		http.StatusMultiStatus, &reply)
	if err != nil {
		return nil, err
	}
	if len(reply.Results) != len(batch) {
		return nil, fmt.Errorf("a batch of %d was answered with %d results", len(batch), len(reply.Results))
	}
	accepted := make([]Callback, 0, len(batch))
	for i, r := range reply.Results {
		if !slices.Contains(statuses, r.Status) {
			return nil, fmt.Errorf("element %d of the batch was answered %d: %s", i, r.Status, r.Problem)
		}
		accepted = append(accepted, r.Callback)
	}
	return accepted, nil
}

// Get reads one callback.
func (c *Client) Get(ctx context.Context, id string) (Callback, error) {
	var cb Callback
	err := c.Call(ctx, http.MethodGet, "/v1/callbacks/"+id, nil, http.StatusOK, &cb)
	return cb, err
}

// Attempts reads every attempt of one callback, page by page, and returns them by number.
func (c *Client) Attempts(ctx context.Context, id string) ([]Attempt, error) {
	query := url.Values{"limit": {"500"}}
	var all []Attempt
	for {
		var page struct {
			Data       []Attempt `json:"data"`
			NextCursor *string   `json:"next_cursor"`
		}
		if err := c.Call(ctx, http.MethodGet, "/v1/callbacks/"+id+"/attempts?"+query.Encode(), nil,
			http.StatusOK, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Data...)
		if page.NextCursor == nil {
			slices.Reverse(all)
			return all, nil
		}
		query.Set("cursor", *page.NextCursor)
	}
}

// List reads every callback that the filter picks, page by page.
func (c *Client) List(ctx context.Context, filter url.Values) ([]Callback, error) {
	query := url.Values{"limit": {"500"}}
	maps.Copy(query, filter)
	var all []Callback
	for {
		var page struct {
			Data       []Callback `json:"data"`
			NextCursor *string    `json:"next_cursor"`
		}
		if err := c.Call(ctx, http.MethodGet, "/v1/callbacks?"+query.Encode(), nil, http.StatusOK,
			&page); err != nil {
			return nil, err
		}
		all = append(all, page.Data...)
		if page.NextCursor == nil {
			return all, nil
		}
		query.Set("cursor", *page.NextCursor)
	}
}

// anyOpen returns one callback that is not terminal, if there is one.
func (c *Client) anyOpen(ctx context.Context) (Callback, bool, error) {
	var page struct {
		Data []Callback `json:"data"`
	}
	err := c.Call(ctx, http.MethodGet, "/v1/callbacks?state=scheduled&state=attempting&limit=1", nil,
		http.StatusOK, &page)
	if err != nil || len(page.Data) == 0 {
		return Callback{}, false, err
	}
	return page.Data[0], true, nil
}
