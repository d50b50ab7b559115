package sqlstore

import (
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// listFilters are filters of lists by their names; from and to bound the middle of what is listed.
func listFilters(from, to int64) map[string]store.Filter {
	const poll, scheduled, attempting, dead, canceled = store.Poll, store.Scheduled, store.Attempting, store.Dead, store.Canceled
	in := func(states ...store.State) store.Filter { return store.Filter{States: states} }
	filter := func(change func(*store.Filter), states ...store.State) store.Filter {
		f := in(states...)
		change(&f)
		return f
	}
	labeled := func(key, value string) store.Filter { return store.Filter{Labels: map[string]string{key: value}} }
	group := func(change func(*store.Filter)) store.Filter {
		return filter(func(f *store.Filter) {
			f.Reason, f.Class = store.Exhausted, store.ClassHTTP5xx
			change(f)
		}, dead)
	}
	return map[string]store.Filter{
		"all":           {},
		"scheduled":     in(scheduled),
		"attempting":    in(attempting),
		"open":          in(attempting, scheduled),
		"succeeded":     in(store.Succeeded),
		"dead":          in(dead),
		"canceled":      in(canceled),
		"ended":         in(store.Succeeded, dead, canceled),
		"ended badly":   in(canceled, dead),
		"dead or open":  in(dead, scheduled),
		"no such state": in("x' OR 1=1"),

		"rare topic":       {Topic: "rare"},
		"no topic":         {Topic: "none"},
		"status":           {Status: 501},
		"dead by status":   filter(func(f *store.Filter) { f.Status = 500 }, dead),
		"attempts":         {MinAttempts: 1},
		"times":            {From: from, To: to},
		"times and topic":  {From: from, To: to, Topic: "rare"},
		"label":            labeled("shop", "7"),
		"label with signs": labeled("shop", oddLabel),
		"part of a label":  labeled("shop", `"7"`),
		"empty label":      labeled("a", ""),
		"label wildcard":   labeled("shop", "%"),
		"two labels":       {Labels: map[string]string{"shop": oddLabel, "a": ""}},

		"lane":               {Lane: "lane-3"},
		"no lane":            {Lane: "none"},
		"dead of a lane":     filter(func(f *store.Filter) { f.Lane = "lane-3" }, dead),
		"dead of no lane":    filter(func(f *store.Filter) { f.Lane = "none" }, dead),
		"dead of some time":  filter(func(f *store.Filter) { f.Lane, f.From, f.To = "lane-3", from, to }, dead),
		"dead polls, a lane": filter(func(f *store.Filter) { f.Lane, f.Kind = "lane-3", poll }, dead),
		"overdue":            {Overdue: true},
		"overdue in a lane":  {Overdue: true, Lane: "lane-3"},

		"ref":                 {Ref: "order-77"},
		"endpoint":            {EndpointID: "endpoint"},
		"dead of an endpoint": filter(func(f *store.Filter) { f.EndpointID = "endpoint" }, dead),
		"open of an endpoint": filter(func(f *store.Filter) { f.EndpointID = "endpoint" }, scheduled),
		"endpoint and ref":    {EndpointID: "endpoint", Ref: "order-76"},

		"lock key":              {LockKey: "lock"},
		"dead of a lock key":    filter(func(f *store.Filter) { f.LockKey = "lock" }, dead),
		"open of a lock key":    filter(func(f *store.Filter) { f.LockKey = "lock" }, scheduled),
		"lock key and ref":      {LockKey: "lock", Ref: "order-31"},
		"lock key and endpoint": {LockKey: "lock", EndpointID: "endpoint"},
		"polls of a lock key":   {LockKey: "lock", Kind: poll},

		"reason":                 {Reason: store.Exhausted},
		"dead for a reason":      filter(func(f *store.Filter) { f.Reason = store.Exhausted }, dead),
		"reason of none open":    filter(func(f *store.Filter) { f.Reason = store.Requested }, scheduled),
		"group of one status":    group(func(f *store.Filter) { f.Reason, f.Class = store.Expired, store.ClassTimeoutHeaders }),
		"group of some statuses": group(func(*store.Filter) {}),
		"group of a status":      group(func(f *store.Filter) { f.Status = 501 }),
		"group in a lane":        group(func(f *store.Filter) { f.Status, f.Lane = 501, "lane-3" }),
		"empty group":            group(func(f *store.Filter) { f.Reason = store.Poison }),
		"group of an endpoint":   group(func(f *store.Filter) { f.EndpointID = "endpoint" }),
		"group of polls":         group(func(f *store.Filter) { f.Kind = poll }),

		"polls":                {Kind: poll},
		"dead polls":           filter(func(f *store.Filter) { f.Kind = poll }, dead),
		"open polls":           filter(func(f *store.Filter) { f.Kind = poll }, attempting, scheduled),
		"overdue polls":        {Kind: poll, Overdue: true},
		"rare polls":           {Kind: poll, Topic: "rare"},
		"polls of a time":      {Kind: poll, From: from, To: to},
		"polls of a reference": {Kind: poll, Ref: "order-17"},
		"polls of an endpoint": {Kind: poll, EndpointID: "endpoint"},
		"dead endpoint polls":  filter(func(f *store.Filter) { f.Kind, f.EndpointID = poll, "endpoint" }, dead),
		"notify":               {Kind: store.Notify},
	}
}

// oddLabel is a label's value with signs that mean something in JSON.
const oddLabel = `"7", \ {x}`

// isPicked says what a filter means.
func isPicked(f *store.Filter, c *store.Callback) bool {
	state := c.StateAt(listNow)
	if f.ByDue && c.State != store.Scheduled || f.Overdue && (state != store.Scheduled || c.DueAt >= listNow) {
		return false
	}
	for key, value := range f.Labels {
		if got, ok := c.Labels[key]; !ok || got != value {
			return false
		}
	}
	is := func(want, got string) bool { return want == "" || want == got }
	return (len(f.States) == 0 || slices.Contains(f.States, state)) &&
		is(string(f.Kind), string(c.Kind)) && is(f.Topic, c.Topic) && is(f.Ref, c.Ref) && is(f.Lane, c.Lane) &&
		is(f.EndpointID, c.EndpointID) && is(f.LockKey, c.LockKey) && is(string(f.Reason), string(c.Reason)) &&
		is(string(f.Class), string(c.LastClass)) && (f.Status == 0 || f.Status == c.LastStatus) &&
		c.AttemptCount >= f.MinAttempts && c.CreatedAt >= f.From && (f.To == 0 || c.CreatedAt < f.To)
}

// indexOf is the index that a list is read by, newest first or by due time; empty: it may be any.
func indexOf(f store.Filter) string {
	dead := slices.Equal(f.States, []store.State{store.Dead})
	switch {
	case f.ByDue && f.Ref != "":
		return ""
	case f.ByDue:
		return "callbacks_due"
	case f.Ref != "":
		return "requests_ref"
	case f.LockKey != "":
		return "callbacks_lock"
	case f.EndpointID != "":
		return "requests_endpoint"
	case f.Kind == store.Poll:
		return "callbacks_polls"
	case dead && f.Lane != "":
		return "callbacks_dead_lane"
	case dead && f.Reason != "" && f.Class != "":
		return "callbacks_dead"
	case dead || slices.Equal(f.States, []store.State{store.Canceled}):
		return "callbacks_ended"
	}
	return "sqlite_autoindex_requests_1 (project=? AND "
}
