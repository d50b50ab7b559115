package api

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// FuzzScanner compares the splitting of objects and arrays, and the decoding of strings, with encoding/json.
func FuzzScanner(f *testing.F) {
	for _, s := range []string{
		`{}`, `[]`, ` { "a" : 1 , "b" : [ 1 , {"c":"}\""} ] } `, `{"a":"\\","b":"\\\"","\u0061":null}`,
		`[true,false,null,-1.5e3,"x"]`,
		`{"a":"\ud83d\ude00","b":"\ud800","c":"\ud800A"}`, `[[[[]]],{"":{"":[]}}]`, `"text"`, `12`,
		`{"a":1,}`, "[\"\x80\"]", "{\"\u007f\":\t\r\n0}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if (checkJSON(body) == nil) != json.Valid(body) {
			t.Fatalf("checkJSON and encoding/json differ about %q", body)
		}
		if !json.Valid(body) {
			return
		}
		compare(t, bytes.Trim(body, " \r\n\t"))
	})
}

// compare checks the members or elements of a value, and those of its values, against encoding/json.
func compare(t *testing.T, raw []byte) {
	t.Helper()
	if end := skipValue(raw, 0); end != len(raw) {
		t.Fatalf("skipValue ends at %d of %q", end, raw)
	}
	switch raw[0] {
	case '{':
		keys, values := splitObject(t, raw)
		i := 0
		for key, value := range members(raw) {
			if i >= len(keys) || !bytes.Equal(value, values[i]) {
				t.Fatalf("member %d of %q: value %q", i, raw, value)
			}
			// For an incomplete surrogate pair encoding/json returns U+FFFD; members leaves the key as it is.
			if !strings.ContainsRune(keys[i], utf8.RuneError) && keys[i] != string(key) {
				t.Fatalf("member %d of %q: key %q, want %q", i, raw, key, keys[i])
			}
			compare(t, value)
			i++
		}
		if i != len(keys) {
			t.Fatalf("%d members of %d in %q", i, len(keys), raw)
		}
	case '[':
		var want []json.RawMessage
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
		i := 0
		for value := range elements(raw) {
			if i >= len(want) || !bytes.Equal(value, want[i]) {
				t.Fatalf("element %d of %q: %q", i, raw, value)
			}
			compare(t, value)
			i++
		}
		if i != len(want) {
			t.Fatalf("%d elements of %d in %q", i, len(want), raw)
		}
	case '"':
		compareText(t, raw)
	}
}

// splitObject does the same as members with encoding/json.
func splitObject(t *testing.T, raw []byte) (keys []string, values []json.RawMessage) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil && err != io.EOF {
			t.Fatal(err)
		}
		keys, values = append(keys, key.(string)), append(values, value)
	}
	return keys, values
}

// compareText checks a decoded string against encoding/json, and that it is encoded as the same string.
func compareText(t *testing.T, raw []byte) {
	t.Helper()
	var want string
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	got, wrong := decodeText(raw, true)
	switch {
	case wrong == "" && got != want:
		t.Fatalf("text %q is read as %q, want %q", raw, got, want)
	case wrong != "" && !strings.ContainsRune(want, utf8.RuneError) && query.CheckText(want, true) == "":
		t.Fatalf("text %q is rejected (%s)", raw, wrong)
	}
	back := client.AppendString(nil, want)
	var again string
	if err := json.Unmarshal(back, &again); err != nil || again != want {
		t.Fatalf("%q is written as %s, read back %q, %v", want, back, again, err)
	}
}

// FuzzDecode looks for panics, for unknown fields that are accepted, and for JSON that loses its bytes.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{"url":"u","payload":{"a":1},"policy":{"tiers":["1s"],"stop_on":[410]},` +
			`"labels":{"a":"b"},"headers":{"A":"b"}}`,
		`{"body":"x","body_base64":"AA==","due_at":"2026-11-21 08:00:00z","delay":"2d","version":1,` +
			`"start_attempt":2,"supersede":true}`,
		`{"URL":"u","\u0075rl":null,"url":7,"policy":[],"success":{},"idempotency_key":"k"}`,
		`{"ref":"o-1","request":{"url":"u","payload":{"a":1}},"until":{"success":[]},"hold_if":[],` +
			`"evaluate":["200-299"],"error_budget":3,"context":{"a": 1},"on_result":{"url":"u"}}`,
		`{"request":{"url":7,"request":{},"profile":"x"},` +
			`"on_result":{"payload":1,"x":2,"due_at":null},"until":[],"error_budget":-1}`,
		`{"request":[],"request":null}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if !json.Valid(body) {
			return
		}
		sub, subErr := decodeSubmission(body)
		poll, pollErr := decodePoll(body)
		if poll.OnResult != nil {
			poll.Invalid = append(poll.Invalid, poll.OnResult.Invalid...)
		}
		var plain map[string]json.RawMessage
		isObject := json.Unmarshal(body, &plain) == nil && plain != nil
		for _, d := range []struct {
			err     error
			invalid []store.FieldError
			known   func(key, value []byte) bool
			raw     map[string][]byte
		}{
			{subErr, sub.Invalid, (&submissionDecoder{}).member, map[string][]byte{"payload": sub.Body}},
			{pollErr, poll.Invalid, (&pollDecoder{}).member, map[string][]byte{
				"until": poll.Until, "hold_if": poll.HoldIf, "evaluate": poll.Evaluate,
				"context": poll.Context,
			}},
		} {
			if d.err != nil || len(d.invalid) > 0 {
				continue
			}
			if !isObject {
				t.Fatalf("%q is not an object and is accepted", body)
			}
			for key, value := range plain {
				if !d.known([]byte(key), []byte("null")) {
					t.Fatalf("%q: unknown field %q is accepted", body, key)
				}
				got, verbatim := d.raw[key]
				if verbatim && string(value) != "null" && !bytes.Equal(got, value) {
					t.Fatalf("%q: %s is %q", body, key, got)
				}
			}
		}
	})
}

// FuzzTemplate looks for panics, and for templates whose response is not JSON or contains a credential.
func FuzzTemplate(f *testing.F) {
	for _, s := range []string{
		`{"url":"u","headers":{"Authorization":"Basic x","A":"b"},"payload":{ "a" : 1 }}`,
		`{"headers":{"\u0041uthorization":"***"}}`, `{"due_at":"x","headers":[]}`, `[]`, `{`, ``,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		sub, err := ReadTemplate(raw)
		b, _ := client.AppendJSON(nil, scheduleOf(&store.Schedule{Template: store.JSONText(raw)}))
		var shown struct {
			Callback json.RawMessage `json:"callback"`
		}
		if wrong := json.Unmarshal(b, &shown); wrong != nil {
			t.Fatalf("%q is shown as %q: %v", raw, b, wrong)
		}
		if err != nil || len(sub.Invalid) > 0 {
			return
		}
		again, err := ReadTemplate(shown.Callback)
		if err != nil || !bytes.Equal(again.Body, sub.Body) || len(again.Headers) != len(sub.Headers) {
			t.Fatalf("%q is shown as %q: %v", raw, shown.Callback, err)
		}
		if len(again.Invalid) > 0 && !bytes.Contains(shown.Callback, []byte(query.Mask)) {
			t.Fatalf("%q is shown as %q, which has no mask and cannot be read again: %v", raw, shown.Callback,
				again.Invalid)
		}
	})
}

// TestAppendStringIsAlwaysJSON encodes every byte, valid UTF-8 or not.
func TestAppendStringIsAlwaysJSON(t *testing.T) {
	t.Parallel()
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	if got := client.AppendString(nil, string(all)); !json.Valid(got) || !utf8.Valid(got) {
		t.Errorf("not JSON: %q", got)
	}
}

// TestKeySetFindsDuplicates checks numbers of keys around the size of the array, where the map takes over.
func TestKeySetFindsDuplicates(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 23, 24, 25, 26, 1000} {
		var s keySet
		for i := range n {
			if !s.add([]byte(strings.Repeat("k", i+1))) {
				t.Fatalf("key %d of %d is reported as a duplicate", i, n)
			}
		}
		for i := range n {
			if s.add([]byte(strings.Repeat("k", i+1))) {
				t.Fatalf("the duplicate of key %d of %d is not found", i, n)
			}
		}
	}
}

// TestManyKeysAreCheap guards against a small request that needs much time: 60,000 keys in half a MiB.
func TestManyKeysAreCheap(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(`{"headers":{`)
	for i := 0; b.Len() < maxRequest-32; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		b.WriteString(strings.Repeat("x", i%7))
		b.WriteString(string(rune('a' + i%26)))
		b.WriteString(`":1`)
	}
	b.WriteString(`}}`)
	sub, err := decodeSubmission([]byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	if len(sub.Invalid) != maxFindings {
		t.Errorf("%d errors, want exactly %d", len(sub.Invalid), maxFindings)
	}
}

// TestAppendDuration compares appendDuration with schedule.FormatDuration.
func TestAppendDuration(t *testing.T) {
	t.Parallel()
	const milli, second, minute, hour = time.Millisecond, time.Second, time.Minute, time.Hour
	for _, base := range []time.Duration{0, milli, second, minute, hour, 24 * hour} {
		for n := range time.Duration(130) {
			for _, extra := range []time.Duration{0, time.Nanosecond, 500 * milli, second, minute, hour} {
				d := n*base + extra
				want := `"` + schedule.FormatDuration(d) + `"`
				if got := string(appendDuration(nil, d)); got != want {
					t.Fatalf("%d ns: got %s, want %s", d, got, want)
				}
			}
		}
	}
}

// TestAppendTime compares appendTime with package time, also outside of the years 0 to 9999.
func TestAppendTime(t *testing.T) {
	t.Parallel()
	const day, layout = 86_400_000, "2006-01-02T15:04:05.000Z"
	for _, ms := range []int64{
		0, 1, 999, -1, -62_167_219_200_000, -62_167_219_200_001, 253_402_300_799_999,
		253_402_300_800_000, 951_782_400_000, 1_795_248_000_000,
	} {
		for _, extra := range []int64{0, 1, 10, 100, 1010, 59_999, 3_600_000, day - 1, 31 * day, 366 * day} {
			want := time.UnixMilli(ms + extra).UTC().Format(layout)
			if got := string(appendTime(nil, ms+extra)); got != want {
				t.Errorf("%d: got %s, want %s", ms+extra, got, want)
			}
		}
	}
}

// FuzzJSONDuration checks that package schedule parses a duration in JSON to the same value, and that the
// value is written as a text that parses to the same value.
func FuzzJSONDuration(f *testing.F) {
	for _, s := range []string{`"15s"`, `"2d"`, `"1\u0064"`, `"-1s"`, `5`, `null`, `""`, `"1d1h"`, `"0.5d"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) || len(strings.TrimSpace(string(raw))) != len(raw) {
			return
		}
		d, wrong := decodeDuration(raw)
		if wrong != "" {
			return
		}
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			t.Fatalf("%s is accepted, but is not a string: %v", raw, err)
		}
		if want, err := schedule.ParseDuration(text); err != nil || want != d || d < 0 {
			t.Errorf("%s is %v, package schedule parses %v, %v", raw, d, want, err)
		}
		if back, wrong := decodeDuration(appendDuration(nil, d)); wrong != "" || back != d {
			t.Errorf("%s is %v, written %s, which parses as %v, %s", raw, d, appendDuration(nil, d), back,
				wrong)
		}
	})
}
