package api

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// FuzzDecodePoll looks for a panic, for a field that slips through unnamed, and for JSON that is not handed on as it stands.
func FuzzDecodePoll(f *testing.F) {
	for _, s := range []string{
		`{"ref":"o-1","request":{"url":"u","payload":{"a":1}},"until":{"success":[]},"hold_if":[],"evaluate":["200-299"],"error_budget":3,"context":{"a": 1},"on_result":{"url":"u"}}`,
		`{"request":{"url":7,"request":{},"profile":"x"},"on_result":{"payload":1,"x":2,"due_at":null},"until":[],"error_budget":-1}`, `{"request":[],"request":null}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if !json.Valid(body) {
			return
		}
		p, err := decodePoll(body)
		if err != nil {
			return
		}
		var plain map[string]json.RawMessage
		if json.Unmarshal(body, &plain) != nil || plain == nil {
			if len(p.Invalid) == 0 {
				t.Fatalf("%q is no object and is taken", body)
			}
			return
		}
		if len(p.Invalid) > 0 || p.OnResult != nil && len(p.OnResult.Invalid) > 0 {
			return
		}
		for key, value := range plain {
			if !(&pollDecoder{}).member([]byte(key), []byte("null")) {
				t.Fatalf("%q: field %q slips through", body, key)
			}
			for name, got := range map[string][]byte{"until": p.Until, "hold_if": p.HoldIf, "evaluate": p.Evaluate, "context": p.Context} {
				if key == name && string(value) != "null" && !bytes.Equal(got, value) {
					t.Fatalf("%q: %s is %q", body, name, got)
				}
			}
			var request map[string]json.RawMessage
			if key == "request" && json.Unmarshal(value, &request) == nil {
				for key := range request {
					if !(&pollDecoder{}).requestMember([]byte(key), []byte("null")) {
						t.Fatalf("%q: field %q of the request slips through", body, key)
					}
				}
			}
		}
	})
}

// FuzzTemplate looks for a panic, and for a template that is shown as something else than JSON or with a credential.
func FuzzTemplate(f *testing.F) {
	for _, s := range []string{
		`{"url":"u","headers":{"Authorization":"Basic x","A":"b"},"payload":{ "a" : 1 }}`, `{"headers":{"\u0041uthorization":"***"}}`, `{"due_at":"x","headers":[]}`, `[]`, `{`, ``,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		sub, err := ReadTemplate(raw)
		o := jsonObject{[]byte("{")}
		o.schedule(&store.Schedule{Template: store.JSONText(raw)})
		o.close()
		var shown struct {
			Callback json.RawMessage `json:"callback"`
		}
		if wrong := json.Unmarshal(o.b, &shown); wrong != nil {
			t.Fatalf("%q is shown as %q: %v", raw, o.b, wrong)
		}
		if err != nil || len(sub.Invalid) > 0 {
			return
		}
		again, err := ReadTemplate(shown.Callback)
		if err != nil || !bytes.Equal(again.Body, sub.Body) || len(again.Headers) != len(sub.Headers) {
			t.Fatalf("%q is shown as %q: %v", raw, shown.Callback, err)
		}
		if len(again.Invalid) > 0 && !bytes.Contains(shown.Callback, []byte(mask)) {
			t.Fatalf("%q is shown as %q, which has no mask and is not read again: %v", raw, shown.Callback, again.Invalid)
		}
	})
}
