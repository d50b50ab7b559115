package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// NewestAttempts returns the newest attempts of a callback in the order of their numbers: at most most of
// them, or all if most is zero.
func NewestAttempts(ctx context.Context, cl *Client, id string, most int) ([]json.RawMessage, error) {
	p := Pager{
		Path: CallbackPath(id) + "/attempts", Query: url.Values{}, Limit: cmp.Or(most, math.MaxInt),
		Most: MostPerPage,
	}
	all, err := Pages[json.RawMessage](ctx, cl, &p)
	slices.Reverse(all)
	return all, err
}

// DecodeAttempts decodes attempts as the server wrote them.
func DecodeAttempts(raw []json.RawMessage) ([]client.Attempt, error) {
	list := make([]client.Attempt, len(raw))
	for i := range raw {
		if err := json.Unmarshal(raw[i], &list[i]); err != nil {
			return nil, fmt.Errorf("decode attempt %d of the response: %w", i+1, err)
		}
	}
	return list, nil
}

// CallbackPath returns the API path of one callback.
func CallbackPath(id string) string { return "/v1/callbacks/" + url.PathEscape(id) }

// LastOf formats the last response of a callback: its status, if there is one, and its class.
func LastOf(cb *client.Callback) string {
	s := console.Printable(cb.LastClass)
	if cb.LastStatus != 0 {
		s = strings.TrimSpace(strconv.Itoa(cb.LastStatus) + " " + s)
	}
	return s
}

// StateOf formats the state of a callback, with the reason if there is one.
func StateOf(cb *client.Callback) string {
	if cb.Reason == "" {
		return string(cb.State)
	}
	return string(cb.State) + ": " + string(cb.Reason)
}

// MostPerPage is the maximum number of entries in one response of the API.
const MostPerPage = 500

// Pager reads a list page by page.
type Pager struct {
	Path  string
	Query url.Values
	// Limit is the wanted number of entries, Most the maximum of one page, and Within the time after which
	// the search stops. Zero Most and Within: no limit.
	Limit, Most int
	Within      time.Duration
	// Next is the cursor to continue from; empty: the list has ended.
	Next string
}

// Page requests one page of n entries.
func (p *Pager) Page(ctx context.Context, cl *Client, n int, out any) ([]byte, error) {
	if p.Query.Get("cursor") == "" {
		p.Query.Del("cursor")
	}
	p.Query.Set("limit", strconv.Itoa(n))
	return cl.Call(ctx, http.MethodGet, p.Path+"?"+p.Query.Encode(), nil, out)
}

// Pages reads pages until it has Limit entries, the list ends or Within has passed. A page may be short
// although there are more entries.
func Pages[T any](ctx context.Context, cl *Client, p *Pager) (found []T, err error) {
	for began := time.Now(); ; p.Query.Set("cursor", p.Next) {
		n := p.Limit - len(found)
		if p.Most > 0 {
			n = min(n, p.Most)
		}
		var page client.Page[T]
		if _, err := p.Page(ctx, cl, n, &page); err != nil {
			return nil, err
		}
		found, p.Next = append(found, page.Data...), page.NextCursor
		if p.Next == "" || len(found) >= p.Limit || p.Within > 0 && time.Since(began) >= p.Within {
			return found, nil
		}
	}
}
