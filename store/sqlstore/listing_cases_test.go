package sqlstore_test

import (
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A listCase is a filter, and what it says in Go.
type listCase struct {
	name   string
	filter store.Filter
	picks  func(c *store.Callback) bool
}

func listCases(all []store.Callback) []listCase {
	state := func(states ...store.State) func(*store.Callback) bool {
		return func(c *store.Callback) bool { return slices.Contains(states, c.StateAt(listNow)) }
	}
	poll := func(states ...store.State) func(*store.Callback) bool {
		return func(c *store.Callback) bool {
			return c.Kind == store.Poll && (len(states) == 0 || slices.Contains(states, c.StateAt(listNow)))
		}
	}
	overdue := func(c *store.Callback) bool { return c.StateAt(listNow) == store.Scheduled && c.DueAt < listNow }
	from, to := all[150].CreatedAt, all[50].CreatedAt
	return []listCase{
		{"all", store.Filter{}, func(*store.Callback) bool { return true }},
		{"scheduled", store.Filter{States: []store.State{store.Scheduled}}, state(store.Scheduled)},
		{"attempting", store.Filter{States: []store.State{store.Attempting}}, state(store.Attempting)},
		{"open", store.Filter{States: []store.State{store.Attempting, store.Scheduled}}, state(store.Scheduled, store.Attempting)},
		{"succeeded", store.Filter{States: []store.State{store.Succeeded}}, state(store.Succeeded)},
		{"dead", store.Filter{States: []store.State{store.Dead}}, state(store.Dead)},
		{"canceled", store.Filter{States: []store.State{store.Canceled}}, state(store.Canceled)},
		{"ended badly", store.Filter{States: []store.State{store.Canceled, store.Dead}}, state(store.Canceled, store.Dead)},
		{"dead or open", store.Filter{States: []store.State{store.Dead, store.Scheduled}}, state(store.Dead, store.Scheduled)},
		{"rare topic", store.Filter{Topic: "rare"}, func(c *store.Callback) bool { return c.Topic == "rare" }},
		{"no topic", store.Filter{Topic: "none"}, func(c *store.Callback) bool { return false }},
		{"lane", store.Filter{Lane: "lane-3"}, func(c *store.Callback) bool { return c.Lane == "lane-3" }},
		{"dead of a lane", store.Filter{Lane: "lane-3", States: []store.State{store.Dead}}, func(c *store.Callback) bool {
			return c.Lane == "lane-3" && c.State == store.Dead
		}},
		{"dead of no lane", store.Filter{Lane: "none", States: []store.State{store.Dead}}, func(*store.Callback) bool { return false }},
		{"dead of a lane, of a time", store.Filter{Lane: "lane-3", States: []store.State{store.Dead}, From: from, To: to}, func(c *store.Callback) bool {
			return c.Lane == "lane-3" && c.State == store.Dead && from <= c.CreatedAt && c.CreatedAt < to
		}},
		{"dead polls of a lane", store.Filter{Lane: "lane-3", Kind: store.Poll, States: []store.State{store.Dead}}, func(c *store.Callback) bool {
			return c.Lane == "lane-3" && c.State == store.Dead && c.Kind == store.Poll
		}},
		{"label", store.Filter{Labels: map[string]string{"shop": "7"}}, func(c *store.Callback) bool { return c.Labels["shop"] == "7" }},
		{"status", store.Filter{Status: 501}, func(c *store.Callback) bool { return c.LastStatus == 501 }},
		{"dead with a status", store.Filter{States: []store.State{store.Dead}, Status: 500}, func(c *store.Callback) bool { return c.LastStatus == 500 }},
		{"attempts", store.Filter{MinAttempts: 1}, func(c *store.Callback) bool { return c.AttemptCount > 0 }},
		{"overdue", store.Filter{Overdue: true}, overdue},
		{"overdue in a lane", store.Filter{Overdue: true, Lane: "lane-3"}, func(c *store.Callback) bool { return overdue(c) && c.Lane == "lane-3" }},
		{"ref", store.Filter{Ref: "order-77"}, func(c *store.Callback) bool { return c.Ref == "order-77" }},
		{"endpoint", store.Filter{EndpointID: "endpoint"}, func(c *store.Callback) bool { return c.EndpointID == "endpoint" }},
		{"dead of an endpoint", store.Filter{EndpointID: "endpoint", States: []store.State{store.Dead}}, func(c *store.Callback) bool {
			return c.EndpointID == "endpoint" && c.State == store.Dead
		}},
		{"open of an endpoint", store.Filter{EndpointID: "endpoint", States: []store.State{store.Scheduled}}, func(c *store.Callback) bool {
			return c.EndpointID == "endpoint" && c.StateAt(listNow) == store.Scheduled
		}},
		{"endpoint and ref", store.Filter{EndpointID: "endpoint", Ref: "order-76"}, func(c *store.Callback) bool { return c.Ref == "order-76" }},
		{"lock key", store.Filter{LockKey: "lock"}, func(c *store.Callback) bool { return c.LockKey == "lock" }},
		{"dead of a lock key", store.Filter{LockKey: "lock", States: []store.State{store.Dead}}, func(c *store.Callback) bool {
			return c.LockKey == "lock" && c.State == store.Dead
		}},
		{"open of a lock key", store.Filter{LockKey: "lock", States: []store.State{store.Scheduled}}, func(c *store.Callback) bool {
			return c.LockKey == "lock" && c.StateAt(listNow) == store.Scheduled
		}},
		{"lock key and ref", store.Filter{LockKey: "lock", Ref: "order-31"}, func(c *store.Callback) bool { return c.Ref == "order-31" }},
		{"lock key and endpoint", store.Filter{LockKey: "lock", EndpointID: "endpoint"}, func(c *store.Callback) bool {
			return c.LockKey == "lock" && c.EndpointID == "endpoint"
		}},
		{"polls of a lock key", store.Filter{LockKey: "lock", Kind: store.Poll}, func(c *store.Callback) bool {
			return c.LockKey == "lock" && c.Kind == store.Poll
		}},
		{"reason", store.Filter{Reason: store.Exhausted}, func(c *store.Callback) bool { return c.Reason == store.Exhausted }},
		{"dead for a reason", store.Filter{Reason: store.Exhausted, States: []store.State{store.Dead}}, func(c *store.Callback) bool { return c.Reason == store.Exhausted }},
		{"reason of no open one", store.Filter{Reason: store.Requested, States: []store.State{store.Scheduled}}, func(*store.Callback) bool { return false }},
		{"group of one status", store.Filter{Reason: store.Expired, States: []store.State{store.Dead}, Class: store.ClassTimeoutHeaders}, func(c *store.Callback) bool {
			return c.Reason == store.Expired
		}},
		{"group of some statuses", store.Filter{Reason: store.Exhausted, States: []store.State{store.Dead}, Class: store.ClassHTTP5xx}, func(c *store.Callback) bool {
			return c.Reason == store.Exhausted
		}},
		{"group of a status", store.Filter{Reason: store.Exhausted, States: []store.State{store.Dead}, Class: store.ClassHTTP5xx, Status: 501}, func(c *store.Callback) bool {
			return c.Reason == store.Exhausted && c.LastStatus == 501
		}},
		{"group in a lane", store.Filter{Reason: store.Exhausted, States: []store.State{store.Dead}, Class: store.ClassHTTP5xx, Status: 501, Lane: "lane-3"}, func(c *store.Callback) bool {
			return c.Reason == store.Exhausted && c.LastStatus == 501 && c.Lane == "lane-3"
		}},
		{"empty group", store.Filter{Reason: store.Poison, States: []store.State{store.Dead}, Class: store.ClassHTTP5xx}, func(*store.Callback) bool { return false }},
		{"group of an endpoint", store.Filter{Reason: store.Exhausted, States: []store.State{store.Dead}, Class: store.ClassHTTP5xx, EndpointID: "endpoint"}, func(c *store.Callback) bool {
			return c.Reason == store.Exhausted && c.EndpointID == "endpoint"
		}},
		{"group of polls", store.Filter{Reason: store.Exhausted, States: []store.State{store.Dead}, Class: store.ClassHTTP5xx, Kind: store.Poll}, func(c *store.Callback) bool {
			return c.Reason == store.Exhausted && c.Kind == store.Poll
		}},
		{"times", store.Filter{From: from, To: to}, func(c *store.Callback) bool { return from <= c.CreatedAt && c.CreatedAt < to }},
		{"times and topic", store.Filter{From: from, To: to, Topic: "rare"}, func(c *store.Callback) bool {
			return from <= c.CreatedAt && c.CreatedAt < to && c.Topic == "rare"
		}},
		{"polls", store.Filter{Kind: store.Poll}, poll()},
		{"dead polls", store.Filter{Kind: store.Poll, States: []store.State{store.Dead}}, poll(store.Dead)},
		{"open polls", store.Filter{Kind: store.Poll, States: []store.State{store.Attempting, store.Scheduled}}, poll(store.Attempting, store.Scheduled)},
		{"overdue polls", store.Filter{Kind: store.Poll, Overdue: true}, func(c *store.Callback) bool { return c.Kind == store.Poll && overdue(c) }},
		{"rare polls", store.Filter{Kind: store.Poll, Topic: "rare"}, func(c *store.Callback) bool { return c.Kind == store.Poll && c.Topic == "rare" }},
		{"polls of a time", store.Filter{Kind: store.Poll, From: from, To: to}, func(c *store.Callback) bool {
			return c.Kind == store.Poll && from <= c.CreatedAt && c.CreatedAt < to
		}},
		{"polls of a reference", store.Filter{Kind: store.Poll, Ref: "order-17"}, func(c *store.Callback) bool { return c.Ref == "order-17" }},
		{"polls of an endpoint", store.Filter{Kind: store.Poll, EndpointID: "endpoint"}, func(c *store.Callback) bool {
			return c.Kind == store.Poll && c.EndpointID == "endpoint"
		}},
		{"dead polls of an endpoint", store.Filter{Kind: store.Poll, EndpointID: "endpoint", States: []store.State{store.Dead}}, func(c *store.Callback) bool {
			return c.Kind == store.Poll && c.EndpointID == "endpoint" && c.State == store.Dead
		}},
		{"notify", store.Filter{Kind: store.Notify}, func(c *store.Callback) bool { return c.Kind == store.Notify }},
	}
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
		return "callbacks_ref"
	case f.LockKey != "":
		return "callbacks_lock"
	case f.EndpointID != "":
		return "callbacks_endpoint"
	case f.Kind == store.Poll:
		return "callbacks_polls"
	case dead && f.Lane != "":
		return "callbacks_dead_lane"
	case dead && f.Reason != "" && f.Class != "":
		return "callbacks_dead"
	case dead || slices.Equal(f.States, []store.State{store.Canceled}):
		return "callbacks_ended"
	}
	return "callbacks_project"
}
