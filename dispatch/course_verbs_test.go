package dispatch_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/report"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// verbs are what the lines of a course begin with. testdata/courses/README.md says what they mean.
var verbs = map[string]func(arguments) string{
	"engine": quietly(func(a arguments) {
		a.next.tweaks = append(a.next.tweaks, a.options()...)
		a.fixture = a.next.start(a.T)
	}),
	"restart": quietly(func(a arguments) {
		a.fixture = a.fixture.restart(a.fixture.receiver.answer, a.options()...)
	}),
	"beside": quietly(func(a arguments) {
		a.besides[a.words[0]] = a.fixture.beside(a.words[0], a.options()...)
	}),
	"end": quietly(func(a arguments) { a.stopRun() }),
	"stop": quietly(func(a arguments) {
		began := time.Now()
		a.stop()
		if a.has("within") {
			a.within("the end took", time.Since(began).Seconds(), "0s.."+a.named["within"])
		}
	}),
	"ending": quietly(func(a arguments) { go a.stopRun() }),
	"drain":  quietly(func(a arguments) { a.engine.BeginDrain() }),
	"sleep":  quietly(func(a arguments) { time.Sleep(must(time.ParseDuration(a.words[0]))) }),
	"minute": quietly(func(a arguments) {
		next := time.Now().Truncate(time.Minute).Add(time.Minute)
		time.Sleep(time.Until(next.Add(must(time.ParseDuration(a.words[0])))))
	}),
	"receives": quietly(func(a arguments) {
		if a.fixture == nil {
			a.next.answer = a.receiver()
		} else {
			a.turn(a.receiver())
		}
	}),
	"works": quietly(func(a arguments) { a.set(nil, a.words...) }),
	"fail": quietly(func(a arguments) {
		for _, op := range a.words {
			err := errBroken
			if _, ok := reflect.TypeFor[dispatch.Store]().MethodByName(op); ok {
				err = errDown
			} else if a.named["as"] == "lost" {
				err = schedule.ErrLost
			}
			a.befall(fail(err), op)
		}
	}),
	"slow": quietly(func(a arguments) {
		a.befall(slow(must(time.ParseDuration(a.words[0]))), a.words[1:]...)
	}),
	"hang": quietly(func(a arguments) { a.befall(hang, a.words...) }),
	"lose": quietly(func(a arguments) { a.befall(loseReply, a.words...) }),
	"rolled": quietly(func(a arguments) {
		a.befall(rolled(must(strconv.ParseInt(a.words[0], 10, 64))), "Claim")
	}),
	"damage": quietly(func(a arguments) { a.damage(a.rest) }),
	"wipe": quietly(func(a arguments) {
		a.ok(a.index.Reset(a.Context(), 0, must(strconv.ParseInt(cmp.Or(a.rest, "0"), 10, 64))))
	}),
	"forget": quietly(func(a arguments) {
		c := a.get(a.id(a.words[0]))
		must(a.index.Cancel(a.Context(), []schedule.Ref{{ID: c.ID, Lane: c.LaneID}}))
	}),

	"moved": quietly(func(a arguments) {
		synctest.Wait()
		c := a.get(a.id(a.words[0]))
		must(a.index.Move(a.Context(), []schedule.Movement{{Ref: schedule.Ref{ID: c.ID, Lane: c.LaneID},
			Due: c.DueAt + must(time.ParseDuration(a.words[1])).Milliseconds()}}))
	}),
	"seen": quietly(func(a arguments) {
		a.ok(a.db.ReportDispatcher(a.Context(),
			store.Dispatcher{Name: a.words[0], Workers: 8, StartedAt: soon(0), SeenAt: soon(0)}))
	}),
	// purged removes rows of processes as the purge does days later.
	"purged": quietly(func(a arguments) {
		must(a.db.PurgeDispatchers(a.Context(), soon(72*time.Hour), 100))
	}),
	// stamped claims callbacks as a process does that dies then.
	"stamped": quietly(func(a arguments) {
		st := store.Stamp{Token: a.words[0], Now: a.engine.Now(), Margin: 15_000}
		for _, id := range a.known(a.words[1:]...) {
			st.Claims = append(st.Claims, store.StampClaim{ID: id})
		}
		stamped, _, err := a.db.Stamp(a.Context(), st)
		a.ok(err)
		a.is("stamped", len(stamped), len(st.Claims))
	}),

	"accept": arguments.accepts,
	"event":  arguments.events,
	"planned": func(a arguments) string {
		return fmt.Sprint(must(a.db.EventPlanned(a.Context(), project, "events", a.words[0])))
	},
	"poll": arguments.polls,
	"cancel": quietly(func(a arguments) {
		for _, id := range a.known(a.words...) {
			a.fixture.cancel(id)
		}
	}),
	"retry": func(a arguments) string {
		_, err := a.engine.Retry(a.Context(), project, a.id(a.words[0]),
			control.RetryRequest{URL: a.named["url"], Ladder: store.Ladder(a.named["ladder"])}, operator)
		return a.refused(err)
	},
	"reschedule": quietly(func(a arguments) {
		delay := must(time.ParseDuration(a.words[1]))
		must(a.engine.Reschedule(a.Context(), project, a.id(a.words[0]), nil, &delay, operator))
		synctest.Wait()
	}),
	"edit": func(a arguments) string {
		_, err := a.engine.Edit(a.Context(), project, a.id(a.words[0]), control.EditRequest{
			URL: a.text("url"), Headers: a.headers(), Choice: accept.Choice{PolicyName: a.named["policy"]},
		}, operator)
		return a.refused(err)
	},
	"resolve": func(a arguments) string {
		got, err := a.engine.ResolvePoll(a.Context(), project, a.id(a.words[0]),
			control.ResolveRequest{Data: []byte(a.named["data"])}, operator)
		return string(got.Result) + a.refused(err)
	},
	"pause":   quietly(arguments.pauses),
	"redrive": arguments.redrives,
	"become": quietly(func(a arguments) {
		for _, name := range a.names(a.words[1:]...) {
			r := a.thing(name).(store.Redrive)
			must(a.engine.SetRedrive(a.Context(), r.Project, r.ID, store.RedriveState(a.words[0]), operator))
		}
	}),
	"limit": quietly(func(a arguments) { a.setLane(a.named["lane"], must(strconv.Atoi(a.words[0]))) }),
	"quota": func(a arguments) string {
		return a.refused(a.patchProject(openQuota("", must(strconv.ParseInt(a.words[0], 10, 64)))))
	},
	"project": quietly(func(a arguments) {
		a.createProject(openQuota(a.words[0], int64(a.number("quota"))))
	}),
	"endpoints": quietly(func(a arguments) {
		name, n, _ := strings.Cut(a.words[0], "*")
		changes := make([]control.EndpointChange, must(strconv.Atoi(n)))
		for i := range changes {
			changes[i] = control.EndpointChange{ExternalID: new(fmt.Sprint(name, i+1)),
				URL: new("https://shop.example/h")}
		}
		must(a.engine.PutEndpoints(a.Context(), project, changes, operator))
	}),
	"endpoint": func(a arguments) string {
		ch := a.endpointChange()
		if ch.URL == nil {
			ch.URL = new("https://shop.example/hooks")
		}
		r, err := a.engine.CreateEndpoint(a.Context(), project, ch, operator)
		if err == nil {
			a.call(a.words[0], r.Endpoint.ID, func(id string) any {
				return must(a.db.Endpoint(a.Context(), project, id))
			})
		}
		return a.refused(err)
	},
	"patch": func(a arguments) string {
		_, err := a.engine.PatchEndpoint(a.Context(), project, a.id(a.words[0]), a.endpointChange(), operator)
		return a.refused(err)
	},
	"delete": quietly(func(a arguments) {
		a.ok(a.engine.DeleteEndpoint(a.Context(), project, a.id(a.words[0]), operator))
	}),
	"failed": quietly(func(a arguments) {
		since := a.engine.Now() - must(time.ParseDuration(a.words[1])).Milliseconds()
		failed := store.EndpointHealth{ID: a.id(a.words[0]), FailedAt: since, FailedFirst: since}
		a.ok(a.db.ReportHealth(a.Context(), []store.EndpointHealth{failed}, since))
	}),
	"schedule": func(a arguments) string {
		s, err := a.engine.CreateSchedule(a.Context(), project, a.scheduleChange(), operator)
		if err == nil {
			a.call(a.words[0], s.ID, func(id string) any {
				return must(a.db.Schedule(a.Context(), project, id))
			})
		}
		return a.refused(err)
	},
	"set": func(a arguments) string {
		_, err := a.engine.PatchSchedule(a.Context(), project, a.id(a.words[0]), a.scheduleChange(), operator)
		return a.refused(err)
	},
	"unschedule": quietly(func(a arguments) {
		a.ok(a.engine.DeleteSchedule(a.Context(), project, a.id(a.words[0]), operator))
	}),
	"run": func(a arguments) string {
		c, err := a.engine.RunSchedule(a.Context(), project, a.id(a.words[0]), operator)
		if err == nil && len(a.words) > 1 {
			a.callback(a.words[1], c.ID)
		}
		return a.refused(err)
	},
	"rebuilding": quietly(func(a arguments) {
		ended := make(chan error, 1)
		go func() {
			_, err := a.engine.Rebuild(context.WithoutCancel(a.Context()), false, operator)
			ended <- err
		}()
		a.Cleanup(func() { a.ok(<-ended) })
	}),
	"rebuild": func(a arguments) string {
		r, err := a.engine.Rebuild(a.Context(), a.has("dry"), operator)
		if err != nil {
			return a.refused(err)
		}
		return fmt.Sprintf("%d open rows", r.Open)
	},

	"ends": func(a arguments) string {
		ids, within := a.known(a.words...), cmp.Or(a.duration("within"), time.Hour)
		become := make([]string, len(ids))
		for i, id := range ids {
			become[i] = became(a.await(id, within))
		}
		return a.same(ids, become)
	},
	"states": func(a arguments) string {
		synctest.Wait()
		ids := a.known(a.words...)
		become := make([]string, len(ids))
		for i, id := range ids {
			become[i] = became(a.get(id))
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
	"apart": quietly(func(a arguments) {
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
	"quiet": quietly(func(a arguments) {
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
	// counted says what SQL has counted in the spans of every length, and in the hours of all lanes.
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
	"since": quietly(func(a arguments) {
		a.within(a.rest, time.UnixMilli(a.fixture.first(a.id(a.words[0])).Since).Sub(a.began).Seconds(),
			a.words[1])
	}),
	"took": quietly(func(a arguments) {
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
	"each": quietly(func(a arguments) {
		for _, name := range a.names(a.words[1]) {
			a.within(name, float64(a.whole(name, a.words[0])), a.words[2])
		}
	}),
	// punctual holds each attempt to its due time.
	"punctual": quietly(func(a arguments) {
		last := len(a.words) - 1
		for _, id := range a.known(a.words[:last]...) {
			for _, row := range a.attempts(id) {
				late := time.Duration(row.StartedAt-row.DueAt) * time.Millisecond
				a.within(a.rest, late.Seconds(), a.words[last])
			}
		}
	}),
	"committed": quietly(func(a arguments) {
		for _, id := range a.known(a.words[0]) {
			late := a.get(id).FinishedAt - a.attempts(id)[0].EndedAt
			a.within(a.rest, (time.Duration(late) * time.Millisecond).Seconds(), a.words[1])
		}
	}),
	"order": quietly(func(a arguments) {
		var came []string
		for _, h := range a.fixture.hits("") {
			came = append(came, h.id)
		}
		a.is("order", came, a.known(a.words...))
	}),
	"once": quietly(func(a arguments) {
		sent := map[string]int{}
		for _, h := range a.fixture.hits("") {
			sent[h.id]++
			a.is("requests of one callback", sent[h.id], 1)
		}
	}),
	"same":   quietly(func(a arguments) { a.is(a.words[0], a.id(a.words[0]), a.id(a.words[1])) }),
	"loaded": quietly(func(a arguments) { a.awaitMark(must(time.ParseDuration(a.words[0]))) }),
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
	"lease": quietly(func(a arguments) {
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
	// asked are the times at which the upstream was asked for a poll, since its first.
	"asked": func(a arguments) string {
		hits := slices.DeleteFunc(a.fixture.hits(""), func(h hit) bool { return h.id != a.id(a.words[0]) })
		var at []string
		for _, h := range hits {
			at = append(at, h.at.Sub(hits[0].at).Round(10*time.Millisecond).String())
		}
		return strings.Join(at, " ")
	},
	"name": quietly(func(a arguments) {
		a.callback(a.words[0], field(a.thing(a.words[1]), a.words[2]).(string))
	}),
	"alerts": func(a arguments) string {
		var list strings.Builder
		for _, alert := range a.fixture.alerts() {
			fmt.Fprintln(&list, alert.Type, alert.Data.ID, alert.Data.Reason, alert.Data.Topic)
		}
		return list.String()
	},
	// deaths holds the events of deaths to be of each of these callbacks, once.
	"deaths": quietly(func(a arguments) {
		found := map[string]int{}
		for _, alert := range a.fixture.alerts() {
			a.is("told", []string{alert.Type, alert.Data.Reason, alert.Data.Topic},
				[]string{report.TopicDead, "exhausted", "payment"})
			found[bare(alert.Data.ID)]++
		}
		ids := a.known(a.words...)
		for _, id := range ids {
			a.is("times that a death was told", found[id], 1)
		}
		a.is("told in all", len(found), len(ids))
	}),
	"audited": quietly(func(a arguments) {
		for i := range must(strconv.Atoi(a.words[0])) {
			a.setLane("lane-"+a.words[0], i+1)
		}
		a.awaitChain()
	}),
	"chained": quietly(func(a arguments) { a.awaitChain() }),
	"keep":    quietly(func(a arguments) { a.link = a.awaitChain() }),
	"audit":   arguments.verifyAudit,
	"told": func(a arguments) string {
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
