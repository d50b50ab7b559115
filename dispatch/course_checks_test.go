package dispatch_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/report"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// checks are the commands of a course that print or check what happened. testdata/courses/README.md describes
// them.
var checks = map[string]func(arguments) string{
	"ends": func(a arguments) string {
		ids, within := a.known(a.words...), cmp.Or(a.duration("within"), time.Hour)
		become := make([]string, len(ids))
		for i, id := range ids {
			become[i] = outcomeOf(a.await(id, within))
		}
		return a.same(ids, become)
	},
	"states": func(a arguments) string {
		synctest.Wait()
		ids := a.known(a.words...)
		become := make([]string, len(ids))
		for i, id := range ids {
			become[i] = outcomeOf(a.get(id))
		}
		return a.same(ids, become)
	},
	"show": func(a arguments) string { return a.fields(a.thing(a.words[0]), a.words[1:]...) },
	"attempts": func(a arguments) string {
		var rows strings.Builder
		for _, row := range a.attempts(a.id(a.words[0])) {
			fmt.Fprintf(&rows, "%d: %s\n", row.Number, a.fields(row, a.words[1:]...))
		}
		return rows.String()
	},
	"apart": silent(func(a arguments) {
		var at [2]int64
		for i := range at {
			name, path, _ := strings.Cut(a.words[i], ".")
			at[i] = field(a.thing(name), path).(int64)
		}
		a.within(a.rest, (time.Duration(at[1]-at[0]) * time.Millisecond).Seconds(), a.words[2])
	}),
	"hits": func(a arguments) string {
		hits := a.fixture.hits(a.named["at"])
		slices.SortStableFunc(hits, func(h, other hit) int {
			return cmp.Or(h.at.Compare(other.at), strings.Compare(h.url, other.url))
		})
		var list strings.Builder
		for _, h := range hits {
			fmt.Fprintf(&list, "%s %s %s %s", a.when(h.at.UnixMilli()), h.id, h.number, h.url)
			if slices.Contains(a.words, "bodies") {
				list.WriteString(" " + h.body)
			}
			list.WriteString("\n")
		}
		return list.String()
	},
	"headers": func(a arguments) string {
		var list []string
		for _, h := range a.thing(a.words[0]).(store.Attempt).RequestHeaders {
			if slices.Contains(a.words, strings.ToLower(h.Name)) {
				list = append(list, strings.ToLower(h.Name)+": "+h.Value)
			}
		}
		return strings.Join(list, ", ")
	},
	"sent": func(a arguments) string { return a.counted("requests", len(a.hits(a.named["at"]))) },
	"peak": func(a arguments) string { return a.counted("at once", a.wire.peak()) },
	"quiet": silent(func(a arguments) {
		before := len(a.fixture.hits(""))
		time.Sleep(must(time.ParseDuration(a.words[0])))
		a.is("requests in "+a.words[0], len(a.fixture.hits(""))-before, 0)
	}),
	"calls": func(a arguments) string {
		key := fmt.Sprintf("%p %s", a.fixture, a.words[0])
		synctest.Wait()
		n := a.count(a.words[0])
		defer func() { a.called[key] = n }()
		if len(a.words) > 1 {
			a.within("calls of "+a.words[0], float64(n-a.called[key]), a.words[1])
			return ""
		}
		return a.counted("calls of "+a.words[0], n-a.called[key])
	},
	"logged": func(a arguments) string {
		if a.has("with") {
			return strconv.Itoa(strings.Count(a.log.all(), a.named["with"]))
		}
		return a.counted("lines", int(a.log.n.Swap(0)))
	},
	// counted prints the activity by hours of lanes, and checks that the spans of every length have the same.
	"counted": func(a arguments) string {
		said := a.activity(store.Hour, 100)
		for _, span := range store.Spans {
			a.is(time.Duration(span).String(), a.activity(span, 0), said)
		}
		return said
	},
	"processes": func(a arguments) string {
		return a.processes(func() []store.Dispatcher {
			return must(a.db.Dispatchers(a.Context(), 0))
		})
	},
	"listed": func(a arguments) string {
		return a.processes(func() []store.Dispatcher {
			return must(a.engine.Dispatchers(a.Context()))
		})
	},
	"health": func(a arguments) string { return a.health() },
	"verify": func(a arguments) string {
		d := a.drift()
		if d.Generation == d.IndexGeneration {
			d.Generation, d.IndexGeneration = 0, 0
		}
		return map[bool]string{true: "clean: "}[d.Clean()] + a.fields(d)
	},
	"index": func(a arguments) string { return a.fields(must(a.engine.IndexStatus(a.Context()))) },
	"items": func(a arguments) string {
		synctest.Wait()
		s := must(a.index.Stats(a.Context(), 0))
		return fmt.Sprint(s.Delayed + s.Ready + s.Leased)
	},
	"codes": func(a arguments) string {
		var codes []string
		for _, block := range a.fixture.explain(a.id(a.words[0])).Blocking {
			codes = append(codes, block.Code)
		}
		return strings.Join(codes, " ")
	},
	"explain": func(a arguments) string {
		x := a.fixture.explain(a.id(a.words[0]))
		text := x.Summary + "\nnext " + a.when(x.NextAt)
		for _, block := range x.Blocking {
			text += "\n" + a.block(block, "Code", "Since", "Until")
		}
		return text
	},
	"first": func(a arguments) string {
		return a.block(a.fixture.first(a.id(a.words[0])), "Code", "Since")
	},
	"since": silent(func(a arguments) {
		a.within(a.rest, time.UnixMilli(a.fixture.first(a.id(a.words[0])).Since).Sub(a.began).Seconds(),
			a.words[1])
	}),
	"took": silent(func(a arguments) {
		first, last := store.Forever, int64(0)
		for _, id := range a.known(a.words[0]) {
			c := a.get(id)
			first, last = min(first, c.CreatedAt), max(last, c.FinishedAt)
		}
		a.within(a.rest, (time.Duration(last-first) * time.Millisecond).Seconds(), a.words[1])
	}),
	"total": func(a arguments) string {
		total := 0
		for _, name := range a.names(a.words[1], a.named["and"]) {
			total += a.whole(name, a.words[0])
		}
		return a.counted(a.words[0], total)
	},
	"each": silent(func(a arguments) {
		for _, name := range a.names(a.words[1]) {
			a.within(name, float64(a.whole(name, a.words[0])), a.words[2])
		}
	}),
	// punctual checks how late each attempt started.
	"punctual": silent(func(a arguments) {
		last := len(a.words) - 1
		for _, id := range a.known(a.words[:last]...) {
			for _, row := range a.attempts(id) {
				late := time.Duration(row.StartedAt-row.DueAt) * time.Millisecond
				a.within(a.rest, late.Seconds(), a.words[last])
			}
		}
	}),
	"committed": silent(func(a arguments) {
		for _, id := range a.known(a.words[0]) {
			late := a.get(id).FinishedAt - a.attempts(id)[0].EndedAt
			a.within(a.rest, (time.Duration(late) * time.Millisecond).Seconds(), a.words[1])
		}
	}),
	"order": silent(func(a arguments) {
		var came []string
		for _, h := range a.fixture.hits("") {
			came = append(came, h.id)
		}
		a.is("order", came, a.known(a.words...))
	}),
	"once": silent(func(a arguments) {
		sent := map[string]int{}
		for _, h := range a.fixture.hits("") {
			sent[h.id]++
			a.is("requests of one callback", sent[h.id], 1)
		}
	}),
	"same":   silent(func(a arguments) { a.is(a.words[0], a.id(a.words[0]), a.id(a.words[1])) }),
	"loaded": silent(func(a arguments) { a.awaitMark(must(time.ParseDuration(a.words[0]))) }),
	"place": func(a arguments) string {
		synctest.Wait()
		c := a.get(a.id(a.words[0]))
		ref := schedule.Ref{ID: c.ID, Lane: c.LaneID}
		return must(a.index.Lookup(a.Context(), []schedule.Ref{ref}))[0].Place.String()
	},
	"watermark": func(a arguments) string {
		m := must(a.index.Watermark(a.Context(), 0))
		return map[bool]string{true: "for ever"}[m.At == schedule.Forever]
	},
	"lease": silent(func(a arguments) {
		a.check(must(a.db.TryLease(a.Context(), a.words[0], "the test", soon(0), time.Second)),
			"the lease %s is another's", a.words[0])
	}),
	"lane": func(a arguments) string {
		f := store.LaneFilter{Keys: []string{a.get(a.id(a.words[0])).Lane}, Limit: 10}
		var list strings.Builder
		for _, lane := range must(a.engine.Lanes(a.Context(), project, f)) {
			list.WriteString(lane.Why(a.engine.Now()) + "\n")
			for _, block := range lane.Blocks(a.engine.Now()) {
				list.WriteString(a.block(block, "Code", "Since") + "\n")
			}
		}
		return list.String()
	},
	// metric prints the series of metrics that are not zero.
	"metric": func(a arguments) string {
		synctest.Wait()
		var list strings.Builder
		for _, name := range a.words {
			all := a.fixture.series(name)
			if len(all) == 0 {
				list.WriteString(name + " is absent\n")
			}
			for _, label := range slices.Sorted(maps.Keys(all)) {
				if v := all[label]; v != 0 {
					fmt.Fprintf(&list, "%s %s: %g\n", name, label, v)
				}
			}
		}
		return list.String()
	},
	"results": func(a arguments) string {
		time.Sleep(5 * time.Second)
		var list strings.Builder
		for _, h := range a.fixture.hits("https://shop.example/result") {
			var r store.PollResult
			a.ok(json.Unmarshal([]byte(h.body), &r))
			if bare(r.PollID) == a.id(a.words[0]) {
				list.WriteString(a.fields(r, a.words[1:]...) + "\n")
			}
		}
		return list.String()
	},
	// asked prints the times of a poll's requests, since the first.
	"asked": func(a arguments) string {
		hits := slices.DeleteFunc(a.fixture.hits(""), func(h hit) bool { return h.id != a.id(a.words[0]) })
		var at []string
		for _, h := range hits {
			at = append(at, h.at.Sub(hits[0].at).Round(10*time.Millisecond).String())
		}
		return strings.Join(at, " ")
	},
	"name": silent(func(a arguments) {
		a.callback(a.words[0], field(a.thing(a.words[1]), a.words[2]).(string))
	}),
	"alerts": func(a arguments) string {
		var list strings.Builder
		for _, alert := range a.fixture.alerts() {
			fmt.Fprintln(&list, alert.Type, alert.Data.ID, alert.Data.Reason, alert.Data.Topic)
		}
		return list.String()
	},
	// deaths checks that each of these callbacks has one event of its death.
	"deaths": silent(func(a arguments) {
		found := map[string]int{}
		for _, alert := range a.fixture.alerts() {
			a.is("alert", []string{alert.Type, alert.Data.Reason, alert.Data.Topic},
				[]string{report.TopicDead, "exhausted", "payment"})
			found[bare(alert.Data.ID)]++
		}
		ids := a.known(a.words...)
		for _, id := range ids {
			a.is("events of a death", found[id], 1)
		}
		a.is("events of deaths", len(found), len(ids))
	}),
	"audited": silent(func(a arguments) {
		for i := range must(strconv.Atoi(a.words[0])) {
			a.setLane("lane-"+a.words[0], i+1)
		}
		a.awaitChain()
	}),
	"chained": silent(func(a arguments) { a.awaitChain() }),
	"keep":    silent(func(a arguments) { a.link = a.awaitChain() }),
	"audit":   arguments.verifyAudit,
	"endpoint_alerts": func(a arguments) string {
		var kinds []string
		for _, alert := range a.fixture.alerts() {
			kinds = append(kinds, strings.TrimPrefix(alert.Type, "dispatcher.endpoint."))
		}
		return strings.Join(kinds, " ")
	},
	"counts": func(a arguments) string {
		counts := a.counts()
		var parts []string
		for _, state := range slices.Sorted(maps.Keys(counts)) {
			parts = append(parts, fmt.Sprint(state, " ", counts[state]))
		}
		return strings.Join(parts, ", ")
	},
}
