package storetest

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// operations are the calls of transcripts that are not simply a method of the store.
var operations = map[string]func(s *script, words []string) []any{
	// wait DURATION moves the clock, also back.
	"wait": func(s *script, words []string) []any {
		s.now += must(time.ParseDuration(words[0])).Milliseconds()
		return nil
	},
	// accept NAME… WORD… [; NAME… WORD…]… accepts callbacks in one call. The WORDs are the fields and options
	// of all names before the next semicolon.
	"accept": func(s *script, words []string) []any {
		names, drafts := s.draftsOf(words)
		accepted := must(s.Accept(s.ctx(), drafts))
		s.require(len(accepted) == len(drafts), "%d results of %d drafts", len(accepted), len(drafts))
		return s.accepted(names, drafts, accepted)
	},
	// Replays NAME… WORD… calls Replays with the drafts that accept would accept.
	"Replays": func(s *script, words []string) []any {
		names, drafts := s.draftsOf(words)
		return s.accepted(names, drafts, must(s.Replays(s.ctx(), drafts)))
	},
	// many N FIELD… accepts N callbacks with the same fields and prints nothing.
	"many": func(s *script, words []string) []any {
		names := slices.Repeat([]string{"each"}, must(strconv.Atoi(words[0])))
		_, drafts := s.draftsOf(append(names, words[1:]...))
		for _, a := range s.acceptAll(drafts...) {
			s.ok(a.Err)
		}
		return nil
	},
	// times N METHOD WORD… calls a method of the store N times and prints only errors. # in a WORD is the
	// number of the call.
	"times": func(s *script, words []string) (failed []any) {
		for i := range must(strconv.Atoi(words[0])) {
			for _, answer := range s.call("", words[1], numbered(words[2:], i)) {
				if _, ok := answer.(error); ok {
					failed = append(failed, answer)
				}
			}
		}
		return failed
	},
	// crowd N METHOD WORD… is times with concurrent calls. It prints the number of calls with each result.
	"crowd": func(s *script, words []string) (answers []any) {
		n := must(strconv.Atoi(words[0]))
		calls := make([]func() []reflect.Value, n)
		for i := range calls {
			m, args := s.arguments(words[1], numbered(words[2:], i))
			calls[i] = func() []reflect.Value { return m.Call(args) }
		}
		counts := make(map[string]int)
		for _, results := range crowd(s.fixture, n, func(i int) []reflect.Value { return calls[i]() }) {
			answer := "done"
			err, _ := results[len(results)-1].Interface().(error)
			if accepted, ok := results[0].Interface().([]store.Accepted); ok && err == nil {
				err = accepted[0].Err
			}
			if err != nil {
				answer = sentinel(err)
			} else if results[0].Kind() == reflect.Bool {
				answer = fmt.Sprint(results[0])
			}
			counts[answer]++
		}
		for _, answer := range slices.Sorted(maps.Keys(counts)) {
			answers = append(answers, fmt.Sprintf("%s: %d of %d", answer, counts[answer], n))
		}
		return answers
	},
	// ends METHOD WORD… prints the number of rows that a method returns, the first row and the last.
	"ends": func(s *script, words []string) []any {
		rows := reflect.ValueOf(s.call("", words[0], words[1:])[0])
		return []any{fmt.Sprint(rows.Len(), " rows"), rows.Index(0).Interface(),
			rows.Index(rows.Len() - 1).Interface()}
	},
	// claim NAME… [FIELD…] stamps callbacks. FIELDs are those of the stamp.
	"claim": stamp,
	// lose NAME… [FIELD…] stamps callbacks and moves the clock until their claims run out.
	"lose": func(s *script, words []string) []any {
		answers := stamp(s, words)
		s.now += claimLasts
		clear(s.waiting)
		return answers
	},
	// These commit a result, each with NAME… [FIELD…] (see result).
	"fail":    result((*fixture).failed),
	"succeed": result((*fixture).succeeded),
	"die":     result((*fixture).died),
	"back":    result(func(f *fixture, w *store.Stamped) store.Result { return putBack(w, f.now) }),
	"pollsuccess": result(func(f *fixture, w *store.Stamped) store.Result {
		return f.answered(w, store.Succeeded, store.PollSucceeded, 200, `{"paid":true}`)
	}),
	"pollfailure": result(func(f *fixture, w *store.Stamped) store.Result {
		return f.answered(w, store.Succeeded, store.PollFailed, 404, "gone")
	}),
	// again NAME… commits the last result of each callback again.
	"again": forEach(func(s *script, name string) any {
		return answerOf{name, s.commit(s.results[name])}
	}),
	"get":      forEach(func(s *script, name string) any { return s.get(s.ids[name]) }),
	"attempts": forEach(func(s *script, name string) any { return s.attempts(s.ids[name]) }),
	// list FIELD… prints the names of the callbacks that a filter picks.
	"list": func(s *script, words []string) []any {
		f := store.Filter{Now: s.now, Limit: 500}
		s.assign(reflect.ValueOf(&f).Elem(), words)
		return []any{joined(s, ids(must(s.List(s.ctx(), project, f)).Callbacks...))}
	},
	// audit N prints the N newest audit entries.
	"audit": func(s *script, words []string) (answers []any) {
		for _, e := range s.newest(must(strconv.Atoi(words[0]))) {
			by := store.Actor{Name: e.Actor, Address: e.Address, Reason: e.Reason}
			s.check(by == actor, "audit: %+v", e)
			text := fmt.Sprintln(e.Action, s.nameIDs(e.Object), s.nameIDs(e.Before), s.nameIDs(e.After))
			answers = append(answers, strings.TrimSpace(text))
		}
		return answers
	},
	// AddActivity FIELD… [; FIELD…]… adds rows. Each count of a row has another value, and n=N adds N to all.
	"AddActivity": func(s *script, words []string) []any {
		var rows []store.Activity
		for part := range strings.SplitSeq(strings.Join(words, " "), ";") {
			row := struct {
				N int64
				store.Activity
			}{Activity: store.Activity{Project: project}}
			s.assign(reflect.ValueOf(&row).Elem(), strings.Fields(part))
			rows = append(rows, activity(row.Activity, row.N))
		}
		s.ok(s.AddActivity(s.ctx(), rows))
		return nil
	},
	// entries FIELD… prints the audit entries that a filter picks. They must be the same with all page sizes.
	"entries": func(s *script, words []string) (answers []any) {
		var f store.AuditFilter
		s.assign(reflect.ValueOf(&f).Elem(), words)
		for _, f.Limit = range []int{0, 1, 3, 500} {
			entries := each(s.audit(f), func(e store.AuditEntry) any {
				return strings.Join([]string{e.Action, s.nameIDs(e.Object), "by", e.Actor,
					s.number(e.At, false)}, " ")
			})
			s.require(f.Limit == 0 || slices.Equal(answers, entries), "in pages of %d: %v", f.Limit, entries)
			answers = entries
		}
		return append(answers, "in all "+strconv.Itoa(len(answers)))
	},
	// walk METHOD WORD… prints the open rows of a walk. They must be the same with all page sizes.
	"walk": func(s *script, words []string) []any {
		var all []string
		for i, limit := range []int{100, 1, 2, 3} {
			var found []string
			after := append(slices.Clone(words[1:]), fmt.Sprint("limit=", limit))
			for last := limit; last == limit; {
				page := s.call("", words[0], after)[0].([]store.OpenRow)
				found = append(found, rowIDs(page)...)
				last = len(page)
				if last > 0 {
					r := page[last-1]
					after = append(after, fmt.Sprint("dueat=", r.DueAt), "id="+r.ID)
				}
				s.require(last <= limit, "a page has %d rows, the limit is %d", last, limit)
			}
			s.require(i == 0 || slices.Equal(all, found), "in pages of %d: %v", limit, found)
			all = found
		}
		return []any{joined(s, all)}
	},
	// overdue counts overdue callbacks by lane, and prints those whose lock may be held.
	"overdue": (*script).overdue,
	// plan NAME KEY/FINGERPRINT [FIELD…] ENDPOINT… plans an event. Its callbacks get the names NAME1, NAME2
	// and so on.
	"plan": func(s *script, words []string) []any {
		endpoints, fields := cut(words[2:])
		key, fingerprint, _ := strings.Cut(words[1], "/")
		p := s.eventPlan(key, fingerprint, endpoints...)
		s.assign(reflect.ValueOf(&p).Elem(), fields)
		s.name(words[0], p.ID)
		for i, target := range p.Targets {
			s.name(fmt.Sprint(words[0], i+1), target.CallbackID)
		}
		plan, known, err := s.PlanEvent(s.ctx(), p)
		if err != nil {
			return []any{err}
		}
		text := fmt.Sprintf("%s, known: %t", s.nameIDs(plan.ID), known)
		for _, target := range plan.Targets {
			text += fmt.Sprintf(", %s for %s, accepted: %t",
				s.nameIDs(target.CallbackID), target.EndpointID, target.Accepted)
		}
		return []any{text}
	},
	// read SCHEDULE… plans the next run of each schedule, for a later run.
	"read": func(s *script, words []string) []any {
		for _, name := range words {
			s.planned[name] = s.plannedRun(s.getSchedule(s.ids[name]))
		}
		return nil
	},
	// run SCHEDULE[:FIELD]… [FIELD…] runs schedules in one call. It uses the run that read has planned, or
	// plans one now. A schedule that is listed twice also runs at its next due time.
	"run": func(s *script, words []string) (answers []any) {
		var runs []store.PlannedRun
		var fields []string
		for _, word := range words {
			if name, _, _ := strings.Cut(word, ":"); s.ids[name] == "" {
				fields = append(fields, word)
			}
		}
		before := make(map[string]store.PlannedRun)
		for _, word := range words {
			name, own, has := strings.Cut(word, ":")
			if s.ids[name] == "" {
				continue
			}
			run, read := s.planned[name]
			if earlier, repeated := before[name]; repeated {
				earlier.Schedule.NextAt = earlier.Next
				run = s.plannedRun(earlier.Schedule)
			} else {
				delete(s.planned, name)
				if !read {
					run = s.plannedRun(s.getSchedule(s.ids[name]))
				}
			}
			run.Now = s.now
			s.assign(reflect.ValueOf(&run).Elem(), fields)
			if has {
				s.assign(reflect.ValueOf(&run).Elem(), []string{own})
			}
			before[name] = run
			if run.Draft != nil {
				s.runNumber++
				s.name(fmt.Sprint(name, "-", s.runNumber), run.Draft.Callback.ID)
				s.printed["Callback "+run.Draft.Callback.ID] = s.flat(run.Draft.Callback)
			}
			runs = append(runs, run)
		}
		for i, result := range s.runAll(runs...) {
			answers = append(answers, answerOf{s.names[runs[i].Schedule.ID], result})
		}
		return answers
	},
	// health ENDPOINT [FIELD…] reports the endpoint's health and prints the endpoint.
	"health": func(s *script, words []string) []any {
		h := store.EndpointHealth{ID: s.ids[words[0]]}
		s.assign(reflect.ValueOf(&h).Elem(), words[1:])
		s.ok(s.ReportHealth(s.ctx(), []store.EndpointHealth{{ID: s.id(), FailedAt: s.now}, h}, s.now))
		return []any{must(s.Endpoint(s.ctx(), project, h.ID))}
	},
	// upsert NAME[:FIELD,…]… upserts endpoints with these external ids in one call.
	"upsert": func(s *script, words []string) (answers []any) {
		wants := each(words, func(word string) store.EndpointUpsert {
			name, fields, _ := strings.Cut(word, ":")
			return store.EndpointUpsert{ExternalID: name, Change: func(e *store.Endpoint) error {
				if fields == "refuse" {
					return errRefused
				}
				s.assign(reflect.ValueOf(e).Elem(), parts(fields))
				return nil
			}}
		})
		for i, done := range s.upsertAll(wants...) {
			if done.Created {
				s.name(wants[i].ExternalID, done.Endpoint.ID)
			}
			answers = append(answers, answerOf{wants[i].ExternalID, done})
		}
		return answers
	},
	// spawned prints the callbacks that the store created since the last spawned, such as results of polls.
	"spawned": func(s *script, _ []string) []any { return []any{s.spawnedNow()} },
	// reported POLL… prints the result callback of each poll and its body. Its name becomes POLL-result.
	"reported": func(s *script, words []string) (answers []any) {
		for _, name := range words {
			d := must(s.PollDetail(s.ctx(), project, s.ids[name]))
			if d.ResultID == "" {
				answers = append(answers, name+": nothing")
				continue
			}
			s.name(name+"-result", d.ResultID)
			s.printed["Callback "+d.ResultID] = s.flat(d.OnResult.Callback)
			body := must(s.Payload(s.ctx(), project, d.ResultID)).Body
			answers = append(answers, s.get(d.ResultID), string(d.Outcome)+" "+string(body))
		}
		return answers
	},
	// counters checks that the counters equal a count of the rows.
	"counters": func(s *script, _ []string) []any {
		s.checkCounters()
		return nil
	},
	// feed prints the outcomes since the last feed. feed PROJECT prints all outcomes of another project.
	"feed": func(s *script, words []string) []any {
		s.fold()
		if len(words) > 0 {
			events, _ := must2(s.Outcomes(s.ctx(), words[0], store.OutcomeCursor{}, 10))
			return []any{events}
		}
		events, next := s.outcomes(s.read, 3)
		s.require(len(events) == 0 || before(s.read, next), "%+v comes after %+v", next, s.read)
		s.read = next
		return []any{events}
	},
}

// forEach returns an operation that prints one result for each name.
func forEach(answer func(s *script, name string) any) func(*script, []string) []any {
	return func(s *script, names []string) []any {
		return each(names, func(name string) any { return answer(s, name) })
	}
}

// stamp stamps rows. It returns their results in the order of the names.
func stamp(s *script, words []string) (answers []any) {
	names, fields := cut(words)
	var st struct {
		Diverts int // of each claim
		store.Stamp
	}
	s.assign(reflect.ValueOf(&st).Elem(), fields)
	st.Claims = each(names, func(name string) store.StampClaim {
		return store.StampClaim{ID: s.named("id", name), Diverts: st.Diverts}
	})
	stamped, refused := s.stampAs(st.Stamp)
	byID := make(map[string]any)
	for _, w := range stamped {
		byID[w.ID] = *w
		name := s.names[w.ID]
		s.stamps[name], s.waiting[name] = append(s.stamps[name], w), true
	}
	for _, r := range refused {
		byID[r.ID] = r
	}
	s.require(len(byID) == len(names), "%d results of %d claims", len(byID), len(names))
	for _, c := range st.Claims {
		answers = append(answers, byID[c.ID])
	}
	return answers
}

// result returns the operation NAME… [FIELD…], which commits a result of each callback. It claims callbacks
// without a waiting claim first. claim=N commits the result of the N-th claim.
func result(of func(*fixture, *store.Stamped) store.Result) func(*script, []string) []any {
	return func(s *script, words []string) (answers []any) {
		names, fields := cut(words)
		number := 0 // 0: the last claim
		fields = slices.DeleteFunc(fields, func(field string) bool {
			n, numbered := strings.CutPrefix(field, "claim=")
			if numbered {
				number = must(strconv.Atoi(n))
			}
			return numbered
		})
		for _, name := range names {
			if !s.waiting[name] && number == 0 {
				s.stamps[name] = append(s.stamps[name], s.claim(s.ids[name]))
			}
			claims := s.stamps[name]
			claim := claims[cmp.Or(number, len(claims))-1]
			r := of(s.fixture, claim)
			if r.Attempt != nil {
				r.Attempt = new(*r.Attempt)
			}
			s.assign(reflect.ValueOf(&r).Elem(), fields)
			if r.State.Terminal() {
				r.DueAt = 0
			}
			s.results[name] = r
			if claim == claims[len(claims)-1] {
				s.waiting[name] = false
			}
			answers = append(answers, answerOf{name, s.commit(r)})
		}
		return answers
	}
}

// numbered replaces # in words with the number of a call.
func numbered(words []string, n int) []string {
	return each(words, func(word string) string { return strings.ReplaceAll(word, "#", strconv.Itoa(n)) })
}

// An answerOf is a result with the name under which it is printed.
type answerOf struct {
	name  string
	value any
}

// joined returns the names of ids, separated by spaces.
func joined(s *script, ids []string) string {
	return cmp.Or(strings.Join(each(ids, s.nameIDs), " "), "none")
}

// cut separates names from fields. A field has a value, or begins with a dot.
func cut(words []string) (names, fields []string) {
	for _, word := range words {
		if strings.ContainsAny(word, "=.") {
			fields = append(fields, strings.TrimPrefix(word, "."))
		} else {
			names = append(names, word)
		}
	}
	return names, fields
}

// draftsOf returns the drafts of an accept, and their names.
func (s *script) draftsOf(words []string) (names []string, drafts []store.Draft) {
	for len(words) > 0 {
		n := slices.Index(words, ";")
		part := words
		if n >= 0 {
			part, words = words[:n], words[n+1:]
		} else {
			words = nil
		}
		some, fields := cut(part)
		names = append(names, some...)
		for _, name := range some {
			d := s.draft()
			for _, field := range fields {
				if field == "poll" {
					field += "=" + name
				}
				if o := s.option(field); o != nil {
					o(&d)
				} else {
					s.assign(reflect.ValueOf(&d).Elem(), []string{field})
				}
			}
			drafts = append(drafts, d)
		}
	}
	return names, drafts
}

// option returns the fixture's option for a word, or nil if the word is a field.
func (s *script) option(word string) option {
	name, value, _ := strings.Cut(word, "=")
	switch name {
	case "poll":
		return polling(value)
	case "to":
		return to(must(s.AnyEndpoint(s.ctx(), project, s.ids[value])))
	case "key":
		key, fingerprint, _ := strings.Cut(value, "/")
		return keyed(key, fingerprint)
	}
	return nil
}

// accepted names the callbacks of drafts, and returns the results to print.
func (s *script) accepted(names []string, drafts []store.Draft, accepted []store.Accepted) (answers []any) {
	for i, a := range accepted {
		switch {
		case a.Err != nil:
			answers = append(answers, fmt.Sprintf("%s: error: %s", names[i], sentinel(a.Err)))
			continue
		case !a.Replayed:
			s.name(names[i], a.Callback.ID)
			s.printed["Callback "+a.Callback.ID] = s.flat(drafts[i].Callback)
			if string(drafts[i].Body) == paid {
				s.printed["Stamped "+a.Callback.ID] = map[string]string{"body": paid}
			}
		default:
			names[i] += " is " + s.names[a.Callback.ID]
		}
		answers = append(answers, answerOf{names[i], a})
	}
	return answers
}

// activity sets all counts of a row to different values, each increased by n.
func activity(a store.Activity, n int64) store.Activity {
	a.Accepted, a.Succeeded, a.Failed, a.Unknown, a.Dead = n+1, n+2, n+3, n+4, n+5
	for i := range a.Lateness {
		a.Lateness[i], a.Took[i] = n+6+int64(i), n+100+int64(i)
	}
	return a
}
