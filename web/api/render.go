package api

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// This file writes a client.Callback by appending, because every accept writes one. client.AppendJSON writes
// everything else. Every function appends one JSON value or one member.

// A jsonObject appends the members of one JSON object.
type jsonObject struct{ b []byte }

// key appends a member's name, with a comma before it unless it is the first.
func (o *jsonObject) key(name string) {
	if o.b[len(o.b)-1] != '{' {
		o.b = append(o.b, ',')
	}
	o.b = append(o.b, '"')
	o.b = append(o.b, name...)
	o.b = append(o.b, '"', ':')
}

func (o *jsonObject) null(name string) {
	o.key(name)
	o.b = append(o.b, "null"...)
}

func (o *jsonObject) str(name, value string) {
	o.key(name)
	o.b = client.AppendString(o.b, value)
}

// id appends an id with its prefix, or null for an empty id.
func (o *jsonObject) id(name, prefix, bare string) {
	if bare == "" {
		o.null(name)
		return
	}
	o.key(name)
	o.b = append(append(append(append(o.b, '"'), prefix...), bare...), '"')
}

// orNull appends a string, or null for the empty string.
func (o *jsonObject) orNull(name, value string) {
	if value == "" {
		o.null(name)
		return
	}
	o.str(name, value)
}

func (o *jsonObject) integer(name string, value int64) {
	o.key(name)
	o.b = strconv.AppendInt(o.b, value, 10)
}

func (o *jsonObject) boolean(name string, value bool) {
	o.key(name)
	o.b = strconv.AppendBool(o.b, value)
}

// instant appends a time in Unix milliseconds, or null for zero.
func (o *jsonObject) instant(name string, ms int64) {
	if ms == 0 {
		o.null(name)
		return
	}
	o.key(name)
	o.b = append(o.b, '"')
	o.b = appendTime(o.b, ms)
	o.b = append(o.b, '"')
}

// appendDuration writes the output of schedule.FormatDuration. It writes whole seconds without allocations:
// nearly all tiers are whole seconds, and every accept writes about nine.
func appendDuration(b []byte, d time.Duration) []byte {
	b = append(b, '"')
	if d <= 0 || d%time.Second != 0 {
		return append(append(b, schedule.FormatDuration(d)...), '"')
	}
	for _, unit := range [...]struct {
		length time.Duration
		letter byte
	}{{24 * time.Hour, 'd'}, {time.Hour, 'h'}, {time.Minute, 'm'}, {time.Second, 's'}} {
		if n := d / unit.length; n > 0 {
			b = append(strconv.AppendInt(b, int64(n), 10), unit.letter)
			d %= unit.length
		}
	}
	return append(b, '"')
}

func (o *jsonObject) open(name string) {
	o.key(name)
	o.b = append(o.b, '{')
}

func (o *jsonObject) close() { o.b = append(o.b, '}') }

// appendTime writes RFC 3339 in UTC with milliseconds. It writes digit by digit, because every accept writes
// three times and parsing a layout would take longer than the rest.
func appendTime(b []byte, ms int64) []byte {
	t := time.UnixMilli(ms).UTC()
	year, month, day := t.Date()
	if year < 0 || year > 9999 {
		return t.AppendFormat(b, "2006-01-02T15:04:05.000Z")
	}
	hour, minute, second := t.Clock()
	millis := t.Nanosecond() / int(time.Millisecond)
	b = append(appendTwo(appendTwo(b, year/100), year%100), '-')
	b = append(appendTwo(b, int(month)), '-')
	b = append(appendTwo(b, day), 'T')
	b = append(appendTwo(b, hour), ':')
	b = append(appendTwo(b, minute), ':')
	b = append(appendTwo(b, second), '.', byte('0'+millis/100))
	return append(appendTwo(b, millis%100), 'Z')
}

// appendTwo writes a number from 0 to 99 with two digits.
func appendTwo(b []byte, n int) []byte { return append(b, byte('0'+n/10), byte('0'+n%10)) }

// formatTime is appendTime as a string. Zero is empty.
func formatTime(ms int64) string {
	if ms == 0 {
		return ""
	}
	return string(appendTime(nil, ms))
}

// orderStrict is the only value of order except null.
const orderStrict = "strict"

// appendCallback writes a callback with its state at now.
func appendCallback(b []byte, c *store.Callback, now int64, replayed bool) []byte {
	o := jsonObject{append(b, '{')}
	o.callback(c, now)
	if replayed {
		o.boolean("replayed", true)
	}
	o.close()
	return o.b
}

// callback writes the members of a callback with its state at now.
func (o *jsonObject) callback(c *store.Callback, now int64) {
	o.id("id", store.CallbackPrefix, c.ID)
	o.str("kind", string(c.Kind))
	o.str("project", c.Project)
	o.id("endpoint_id", store.EndpointPrefix, c.EndpointID)
	o.str("url", c.URL)
	o.str("method", c.Method)
	o.orNull("topic", c.Topic)
	o.orNull("ref", c.Ref)
	o.orNull("lock_key", c.LockKey)
	if c.Strict {
		o.str("order", orderStrict)
	} else {
		o.null("order")
	}
	o.str("lane", c.Lane)
	o.labels(c.Labels)
	state := c.StateAt(now)
	o.str("state", string(state))
	o.orNull("reason", string(c.Reason))
	due := c.DueAt
	if state.Terminal() {
		due = 0
	}
	o.instant("due_at", due)
	o.integer("attempt_count", int64(c.AttemptCount))
	o.integer("divert_count", int64(c.DivertCount))
	o.maxAttempts(c)
	o.key("tiers")
	o.b = appendTiers(o.b, c.Policy.Tiers)
	o.policy(&c.Policy)
	success, signer := successOf(&c.Success), signerOf(c.Signer)
	o.choice("success", &success)
	o.choice("signer", &signer)
	if c.LastStatus == 0 {
		o.null("last_status")
	} else {
		o.integer("last_status", int64(c.LastStatus))
	}
	o.orNull("last_class", string(c.LastClass))
	o.instant("created_at", c.CreatedAt)
	o.instant("updated_at", c.UpdatedAt)
	o.instant("finished_at", c.FinishedAt)
	o.instant("expires_at", c.ExpiresAt)
	if c.Version == nil {
		o.null("version")
	} else {
		o.integer("version", *c.Version)
	}
}

// creator writes created_by if it is known.
func (o *jsonObject) creator(c *store.Callback) {
	if c.CreatedBy != "" {
		o.str("created_by", query.CreatorID(c))
	}
}

// labels writes the labels sorted by name. One label, the most frequent case, needs no sorting.
func (o *jsonObject) labels(labels map[string]string) {
	o.open("labels")
	switch len(labels) {
	case 0:
	case 1:
		for name, value := range labels {
			o.label(name, value)
		}
	default:
		names := slices.AppendSeq(make([]string, 0, accept.MaxLabels), maps.Keys(labels))
		slices.Sort(names)
		for _, name := range names {
			o.label(name, labels[name])
		}
	}
	o.close()
}

func (o *jsonObject) label(name, value string) {
	o.quoted(name)
	o.b = client.AppendString(o.b, value)
}

// quoted is key for a name that the caller chose, so it may need escapes.
func (o *jsonObject) quoted(name string) {
	if o.b[len(o.b)-1] != '{' {
		o.b = append(o.b, ',')
	}
	o.b = append(client.AppendString(o.b, name), ':')
}

// member writes a member of stored JSON with its value unchanged.
func (o *jsonObject) member(key, value []byte) {
	o.quoted(string(key))
	o.b = append(o.b, value...)
}

// maxAttempts writes max_attempts: null if the last tier repeats, because then the deadline ends the
// callback.
func (o *jsonObject) maxAttempts(c *store.Callback) {
	if c.Policy.RepeatLast {
		o.null("max_attempts")
		return
	}
	o.integer("max_attempts", int64(c.MaxAttempts()))
}

// appendTiers writes the tiers of a policy as an array of durations.
func appendTiers(b []byte, tiers []time.Duration) []byte {
	b = append(b, '[')
	for i, tier := range tiers {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendDuration(b, tier)
	}
	return append(b, ']')
}

// policy writes the name of a policy, or the policy as an object that a request can have. It writes null for
// a policy that a merchant must not see.
func (o *jsonObject) policy(p *store.Policy) {
	if p.Name != "" || p.Timeout == 0 {
		o.orNull("policy", p.Name)
		return
	}
	c := policyChoiceOf(&store.PolicyChoice{Given: p})
	o.choice("policy", &c)
}

// choice writes a name, an object or null.
func (o *jsonObject) choice(name string, c *client.Choice) {
	if c.Object == nil {
		o.orNull(name, c.Name)
		return
	}
	o.key(name)
	o.b = append(o.b, c.Object...)
}
