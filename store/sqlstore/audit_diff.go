package sqlstore

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// An auditDiff is the fields of an object that a change made different, as the audit prints them.
type auditDiff struct {
	// names are the parts that differ, in order. One part may print several fields.
	names         []string
	before, after fields
}

// fields are values by their names.
type fields map[string]any

// A part is one property of an object. Two states are compared by value, and the audit shows printed, which
// may be several fields. A masked part may look the same before and after.
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

// isSame compares values by their stored JSON. A value that cannot be encoded, such as a ciphertext in the
// place of JSON, is the same only as itself. null and [] are the same.
func isSame(a, b any) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	was, err := encode(a)
	is, other := encode(b)
	none := func(text string) bool { return text == "null" || text == "[]" }
	return err == nil && other == nil && (was == is || none(was) && none(is))
}

// addTo adds the printed fields to one side of a diff.
func (p *part) addTo(side fields) {
	if several, ok := p.printed.(fields); ok {
		maps.Copy(side, several)
		return
	}
	side[p.name] = p.printed
}

// samePart is a part that is printed as it is compared.
func samePart(name string, value any) part { return part{name, value, value} }

// changeOf is a diff of one field.
func changeOf(name string, before, after any) auditDiff {
	return auditDiff{before: fields{name: before}, after: fields{name: after}}
}

// made turns a diff into one of a new object, removed into one of a deleted object.
func (d auditDiff) made() auditDiff    { d.before = nil; return d }
func (d auditDiff) removed() auditDiff { d.after = nil; return d }

// texts returns both sides as JSON. A side without fields is empty.
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

// redactedURL masks the credentials in a URL; null for an empty one.
func redactedURL(raw string) any {
	if raw == "" {
		return nil
	}
	return store.MaskURL(raw)
}

// printedRate returns a rate as the audit shows it, such as "50/s"; nil, so null, for no bound.
func printedRate(r store.Rate) any {
	if r == (store.Rate{}) {
		return nil
	}
	return r.String()
}

// printedTime returns a time in Unix milliseconds as the audit shows it; nil, so null, for zero.
func printedTime(ms int64) any {
	switch ms {
	case 0:
		return nil
	case store.Forever:
		return "forever"
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

// printedSuccess prints a success rule by its name or its text; null for none.
func printedSuccess(s store.Success) any {
	if s.Rule != "" {
		return s.Rule
	}
	if s.Name == "" {
		return nil
	}
	return s.Name
}

// printedSigner prints a signer: a name, an object with its options, or null for none.
func printedSigner(text string) any {
	switch {
	case text == "":
		return nil
	case text[0] == '{' && json.Valid([]byte(text)):
		return json.RawMessage(text)
	}
	return text
}

// printedPolicy prints a policy by its name, or all its fields with readable durations.
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

// printedChoice prints a policy by its name or its fields; null for none.
func printedChoice(c *store.PolicyChoice) any {
	switch {
	case c.Given != nil:
		return printedPolicy(c.Given)
	case c.Name == "":
		return nil
	}
	return c.Name
}

// redactedHeaders prints headers with credentials masked.
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

// callbackName returns a callback's id with its prefix; null for an empty one.
func callbackName(id string) any {
	if id == "" {
		return nil
	}
	return store.CallbackPrefix + id
}

// callbackParts are the properties of a callback that people change. Its body never changes.
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

// endpointParts are all properties of an endpoint but its health.
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
		samePart("link_version", e.LinkVersion),
	}
}

// pausePart is a pause with its reason, as one part.
func pausePart(until int64, reason string) part {
	printed := fields{"paused_until": printedTime(until), "pause_reason": reason}
	return part{"pause", printed, printed}
}

// laneParts are the lane's own settings, without those of its endpoint and project.
func laneParts(l *ownLane) []part {
	return []part{samePart("concurrency", l.Limit), {"rate", l.Rate, printedRate(l.Rate)},
		pausePart(l.OwnPause, l.reason)}
}

// projectParts are all properties of a project but its presets. Presets are objects with entries of their
// own.
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
		{"reconcile", p.Reconcile, printedReconciling(&p.Reconcile)},
		pausePart(p.PausedUntil, p.PauseReason),
	}
}

// printedReconciling prints a daily reconciliation; null for none.
func printedReconciling(r *store.Reconciling) any {
	if r.At == "" {
		return nil
	}
	return map[string]any{"at": r.At, "timezone": r.Timezone, "expect_list": r.ExpectList}
}

// scheduleParts are the properties of a schedule that people change.
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

// alertParts are the properties of an alert that people change. The sink is compared as it is stored and
// printed as it is masked.
func alertParts(a *store.Alert) []part {
	return []part{
		samePart("name", a.Name),
		samePart("when", a.When),
		{"sink", a.Sink, json.RawMessage(cmp.Or(a.SinkMasked, "null"))},
		{"silence_until", a.SilenceUntil, printedTime(a.SilenceUntil)},
		samePart("digest_at", a.DigestAt),
		samePart("digest_timezone", a.DigestZone),
		samePart("enabled", a.Enabled),
	}
}

// redriveParts are the action of a redrive and its state.
func redriveParts(r *store.Redrive) []part {
	return []part{
		samePart("action", r.Action),
		samePart("filter", r.FilterText),
		samePart("ladder", r.Ladder),
		{"url", r.URL, redactedURL(r.URL)},
		{"due_at", r.DueAt, printedTime(r.DueAt)},
		samePart("delay_ms", r.Delay),
		{"rate", r.Rate, printedRate(r.Rate)},
		samePart("state", r.State),
		samePart("paused", r.Paused),
		samePart("approver", r.Approver),
	}
}

// secretParts identify the present secret. They contain nothing of the secret itself.
func secretParts(s *store.Secret) []part {
	return []part{samePart("secret", s.ID), samePart("label", s.Label), samePart("key_id", s.KeyID),
		samePart("hosts", s.Hosts)}
}

// redactedTemplate prints a schedule's callback without its body and with credentials masked. A template with
// credential headers is stored as a ciphertext, and masked as a whole.
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

// redactedTemplateHeaders masks the credential headers of a template, which is an object of texts or of
// lists.
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

// printedPreset prints the value of a preset as it is stored, and a policy with readable durations.
func printedPreset(kind store.PresetKind, value store.JSONText) any {
	if kind != store.PresetPolicy {
		return value
	}
	var p store.Policy
	if json.Unmarshal([]byte(value), &p) != nil {
		return value
	}
	p.Name = "" // otherwise printedPolicy would print the name alone
	return printedPolicy(&p)
}
