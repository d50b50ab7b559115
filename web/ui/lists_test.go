package ui

import (
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// TestEveryListIsWalkedThrough: the pages show each row once, in the order of the list, and keep the filter.
func TestEveryListIsWalkedThrough(t *testing.T) {
	t.Parallel()
	const n = 120
	o := parts()
	var callbacks callbackRows
	var endpoints endpointRows
	var lanes laneRows
	var redrives redriveRows
	var schedules scheduleRows
	var keys systemEngine
	for i := n; i > 0; i-- {
		callbacks.all, endpoints.all = append(callbacks.all, sample(i)), append(endpoints.all, sampleEndpoint(i))
		redrives.all, schedules.all = append(redrives.all, sampleRedrive(i)), append(schedules.all, sampleSchedule(i))
		keys.all = append(keys.all, aKey(i, store.ScopeRead))
		lane := sampleLane(i)
		lane.Open = int64(i / 2) // two by two alike
		lanes.all = append(lanes.all, lane)
		if i <= 100 { // so many of the largest are counted
			callbacks.counts.Lanes = append(callbacks.counts.Lanes, store.LaneCount{Lane: lane.Key, Open: lane.Open})
		}
	}
	slices.Reverse(lanes.all) // by their keys
	o.callbackRows, o.endpointRows, o.laneRows, o.redriveRows, o.scheduleRows, o.systemEngine = callbacks, endpoints, lanes, redrives, schedules, keys
	b := signedIn(t, o)
	for path, want := range map[string]struct {
		first, last string
		n           int
	}{
		"/ui/callbacks?topic=a.b&order=due": {"order-0120", "order-0001", n}, "/ui/endpoints?topic=a.b&q=Mer": {"Merchant 0120", "Merchant 0001", n},
		"/ui/lanes?q=shop": {"shop-0001", "shop-0120", n}, "/ui/lanes?sort=backlog": {"shop-0100", "shop-0001", 100},
		"/ui/redrives?": {"", "", n}, "/ui/schedules?search=settle": {"settlement-120", "settlement-001", n}, "/ui/system/keys?": {"checkout 120", "checkout 1", n},
	} {
		var seen []string
		next := path
		for pages := 0; next != ""; pages++ {
			if pages > n {
				t.Fatalf("%s: the pages do not end", path)
			}
			for part := range strings.SplitSeq(path[strings.IndexByte(path, '?')+1:], "&") {
				if !strings.Contains(next, part) {
					t.Errorf("%s: a next page forgets %s: %s", path, part, next)
				}
			}
			res := b.get(next).ok()
			for _, row := range find(res.doc, "tbody tr") {
				links := find(row, "[href]")
				seen = append(seen, textOf(row)+attr(links[0], "href"))
			}
			next = ""
			if more := find(res.doc, ".pager a"); len(more) > 0 {
				next = attr(more[len(more)-1], "href")
			}
		}
		all := len(seen)
		if all == 0 || !strings.Contains(seen[0], want.first) || !strings.Contains(seen[all-1], want.last) {
			t.Errorf("%s: the rows are from %q to %q", path, seen[0], seen[all-1])
		}
		if slices.Sort(seen); all != want.n || len(slices.Compact(seen)) != want.n {
			t.Errorf("%s: %d rows are shown, %d different ones, want %d", path, all, len(slices.Compact(seen)), want.n)
		}
	}
	if rows := b.get("/ui/lanes?sort=backlog&cursor=gone").ok().count("tbody tr"); rows != pageSize {
		t.Errorf("after a lane that is none of the largest any more, %d are shown", rows)
	}
}

// Callbacks outlive their endpoint: the reconciliation page links to those of one that was deleted.
func TestCallbacksOfADeletedEndpoint(t *testing.T) {
	t.Parallel()
	o := parts()
	gone := sampleEndpoint(3)
	gone.DeletedAt = testNow - 1000
	var asked store.Filter
	o.callbackRows = callbackRows{all: []store.Callback{sample(1)}, asked: &asked}
	o.endpointRows = endpointRows{all: []store.Endpoint{gone}}
	b := signedIn(t, o)
	list := "/ui/callbacks?endpoint=" + store.EndpointPrefix + gone.ID
	b.get("/ui/endpoints/" + store.EndpointPrefix + gone.ID).leads(list)
	b.get(list).ok().lacks(".banner.bad")
	if asked.EndpointID != gone.ID {
		t.Errorf("listed are those of endpoint %q", asked.EndpointID)
	}
	for _, name := range []string{store.EndpointPrefix + testID(4), gone.ExternalID + "-never"} {
		b.get("/ui/callbacks?endpoint="+name).ok().has(".banner.bad", "cannot be meant")
	}
}
