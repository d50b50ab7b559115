package ui

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A poll may have tens of thousands of attempts: the page of its callback shows a few at a time, and links
// lead to all.
func TestTimelineHasPages(t *testing.T) {
	t.Parallel()
	const many = 47
	o := parts()
	dead := sample(1)
	dead.State, dead.Reason, dead.DueAt, dead.FinishedAt = store.Dead, store.Exhausted, 0, testNow-1000
	dead.AttemptCount, dead.AttemptSeq = many, many
	rows := callbackRows{all: []store.Callback{dead}}
	for n := 1; n <= many; n++ {
		rows.attempts = append(rows.attempts, sampleAttempt(n))
	}
	o.callbackRows = rows
	b := signedIn(t, o)
	id := "/ui/callbacks/cb_" + dead.ID
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
	b.get(id).ok().has(".pic-ladder", "attempted")
	if ladder := textOf(find(b.get(id).ok().doc, ".pic-ladder")[0]); strings.Contains(ladder, "elsewhere") {
		t.Errorf("attempts that are not read were made elsewhere: %s", ladder)
	}
	begun := dead
	begun.AttemptCount, begun.AttemptSeq, begun.LadderBase = 0, 0, -3
	o.callbackRows = callbackRows{all: []store.Callback{begun}}
	signedIn(t, o).get(id).ok().has(".pic-ladder", "made elsewhere")
	// What a hand can type into the address.
	for _, before := range []string{"0", "-1", "x", "99999999999999999999", "1"} {
		b.get(id + "?before=" + before).ok()
	}
	b.get(id+"?before=48").ok().has(".timeline", "Attempt 47")
}

// An attempt that has ended stays as it is: its page reads it once, and no other.
func TestOneAttemptIsReadOnce(t *testing.T) {
	t.Parallel()
	o := parts()
	reads := 0
	o.callbackRows = callbackRows{
		all: []store.Callback{sample(1)}, attempts: []store.Attempt{sampleAttempt(1), sampleAttempt(2)},
		lists: &reads,
	}
	b := signedIn(t, o)
	page := b.get("/ui/callbacks/cb_" + testID(1) + "/attempts/2").ok()
	page.has("h1", "Attempt 2")
	if reads > 0 {
		t.Errorf("attempts are listed %d times for the page of one", reads)
	}
	if live := attr(find(page.doc, "body")[0], "data-live"); live != "" {
		t.Errorf("the page is read again and again: %s", live)
	}
	for _, number := range []string{"3", "0", "-1", "x", "99999999999999999999"} {
		if res := b.get("/ui/callbacks/cb_" + testID(1) + "/attempts/" + number); res.status != 404 {
			t.Errorf("attempt %s: %d", number, res.status)
		}
	}
}
