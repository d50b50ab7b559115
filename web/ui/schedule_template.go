package ui

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// templateMask stands for a value that is not shown.
const templateMask = "***"

// A templatePart is a text in a template of a schedule that may carry a credential: its address, or a header. From and to are where it
// stands; shown is what of it may be seen.
type templatePart struct {
	name, shown string
	from, to    int
}

// templateParts finds them in JSON. Of what is no object there are none.
func templateParts(text string) (parts []templatePart) {
	eachMember(text, 0, func(name string, value json.RawMessage, from int) {
		switch name {
		case "url":
			var address string
			if json.Unmarshal(value, &address) == nil {
				parts = append(parts, templatePart{name, dispatch.ShownURL(address), from, from + len(value)})
			}
		case "headers":
			eachMember(string(value), from, func(header string, value json.RawMessage, from int) {
				if dispatch.IsSensitiveHeader(header) {
					parts = append(parts, templatePart{"headers." + header, templateMask, from, from + len(value)})
				}
			})
		}
	})
	return parts
}

// eachMember reads the members of a JSON object that stands at the offset at; it ends where the text can no longer be read.
func eachMember(text string, at int, each func(name string, value json.RawMessage, from int)) {
	d := json.NewDecoder(strings.NewReader(text))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return
		}
		key, ok := name.(string)
		var value json.RawMessage
		if err := d.Decode(&value); err != nil || !ok {
			return
		}
		each(key, value, at+int(d.InputOffset())-len(value))
	}
}

// maskedTemplate is a template without the credentials in its headers and its address. What is no JSON object, which only a damaged row can
// have, is not shown at all: nobody can tell what in it is a credential.
func maskedTemplate(text string) string {
	if !isJSONObject(text) {
		return templateMask
	}
	return replaceParts(text, templateParts(text), func(p templatePart) string { return jsonText(p.shown) })
}

// isJSONObject says whether a text is one JSON object.
func isJSONObject(text string) bool {
	return strings.HasPrefix(strings.TrimSpace(text), "{") && json.Valid([]byte(text))
}

// unmasked puts what was masked back into a template that was shown, and maybe changed beside it. All other
// bytes stay as they were typed. A header is not put back where the template goes to another receiver: its
// credential was given for the one that it had.
func unmasked(typed, kept string) string {
	known := make(map[string]templatePart)
	for _, p := range templateParts(kept) {
		known[p.name] = p
	}
	put := func(p templatePart) string {
		was, ok := known[p.name]
		if now := typed[p.from:p.to]; !ok || now != jsonText(was.shown) {
			return now
		}
		return kept[was.from:was.to]
	}
	address := func(p templatePart) string {
		if p.name != "url" {
			return typed[p.from:p.to]
		}
		return put(p)
	}
	typed = replaceParts(typed, templateParts(typed), address)
	if !sameReceiver(typed, kept) {
		return typed
	}
	return replaceParts(typed, templateParts(typed), put)
}

// sameReceiver says whether two templates go to the same host and the same endpoint.
func sameReceiver(a, b string) bool {
	to := func(template string) (url, endpoint string) {
		eachMember(template, 0, func(name string, value json.RawMessage, _ int) {
			var text string
			if json.Unmarshal(value, &text) != nil {
				return // null, or what the engine refuses
			}
			switch name {
			case "url":
				url = text
			case "endpoint":
				endpoint = text
			}
		})
		return url, endpoint
	}
	urlA, endpointA := to(a)
	urlB, endpointB := to(b)
	return endpointA == endpointB && (urlA == urlB || store.SameHost(urlA, urlB))
}

// stillMasked names the first part of a template that has a mask in it which stands for nothing that is
// known: "url" or a header as "headers.NAME"; empty: there is none.
func stillMasked(template string) string {
	for _, p := range templateParts(template) {
		text := template[p.from:p.to]
		if p.name == "url" && strings.Contains(text, templateMask) || text == jsonText(templateMask) {
			return p.name
		}
	}
	return ""
}

// replaceParts puts other texts in the place of parts.
func replaceParts(text string, parts []templatePart, by func(p templatePart) string) string {
	var out strings.Builder
	at := 0
	for _, p := range parts {
		out.WriteString(text[at:p.from] + by(p))
		at = p.to
	}
	return out.String() + text[at:]
}

// jsonText writes a text as JSON.
func jsonText(s string) string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(s); err != nil {
		panic(err) // texts can always be encoded
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// sameJSON says whether two texts are the same but for the space in them.
func sameJSON(a, b string) bool {
	var one, other bytes.Buffer
	return json.Compact(&one, []byte(a)) == nil && json.Compact(&other, []byte(b)) == nil && bytes.Equal(one.Bytes(), other.Bytes())
}
