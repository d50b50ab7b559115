package ui

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// An orderEvent is one event of an order. Exactly one of Attempt, Act, Ended and Created is set.
type orderEvent struct {
	At int64
	// Kind is the colour of its dot.
	Kind string
	// Row is the callback. It is nil for an act on something else and for Created.
	Row     *orderRow
	Attempt *attemptPart
	Act     *auditRow
	// Ended is the name of the state in which the callback has ended. It may also be set with Attempt, if
	// that attempt has ended the callback.
	Ended string
	// Created are callbacks that one creator created within a second. Creator names it, or is empty.
	Created []*orderRow
	Creator string

	// key makes the event unique among those of the same time.
	key     string
	attempt *store.Attempt // from which timeline makes Attempt
	problem bool
	manual  bool
}

// ID returns the event's id in the page.
func (e *orderEvent) ID() string { return "e-" + e.key }

// EndedBadge returns Ended unless the outcome of the attempt says the same.
func (e *orderEvent) EndedBadge() string {
	if e.Attempt != nil && e.Attempt.DisplayOutcome == e.Ended {
		return ""
	}
	return e.Ended
}

// Result returns the result callback of a poll if the event has ended it: its id and its row, which may be
// nil.
func (e *orderEvent) Result() string {
	if e.Ended == "" || e.Row == nil {
		return ""
	}
	return e.Row.resultID
}

// ResultRow returns the row of Result, or nil.
func (e *orderEvent) ResultRow() *orderRow { return e.Row.result }

// events returns all events, the newest first.
func (p *orderPage) events(acts []store.AuditEntry) []*orderEvent {
	all := p.createdEvents()
	for _, o := range p.Rows {
		ended := false
		for i := range o.attempts {
			a := &o.attempts[i]
			outcome := displayOutcome(a, &o.Callback)
			e := &orderEvent{At: a.StartedAt, Row: o, attempt: a, manual: a.Trigger == store.Manual,
				key: "a-" + o.ID + "-" + strconv.Itoa(a.Number)}
			e.problem = a.Outcome != store.AttemptSucceeded && outcome != notFinal || outcome == finalFailure
			if i == 0 && o.Callback.State.Terminal() && a.NextDueAt == 0 && !a.Stale {
				e.Ended, ended = o.Shown(), true
			}
			all = append(all, e)
		}
		if o.FinishedAt != 0 && !ended {
			e := &orderEvent{At: o.FinishedAt, Row: o, Ended: o.Shown(), key: "f-" + o.ID,
				problem: o.State == store.Dead}
			e.Kind = map[store.State]string{store.Succeeded: "good", store.Dead: "bad"}[o.State]
			all = append(all, e)
		}
	}
	for i := range acts {
		e := &orderEvent{At: acts[i].At, Kind: "busy", Act: actRow(&p.base, &acts[i]), manual: true,
			key: "m-" + acts[i].ID}
		for _, o := range p.Rows {
			if o.ID == acts[i].Object {
				e.Row = o
			}
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *orderEvent) int {
		return cmp.Or(cmp.Compare(b.At, a.At), strings.Compare(b.key, a.key))
	})
	return all
}

// actRow returns an act without its details.
func actRow(b *base, e *store.AuditEntry) *auditRow {
	row := &auditRow{AuditEntry: *e, ActionText: b.Or("action.", e.Action)}
	row.Name, row.Key = actorOfEntry(e)
	return row
}

// createdEvents returns an event for the callbacks that one creator created within a second.
func (p *orderPage) createdEvents() (all []*orderEvent) {
	byTime := slices.Clone(p.Rows)
	slices.SortFunc(byTime, func(a, b *orderRow) int { return strings.Compare(a.ID, b.ID) })
	for _, o := range byTime {
		if n := len(all); n > 0 && o.CreatedAt-all[n-1].At < 1000 && o.creator == all[n-1].Creator {
			all[n-1].Created = append(all[n-1].Created, o)
			continue
		}
		all = append(all, &orderEvent{At: o.CreatedAt, Created: []*orderRow{o}, Creator: o.creator,
			key: "0-" + o.ID})
	}
	return all
}

// timeline sets one page of the events. show is the filter. before is the place of the last event of the page
// before.
func (p *orderPage) timeline(events []*orderEvent, show, before string) {
	kinds := map[string]func(*orderEvent) bool{
		"problems": func(e *orderEvent) bool { return e.problem },
		"manual":   func(e *orderEvent) bool { return e.manual },
	}
	if kinds[show] == nil {
		show = ""
	}
	for _, name := range []string{"", "problems", "manual"} {
		p.Shows = append(p.Shows, chip{Text: p.T("order.show." + cmp.Or(name, "all")), Current: name == show,
			Link: p.With("show", name, "before", "")})
	}
	if is := kinds[show]; is != nil {
		events = slices.DeleteFunc(events, func(e *orderEvent) bool { return !is(e) })
	}
	at, key, _ := strings.Cut(before, ".")
	if ms, err := strconv.ParseInt(at, 10, 64); err == nil {
		p.Newest = p.With("before", "")
		events = slices.DeleteFunc(events, func(e *orderEvent) bool {
			return e.At > ms || e.At == ms && e.key >= key
		})
	}
	limit := orderEvents
	if len(p.Rows) > manyCallbacks {
		limit = fewEvents
	}
	if len(events) > limit {
		events = events[:limit]
		last := events[limit-1]
		p.Older = p.With("before", strconv.FormatInt(last.At, 10)+"."+last.key)
	}
	for _, e := range events {
		if e.attempt != nil {
			part := newAttempt(&p.base, e.attempt, &e.Row.Callback, orderBody)
			e.Attempt, e.Kind = &part, part.Kind()
		}
	}
	p.Events = events
}

// support returns a short text about the order that can be sent to a merchant, in the viewer's language. It
// has no credentials and no ids of this installation.
func (p *orderPage) support() string {
	var out strings.Builder
	line := func(key string, params ...any) {
		out.WriteString(p.T("order.support."+key, params...) + "\n")
	}
	line("head", "ref", p.Ref, "at", p.zoned(p.now))
	for i, o := range p.Rows {
		if i == supportCallbacks {
			out.WriteString("\n…\n")
			break
		}
		out.WriteString("\n" + cmp.Or(o.Topic, o.FullID) + " → " + o.host() + "\n")
		line("state", "state", p.T("state."+o.Shown()), "n", o.AttemptCount)
		line("created", "at", p.zoned(o.CreatedAt))
		for i := min(len(o.attempts), supportAttempts) - 1; i >= 0; i-- {
			line("attempt", "number", o.attempts[i].Number, "at", p.zoned(o.attempts[i].StartedAt),
				"says", p.received(o, &o.attempts[i]))
		}
		switch {
		case o.FinishedAt != 0:
			line("ended", "at", p.zoned(o.FinishedAt))
		case o.DueAt != 0:
			line("next", "at", p.zoned(o.DueAt))
		}
	}
	return out.String()
}

// Bounds of the text for support: its callbacks, the attempts of each, and the bytes of each response.
const (
	supportCallbacks = 8
	supportAttempts  = 3
	supportBody      = 120
)

// zoned formats a time with the offset of its zone, for a text that leaves the page.
func (p *orderPage) zoned(ms int64) string { return p.inZone(ms).Format(yearDay + clock + " -07:00") }

// host returns the receiver as the merchant knows it.
func (o *orderRow) host() string { return shortAddress(o.Address) }

// received describes what an attempt got.
func (p *orderPage) received(o *orderRow, a *store.Attempt) string {
	var parts []string
	if a.Status != 0 {
		parts = append(parts, "HTTP "+strconv.Itoa(a.Status))
	}
	switch outcome := displayOutcome(a, &o.Callback); {
	case a.Outcome == store.AttemptSucceeded, outcome == notFinal:
		parts = append(parts, p.T("outcome."+outcome))
	default:
		parts = append(parts, p.Or("class.", string(a.Class)))
	}
	body, shortened := cut(store.MaskPANText(strings.Join(strings.Fields(a.ResponseBody), " ")), supportBody)
	if shortened {
		body += "…"
	}
	if body != "" {
		parts = append(parts, strconv.Quote(body))
	}
	return strings.Join(parts, " · ")
}
