package ui

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// wasPrefix begins the names of hidden fields with the values that the form was rendered with. The POST
// changes only fields that differ from them. So two people can edit different fields at the same time.
const wasPrefix = "was."

// endpointTexts returns the values of an endpoint's form by field, secrets masked.
func endpointTexts(ep *store.Endpoint) map[string]string {
	texts := map[string]string{
		"url": store.MaskURL(ep.URL), "name": ep.Name, "external_id": ep.ExternalID,
		"url_override": string(cmp.Or(ep.URLOverride, store.OverrideDeny)),
		"topics":       strings.Join(ep.Topics, "\n"), "profile": "", "policy": policyText(ep.Policy),
		"success": successText(ep.Success), "signer": ep.Signer,
		"rate": ep.Rate.String(), "concurrency": "", "headers": "",
	}
	if ep.Concurrency > 0 {
		texts["concurrency"] = strconv.Itoa(ep.Concurrency)
	}
	var lines []string
	for _, h := range query.MaskHeaders(ep.Headers) {
		lines = append(lines, h.Name+": "+h.Value)
	}
	texts["headers"] = strings.Join(lines, "\n")
	return texts
}

// endpointGroups are the folded parts of the form of an endpoint, by field.
var endpointGroups = map[string]string{
	"profile": "endpoint.group.retries", "policy": "endpoint.group.retries",
	"success": "endpoint.group.retries",
	"signer":  "endpoint.group.signature", "secret": "endpoint.group.signature",
	"secret_label": "endpoint.group.signature",
	"headers":      "endpoint.group.limits", "rate": "endpoint.group.limits",
	"concurrency": "endpoint.group.limits", "url_override": "endpoint.group.limits",
}

// endpointFields sets the fields of an endpoint. secret adds the fields for a signing secret.
func (f *form) endpointFields(ep *store.Endpoint, names map[string][]string, secret bool) {
	texts := endpointTexts(ep)
	line := func(name, suggest string, mono bool) field {
		x := f.ask(name, lineField, "endpoint.field."+name)
		x.Value, x.Suggest, x.Mono = texts[name], suggest, mono
		return x
	}
	text := func(name, suggest string) field {
		x := line(name, suggest, true)
		x.Kind, x.Rows = textField, 3
		return x
	}
	override := line("url_override", "", false)
	override.Kind = choiceField
	override.Options = choose(&f.base, "endpoint.override.", store.URLOverride(texts["url_override"]),
		store.OverrideDeny, store.OverrideSameHost, store.OverrideAny)
	address := line("url", "https://shop.example/notify", true)
	address.Required = true
	if texts["url"] != ep.URL {
		address.Help = f.T("endpoint.field.url.hidden")
	}
	f.Fields = []field{
		address, line("name", "", false), line("external_id", "", true), text("topics", "payment.*"),
	}
	for _, name := range []string{"profile", "policy", "success", "signer"} {
		f.Fields = append(f.Fields, f.chooseOrWrite(line(name, "", true), names[name])...)
	}
	f.Fields = append(f.Fields,
		text("headers", "X-Shop: 7"), line("rate", "50/s", true), line("concurrency", "32", true), override)
	if secret {
		secret := text("secret", "")
		secret.Secret = true
		f.Fields = append(f.Fields, secret, line("secret_label", "", true))
	}
	for i := range f.Fields {
		x := &f.Fields[i]
		x.Group = endpointGroups[strings.TrimSuffix(x.Name, ownSuffix)]
	}
	f.remember(texts)
}

// choiceNames returns the names that the fields of an endpoint offer: those of the project come first.
func choiceNames(presets *control.Presets) map[string][]string {
	names := map[string][]string{"signer": sign.Names()}
	for i := range presets.OwnPolicies {
		names["policy"] = append(names["policy"], presets.OwnPolicies[i].Name)
	}
	for i := range presets.Policies {
		names["policy"] = append(names["policy"], presets.Policies[i].Name)
	}
	for i := range presets.OwnRules {
		names["success"] = append(names["success"], presets.OwnRules[i].Name)
	}
	for i := range presets.Rules {
		names["success"] = append(names["success"], presets.Rules[i].Name)
	}
	for _, profiles := range [][]accept.Profile{presets.OwnProfiles, presets.Profiles} {
		for i := range profiles {
			names["profile"] = append(names["profile"], profiles[i].Name)
		}
	}
	return names
}

// ownSuffix ends the name of the field for a value that no name stands for. It comes before the choice.
const ownSuffix = "_own"

// chooseOrWrite returns a select with the names, and a field for a value of one's own, if there may be one. A
// present value without a name is one of the options.
func (f *form) chooseOrWrite(x field, names []string) []field {
	x.Kind = choiceField
	x.Options = append([]option{{Text: f.T("endpoint.field." + x.Name + ".none"), Chosen: x.Value == ""}},
		choose(&f.base, "", x.Value, names...)...)
	if x.Value != "" && !slices.Contains(names, x.Value) {
		x.Options = append(x.Options, option{Value: x.Value, Text: x.Value, Data: true, Chosen: true})
	}
	key := "endpoint.field." + x.Name + ownSuffix
	if !f.Has(key) {
		return []field{x}
	}
	own := f.askMono(x.Name+ownSuffix, key, "")
	own.Label = f.T(key)
	return []field{x, own}
}

// chosenOrOwn returns the changed value of a field that chooseOrWrite made.
func (r *request) chosenOrOwn(name string, changed func(name string) string) string {
	if own := r.value(name + ownSuffix); own != "" {
		return own
	}
	return changed(name)
}

// remember adds the hidden fields with the rendered values. A form that is shown after an error keeps the
// values of its first rendering.
func (f *form) remember(texts map[string]string) {
	for name, was := range texts {
		if first, found := f.r.form[wasPrefix+name]; found {
			was = strings.ReplaceAll(first[0], "\r\n", "\n")
		}
		f.Hidden = append(f.Hidden, named{wasPrefix + name, was})
	}
	slices.SortFunc(f.Hidden, func(a, b named) int { return strings.Compare(a.Name, b.Name) })
}

// changed returns the typed value of a field without surrounding space, or nil if it is the rendered value.
func (r *request) changed(name string) *string {
	typed, was := strings.TrimSpace(r.text(name)), strings.TrimSpace(r.text(wasPrefix+name))
	if typed == was {
		return nil
	}
	return &typed
}

func (u *UI) askCreateEndpoint(r *request) (*form, error) {
	f := u.form(r, "endpoints", "endpoint.create", Root+"/endpoints")
	presets, err := u.Engine.Presets(r.ctx, r.caller.Project)
	if err != nil {
		return nil, err
	}
	f.endpointFields(&store.Endpoint{}, choiceNames(&presets), true)
	f.Fields = append(f.Fields, f.askReason())
	return f, nil
}

// createEndpoint creates an endpoint. The response shows the endpoint's secret. No session or flash stores
// it.
func (u *UI) createEndpoint(r *request) (*response, error) {
	ch := r.endpointChange(&store.Endpoint{})
	made, err := u.Engine.CreateEndpoint(r.ctx, r.caller.Project, ch, r.by())
	if err != nil {
		return nil, err
	}
	if made.Secret.Secret == "" {
		page := Root + "/endpoints/" + store.EndpointPrefix + made.Endpoint.ID
		return u.redirectDone(r, page, "endpoint.create.done")
	}
	return u.showSecret(r, made.Endpoint.ID, "create", &made.Secret, 0)
}

func (u *UI) askEditEndpoint(f *form, row *endpointRow) error {
	presets, err := u.Engine.Presets(f.r.ctx, f.r.caller.Project)
	if err != nil {
		return err
	}
	f.Facts = nil // the fields show the same
	f.endpointFields(&row.Endpoint, choiceNames(&presets), f.Can(string(store.ScopeAdmin)))
	if secret, found := f.field("secret"); found {
		secret.Help = f.T("endpoint.field.secret.edit")
	}
	return nil
}

// editEndpoint changes the fields that differ from their rendered values. A secret needs the scope admin; the
// form has its field only for such keys.
func (u *UI) editEndpoint(r *request, id string) error {
	ep, err := u.Store.Endpoint(r.ctx, r.caller.Project, id)
	if err != nil {
		return err
	}
	ch := r.endpointChange(&ep)
	ch.Admin = r.caller.Allows(store.ScopeAdmin)
	if ch.Secret != "" && !ch.Admin {
		return missingScope(store.ScopeAdmin) // it would replace the endpoint's secret
	}
	_, err = u.Engine.PatchEndpoint(r.ctx, r.caller.Project, id, ch, r.by())
	return err
}

// endpointChange returns the changes that the form makes to the endpoint: the fields that differ from their
// rendered values.
func (r *request) endpointChange(ep *store.Endpoint) control.EndpointChange {
	ch := control.EndpointChange{Secret: strings.TrimSpace(r.text("secret")),
		SecretLabel: r.value("secret_label")}
	wrong := func(name, key string) {
		ch.Invalid = append(ch.Invalid, store.FieldError{Field: name, Message: r.lang.text(key)})
	}
	// clearable is changed for a field that can be removed: an empty value clears it.
	clearable := func(name string) string {
		typed := r.changed(name)
		if typed != nil && *typed == "" {
			ch.Clear = append(ch.Clear, name)
		}
		if typed == nil {
			return ""
		}
		return *typed
	}
	ch.Name, ch.URLOverride = r.changed("name"), r.changed("url_override")
	ch.URL = r.changed("url")
	if ch.URL != nil && strings.Contains(*ch.URL, query.Mask) {
		wrong("url", "endpoint.field.url.masked")
	}
	if external := clearable("external_id"); external != "" {
		ch.ExternalID = &external
	}
	if rate := clearable("rate"); rate != "" {
		ch.Rate = &rate
	}
	if text := clearable("concurrency"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			wrong("concurrency", "endpoint.field.concurrency.wrong")
		}
		ch.Concurrency = &n
	}
	ch.Profile = clearable("profile") // always rendered empty, so it is never cleared
	r.choosePolicy(&ch, r.chosenOrOwn("policy", clearable), ep)
	if rule := r.chosenOrOwn("success", clearable); strings.HasPrefix(rule, "{") {
		ch.SuccessRule = []byte(rule)
	} else {
		ch.Success = rule
	}
	ch.Signer = r.chosenOrOwn("signer", clearable)
	if topics := r.changed("topics"); topics != nil {
		ch.Topics = new(strings.FieldsFunc(*topics, func(char rune) bool {
			return char == '\n' || char == ',' || char == ' '
		}))
	}
	if text := r.changed("headers"); text != nil {
		r.chooseHeaders(&ch, *text, ep)
	}
	return ch
}

// choosePolicy sets the policy: a name, or at least two waits for a custom policy. A custom policy keeps the
// other values of the endpoint's present custom policy.
func (r *request) choosePolicy(ch *control.EndpointChange, text string, ep *store.Endpoint) {
	if strings.HasPrefix(text, "exp(") || len(strings.Fields(text)) < 2 {
		ch.PolicyName = text
		return
	}
	tiers, err := schedule.ParseTiers(text)
	if err != nil {
		ch.Invalid = append(ch.Invalid, store.FieldError{Field: "policy", Message: err.Error()})
		return
	}
	ch.Policy, ch.PolicyGiven = accept.DefaultPolicy(), true
	if ep.Policy.Given != nil {
		ch.Policy = *ep.Policy.Given
	}
	ch.Policy.Tiers = tiers
}

// chooseHeaders sets the headers, one a line. A masked credential keeps the stored value of the header.
func (r *request) chooseHeaders(ch *control.EndpointChange, text string, ep *store.Endpoint) {
	headers, err := headerLines(text, r.lang)
	if err != nil {
		ch.Invalid = append(ch.Invalid, store.FieldError{Field: "headers",
			Message: r.lang.text("endpoint.field.headers.wrong")})
		return
	}
	for i := range headers {
		h := &headers[i]
		if !query.Masked(*h) {
			continue
		}
		match := slices.IndexFunc(ep.Headers, func(own store.Header) bool {
			return strings.EqualFold(own.Name, h.Name)
		})
		if match < 0 {
			ch.Invalid = append(ch.Invalid, store.FieldError{Field: "headers",
				Message: r.lang.text("endpoint.field.headers.masked", "name", h.Name)})
			continue
		}
		h.Value = ep.Headers[match].Value
	}
	ch.Headers = &headers
}
