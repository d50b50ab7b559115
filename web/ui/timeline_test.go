package ui

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A poll may have tens of thousands of attempts: the page of its callback shows a few at a time, and links
// lead to all.
func TestTimelineHasPages(t *testing.T) {
	t.Parallel()
	const many = 47
	b := signedIn(t, newWorld(
		fmt.Sprintf(`callbacks {"State":"dead","DueAt":0,"FinishedAt":%d,"AttemptCount":%d}`, testNow-1000, many),
		fmt.Sprintf("attempts %d", many)))
	id := "/ui/callbacks/cb_" + testID(1)
	var seen []int
	path := id
	for pages := 1; path != ""; pages++ {
		page := b.get(path).ok()
		shown := 0
		for _, item := range find(page.doc, ".timeline li") {
			number, isAttempt := strings.CutPrefix(attr(item, "id"), "attempt-")
			if !isAttempt {
				continue
			}
			n, err := strconv.Atoi(number)
			if err != nil {
				t.Fatal(err)
			}
			shown++
			seen = append(seen, n)
		}
		if shown > shownAttempts || pages > many {
			t.Fatalf("page %d, %s, shows %d attempts", pages, path, shown)
		}
		if path == id {
			page.has(".timeline", "Ended: dead")
			page.lacks("a.newest")
		} else {
			page.has("a.newest", "Newest attempts")
			if ended := textOf(find(page.doc, ".timeline")[0]); strings.Contains(ended, "Ended: dead") {
				t.Errorf("%s says again how it ended", path)
			}
		}
		path = ""
		if older := find(page.doc, "a.older"); len(older) > 0 {
			want := fmt.Sprintf("%d older attempts", many-len(seen))
			if got := textOf(older[0]); got != want {
				t.Errorf("after %d attempts the link says %q, want %q", len(seen), got, want)
			}
			path = attr(older[0], "href")
		} else {
			page.has(".timeline", "Created")
		}
	}
	if !slices.IsSortedFunc(seen, func(a, b int) int { return b - a }) || len(seen) != many {
		t.Errorf("%d attempts are shown: %v", len(seen), seen)
	}
	if ladder := textOf(find(b.get(id).ok().doc, ".pic-ladder")[0]); strings.Contains(ladder, "elsewhere") {
		t.Errorf("attempts that are not read were made elsewhere: %s", ladder)
	}
}

// A live rendering of the system page is the same as long as nothing changes.
func TestTheSystemPageStandsStill(t *testing.T) {
	t.Parallel()
	b := signedIn(t, newWorld("processes 2", `stats {"Delayed":1}`))
	first, second := regions(b.get("/ui/system").ok().body), regions(b.get("/ui/system").ok().body)
	if len(first) < 4 {
		t.Errorf("there are %d regions", len(first))
	}
	for name := range first {
		if first[name] != second[name] {
			t.Errorf("the region %s is never the same", name)
		}
	}
}
