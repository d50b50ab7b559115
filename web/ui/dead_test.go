package ui

import (
	"context"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

type deadRows struct {
	groups []store.DeadGroup
	err    error
}

func (d deadRows) DeadGroups(context.Context, string) ([]store.DeadGroup, error) {
	return d.groups, d.err
}

func deadGroupOf(reason store.Reason, class store.Class, status, count int) store.DeadGroup {
	return store.DeadGroup{
		Reason: reason, Class: class, Status: status, Count: count, More: count == 1000, OldestAt: testNow - 90_000_000, NewestAt: testNow - 60_000, NewestID: testID(1),
	}
}

func deadCases() []pageCase {
	give := func(total int64, groups ...store.DeadGroup) func(o *fakes) {
		return func(o *fakes) {
			o.deadRows = deadRows{groups: groups}
			o.callbackRows = callbackRows{counts: store.Counts{States: map[store.State]int64{store.Dead: total}}}
		}
	}
	var many []store.DeadGroup
	for i, class := range store.Classes {
		many = append(many, deadGroupOf(store.Exhausted, class, 100+i, 1000-i))
	}
	for _, reason := range []store.Reason{store.Rejected, store.Gone, store.Expired, store.Blocked, store.Invalid, store.Poison, store.Unresolved} {
		many = append(many, deadGroupOf(reason, "", 0, 7))
	}
	return []pageCase{
		{name: "dead/empty", set: give(0), want: wants{{".empty", "Nothing is dead"}}, unwanted: []string{"table"}},
		{name: "dead/one", set: give(1, deadGroupOf(store.Exhausted, store.ClassHTTP5xx, 503, 1)), want: wants{
			{"main p a", "1 dead callback in all"}, {"td strong", "the receiver has trouble of its own"}, {"td .small", "all attempts used up"}, {"td .cure", "When it answers again"}, {"td .small", "503"},
			{"a[data-ask]", "Redrive…"}, {"a[href=/ui/callbacks?class=http_5xx&reason=exhausted&state=dead&status_code=503]", "1"},
			{"a[href=/ui/redrives/new?action=retry&class=http_5xx&reason=exhausted&state=dead&status_code=503]", "Redrive"},
		}, unwanted: []string{"#unresolved-title"}},
		{name: "dead/many", set: give(123_456, many...), want: wants{
			{"main p a", "123,456 dead callbacks"}, {"td.count", "1,000+"}, {"#unresolved-title", "never resolved"}, {"section.apart td", "Ask the upstream"}, {"a[data-ask]", "Change the address…"},
		}},
		{name: "dead/some", set: give(1273, deadGroupOf(store.Exhausted, store.ClassHTTP5xx, 503, 1000), deadGroupOf(store.Exhausted, store.ClassDNSNotFound, 0, 212),
			deadGroupOf(store.Exhausted, store.ClassRuleMismatch, 200, 37), deadGroupOf(store.Gone, store.ClassGone, 410, 12), deadGroupOf(store.Expired, "", 0, 8), deadGroupOf(store.Unresolved, store.ClassRuleMismatch, 200, 4))},
		{name: "dead/uncounted", set: give(5), want: wants{{"main p a", "5 dead callbacks"}}, unwanted: []string{".empty"}},
		{name: "dead/hostile", set: give(1, deadGroupOf(store.Exhausted, hostile, 999, 1))},
		{name: "dead/error", set: func(o *fakes) { o.deadRows = deadRows{err: errBroken} }},
	}
}

func TestDeadOffersAnAddressWhereThatHelps(t *testing.T) {
	t.Parallel()
	for class, offered := range map[store.Class]bool{store.ClassDNSNotFound: true, store.ClassConnectRefused: true, store.ClassHTTP4xx: true, store.ClassHTTP5xx: false, store.ClassThrottled: false} {
		o := parts()
		o.deadRows = deadRows{groups: []store.DeadGroup{deadGroupOf(store.Exhausted, class, 0, 1)}}
		b := signedIn(t, o)
		has := false
		for _, a := range find(b.get("/ui/dead").ok().doc, "a[data-ask]") {
			has = has || strings.Contains(attr(a, "href"), "action=set_url")
		}
		if has != offered {
			t.Errorf("%s: an address is offered: %v", class, has)
		}
	}
}
