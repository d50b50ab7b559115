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

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

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
func DecodeAttempts(raw []json.RawMessage) ([]client.Attempt, error) {
	list := make([]client.Attempt, len(raw))
	for i := range raw {
		if err := json.Unmarshal(raw[i], &list[i]); err != nil {
			return nil, fmt.Errorf("attempt %d of the answer: %w", i+1, err)
		}
	}
	return list, nil
}

// CallbackPath is the address of one callback.
func CallbackPath(id string) string { return "/v1/callbacks/" + url.PathEscape(id) }

// LastOf is the last answer of a callback: its status, as far as there was one, and its class.
func LastOf(cb *client.Callback) string {
	s := console.Printable(cb.LastClass)
	if cb.LastStatus != 0 {
		s = strings.TrimSpace(strconv.Itoa(cb.LastStatus) + " " + s)
	}
	return s
}

// StateOf is the state of a callback, with the reason if there is one.
func StateOf(cb *client.Callback) string {
	if cb.Reason == "" {
		return string(cb.State)
	}
	return string(cb.State) + ": " + string(cb.Reason)
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
