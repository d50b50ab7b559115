package ui

import "testing"

// What an address says of a moment stands in the field as the field can hold it, so that the next change of another one does not lose it; and
// what is none does not stand there.
func TestFieldsHoldTheMomentsOfTheAddress(t *testing.T) {
	t.Parallel()
	b := signedIn(t, newWorld())
	b.cookies[zoneCookie] = "Asia%2FShanghai"
	for _, c := range []struct{ typed, want string }{
		{"2026-11-01T10:00:30", "2026-11-01T10:00:30"}, {"2026-11-01", "2026-11-01T00:00:00"}, {"2026-11-01 10:00", "2026-11-01T10:00:00"},
		{"2026-11-01T02:00:00Z", "2026-11-01T10:00:00"}, {"nonsense", ""}, {"", ""},
	} {
		for _, path := range []string{"/ui/callbacks?", "/ui/audit?", "/ui/books?from=2026-10-01&"} {
			res := b.get(path + "to=" + queryEscape(c.typed))
			if got := res.attr("input[name=to]", "value"); got != c.want {
				t.Errorf("%sto=%s: the field holds %q, want %q", path, c.typed, got, c.want)
			}
		}
		form := b.get("/ui/books/compare?from=" + queryEscape(c.typed)).ok()
		if got := form.attr("input[name=from]", "value"); got != c.want && c.typed != "" {
			t.Errorf("to compare from %s: the field holds %q, want %q", c.typed, got, c.want)
		}
	}
}
