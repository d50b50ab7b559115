package sqlstore

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// What is written of an attempt is read as it was, whatever a receiver sent.
func TestDetailIsReadAsItWas(t *testing.T) {
	headers := func(rt *rapid.T, label string) (all []store.Header) {
		for range rapid.IntRange(0, 3).Draw(rt, label) {
			all = append(all, store.Header{Name: rapid.String().Draw(rt, "name"), Value: rapid.String().Draw(rt, "value")})
		}
		return all
	}
	rapid.Check(t, func(rt *rapid.T) {
		a := &store.Attempt{
			Timings: store.Timings{
				DNS: rapid.Float64Range(0, 1e6).Draw(rt, "dns"), Connect: 0.25, TLS: 3, FirstByte: 1e-7,
				Total: rapid.Float64Range(0, 1e9).Draw(rt, "total"),
			},
			RequestHeaders: headers(rt, "request"), ResponseHeaders: headers(rt, "response"),
			CallbackID: "01M8027H0TQ1NDWB76AGE2WGZF", Number: 3, StartedAt: 1_790_000_000_999,
		}
		if own := rapid.IntRange(0, ownSigned).Draw(rt, "own"); own != 0 {
			a.RequestHeaders = append(ownHeaders(a, own), a.RequestHeaders...)
			if rapid.Bool().Draw(rt, "another clock") {
				a.RequestHeaders[1].Value = "1790000001"
			}
		}
		if rapid.Bool().Draw(rt, "rule") {
			a.Rule = &store.Rule{Name: "body-success", Expected: rapid.String().Draw(rt, "expected"), Saw: "\"fail\"\n"}
		}
		text, err := detailOf(a)
		if err != nil {
			rt.Fatal(err)
		}
		var d attemptDetail
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			rt.Fatalf("%s: %v", text, err)
		}
		got := &store.Attempt{CallbackID: a.CallbackID, Number: a.Number, StartedAt: a.StartedAt}
		d.into(got)
		if diff := cmp.Diff(a, got); diff != "" {
			rt.Fatalf("%s (-want +got):\n%s", text, diff)
		}
	})
}
