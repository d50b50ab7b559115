package api

import (
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// An endpointDecoder decodes an endpoint as a caller asks for it. What it cannot decode is named in the change's Invalid; what the
// values mean is the engine's to judge.
type endpointDecoder struct {
	fields
	change control.EndpointChange
	// patch: null takes away what can be taken away. Otherwise it is not given.
	patch bool
}

// done returns what was decoded.
func (d *endpointDecoder) done() control.EndpointChange {
	d.change.Invalid = d.invalid
	return d.change
}

// with returns member for requests that have a reason too.
func (d *endpointDecoder) with(reason *string) func(key, raw []byte) bool {
	return func(key, raw []byte) bool { return d.member(key, raw) || d.reason(key, raw, reason) }
}

// member decodes one field, and says whether there is such a field.
func (d *endpointDecoder) member(key, raw []byte) bool {
	ch, name := &d.change, string(key)
	if isNull(raw) && d.patch && d.clear(name) {
		return true
	}
	if d.choice(key, raw, &ch.Choice) {
		return true
	}
	switch name {
	case "external_id":
		d.line(name, raw, &ch.ExternalID)
	case "name":
		d.line(name, raw, &ch.Name)
	case "url":
		d.line(name, raw, &ch.URL)
	case "url_override":
		d.line(name, raw, &ch.URLOverride)
	case "rate":
		d.line(name, raw, &ch.Rate)
	case "topics":
		if !isNull(raw) {
			ch.Topics = new([]string)
			d.lines(name, raw, control.MaxTopics+1, ch.Topics)
		}
	case "headers":
		d.sentHeaders(raw, &ch.Headers)
	case "concurrency":
		var n int
		if d.count(name, raw, &n); n > 0 {
			ch.Concurrency = &n
		}
	case "enabled":
		if on := false; !isNull(raw) {
			d.boolean(name, raw, &on)
			ch.Enabled = &on
		}
	case "secret":
		d.pem(name, raw, &ch.Secret)
	case "secret_label":
		d.text(name, raw, &ch.SecretLabel)
	default:
		return false
	}
	return true
}

// clear takes a field away, and says whether that can be done.
func (d *endpointDecoder) clear(name string) bool {
	switch name {
	case "policy", "success", "signer", "external_id", "rate", "concurrency":
		d.change.Clear = append(d.change.Clear, name)
	case "name":
		d.change.Name = new(string)
	case "url_override":
		d.change.URLOverride = new(string(store.OverrideDeny))
	case "topics":
		d.change.Topics = &[]string{}
	case "headers":
		d.change.Headers = &[]store.Header{}
	default:
		return false
	}
	return true
}

// appendEndpointReceipt writes an endpoint and, where it was made or given with the call, its secret.
func appendEndpointReceipt(b []byte, r *control.EndpointReceipt, now int64) []byte {
	o := jsonObject{append(b, '{')}
	o.endpoint(&r.Endpoint, now)
	if r.Secret.Secret != "" {
		o.str("secret", r.Secret.Secret)
		o.orNull("public", r.Secret.Public)
	}
	o.close()
	return o.b
}

// endpoint writes the members of an endpoint as its caller sees it at now.
func (o *jsonObject) endpoint(ep *store.Endpoint, now int64) {
	o.id("id", store.EndpointPrefix, ep.ID)
	o.orNull("external_id", ep.ExternalID)
	o.orNull("name", ep.Name)
	o.str("url", ep.URL)
	override := ep.URLOverride
	if override == "" {
		override = store.OverrideDeny
	}
	o.str("url_override", string(override))
	o.texts("topics", ep.Topics)
	o.policyChoice(&ep.Policy)
	o.success(&ep.Success)
	o.signer(ep.Signer)
	o.maskedHeaders(ep.Headers)
	o.orNull("rate", ep.Rate.String())
	o.intOrNull("concurrency", ep.Concurrency)
	o.boolean("enabled", ep.Enabled)
	o.orNull("disabled_reason", ep.DisabledReason)
	o.pause(ep.PausedUntil, ep.PauseReason, now)
	o.str("lane", ep.LaneKey())
	o.instant("failing_since", ep.FailingSince)
	o.instant("last_success_at", ep.LastSuccessAt)
	o.instant("last_failure_at", ep.LastFailureAt)
	o.instant("created_at", ep.CreatedAt)
	o.instant("updated_at", ep.UpdatedAt)
}
