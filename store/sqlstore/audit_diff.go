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
	name           string
	value, printed any
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
	if several, ok := p.printed.(fields); ok {
		maps.Copy(side, several)
		return
	}
	side[p.name] = p.printed
}

// plain is a part that is shown as it is.
func samePart(name string, value any) part { return part{name, value, value} }

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

func redactedURL(raw string) any {
	if raw == "" {
		return nil
	}
	return store.MaskURL(raw)
}

func printedRate(r store.Rate) any {
	if r == (store.Rate{}) {
		return nil
	}
	return r.String()
}

// printedTime writes a time, null for none.
func printedTime(ms int64) any {
	switch ms {
	case 0:
		return nil
	case store.Forever:
		return "forever"
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

func printedSuccess(s store.Success) any {
	if s.Rule != "" {
		return s.Rule
	}
	if s.Name == "" {
		return nil
	}
	return s.Name
}

// printedSigner writes a signer: a name, or an object with its options.
func printedSigner(text string) any {
	switch {
	case text == "":
		return nil
	case text[0] == '{' && json.Valid([]byte(text)):
		return json.RawMessage(text)
	}
	return text
}

// printedPolicy writes a policy by its name, or whole with durations as people write them.
func printedPolicy(p *store.Policy) any {
	if p.Name != "" {
		return p.Name
	}
	tiers := make([]string, len(p.Tiers))
	for i, tier := range p.Tiers {
		tiers[i] = tier.String()
	}
	printed := map[string]any{
		"tiers": tiers, "timeout": p.Timeout.String(), "retry_after_cap": p.RetryAfterCap.String(),
	}
	if p.Deadline != 0 {
		printed["deadline"] = p.Deadline.String()
	}
	if p.OverloadFloor != 0 {
		printed["overload_floor"] = p.OverloadFloor.String()
	}
	if p.RepeatLast {
		printed["repeat_last"] = true
	}
	if p.Jitter != 0 {
		printed["jitter"] = p.Jitter
	}
	if len(p.StopOn) > 0 {
		printed["stop_on"] = p.StopOn
	}
	return printed
}

func printedChoice(c *store.PolicyChoice) any {
	switch {
	case c.Given != nil:
		return printedPolicy(c.Given)
	case c.Name == "":
		return nil
	}
	return c.Name
}

// redactedHeaders writes headers without the credentials in them.
func redactedHeaders(headers []store.Header) any {
	printed := make(map[string][]string, len(headers))
	for _, h := range headers {
		if h.Sealed() != "" || h.Value != "" && store.IsSensitiveHeader(h.Name) {
			h.Value = store.Masked
		}
		printed[h.Name] = append(printed[h.Name], h.Value)
	}
	return printed
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
		samePart("state", c.State),
		samePart("reason", c.Reason),
		samePart("cancel_requested", c.CancelRequested),
		samePart("trigger", c.Trigger),
		{"due_at", c.DueAt, printedTime(c.DueAt)},
		{"expires_at", c.ExpiresAt, printedTime(c.ExpiresAt)},
		{"url", c.URL, redactedURL(c.URL)},
		samePart("follows_endpoint", c.Follows),
		samePart("lane", c.Lane),
		{"headers", c.Headers, redactedHeaders(c.Headers)},
		{"policy", c.Policy, printedPolicy(&c.Policy)},
		{"success", c.Success, printedSuccess(c.Success)},
	}
}

// endpointParts are all but the endpoint's health.
func endpointParts(e *store.Endpoint) []part {
	type enabled struct {
		Is     bool
		Reason string
	}
	return []part{
		samePart("external_id", e.ExternalID),
		samePart("name", e.Name),
		{"url", e.URL, redactedURL(e.URL)},
		samePart("url_override", e.URLOverride),
		samePart("topics", e.Topics),
		{"policy", e.Policy, printedChoice(&e.Policy)},
		{"success", e.Success, printedSuccess(e.Success)},
		{"signer", e.Signer, printedSigner(e.Signer)},
		{"headers", e.Headers, redactedHeaders(e.Headers)},
		{"rate", e.Rate, printedRate(e.Rate)},
		samePart("concurrency", e.Concurrency),
		{"enabled", enabled{e.Enabled, e.DisabledReason},
			fields{"enabled": e.Enabled, "disabled_reason": e.DisabledReason}},
		pausePart(e.PausedUntil, e.PauseReason),
	}
}

func pausePart(until int64, reason string) part {
	printed := fields{"paused_until": printedTime(until), "pause_reason": reason}
	return part{"pause", printed, printed}
}

// laneParts are what is a lane's own.
func laneParts(l *ownLane) []part {
	return []part{samePart("concurrency", l.Limit), {"rate", l.Rate, printedRate(l.Rate)},
		pausePart(l.OwnPause, l.reason)}
}

// projectParts are all of a project but its presets, which are objects of their own.
func projectParts(p *store.Project) []part {
	d := &p.Defaults
	return []part{
		samePart("name", p.Name),
		{"policy", d.Policy, printedChoice(&d.Policy)},
		{"success", d.Success, printedSuccess(d.Success)},
		{"signer", d.Signer, printedSigner(d.Signer)},
		{"headers", d.Headers, redactedHeaders(d.Headers)},
		samePart("header_hosts", d.HeaderHosts),
		{"quotas", p.Quotas, map[string]any{"open_callbacks": p.Quotas.OpenCallbacks,
			"lanes": p.Quotas.Lanes}},
		pausePart(p.PausedUntil, p.PauseReason),
	}
}

// scheduleParts are what people change of a schedule.
func scheduleParts(s *store.Schedule) []part {
	return []part{
		samePart("name", s.Name),
		samePart("cron", s.Cron),
		samePart("timezone", s.Timezone),
		{"callback", s.Template, redactedTemplate(s.Template)},
		samePart("missed", s.Missed),
		samePart("enabled", s.Enabled),
		{"next_at", s.NextAt, printedTime(s.NextAt)},
	}
}

// redriveParts are what a redrive is to do, and whether it goes on.
func redriveParts(r *store.Redrive) []part {
	return []part{
		samePart("action", r.Action),
		samePart("filter", r.Shown),
		samePart("ladder", r.Ladder),
		{"url", r.URL, redactedURL(r.URL)},
		{"due_at", r.DueAt, printedTime(r.DueAt)},
		samePart("delay_ms", r.Delay),
		{"rate", r.Rate, printedRate(r.Rate)},
		samePart("state", r.State),
		samePart("paused", r.Paused),
	}
}

// secretParts are which secret is the present one; nothing of the secret itself.
func secretParts(s *store.Secret) []part {
	return []part{samePart("secret", s.ID), samePart("label", s.Label), samePart("key_id", s.KeyID),
		samePart("hosts", s.Hosts)}
}

// redactedTemplate writes a schedule's callback without its body, and without credentials. One with credential
// headers is stored as a ciphertext, of which nothing can be shown.
func redactedTemplate(text store.JSONText) any {
	var members map[string]json.RawMessage
	if text == "" {
		return nil
	}
	if json.Unmarshal([]byte(text), &members) != nil {
		return store.Masked
	}
	printed := make(map[string]any, len(members))
	for name, value := range members {
		printed[name] = value
		switch name {
		case "payload", "body", "body_base64":
			printed[name] = fmt.Sprintf("(%d bytes)", len(value))
		case "url":
			var address string
			printed[name] = store.Masked
			if json.Unmarshal(value, &address) == nil {
				printed[name] = redactedURL(address)
			}
		case "headers":
			printed[name] = redactedTemplateHeaders(value)
		}
	}
	return printed
}

// redactedTemplateHeaders masks headers as a template has them: an object of texts or of lists.
func redactedTemplateHeaders(value json.RawMessage) any {
	var headers map[string]json.RawMessage
	if json.Unmarshal(value, &headers) != nil {
		return store.Masked
	}
	printed := make(map[string]any, len(headers))
	for name, value := range headers {
		printed[name] = value
		if store.IsSensitiveHeader(name) {
			printed[name] = store.Masked
		}
	}
	return printed
}

// printedPreset writes a preset's value as it is kept, a policy as people write it.
func printedPreset(kind store.PresetKind, value store.JSONText) any {
	if kind != store.PresetPolicy {
		return value
	}
	var p store.Policy
	if json.Unmarshal([]byte(value), &p) != nil {
		return value
	}
	p.Name = "" // whole
	return printedPolicy(&p)
}
