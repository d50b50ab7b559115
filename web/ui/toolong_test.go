package ui

import (
	"net/http"
	"testing"
	"testing/synctest"
)

// What takes too long is given up in time to say so, with the page around it whole.
func TestWhatTakesTooLongSaysSo(t *testing.T) {
	t.Parallel()
	b := signedIn(t, newWorld("fail Books late", "fail Compare late", "fail Verify late", "fail Rebuild late"))
	synctest.Test(t, func(t *testing.T) {
		res := b.get("/ui/books?from=2026-11-01")
		if res.status != http.StatusServiceUnavailable {
			t.Fatalf("status %d", res.status)
		}
		res.has(".banner.bad", "within a minute")
		res.has("nav a", "Books")
		b.post("/ui/books/compare", "from", "2026-11-01", "refs", "a").has(".field .error", "within a minute")
		b.post("/ui/system/verify").ok().has(".banner.bad", "did not end within a minute")
		b.post("/ui/system/rebuild").leads("/ui/system")
	})
}
