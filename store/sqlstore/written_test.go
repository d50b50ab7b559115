package sqlstore

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A text is used again only for the very same policy: whatever differs, under the same name, is written anew.
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
		t.Fatalf("a policy has %d fields; samePolicy must compare each, and this test change each", fields)
	}
	for i, change := range changes {
		for _, p := range []store.Policy{base, base} {
			change(&p)
			got, err := w.policy(&p)
			want, jerr := json.Marshal(p)
			if err != nil || jerr != nil || got != string(want) {
				t.Errorf("change %d: written %s, want %s: %v, %v", i, got, want, err, jerr)
			}
		}
		must(w.policy(&base))
	}
}
