package sqlstore

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// FuzzColumns: what a column of JSON says is written as a text that says the same, whatever was in it.
func FuzzColumns(f *testing.F) {
	for _, s := range []string{
		`[{"name":"A","value":"b"}]`, `{"shop":"7"}`, `{"name":"p","tiers":[15000000000,180000000000]}`,
		`{"name":"body-success"}`, `["send"]`, `["*"]`, `{}`, `[]`,
		`null`, `""`, `{"headers":[{"name":"a"}],"policy":{}}`, `{"state":"x"`,
		`{"from":"mon","rule":{"json":[]}}`, `{"Name":1}`, "{\"a\":\"\xff\"}",
		`{"url":"https://shop.example","policy":{"tiers":[]},"success":{},` +
			`"lane":"l","content_type":"a","delay_ms":5}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for column, make := range map[string]func() any{
			"headers":  func() any { return new([]store.Header) },
			"labels":   func() any { return new(map[string]string) },
			"policy":   func() any { return new(store.Policy) },
			"success":  func() any { return new(store.Success) },
			"scopes":   func() any { return new([]store.Scope) },
			"defaults": func() any { return new(store.Defaults) },
			"hosts":    func() any { return new([]string) },
			"detail":   func() any { return new(attemptDetail) },
			"spec":     func() any { return new(redriveSpec(new(store.Redrive))) },
			"entries":  func() any { return new([]endedGroup) },
		} {
			first := make()
			if text == "" || decode(column, text, first) != nil {
				continue
			}
			written, err := encode(first)
			if err != nil {
				t.Errorf("%s %q is %+v, which cannot be written: %v", column, text, first, err)
				continue
			}
			second := make()
			if err := decode(column, written, second); err != nil {
				t.Errorf("%s %q is written %q, which cannot be read: %v", column, text, written, err)
				continue
			}
			if again, err := encode(second); err != nil || again != written {
				t.Errorf("%s %q is written %q, and then %q, %v", column, text, written, again, err)
			}
		}
	})
}

// FuzzStoredResult: a poll's result callback is written as it was read.
func FuzzStoredResult(f *testing.F) {
	for _, s := range []string{
		`{"url":"https://shop.example","policy":{"tiers":[]},"success":{},` +
			`"lane":"l","content_type":"a","delay_ms":5,"version":7}`,
		`{}`, `null`, `[]`, "",
		`{"headers":[{"name":"A","value":"b"}],"labels":{"a":"b"},` +
			`"strict":true,"ladder_base":2,"expires_in_ms":-1,"supersede":true}`,
		`{"url":1}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := decodeResult(text)
		if err != nil || d == nil {
			return
		}
		written, err := encodeResult(d)
		if err != nil {
			t.Fatalf("%q cannot be written: %v", text, err)
		}
		again, err := decodeResult(written)
		if err != nil {
			t.Fatalf("%q is written %q, which cannot be read: %v", text, written, err)
		}
		a, errA := json.Marshal(d)
		b, errB := json.Marshal(again)
		if errA != nil || errB != nil || string(a) != string(b) ||
			!reflect.DeepEqual(d.Callback.Version, again.Callback.Version) {
			t.Errorf("%q is %s, and read again %s, %v, %v", text, a, b, errA, errB)
		}
	})
}
