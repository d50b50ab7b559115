package api

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// FuzzJSONDuration: a duration in JSON is what package schedule reads, and is written as one that reads the
// same.
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
			t.Fatalf("%s is taken, and is no text: %v", raw, err)
		}
		if want, err := schedule.ParseDuration(text); err != nil || want != d || d < 0 {
			t.Errorf("%s is %v, package schedule reads %v, %v", raw, d, want, err)
		}
		if back, wrong := decodeDuration(appendDuration(nil, d)); wrong != "" || back != d {
			t.Errorf("%s is %v, written %s, which reads as %v, %s", raw, d, appendDuration(nil, d), back,
				wrong)
		}
	})
}
