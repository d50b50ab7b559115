package storetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func (f *fixture) list(filter store.Filter) []string {
	f.Helper()
	filter.Now = f.now
	if filter.Limit == 0 {
		filter.Limit = 500
	}
	page, err := f.List(f.ctx(), project, filter)
	if err != nil {
		f.Fatalf("list: %v", err)
	}
	var ids []string
	for _, c := range page.Callbacks {
		ids = append(ids, c.ID)
	}
	return ids
}

func testProjects(f *fixture) {
	c := f.accept(nil)
	for _, where := range []struct{ project, id string }{{"other", c.ID}, {project, f.id()}, {"", c.ID}, {project, ""}} {
		_, e1 := f.Get(f.ctx(), where.project, where.id)
		_, e2 := f.Attempts(f.ctx(), where.project, where.id)
		_, e3 := f.Payload(f.ctx(), where.project, where.id)
		for _, err := range []error{e1, e2, e3} {
			if !errors.Is(err, store.ErrNotFound) {
				f.Errorf("%+v: %v", where, err)
			}
		}
	}
	page, err := f.List(f.ctx(), "other", store.Filter{Limit: 10, Now: f.now})
	if err != nil || len(page.Callbacks) != 0 {
		f.Errorf("another project's list: %v, %+v", err, page)
	}
	counts, err := f.Counts(f.ctx(), "other")
	if err != nil || len(counts.States) != 0 || len(counts.Lanes) != 0 {
		f.Errorf("another project's counts: %v, %+v", err, counts)
	}
	if attempts := f.attempts(c.ID); len(attempts) != 0 {
		f.Errorf("attempts of a fresh one: %+v", attempts)
	}
}

func testFilters(f *fixture) {
	scheduled := f.accept(func(d *store.Draft) {
		d.Callback.DueAt += 5000
		d.Callback.Labels = map[string]string{"channel": "alipay", "shop": `"7", \ {x}`}
	}).ID
	attempting := f.accept(nil).ID
	f.claim(attempting)
	succeeded := f.accept(func(d *store.Draft) {
		d.Callback.Topic, d.Callback.Labels = "refund", map[string]string{"channel": "wechat"}
	}).ID
	f.win(f.succeeded(f.claim(succeeded)))
	dead := f.dead(func(d *store.Draft) {
		d.Callback.Ref, d.Callback.Lane, d.Callback.LockKey = "order-2", "other lane", "order-2"
	}).ID
	canceled := f.accept(func(d *store.Draft) { d.Callback.Kind, d.Callback.LockKey = store.Poll, "order-2" }).ID
	f.cancel(canceled)
	f.now++
	overdue := f.accept(func(d *store.Draft) { d.Callback.DueAt -= 10; d.Callback.Labels = map[string]string{"": "x", "a": ""} }).ID
	all := []string{overdue, canceled, dead, succeeded, attempting, scheduled}
	for name, tt := range map[string]struct {
		filter store.Filter
		want   []string
	}{
		"all":           {store.Filter{}, all},
		"scheduled":     {store.Filter{States: []store.State{store.Scheduled}}, []string{overdue, scheduled}},
		"attempting":    {store.Filter{States: []store.State{store.Attempting}}, []string{attempting}},
		"two states":    {store.Filter{States: []store.State{store.Dead, store.Attempting}}, []string{dead, attempting}},
		"terminal":      {store.Filter{States: []store.State{store.Succeeded, store.Dead, store.Canceled}}, []string{canceled, dead, succeeded}},
		"no such state": {store.Filter{States: []store.State{"x' OR 1=1"}}, nil},
		"kind":          {store.Filter{Kind: store.Poll}, []string{canceled}},
		"topic":         {store.Filter{Topic: "refund"}, []string{succeeded}},
		"ref":           {store.Filter{Ref: "order-2"}, []string{dead}},
		"lane":          {store.Filter{Lane: "other lane"}, []string{dead}},
		"unknown lane":  {store.Filter{Lane: "unknown"}, nil},
		"class":         {store.Filter{Class: store.ClassHTTP5xx}, []string{dead}},
		"status":        {store.Filter{Status: 200}, []string{succeeded}},
		"min attempts":  {store.Filter{MinAttempts: 1}, []string{dead, succeeded}},
		"overdue":       {store.Filter{Overdue: true}, []string{overdue}},
		"from":          {store.Filter{From: f.now}, []string{overdue}},
		"to":            {store.Filter{To: f.now}, all[1:]},
		"from to":       {store.Filter{From: f.now - 1, To: f.now}, all[1:]},
		"by due":        {store.Filter{ByDue: true}, []string{overdue, attempting, scheduled}},
		"lock key":      {store.Filter{LockKey: "order-2"}, []string{canceled, dead}},
		"dead lock key": {store.Filter{LockKey: "order-2", States: []store.State{store.Dead}}, []string{dead}},
		"reason":        {store.Filter{Reason: store.Requested}, []string{canceled}},
		"dead reason":   {store.Filter{Reason: store.Exhausted, States: []store.State{store.Dead}}, []string{dead}},
		"dead group": {store.Filter{Reason: store.Exhausted, States: []store.State{store.Dead}, Class: store.ClassHTTP5xx, Status: 500},
			[]string{dead}},
		"group's class":   {store.Filter{Reason: store.Exhausted, States: []store.State{store.Dead}, Class: store.ClassHTTP5xx}, []string{dead}},
		"other group":     {store.Filter{Reason: store.Gone, States: []store.State{store.Dead}, Class: store.ClassHTTP5xx}, nil},
		"label":           {store.Filter{Labels: map[string]string{"channel": "wechat"}}, []string{succeeded}},
		"two labels":      {store.Filter{Labels: map[string]string{"channel": "alipay", "shop": `"7", \ {x}`}}, []string{scheduled}},
		"part of a label": {store.Filter{Labels: map[string]string{"shop": `"7"`}}, nil},
		"empty label":     {store.Filter{Labels: map[string]string{"a": ""}}, []string{overdue}},
		"label wildcard":  {store.Filter{Labels: map[string]string{"channel": "%"}}, nil},
		"several":         {store.Filter{Topic: "payment.succeeded", Status: 500, States: []store.State{store.Dead}}, []string{dead}},
	} {
		if got := f.list(tt.filter); !slices.Equal(got, tt.want) {
			f.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

func testPages(f *fixture) {
	var want []string
	for i := range 23 {
		c := f.accept(func(d *store.Draft) {
			d.Callback.DueAt += int64((i * 7) % 5)
			d.Callback.Labels = map[string]string{"odd": fmt.Sprint(i % 2)}
		})
		want = append([]string{c.ID}, want...)
	}
	for _, byDue := range []bool{false, true} {
		var got []string
		var after *store.Cursor
		for {
			page, err := f.List(f.ctx(), project, store.Filter{ByDue: byDue, After: after, Limit: 5, Now: f.now})
			if err != nil {
				f.Fatal(err)
			}
			for _, c := range page.Callbacks {
				got = append(got, c.ID)
			}
			if page.Next == nil {
				break
			}
			if len(page.Callbacks) != 5 {
				f.Errorf("a page that is not the last has %d callbacks", len(page.Callbacks))
			}
			after = page.Next
		}
		if byDue {
			if !slices.IsSortedFunc(got, func(a, b string) int { return int(f.get(a).DueAt - f.get(b).DueAt) }) {
				f.Error("a list by due time is not in its order")
			}
			slices.Sort(got)
			slices.Reverse(got)
		}
		if !slices.Equal(got, want) {
			f.Errorf("by due %t: pages hold %v, want %v", byDue, got, want)
		}
	}
	if got := f.list(store.Filter{Limit: 23}); len(got) != 23 {
		f.Errorf("a page that holds all has %d", len(got))
	}
}

func testCounts(f *fixture) {
	lane := func(n int) func(*store.Draft) {
		return func(d *store.Draft) { d.Callback.Lane = fmt.Sprintf("lane-%03d", n) }
	}
	var drafts []store.Draft
	for i := range 130 {
		for range 1 + i%3 {
			drafts = append(drafts, f.draft(lane(i)))
		}
	}
	f.acceptAll(drafts...)
	check := func(when string) {
		f.Helper()
		counts := f.counts()
		if len(counts.Lanes) != 100 {
			f.Fatalf("%s: %d lanes are listed", when, len(counts.Lanes))
		}
		// 86 lanes have two or three; one has four.
		if first, last, two := counts.Lanes[0], counts.Lanes[99], counts.Lanes[86]; first.Open != 4 || first.Lane != "lane-000" ||
			last.Open != 1 || two.Open != 2 || counts.Lanes[87].Open != 1 {
			f.Errorf("%s: lanes %+v", when, counts.Lanes)
		}
		want := map[store.State]int64{store.Scheduled: int64(len(drafts)) + 3, store.Succeeded: 1}
		maps.DeleteFunc(counts.States, func(_ store.State, n int64) bool { return n == 0 })
		if !maps.Equal(counts.States, want) {
			f.Errorf("%s: states %v, want %v", when, counts.States, want)
		}
		if counts.Tiers[1] != 1 || counts.Tiers[3] != 1 || counts.Tiers[0] != int64(len(drafts))+1 || len(counts.Tiers) != 3 {
			f.Errorf("%s: tiers %v", when, counts.Tiers)
		}
	}
	fold := func() {
		f.Helper()
		if err := f.Fold(f.ctx(), f.now); err != nil {
			f.Fatalf("fold: %v", err)
		}
	}
	fold()
	extra := make([]store.Callback, 4)
	for i := range extra {
		extra[i] = f.accept(func(d *store.Draft) {
			lane(0)(d)
			if i == 2 {
				d.Callback.LadderBase = -3
			}
		})
	}
	f.win(f.failed(f.claim(extra[0].ID)))
	f.win(f.succeeded(f.claim(extra[1].ID)))
	check("half folded")
	fold()
	check("folded")
	fold()
	check("folded twice")
}
