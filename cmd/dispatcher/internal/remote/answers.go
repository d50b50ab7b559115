package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// A Callback is what the commands read of a callback.
type Callback struct {
	ID           string            `json:"id"`
	Kind         string            `json:"kind"`
	EndpointID   string            `json:"endpoint_id"`
	URL          string            `json:"url"`
	Method       string            `json:"method"`
	Topic        string            `json:"topic"`
	Ref          string            `json:"ref"`
	Version      *int64            `json:"version"`
	LockKey      string            `json:"lock_key"`
	Order        string            `json:"order"`
	Lane         string            `json:"lane"`
	Labels       map[string]string `json:"labels"`
	State        string            `json:"state"`
	Reason       string            `json:"reason"`
	DueAt        *time.Time        `json:"due_at"`
	AttemptCount int               `json:"attempt_count"`
	DivertCount  int               `json:"divert_count"`
	MaxAttempts  *int              `json:"max_attempts"`
	Tiers        []string          `json:"tiers"`
	Policy       json.RawMessage   `json:"policy"`
	Success      json.RawMessage   `json:"success"`
	Signer       json.RawMessage   `json:"signer"`
	LastStatus   *int              `json:"last_status"`
	LastClass    string            `json:"last_class"`
	CreatedAt    time.Time         `json:"created_at"`
	FinishedAt   *time.Time        `json:"finished_at"`
	ExpiresAt    *time.Time        `json:"expires_at"`
	Replayed     bool              `json:"replayed"`
}

// A Attempt is what the commands read of an attempt.
type Attempt struct {
	Number     int        `json:"number"`
	Trigger    string     `json:"trigger"`
	Outcome    string     `json:"outcome"`
	Charged    bool       `json:"charged"`
	Class      string     `json:"class"`
	StatusCode *int       `json:"status_code"`
	Error      string     `json:"error"`
	StartedAt  *time.Time `json:"started_at"`
	EndedAt    *time.Time `json:"ended_at"`
	DueAt      *time.Time `json:"due_at"`
	LatenessMs float64    `json:"lateness_ms"`
	Timings    struct {
		Total float64 `json:"total"`
	} `json:"timings_ms"`
	ResponseBody string `json:"response_body"`
	Rule         *struct {
		Expected string `json:"expected"`
		Saw      string `json:"saw"`
	} `json:"rule"`
	NextDueAt *time.Time `json:"next_due_at"`
}

// A CallbackPage is one answer to a list.
type CallbackPage struct {
	Data       []Callback `json:"data"`
	NextCursor *string    `json:"next_cursor"`
}

// NewestAttempts reads the newest attempts of a callback page by page, most of them or for zero all, and
// returns them by number.
func NewestAttempts(ctx context.Context, cl *Client, id string, most int) ([]json.RawMessage, error) {
	var all []json.RawMessage
	for next := ""; ; {
		n := MostPerPage
		if most > 0 {
			n = min(n, most-len(all))
		}
		var answer struct {
			Data       []json.RawMessage `json:"data"`
			NextCursor string            `json:"next_cursor"`
		}
		if _, err := Page(ctx, cl, CallbackPath(id)+"/attempts", url.Values{}, n, next, &answer); err != nil {
			return nil, err
		}
		all, next = append(all, answer.Data...), answer.NextCursor
		if next == "" || most > 0 && len(all) >= most {
			slices.Reverse(all)
			return all, nil
		}
	}
}

// DecodeAttempts reads attempts as the server wrote them.
func DecodeAttempts(raw []json.RawMessage) ([]Attempt, error) {
	list := make([]Attempt, len(raw))
	for i := range raw {
		if err := json.Unmarshal(raw[i], &list[i]); err != nil {
			return nil, fmt.Errorf("attempt %d of the answer: %w", i+1, err)
		}
	}
	return list, nil
}

// CallbackPath is the address of one callback.
func CallbackPath(id string) string { return "/v1/callbacks/" + url.PathEscape(id) }

// A CancelResult is what the server says of one cancel.
type CancelResult struct {
	Result   string   `json:"result"`
	Callback Callback `json:"callback"`
}

func LastOf(cb *Callback) string {
	s := console.Printable(cb.LastClass)
	if cb.LastStatus != nil {
		s = strings.TrimSpace(strconv.Itoa(*cb.LastStatus) + " " + s)
	}
	return s
}

// MostPerPage is the most entries that the API gives in one answer.
const MostPerPage = 500

// Page asks for one page of a list, of n entries.
func Page(ctx context.Context, cl *Client, path string, q url.Values, n int, cursor string, out any) ([]byte, error) {
	q.Set("limit", strconv.Itoa(n))
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	return cl.Call(ctx, http.MethodGet, path+"?"+q.Encode(), nil, out)
}
