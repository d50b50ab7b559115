package sqlstore

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// FuzzColumns: what was read from a JSON column is written as a text with the same meaning, whatever it was.
func FuzzColumns(f *testing.F) {
	for _, s := range []string{
		`[{"name":"A","value":"b"}]`, `{"shop":"7"}`, `{"name":"p","tiers":[15000000000,180000000000]}`,
		`{"name":"body-success"}`, `["send"]`, `["*"]`, `{}`, `[]`,
		`null`, `""`, `{"headers":[{"name":"a"}],"policy":{}}`, `{"state":"x"`,
		`{"from":"mon","rule":{"json":[]}}`, `{"Name":1}`, "{\"a\":\"\xff\"}",
		`{"url":"https://shop.example","policy":{"tiers":[]},"success":{},` +
			`"lane":"l","content_type":"a","delay_ms":5}`,
		`{"timings":{"dns":0.5,"connect":1e-7,"tls":0,"first_byte":12.25,"total":1e21},"own":2,` +
			`"request_headers":[{"name":"a","value":"\"<é\u0001"},{"name":"b","value":""}],` +
			`"response_headers":[{"name":"c","value":"d"}],"rule":{"name":"r","expected":"e","saw":"s"},` +
			`"url":"https://shop.example/?a=1&b=2"}`,
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
				t.Errorf("%s %q is %+v, which cannot be encoded: %v", column, text, first, err)
				continue
			}
			if d, ok := first.(*attemptDetail); ok {
				var same attemptDetail
				text, err := d.text()
				err = errors.Join(err, json.Unmarshal([]byte(text), &same))
				if err != nil || must(encode(same)) != written {
					t.Errorf("detail %s is encoded as %s: %v", written, text, err)
				}
			}
			second := make()
			if err := decode(column, written, second); err != nil {
				t.Errorf("%s %q is encoded as %q, which cannot be decoded: %v", column, text, written, err)
				continue
			}
			if again, err := encode(second); err != nil || again != written {
				t.Errorf("%s %q is encoded as %q, and then as %q, %v", column, text, written, again, err)
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
			t.Fatalf("%q cannot be encoded: %v", text, err)
		}
		again, err := decodeResult(written)
		if err != nil {
			t.Fatalf("%q is encoded as %q, which cannot be decoded: %v", text, written, err)
		}
		a, errA := json.Marshal(d)
		b, errB := json.Marshal(again)
		if errA != nil || errB != nil || string(a) != string(b) ||
			!reflect.DeepEqual(d.Callback.Version, again.Callback.Version) {
			t.Errorf("%q is %s, and decoded again %s, %v, %v", text, a, b, errA, errB)
		}
	})
}

// TestRequestHeadersAreReadAsWritten: the headers of an attempt are read as they were, with or without the
// ones that every request begins with.
func TestRequestHeadersAreReadAsWritten(t *testing.T) {
	if n := []int{reflect.TypeFor[attemptDetail]().NumField(), reflect.TypeFor[store.Timings]().NumField(),
		reflect.TypeFor[store.Header]().NumField()}; !slices.Equal(n, []int{8, 5, 2}) {
		t.Errorf("details have %d fields: attemptDetail.text must write each of them", n)
	}
	a := store.Attempt{CallbackID: "01M8027H0TQ1NDWB76AGE2WGZF", Number: 3, StartedAt: 1_790_000_000_999}
	other := []store.Header{{Name: "x", Value: "\"<\n号"}}
	late := a
	late.StartedAt += 1000
	for _, headers := range [][]store.Header{
		nil, other, ownHeaders(&a, ownUnsigned), append(ownHeaders(&a, ownSigned), other[0]),
		ownHeaders(&late, ownSigned),
		ownHeaders(&a, ownSigned)[1:],
	} {
		a.RequestHeaders = headers
		text := must(detailOf(&a))
		var d attemptDetail
		noError(decode("detail", text, &d))
		got := a
		d.into(&got)
		if diff := cmp.Diff(headers, got.RequestHeaders); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

// TestWrittenPolicies: a cached text is used only for the very same policy. A policy that differs under the
// same name is encoded.
func TestWrittenPolicies(t *testing.T) {
	var w written
	base := store.Policy{Name: "payment", Tiers: []time.Duration{1, 2}, Timeout: 3, StopOn: []int{410}}
	changes := []func(*store.Policy){
		func(*store.Policy) {},
		func(p *store.Policy) { p.Tiers = []time.Duration{1, 3} },
		func(p *store.Policy) { p.Tiers = nil },
		func(p *store.Policy) { p.Tiers = []time.Duration{} },
		func(p *store.Policy) { p.RepeatLast = true },
		func(p *store.Policy) { p.Deadline = 9 },
		func(p *store.Policy) { p.Timeout = 9 },
		func(p *store.Policy) { p.Jitter = 0.5 },
		func(p *store.Policy) { p.RetryAfterCap = 9 },
		func(p *store.Policy) { p.OverloadFloor = 9 },
		func(p *store.Policy) { p.StopOn = nil },
		func(p *store.Policy) { p.Name = "" },
	}
	if fields := reflect.TypeFor[store.Policy]().NumField(); fields != len(changes)-3 {
		t.Fatalf("a policy has %d fields; samePolicy must compare each and this test change each", fields)
	}
	for i, change := range changes {
		for _, p := range []store.Policy{base, base} {
			change(&p)
			got, err := w.policy(&p)
			want, jerr := json.Marshal(p)
			if err != nil || jerr != nil || got != string(want) {
				t.Errorf("change %d: encoded as %s, want %s: %v, %v", i, got, want, err, jerr)
			}
		}
		must(w.policy(&base))
	}
}
