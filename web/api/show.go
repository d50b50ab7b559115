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

// This file turns what the store and the engine have into the types of package client, as far as all nouns
// need that, and answers with them.

// respond answers with a value of package client.
func (a *API) respond(c *gin.Context, status int, v any) error {
	b, err := client.AppendJSON(make([]byte, 0, 512), v)
	if err != nil {
		return err
	}
	a.writeJSON(c, status, b)
	return nil
}

// reply returns what answers a call of the engine or the store with what it returns, as of turns it.
func reply[T, R any](a *API, c *gin.Context, status int, of func(*T) R) func(T, error) error {
	return func(v T, err error) error {
		if err != nil {
			return err
		}
		return a.respond(c, status, of(&v))
	}
}

// each turns all rows of a list.
func each[T, R any](rows []T, of func(*T) R) []R {
	out := make([]R, len(rows))
	for i := range rows {
		out[i] = of(&rows[i])
	}
	return out
}

// A reader reads the rows of a list after a place; the zero one is the beginning. It may read more than the
// limit: then there is another page.
type reader[T any] func(ctx context.Context, who caller, after store.Cursor, limit int) ([]T, error)

// listOf makes the handler of a list. ask reads the parameters that the list has beside limit and cursor. at
// is the place of a row, and of turns a row.
func listOf[T, R any](
	a *API, list byte, ask func(*query.Values) reader[T], at func(*T) store.Cursor, of func(*T) R,
) handler {
	return func(ctx context.Context, c *gin.Context, who caller) error {
		q, err := a.listQuery(ctx, c, who)
		if err != nil {
			return err
		}
		read := ask(q)
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

// noParameters is ask for a list that has no parameters of its own.
func noParameters[T any](read reader[T]) func(*query.Values) reader[T] {
	return func(*query.Values) reader[T] { return read }
}

// rowsAfter returns the rows of a whole list that come after a place. order is how the list is sorted.
func rowsAfter[T any](rows []T, after store.Cursor, at func(*T) store.Cursor,
	order func(a, b store.Cursor) int) []T {
	if after == (store.Cursor{}) {
		return rows
	}
	begin := slices.IndexFunc(rows, func(row T) bool { return order(at(&row), after) > 0 })
	if begin < 0 {
		return nil
	}
	return rows[begin:]
}

// A finder reads the id, the key or the name of what the path names. What can be none is not found.
type finder func(c *gin.Context) (id string, err error)

// byID finds what the path names with an id of that prefix.
func byID(prefix string) finder {
	return func(c *gin.Context) (string, error) {
		id, ok := store.BareID(prefix, c.Param("id"))
		if !ok {
			return "", store.ErrNotFound
		}
		return id, nil
	}
}

// byName finds what the path names with a name of its caller's.
func byName(param string) finder {
	return func(c *gin.Context) (string, error) {
		name := strings.TrimPrefix(c.Param(param), "/") // which one at the end of a path begins with
		if wrong := query.CheckText(name, false); wrong != "" || name == "" {
			return "", store.ErrNotFound
		}
		return name, nil
	}
}

// byLane finds the lane that the path names. For a path without a lane the key is empty.
func byLane(c *gin.Context) (string, error) { return c.Param("lane"), nil }

// A handlerOf answers a request for a thing of that id, key or name.
type handlerOf func(ctx context.Context, c *gin.Context, who caller, id string) error

// withID makes the handler of what the path names.
func withID(find finder, h handlerOf) handler {
	return func(ctx context.Context, c *gin.Context, who caller) error {
		id, err := find(c)
		if err != nil {
			return err
		}
		return h(ctx, c, who, id)
	}
}

// withReason is one for what is done with no more than a reason, which names the caller in the audit.
func withReason(find finder, h func(ctx context.Context, c *gin.Context, project, id string,
	by store.Actor) error) handler {
	return withID(find, func(ctx context.Context, c *gin.Context, who caller, id string) error {
		reason, err := readReason(c)
		if err != nil {
			return err
		}
		return h(ctx, c, who.Project, id, who.By(reason))
	})
}

// getOne makes the handler that shows what the path names.
func getOne[T, R any](
	a *API, find finder, read func(ctx context.Context, project, id string) (T, error), of func(*T) R,
) handler {
	return withID(find, func(ctx context.Context, c *gin.Context, who caller, id string) error {
		return reply(a, c, http.StatusOK, of)(read(ctx, who.Project, id))
	})
}

// changeOne is act for what is answered with what it has made of the thing.
func changeOne[T, R any](
	a *API, find finder, status int,
	do func(ctx context.Context, project, id string, by store.Actor) (T, error), of func(*T) R,
) handler {
	return withReason(find, func(ctx context.Context, c *gin.Context, project, id string, by store.Actor) error {
		return reply(a, c, status, of)(do(ctx, project, id, by))
	})
}

// deleteOne is act for what answers that it is done, and that there is nothing to say of it.
func deleteOne(find finder, do func(ctx context.Context, project, id string, by store.Actor) error) handler {
	return withReason(find, func(ctx context.Context, c *gin.Context, project, id string, by store.Actor) error {
		if err := do(ctx, project, id, by); err != nil {
			return err
		}
		c.Writer.WriteHeader(http.StatusNoContent)
		return nil
	})
}

// moment is a time in Unix milliseconds, the zero time for zero.
func moment(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// endTime is moment for what may be without an end, which is the zero time too.
func endTime(ms int64) time.Time {
	if ms >= store.Forever {
		ms = 0
	}
	return moment(ms)
}

// duration is a duration as the API writes it.
func duration(d time.Duration) client.Duration { return client.Duration(schedule.FormatDuration(d)) }

// nonZeroDuration is duration, nothing for zero.
func nonZeroDuration(d time.Duration) client.Duration {
	if d == 0 {
		return ""
	}
	return duration(d)
}

// prefixed is an id with its prefix, empty for none.
func prefixed(prefix, bare string) string {
	if bare == "" {
		return ""
	}
	return prefix + bare
}

// rounded is a number with at most three decimals.
func rounded(f float64) float64 { return math.Round(f*1000) / 1000 }

// storedJSON is JSON as it is storedJSON, nil for none. What is no JSON, which only a damaged row can have, is a text: an
// answer is always valid JSON.
func storedJSON[T ~string | ~[]byte](text T) json.RawMessage {
	raw := []byte(text)
	if len(raw) > 0 && !json.Valid(raw) {
		return client.AppendString(nil, string(raw))
	}
	return raw
}

// headersOf are headers as an object has them: one that came several times is one member, its values joined
// by ", ".
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

// pauseOf says whether something is held now, until when and why.
func (a *API) pauseOf(end int64, reason string) client.Pause {
	if end <= a.Engine.Now() {
		return client.Pause{}
	}
	return client.Pause{Paused: true, PausedUntil: endTime(end), PauseReason: reason}
}

// policyOf is what a policy given whole is made of.
func policyOf(p *store.Policy) client.PolicyMembers {
	return client.PolicyMembers{
		Tiers: tiersOf(p.Tiers), RepeatLast: p.RepeatLast, Deadline: nonZeroDuration(p.Deadline),
		Timeout: duration(p.Timeout),
		Jitter:  p.Jitter, RetryAfterCap: duration(p.RetryAfterCap), OverloadFloor: duration(p.OverloadFloor),
		StopOn: p.StopOn,
	}
}

func tiersOf(tiers []time.Duration) []client.Duration {
	return each(tiers, func(d *time.Duration) client.Duration { return duration(*d) })
}

// policyChoiceOf is a policy's name, or one given whole as it can be given again.
func policyChoiceOf(p *store.PolicyChoice) client.Choice {
	if p.Given == nil {
		return client.Named(p.Name)
	}
	c, err := client.Given(policyOf(p.Given))
	if err != nil {
		panic(err) // texts and numbers can always be written
	}
	return c
}

// successOf is a success rule's name, or one given whole.
func successOf(s *store.Success) client.Choice {
	if s.Name != "" || s.Rule == "" {
		return client.Named(s.Name)
	}
	return client.Choice{Object: storedJSON(s.Rule)}
}

// signerOf is a signer's name, or an object with its options.
func signerOf(text string) client.Choice {
	if strings.HasPrefix(text, "{") {
		return client.Choice{Object: storedJSON(text)}
	}
	return client.Named(text)
}
