package sqlstore

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// An auditDiff is what a change makes different of an object, field by field, as the audit may show it.
type auditDiff struct {
	// names are the parts that differ, in their order. A part may be several fields.
	names         []string
	before, after fields
}

// fields are values by their names.
type fields map[string]any

// A part of an object is compared by its value. The audit shows it, which may be several fields: what is
// masked may look the same before and after.
type part struct {
	name         string
	value, shown any
}

// diff compares the parts of an object before and after a change.
func diff[T any](parts func(*T) []part, before, after *T) auditDiff {
	d := auditDiff{before: fields{}, after: fields{}}
	was, is := parts(before), parts(after)
	for i := range was {
		if isSame(was[i].value, is[i].value) {
			continue
		}
		d.names = append(d.names, was[i].name)
		was[i].addTo(d.before)
		is[i].addTo(d.after)
	}
	return d
}

// isSame compares values by what is stored of them. What cannot be encoded, such as a ciphertext in place of
// JSON, is the same as itself alone.
func isSame(a, b any) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	was, err := encode(a)
	is, other := encode(b)
	none := func(text string) bool { return text == "null" || text == "[]" }
	return err == nil && other == nil && (was == is || none(was) && none(is))
}

func (p *part) addTo(side fields) {
	if several, ok := p.shown.(fields); ok {
		maps.Copy(side, several)
		return
	}
	side[p.name] = p.shown
}

// plain is a part that is shown as it is.
func plain(name string, value any) part { return part{name, value, value} }

// changeOf is a difference of one field.
func changeOf(name string, before, after any) auditDiff {
	return auditDiff{before: fields{name: before}, after: fields{name: after}}
}

// made says that the object was not there before, removed that it is not there any more.
func (d auditDiff) made() auditDiff    { d.before = nil; return d }
func (d auditDiff) removed() auditDiff { d.after = nil; return d }

// texts writes both sides as JSON; empty: there is none.
func (d *auditDiff) texts() (before, after string, err error) {
	for _, side := range []struct {
		fields
		to *string
	}{{d.before, &before}, {d.after, &after}} {
		if len(side.fields) == 0 {
			continue
		}
		*side.to, err = encode(side.fields)
		if err != nil {
			return "", "", named("encode a difference for the audit", err)
		}
	}
	return before, after, nil
}

func shownURL(raw string) any {
	if raw == "" {
		return nil
	}
	return store.MaskURL(raw)
}

func shownRate(r store.Rate) any {
	if r == (store.Rate{}) {
		return nil
	}
	return r.String()
}

// shownTime writes a time, null for none.
func shownTime(ms int64) any {
	switch ms {
	case 0:
		return nil
	case store.Forever:
		return "forever"
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

func shownSuccess(s store.Success) any {
	if s.Rule != "" {
		return s.Rule
	}
	if s.Name == "" {
		return nil
	}
	return s.Name
}

// shownSigner writes a signer: a name, or an object with its options.
func shownSigner(text string) any {
	switch {
	case text == "":
		return nil
	case text[0] == '{' && json.Valid([]byte(text)):
		return json.RawMessage(text)
	}
	return text
}

// shownPolicy writes a policy by its name, or whole with durations as people write them.
func shownPolicy(p *store.Policy) any {
	if p.Name != "" {
		return p.Name
	}
	tiers := make([]string, len(p.Tiers))
	for i, tier := range p.Tiers {
		tiers[i] = tier.String()
	}
	shown := map[string]any{
		"tiers": tiers, "timeout": p.Timeout.String(), "retry_after_cap": p.RetryAfterCap.String(),
	}
	if p.Deadline != 0 {
		shown["deadline"] = p.Deadline.String()
	}
	if p.OverloadFloor != 0 {
		shown["overload_floor"] = p.OverloadFloor.String()
	}
	if p.RepeatLast {
		shown["repeat_last"] = true
	}
	if p.Jitter != 0 {
		shown["jitter"] = p.Jitter
	}
	if len(p.StopOn) > 0 {
		shown["stop_on"] = p.StopOn
	}
	return shown
}

func shownChoice(c *store.PolicyChoice) any {
	switch {
	case c.Given != nil:
		return shownPolicy(c.Given)
	case c.Name == "":
		return nil
	}
	return c.Name
}

// shownHeaders writes headers without the credentials in them.
func shownHeaders(headers []store.Header) any {
	shown := make(map[string][]string, len(headers))
	for _, h := range headers {
		if h.Sealed() != "" || h.Value != "" && store.IsSensitiveHeader(h.Name) {
			h.Value = store.Masked
		}
		shown[h.Name] = append(shown[h.Name], h.Value)
	}
	return shown
}

// callbackName is a callback's id as callers see it; null for none.
func callbackName(id string) any {
	if id == "" {
		return nil
	}
	return store.CallbackPrefix + id
}

// callbackParts are what people change of a callback. Its body never changes.
func callbackParts(c *store.Callback) []part {
	return []part{
		plain("state", c.State),
		plain("reason", c.Reason),
		plain("cancel_requested", c.CancelRequested),
		plain("trigger", c.Trigger),
		{"due_at", c.DueAt, shownTime(c.DueAt)},
		{"expires_at", c.ExpiresAt, shownTime(c.ExpiresAt)},
		{"url", c.URL, shownURL(c.URL)},
		plain("follows_endpoint", c.Follows),
		plain("lane", c.Lane),
		{"headers", c.Headers, shownHeaders(c.Headers)},
		{"policy", c.Policy, shownPolicy(&c.Policy)},
		{"success", c.Success, shownSuccess(c.Success)},
	}
}

// endpointParts are all but the endpoint's health.
func endpointParts(e *store.Endpoint) []part {
	type enabled struct {
		Is     bool
		Reason string
	}
	return []part{
		plain("external_id", e.ExternalID),
		plain("name", e.Name),
		{"url", e.URL, shownURL(e.URL)},
		plain("url_override", e.URLOverride),
		plain("topics", e.Topics),
		{"policy", e.Policy, shownChoice(&e.Policy)},
		{"success", e.Success, shownSuccess(e.Success)},
		{"signer", e.Signer, shownSigner(e.Signer)},
		{"headers", e.Headers, shownHeaders(e.Headers)},
		{"rate", e.Rate, shownRate(e.Rate)},
		plain("concurrency", e.Concurrency),
		{"enabled", enabled{e.Enabled, e.DisabledReason},
			fields{"enabled": e.Enabled, "disabled_reason": e.DisabledReason}},
		pausePart(e.PausedUntil, e.PauseReason),
	}
}

func pausePart(until int64, reason string) part {
	shown := fields{"paused_until": shownTime(until), "pause_reason": reason}
	return part{"pause", shown, shown}
}

// laneParts are what is a lane's own.
func laneParts(l *ownLane) []part {
	return []part{plain("concurrency", l.Limit), {"rate", l.Rate, shownRate(l.Rate)},
		pausePart(l.OwnPause, l.reason)}
}

// projectParts are all of a project but its presets, which are objects of their own.
func projectParts(p *store.Project) []part {
	d := &p.Defaults
	return []part{
		plain("name", p.Name),
		{"policy", d.Policy, shownChoice(&d.Policy)},
		{"success", d.Success, shownSuccess(d.Success)},
		{"signer", d.Signer, shownSigner(d.Signer)},
		{"headers", d.Headers, shownHeaders(d.Headers)},
		plain("header_hosts", d.HeaderHosts),
		{"quotas", p.Quotas, map[string]any{"open_callbacks": p.Quotas.OpenCallbacks,
			"lanes": p.Quotas.Lanes}},
		pausePart(p.PausedUntil, p.PauseReason),
	}
}

// scheduleParts are what people change of a schedule.
func scheduleParts(s *store.Schedule) []part {
	return []part{
		plain("name", s.Name),
		plain("cron", s.Cron),
		plain("timezone", s.Timezone),
		{"callback", s.Template, shownTemplate(s.Template)},
		plain("missed", s.Missed),
		plain("enabled", s.Enabled),
		{"next_at", s.NextAt, shownTime(s.NextAt)},
	}
}

// redriveParts are what a redrive is to do, and whether it goes on.
func redriveParts(r *store.Redrive) []part {
	return []part{
		plain("action", r.Action),
		plain("filter", r.Shown),
		plain("ladder", r.Ladder),
		{"url", r.URL, shownURL(r.URL)},
		{"due_at", r.DueAt, shownTime(r.DueAt)},
		plain("delay_ms", r.Delay),
		{"rate", r.Rate, shownRate(r.Rate)},
		plain("state", r.State),
		plain("paused", r.Paused),
	}
}

// secretParts are which secret is the present one; nothing of the secret itself.
func secretParts(s *store.Secret) []part {
	return []part{plain("secret", s.ID), plain("label", s.Label), plain("key_id", s.KeyID),
		plain("hosts", s.Hosts)}
}

// shownTemplate writes a schedule's callback without its body, and without credentials. One with credential
// headers is stored as a ciphertext, of which nothing can be shown.
func shownTemplate(text store.JSONText) any {
	var members map[string]json.RawMessage
	if text == "" {
		return nil
	}
	if json.Unmarshal([]byte(text), &members) != nil {
		return store.Masked
	}
	shown := make(map[string]any, len(members))
	for name, value := range members {
		shown[name] = value
		switch name {
		case "payload", "body", "body_base64":
			shown[name] = fmt.Sprintf("(%d bytes)", len(value))
		case "url":
			var address string
			shown[name] = store.Masked
			if json.Unmarshal(value, &address) == nil {
				shown[name] = shownURL(address)
			}
		case "headers":
			shown[name] = shownTemplateHeaders(value)
		}
	}
	return shown
}

// shownTemplateHeaders masks headers as a template has them: an object of texts or of lists.
func shownTemplateHeaders(value json.RawMessage) any {
	var headers map[string]json.RawMessage
	if json.Unmarshal(value, &headers) != nil {
		return store.Masked
	}
	shown := make(map[string]any, len(headers))
	for name, value := range headers {
		shown[name] = value
		if store.IsSensitiveHeader(name) {
			shown[name] = store.Masked
		}
	}
	return shown
}

// shownPreset writes a preset's value as it is kept, a policy as people write it.
func shownPreset(kind store.PresetKind, value store.JSONText) any {
	if kind != store.PresetPolicy {
		return value
	}
	var p store.Policy
	if json.Unmarshal([]byte(value), &p) != nil {
		return value
	}
	p.Name = "" // whole
	return shownPolicy(&p)
}
