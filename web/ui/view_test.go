package ui

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// anyLink is an engine in which every token is that of a link.
type anyLink struct{ Engine }

func (anyLink) OpenViewLink(context.Context, string) (control.ViewLink, error) {
	return control.ViewLink{}, nil
}

// TestReadsOfALinkAreSlowed checks that a link has 20 requests at once, and then 10 a second. Another link
// has its own.
func TestReadsOfALinkAreSlowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.Engine = anyLink{engineFace{w}}
		b := newBrowser(t, w)
		reads := func(link string, allowed int) {
			t.Helper()
			for i := range allowed + 1 {
				// What is wrong with the query is seen after the limit.
				res := b.get(query.ViewRoot + "/" + link + "?%ff")
				want, wait := http.StatusUnprocessableEntity, ""
				if i == allowed {
					want, wait = http.StatusTooManyRequests, "1"
				}
				if after := res.header.Get("Retry-After"); res.status != want || after != wait {
					t.Errorf("request %d: %d with Retry-After %q, want %d with %q", i, res.status, after,
						want, wait)
				}
			}
		}
		reads("one", 20)
		time.Sleep(time.Second)
		reads("one", 10)
		reads("two", 20)
	})
}
