package ui

import (
	"net/http"
	"strings"
	"testing"
)

func TestTimesThatThereAreNot(t *testing.T) {
	t.Parallel()
	zone, ok := zoneOf("America/New_York")
	if !ok {
		t.Fatal("no zone")
	}
	r := request{zone: zone}
	if _, ok := r.parseInput("2027-03-14T02:30:00"); ok {
		t.Error("a time that the clocks leave out is taken for another one")
	}
	if _, ok := r.parseInput("2027-03-14T03:30"); !ok {
		t.Error("a time is refused")
	}
}

// Case 56. A link or a picture on another page makes a browser ask with GET: that changes nothing.
func TestGETChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld("callbacks 1")
	b, id := signedIn(t, w), "/ui/callbacks/cb_"+testID(1)
	asked := 0
	for _, r := range b.ui.Routes() {
		if path, ok := strings.CutPrefix(r.Path, "/ui/callbacks/:id"); ok && r.Method == http.MethodPost {
			b.get(id + path + "?reason=x&delay=1m&url=https://evil.example")
			asked++
		}
	}
	if asked < 4 || len(w.done) > 0 {
		t.Errorf("%d acts were asked for with GET, and done: %q", asked, w.done)
	}
}

// Case 58. What senders and receivers wrote is saved as a text, and never shown as a page of ours.
func TestRawTextsAreSaved(t *testing.T) {
	t.Parallel()
	b := signedIn(t, newWorld("callbacks 1", "payload "+hostile))
	res := b.get("/ui/callbacks/cb_" + testID(1) + "/payload").ok()
	for name, want := range map[string]string{
		"Content-Type": "text/plain", "Content-Disposition": "attachment",
		"Content-Security-Policy": "default-src 'none'",
	} {
		if got := res.header.Get(name); !strings.HasPrefix(got, want) {
			t.Errorf("%s is %q, want %s", name, got, want)
		}
	}
	if res.body != hostile || !strings.Contains(res.header.Get("Content-Security-Policy"), "sandbox") {
		t.Errorf("%q, %v", res.body, res.header)
	}
}
