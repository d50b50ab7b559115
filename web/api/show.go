package api

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// This file responds to requests, and converts types of the store and the engine that several files share to
// types of package client.

// respond sends a value of package client as JSON.
func (a *API) respond(c *gin.Context, status int, v any) error {
	b, err := client.AppendJSON(make([]byte, 0, 512), v)
	if err != nil {
		return err
	}
	a.writeJSON(c, status, b)
	return nil
}

// reply returns a function that takes the result of a call to the engine or the store. It responds with the
// value, converted by of, or returns the error.
func reply[T, R any](a *API, c *gin.Context, status int, of func(*T) R) func(T, error) error {
	return func(v T, err error) error {
		if err != nil {
			return err
		}
		return a.respond(c, status, of(&v))
	}
}

// each converts all rows of a list.
func each[T, R any](rows []T, of func(*T) R) []R {
	out := make([]R, len(rows))
	for i := range rows {
		out[i] = of(&rows[i])
	}
	return out
}

// A reader reads the rows of a list after a cursor; the zero cursor is the beginning. If it returns more rows
// than limit, there is another page.
type reader[T any] func(ctx context.Context, who caller, after store.Cursor, limit int) ([]T, error)

// listOf returns the handler of a list. parse reads the parameters besides limit and cursor, and returns the
// reader. at returns the cursor of a row, and of converts a row.
func listOf[T, R any](
	a *API, list byte, parse func(*query.Values) reader[T], at func(*T) store.Cursor, of func(*T) R,
) handler {
	return func(ctx context.Context, c *gin.Context, who caller) error {
		q, err := a.listQuery(ctx, c, who)
		if err != nil {
			return err
		}
		read := parse(q)
		limit, after := q.Page(list)
		q.Unknown()
		if err := q.Err(); err != nil {
			return err
		}
		if after == nil {
			after = &store.Cursor{}
		}
		rows, err := read(ctx, who, *after, limit+1)
		if err != nil {
			return err
		}
		rows, last := query.Cut(rows, limit)
		page := client.Page[R]{Data: each(rows, of)}
		if last != nil {
			page.NextCursor = q.Cursors.Encode(list, at(last))
		}
		return a.respond(c, http.StatusOK, page)
	}
}

// noParameters is parse for a list that has only limit and cursor.
func noParameters[T any](read reader[T]) func(*query.Values) reader[T] {
	return func(*query.Values) reader[T] { return read }
}

// rowsAfter returns the rows of a whole list after a cursor. order is the sort order of the list.
func rowsAfter[T any](
	rows []T, after store.Cursor, at func(*T) store.Cursor, order func(a, b store.Cursor) int,
) []T {
	if after == (store.Cursor{}) {
		return rows
	}
	begin := slices.IndexFunc(rows, func(row T) bool { return order(at(&row), after) > 0 })
	if begin < 0 {
		return nil
	}
	return rows[begin:]
}

// A finder reads an id, a key or a name from the path. If it cannot be one, the error is store.ErrNotFound.
type finder func(c *gin.Context) (id string, err error)

// byID reads an id with that prefix, and returns it without the prefix.
func byID(prefix string) finder {
	return func(c *gin.Context) (string, error) {
		id, ok := store.BareID(prefix, c.Param("id"))
		if !ok {
			return "", store.ErrNotFound
		}
		return id, nil
	}
}

// byName reads a name that a caller chose.
func byName(param string) finder {
	return func(c *gin.Context) (string, error) {
		name := strings.TrimPrefix(c.Param(param), "/") // gin begins a "*name" parameter with a slash
		if wrong := query.CheckText(name, false); wrong != "" || name == "" {
			return "", store.ErrNotFound
		}
		return name, nil
	}
}

// byLane reads the key of a lane. Paths without a lane use it too; their key is empty.
func byLane(c *gin.Context) (string, error) { return c.Param("lane"), nil }

// A handlerOf handles a request for the object with that id, key or name.
type handlerOf func(ctx context.Context, c *gin.Context, who caller, id string) error

// withID returns a handler that reads the id from the path and calls h.
func withID(find finder, h handlerOf) handler {
	return func(ctx context.Context, c *gin.Context, who caller) error {
		id, err := find(c)
		if err != nil {
			return err
		}
		return h(ctx, c, who, id)
	}
}

// withReason is withID for calls whose body has only a reason, and that the audit log records.
func withReason(
	find finder, h func(ctx context.Context, c *gin.Context, project, id string, by store.Actor) error,
) handler {
	return withID(find, func(ctx context.Context, c *gin.Context, who caller, id string) error {
		reason, err := readReason(c)
		if err != nil {
			return err
		}
		return h(ctx, c, who.Project, id, who.By(reason))
	})
}

// getOne returns a handler that responds with the object in the path.
func getOne[T, R any](
	a *API, find finder, read func(ctx context.Context, project, id string) (T, error), of func(*T) R,
) handler {
	return withID(find, func(ctx context.Context, c *gin.Context, who caller, id string) error {
		return reply(a, c, http.StatusOK, of)(read(ctx, who.Project, id))
	})
}

// changeOne returns a handler that changes the object in the path and responds with the result.
func changeOne[T, R any](
	a *API, find finder, status int,
	do func(ctx context.Context, project, id string, by store.Actor) (T, error), of func(*T) R,
) handler {
	h := func(ctx context.Context, c *gin.Context, project, id string, by store.Actor) error {
		return reply(a, c, status, of)(do(ctx, project, id, by))
	}
	return withReason(find, h)
}

// deleteOne returns a handler that deletes the object in the path and responds with 204.
func deleteOne(find finder, do func(ctx context.Context, project, id string, by store.Actor) error) handler {
	h := func(ctx context.Context, c *gin.Context, project, id string, by store.Actor) error {
		if err := do(ctx, project, id, by); err != nil {
			return err
		}
		c.Writer.WriteHeader(http.StatusNoContent)
		return nil
	}
	return withReason(find, h)
}

// moment converts Unix milliseconds. Zero becomes the zero time.
func moment(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// endTime is moment for the end of a period. An end that never comes becomes the zero time too.
func endTime(ms int64) time.Time {
	if ms >= store.Forever {
		ms = 0
	}
	return moment(ms)
}

// duration converts a duration.
func duration(d time.Duration) client.Duration { return client.Duration(schedule.FormatDuration(d)) }

// nonZeroDuration is duration, but empty for zero.
func nonZeroDuration(d time.Duration) client.Duration {
	if d == 0 {
		return ""
	}
	return duration(d)
}

// prefixed returns an id with its prefix, or "" for an empty id.
func prefixed(prefix, bare string) string {
	if bare == "" {
		return ""
	}
	return prefix + bare
}

// rounded returns a number with at most three decimals.
func rounded(f float64) float64 { return math.Round(f*1000) / 1000 }

// storedJSON returns stored JSON, or nil for an empty text. A text that is not JSON, which only happens in a
// damaged row, becomes a string, because a response must always be valid JSON.
func storedJSON[T ~string | ~[]byte](text T) json.RawMessage {
	raw := []byte(text)
	if len(raw) > 0 && !json.Valid(raw) {
		return client.AppendString(nil, string(raw))
	}
	return raw
}

// headersOf converts headers to an object. Repeated headers become one member with a comma-separated list of
// their values.
func headersOf(headers []store.Header) (out client.Headers) {
	for i, h := range headers {
		same := func(other store.Header) bool { return strings.EqualFold(other.Name, h.Name) }
		if slices.ContainsFunc(headers[:i], same) {
			continue
		}
		for _, other := range headers[i+1:] {
			if same(other) {
				h.Value += ", " + other.Value
			}
		}
		out = append(out, client.Header(h))
	}
	return out
}

// pauseOf returns the pause that ends at end, if it is still in force.
func (a *API) pauseOf(end int64, reason string) client.Pause {
	if end <= a.Engine.Now() {
		return client.Pause{}
	}
	return client.Pause{Paused: true, PausedUntil: endTime(end), PauseReason: reason}
}

// policyOf returns the members of a policy object.
func policyOf(p *store.Policy) client.PolicyMembers {
	return client.PolicyMembers{
		Tiers: tiersOf(p.Tiers), RepeatLast: p.RepeatLast, Deadline: nonZeroDuration(p.Deadline),
		Timeout: duration(p.Timeout), Jitter: p.Jitter, RetryAfterCap: duration(p.RetryAfterCap),
		OverloadFloor: duration(p.OverloadFloor), StopOn: p.StopOn,
	}
}

func tiersOf(tiers []time.Duration) []client.Duration {
	return each(tiers, func(d *time.Duration) client.Duration { return duration(*d) })
}

// policyChoiceOf returns the name of a policy, or the policy as an object that a request can have.
func policyChoiceOf(p *store.PolicyChoice) client.Choice {
	if p.Given == nil {
		return client.Named(p.Name)
	}
	return client.Given(policyOf(p.Given))
}

// successOf returns the name of a success rule, or the rule as an object.
func successOf(s *store.Success) client.Choice {
	if s.Name != "" || s.Rule == "" {
		return client.Named(s.Name)
	}
	return client.Choice{Object: storedJSON(s.Rule)}
}

// signerOf returns the name of a signer, or an object with its options.
func signerOf(text string) client.Choice {
	if strings.HasPrefix(text, "{") {
		return client.Choice{Object: storedJSON(text)}
	}
	return client.Named(text)
}
