package sqlstore

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// An auditDiff is what a change makes different of an object, field by field, as the audit may show it.
type auditDiff struct {
	// names are the parts that differ, in their order. A part may be several fields.
	names         []string
	before, after map[string]any
}

// add adds a part that differs.
func (d *auditDiff) add(name string, before, after any) {
	d.names = append(d.names, name)
	d.also(name, before, after)
}

// also adds a field of a part that is named already.
func (d *auditDiff) also(name string, before, after any) {
	if d.before == nil {
		d.before, d.after = make(map[string]any), make(map[string]any)
	}
	d.before[name], d.after[name] = before, after
}

// made says that the object was not there before, removed that it is not there any more.
func (d auditDiff) made() auditDiff    { d.before = nil; return d }
func (d auditDiff) removed() auditDiff { d.after = nil; return d }

// texts writes both sides as JSON; empty: there is none.
func (d *auditDiff) texts() (before, after string, err error) {
	for _, side := range []struct {
		fields map[string]any
		to     *string
	}{{d.before, &before}, {d.after, &after}} {
		if len(side.fields) == 0 {
			continue
		}
		if *side.to, err = encode(side.fields); err != nil {
			return "", "", fmt.Errorf("encode a difference for the audit: %w", err)
		}
	}
	return before, after, nil
}

// differ adds a field if it differs, as it is.
func differ[V comparable](d *auditDiff, name string, before, after V) {
	if before != after {
		d.add(name, before, after)
	}
}

// differAs adds a field if it differs, as show writes it. What is masked may then look the same on both
// sides.
func differAs[V comparable](d *auditDiff, name string, before, after V, show func(V) any) {
	if before != after {
		d.add(name, show(before), show(after))
	}
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

// diffCallback compares what people change of a callback. Its body never changes.
func diffCallback(before, after *store.Callback) auditDiff {
	var d auditDiff
	differ(&d, "state", before.State, after.State)
	differ(&d, "reason", before.Reason, after.Reason)
	differ(&d, "cancel_requested", before.CancelRequested, after.CancelRequested)
	differ(&d, "trigger", before.Trigger, after.Trigger)
	differAs(&d, "due_at", before.DueAt, after.DueAt, shownTime)
	differAs(&d, "expires_at", before.ExpiresAt, after.ExpiresAt, shownTime)
	differAs(&d, "url", before.URL, after.URL, shownURL)
	differ(&d, "follows_endpoint", before.Follows, after.Follows)
	differ(&d, "lane", before.Lane, after.Lane)
	if !slices.Equal(before.Headers, after.Headers) {
		d.add("headers", shownHeaders(before.Headers), shownHeaders(after.Headers))
	}
	if !samePolicy(&before.Policy, &after.Policy) {
		d.add("policy", shownPolicy(&before.Policy), shownPolicy(&after.Policy))
	}
	differAs(&d, "success", before.Success, after.Success, shownSuccess)
	return d
}

// diffEndpoint compares all but the endpoint's health.
func diffEndpoint(before, after *store.Endpoint) auditDiff {
	var d auditDiff
	differ(&d, "external_id", before.ExternalID, after.ExternalID)
	differ(&d, "name", before.Name, after.Name)
	differAs(&d, "url", before.URL, after.URL, shownURL)
	differ(&d, "url_override", before.URLOverride, after.URLOverride)
	if !slices.Equal(before.Topics, after.Topics) {
		d.add("topics", before.Topics, after.Topics)
	}
	if !sameChoice(&before.Policy, &after.Policy) {
		d.add("policy", shownChoice(&before.Policy), shownChoice(&after.Policy))
	}
	differAs(&d, "success", before.Success, after.Success, shownSuccess)
	differAs(&d, "signer", before.Signer, after.Signer, shownSigner)
	if !slices.Equal(before.Headers, after.Headers) {
		d.add("headers", shownHeaders(before.Headers), shownHeaders(after.Headers))
	}
	differAs(&d, "rate", before.Rate, after.Rate, shownRate)
	differ(&d, "concurrency", before.Concurrency, after.Concurrency)
	if before.Enabled != after.Enabled || before.DisabledReason != after.DisabledReason {
		d.add("enabled", before.Enabled, after.Enabled)
		d.also("disabled_reason", before.DisabledReason, after.DisabledReason)
	}
	if before.PausedUntil != after.PausedUntil || before.PauseReason != after.PauseReason {
		d.names = append(d.names, "pause")
		d.alsoPause(before.PausedUntil, before.PauseReason, after.PausedUntil, after.PauseReason)
	}
	return d
}

// alsoPause adds both fields of a pause.
func (d *auditDiff) alsoPause(until int64, reason string, newUntil int64, newReason string) {
	d.also("paused_until", shownTime(until), shownTime(newUntil))
	d.also("pause_reason", reason, newReason)
}

// sameChoice compares policies that were chosen, by what is stored of them.
func sameChoice(a, b *store.PolicyChoice) bool {
	return a.Name == b.Name && (a.Given == nil) == (b.Given == nil) &&
		(a.Given == nil || samePolicy(a.Given, b.Given))
}

// diffLane compares what is a lane's own.
func diffLane(before, after *ownLane) auditDiff {
	var d auditDiff
	differ(&d, "concurrency", before.Limit, after.Limit)
	differAs(&d, "rate", before.Rate, after.Rate, shownRate)
	if before.OwnPause != after.OwnPause || before.reason != after.reason {
		d.alsoPause(before.OwnPause, before.reason, after.OwnPause, after.reason)
	}
	return d
}

// diffProject compares all of a project but its presets, which are objects of their own.
func diffProject(before, after *store.Project) auditDiff {
	var d auditDiff
	differ(&d, "name", before.Name, after.Name)
	a, b := &before.Defaults, &after.Defaults
	if !sameChoice(&a.Policy, &b.Policy) {
		d.add("policy", shownChoice(&a.Policy), shownChoice(&b.Policy))
	}
	differAs(&d, "success", a.Success, b.Success, shownSuccess)
	differAs(&d, "signer", a.Signer, b.Signer, shownSigner)
	if !slices.Equal(a.Headers, b.Headers) {
		d.add("headers", shownHeaders(a.Headers), shownHeaders(b.Headers))
	}
	if !slices.Equal(a.HeaderHosts, b.HeaderHosts) {
		d.add("header_hosts", a.HeaderHosts, b.HeaderHosts)
	}
	differAs(&d, "quotas", before.Quotas, after.Quotas, func(q store.Quotas) any {
		return map[string]any{"open_callbacks": q.OpenCallbacks, "lanes": q.Lanes}
	})
	if before.PausedUntil != after.PausedUntil || before.PauseReason != after.PauseReason {
		d.names = append(d.names, "pause")
		d.alsoPause(before.PausedUntil, before.PauseReason, after.PausedUntil, after.PauseReason)
	}
	return d
}

// diffSchedule compares what people change of a schedule.
func diffSchedule(before, after *store.Schedule) auditDiff {
	var d auditDiff
	differ(&d, "name", before.Name, after.Name)
	differ(&d, "cron", before.Cron, after.Cron)
	differ(&d, "timezone", before.Timezone, after.Timezone)
	differAs(&d, "callback", before.Template, after.Template, shownTemplate)
	differ(&d, "missed", before.Missed, after.Missed)
	differ(&d, "enabled", before.Enabled, after.Enabled)
	differAs(&d, "next_at", before.NextAt, after.NextAt, shownTime)
	return d
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

// diffRedrive compares what a redrive is to do, and whether it goes on.
func diffRedrive(before, after *store.Redrive) auditDiff {
	var d auditDiff
	differ(&d, "action", before.Action, after.Action)
	differ(&d, "filter", before.Shown, after.Shown)
	differ(&d, "ladder", before.Ladder, after.Ladder)
	differAs(&d, "url", before.URL, after.URL, shownURL)
	differAs(&d, "due_at", before.DueAt, after.DueAt, shownTime)
	differ(&d, "delay_ms", before.Delay, after.Delay)
	differAs(&d, "rate", before.Rate, after.Rate, shownRate)
	differ(&d, "state", before.State, after.State)
	differ(&d, "paused", before.Paused, after.Paused)
	return d
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
